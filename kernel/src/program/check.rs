//! Checking one program: what its file says, against the files, tools and programs that there are.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use dormouse_proto::program::{
    At, DemoSection, Link, ModelEntry, ModelSection, PreloadSection, ProgramFile, PromptSection,
    Provider, RelativeTo, Remark, Remarks, ToolEntry, advice, shorten,
};

use super::compile::{KnownProviders, Reading, Registered};
use super::library::{Checked, Demo, LinkTo, ModelChoice};
use super::{command, descriptors, path, servers, tools};

/// Checks what could be read of a program file. The result is only good if `remarks` holds no error
/// afterwards.
pub(super) fn check(
    key: &str,
    file: ProgramFile,
    reading: &mut Reading<'_>,
    registered: Registered<'_>,
    remarks: &mut Remarks,
) -> Checked {
    let name = name(key, &file.demo, &file.model);
    check_providers(&file.model, registered.providers, remarks);
    let models = models(key, file.model, reading, remarks);
    let (system, user) = prompt(key, file.prompt, reading, remarks);
    let commands = command::check(
        &file.commands,
        file.limits.commands,
        registered.tools,
        remarks,
    );
    let choices = tools::check(&file.tools, &commands, registered.tools, remarks);
    let servers = servers::check(
        key,
        (file.mcp, file.served),
        file.limits.commands,
        &choices,
        reading,
        remarks,
    );
    let preloads = preloads(key, &file.preload, reading, remarks);
    warn_of_spawn_without_programs(&file.tools, &file.linked, remarks);
    let links = links(key, file.linked, reading, remarks);
    let (descriptors, options) = descriptors::check(
        file.file_descriptor,
        &file.tools,
        &choices,
        &servers,
        remarks,
    );
    Checked {
        key: key.to_owned(),
        name,
        models,
        system,
        user,
        parameters: Arc::new(file.parameters),
        descriptors,
        options,
        tools: choices,
        commands,
        servers,
        preloads,
        environment: file.environment,
        links,
        limits: file.limits.into(),
        common: OnceLock::new(),
        budget: file.budget,
        prices: file
            .prices
            .into_iter()
            .map(|(model, price)| (model.value, price))
            .collect(),
        demo: Demo {
            prompts: file.demo.prompts,
            pause_between_prompts: file.demo.pause_between_prompts.unwrap_or(true),
        },
    }
}

fn name(key: &str, demo: &DemoSection, model: &ModelSection) -> String {
    let displayed = demo
        .display_name
        .as_ref()
        .or(model.display_name.as_ref())
        .filter(|name| !name.trim().is_empty());
    let file = key.rsplit('/').next().unwrap_or(key);
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    displayed.map_or(stem, String::as_str).to_owned()
}

/// The model and those that follow it, each with the number of failures after which the next is
/// asked.
fn models(
    key: &str,
    section: ModelSection,
    reading: &mut Reading<'_>,
    remarks: &mut Remarks,
) -> Vec<ModelChoice> {
    let ModelSection {
        model,
        max_iterations,
        fallbacks,
        ..
    } = section;
    let failures: Vec<_> = fallbacks
        .iter()
        .map(|fallback| fallback.after)
        .chain([None])
        .collect();
    let entries = [model]
        .into_iter()
        .chain(fallbacks.into_iter().map(|fallback| fallback.model));
    let mut choice = |(entry, failures): (ModelEntry, Option<u32>)| {
        let ModelEntry {
            name,
            provider,
            provider_span: _,
            script,
            base_url,
            api_key_env,
            automatic_caching,
        } = entry;
        let script = script.and_then(|written| {
            let read = reading.named_text(path::beside(key, &written.value), &written);
            read.map_err(|remark| remarks.push(remark))
                .ok()
                .map(|(name, _)| name)
        });
        ModelChoice {
            name,
            provider,
            max_iterations,
            script,
            base_url,
            api_key_env,
            automatic_caching,
            failures,
        }
    };
    entries.zip(failures).map(&mut choice).collect()
}

fn prompt(
    key: &str,
    section: PromptSection,
    reading: &mut Reading<'_>,
    remarks: &mut Remarks,
) -> (String, Option<String>) {
    let mut system = section.system.unwrap_or_default();
    if let Some(written) = section.system_prompt_file {
        match reading.named_text(path::beside(key, &written.value), &written) {
            Ok((_, text)) if system.is_empty() => system = text,
            Ok((_, text)) => system = format!("{system}\n\n{text}"),
            Err(remark) => remarks.push(remark),
        }
    }
    (system, section.user)
}

fn preloads(
    key: &str,
    section: &PreloadSection,
    reading: &mut Reading<'_>,
    remarks: &mut Remarks,
) -> Vec<(String, Bytes)> {
    let mut preloads = Vec::new();
    for written in &section.files {
        let name = match section.relative_to {
            RelativeTo::Program => path::beside(key, &written.value),
            RelativeTo::WorkingDirectory => path::in_working_directory(&written.value),
        };
        match reading.named_file(name, written) {
            Ok((_, bytes)) => preloads.push((written.value.clone(), bytes)),
            Err(remark) => remarks.push(remark),
        }
    }
    preloads
}

fn links(
    key: &str,
    written: Vec<Link>,
    reading: &mut Reading<'_>,
    remarks: &mut Remarks,
) -> Vec<LinkTo> {
    let mut links = Vec::new();
    for Link {
        name: At { value: name, span },
        path: file,
        description,
    } in written
    {
        if !tools::is_tool_name(&name) {
            let remark = Remark::error(
                span,
                "the name of a linked program is not valid",
                "not such a name",
            );
            remarks.push(remark.help(tools::VALID_NAME));
        }
        if file.value.is_empty() {
            continue;
        }
        match reading.named_program(path::beside(key, &file.value), &file) {
            Ok(position) => links.push(LinkTo {
                name,
                description,
                position,
            }),
            Err(remark) => remarks.push(remark),
        }
    }
    links
}

/// Remarks on every provider that neither every kernel knows nor the embedder registered.
fn check_providers(section: &ModelSection, registered: KnownProviders<'_>, remarks: &mut Remarks) {
    let KnownProviders::Only(registered) = registered else {
        return;
    };
    let fallbacks = section.fallbacks.iter().map(|fallback| &fallback.model);
    for model in std::iter::once(&section.model).chain(fallbacks) {
        let Provider::Custom(word) = &model.provider else {
            continue;
        };
        if registered.contains(&&**word) {
            continue;
        }
        let mut valid: Vec<&str> = Provider::words().collect();
        // A known word may be registered as well, with what stands behind it.
        valid.extend(
            registered
                .iter()
                .filter(|word| !Provider::words().any(|known| known == **word)),
        );
        let message = format!("`model.provider` cannot be {:?}", shorten(word));
        let span = model.provider_span.clone();
        let remark = Remark::error(span, message, "not one of its values");
        remarks.push(remark.help(advice(word, &valid, "values")));
    }
}

fn warn_of_spawn_without_programs(tools: &[ToolEntry], links: &[Link], remarks: &mut Remarks) {
    match (
        tools.iter().find(|tool| tool.name.value == "spawn"),
        links.first(),
    ) {
        (Some(spawn), None) => {
            let message = "`spawn` is enabled, but there is no program to spawn";
            let remark = Remark::warning(spawn.span.clone(), message, "nothing to spawn");
            remarks.push(remark.help("link programs in [linked_programs]: `name = \"path.toml\"`"));
        }
        (None, Some(link)) => {
            let message = "programs are linked, but `spawn` is not enabled";
            let remark = Remark::warning(link.name.span.clone(), message, "cannot be spawned");
            remarks.push(remark.help("add \"spawn\" to [tools] enabled"));
        }
        _ => {}
    }
}
