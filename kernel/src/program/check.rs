//! Checking one program: what its file says, against the files, tools and programs that there are.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use dormouse_proto::program::{
    At, Demo, Diagnostic, Diagnostics, FallbackSection, Link, ModelSection, Named, PreloadSection,
    ProgramFile, PromptSection, Provider, RelativeTo, ToolEntry, advice, shorten,
};

use super::compile::{KnownProviders, Reading, Registered};
use super::library::{Checked, LinkTo, ModelChoice};
use super::{command, descriptors, path, prices, servers, tools};

/// Checks what could be read of a program file. The result is only good if `diagnostics` holds no error
/// afterwards.
pub(super) fn check(
    key: &str,
    file: ProgramFile,
    reading: &mut Reading<'_>,
    registered: Registered<'_>,
    diagnostics: &mut Diagnostics,
) -> Checked {
    let name = name(key, &file.demo, &file.model);
    check_providers(&file.model, registered.providers, diagnostics);
    let models = models(key, file.model, reading, diagnostics);
    let (system, user) = prompt(key, file.prompt, reading, diagnostics);
    let commands = command::check(
        file.tools.commands,
        file.limits.commands,
        registered.tools,
        diagnostics,
    );
    let choices = tools::check(
        &file.tools.enabled,
        &commands,
        registered.tools,
        diagnostics,
    );
    let servers = servers::check(
        key,
        (file.mcp, file.tools.served),
        file.limits.commands,
        &choices,
        reading,
        diagnostics,
    );
    let preloads = preloads(key, &file.preload, reading, diagnostics);
    warn_of_spawn_without_programs(&file.tools.enabled, &file.linked, diagnostics);
    let links = links(key, file.linked, reading, diagnostics);
    let descriptors = descriptors::check(
        file.file_descriptor,
        &file.tools.enabled,
        &choices,
        &servers,
        diagnostics,
    );
    Checked {
        key: key.to_owned(),
        name,
        models,
        system,
        user,
        parameters: Arc::new(file.parameters),
        descriptors,
        tools: choices,
        commands,
        servers,
        preloads,
        environment: file.environment,
        links,
        limits: file.limits,
        common: OnceLock::new(),
        budget: file.budget,
        prices: prices::by_model(file.prices),
        demo: file.demo,
    }
}

fn name(key: &str, demo: &Demo, model: &ModelSection) -> String {
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
    diagnostics: &mut Diagnostics,
) -> Vec<ModelChoice> {
    let max_iterations = section.max_iterations;
    let mut choices = vec![(section.model, None)];
    for FallbackSection { model, after } in section.fallbacks {
        let before = choices.last_mut().expect("the first model is in the list");
        before.1 = after;
        choices.push((model, None));
    }
    let mut script = |written: At<String>| {
        let read = reading.named_text(path::beside(key, &written.value), &written);
        let read = read.map_err(|diagnostic| diagnostics.push(diagnostic));
        Some(read.ok()?.0)
    };
    let choices = choices.into_iter().map(|(model, failures)| ModelChoice {
        name: model.name,
        provider: model.provider.unwrap_or_default().value,
        max_iterations,
        script: model.script.and_then(&mut script),
        base_url: model.base_url.map(|url| url.value),
        api_key_env: model.api_key_env.map(|name| name.value),
        automatic_caching: !model.disable_automatic_caching,
        failures,
    });
    choices.collect()
}

fn prompt(
    key: &str,
    section: PromptSection,
    reading: &mut Reading<'_>,
    diagnostics: &mut Diagnostics,
) -> (String, Option<String>) {
    let mut system = section.system.unwrap_or_default();
    if let Some(written) = section.system_prompt_file {
        match reading.named_text(path::beside(key, &written.value), &written) {
            Ok((_, text)) if system.is_empty() => system = text,
            Ok((_, text)) => system = format!("{system}\n\n{text}"),
            Err(diagnostic) => diagnostics.push(diagnostic),
        }
    }
    (system, section.user)
}

fn preloads(
    key: &str,
    section: &PreloadSection,
    reading: &mut Reading<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<(String, Bytes)> {
    let mut preloads = Vec::new();
    for written in &section.files {
        let name = match section.relative_to {
            RelativeTo::Program => path::beside(key, &written.value),
            RelativeTo::WorkingDirectory => path::in_working_directory(&written.value),
        };
        match reading.named_file(name, written) {
            Ok((_, bytes)) => preloads.push((written.value.clone(), bytes)),
            Err(diagnostic) => diagnostics.push(diagnostic),
        }
    }
    preloads
}

fn links(
    key: &str,
    written: Vec<Named<Link>>,
    reading: &mut Reading<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<LinkTo> {
    let mut links = Vec::new();
    for Named { name, value: link } in written {
        if !tools::is_tool_name(&name.value) {
            let message = "the name of a linked program is not valid";
            let invalid = Diagnostic::error(name.span, message, "not such a name");
            diagnostics.push(invalid.help(tools::VALID_NAME));
        }
        if link.path.value.is_empty() {
            continue;
        }
        match reading.named_program(path::beside(key, &link.path.value), &link.path) {
            Ok(position) => links.push(LinkTo {
                name: name.value,
                description: link.description,
                position,
            }),
            Err(diagnostic) => diagnostics.push(diagnostic),
        }
    }
    links
}

/// Reports every provider that neither every kernel knows nor the embedder registered.
fn check_providers(
    section: &ModelSection,
    registered: KnownProviders<'_>,
    diagnostics: &mut Diagnostics,
) {
    let KnownProviders::Only(registered) = registered else {
        return;
    };
    let fallbacks = section.fallbacks.iter().map(|fallback| &fallback.model);
    for model in std::iter::once(&section.model).chain(fallbacks) {
        let Some(At {
            value: Provider::Custom(word),
            span,
        }) = &model.provider
        else {
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
        let diagnostic = Diagnostic::error(span.clone(), message, "not one of its values");
        diagnostics.push(diagnostic.help(advice(word, &valid, "values")));
    }
}

fn warn_of_spawn_without_programs(
    tools: &[ToolEntry],
    links: &[Named<Link>],
    diagnostics: &mut Diagnostics,
) {
    match (
        tools.iter().find(|tool| tool.name.value == "spawn"),
        links.first(),
    ) {
        (Some(spawn), None) => {
            let message = "`spawn` is enabled, but there is no program to spawn";
            let diagnostic = Diagnostic::warning(spawn.span.clone(), message, "nothing to spawn");
            diagnostics.push(
                diagnostic.help("link programs in [linked_programs]: `name = \"path.toml\"`"),
            );
        }
        (None, Some(link)) => {
            let message = "programs are linked, but `spawn` is not enabled";
            let diagnostic =
                Diagnostic::warning(link.name.span.clone(), message, "cannot be spawned");
            diagnostics.push(diagnostic.help("add \"spawn\" to [tools] enabled"));
        }
        _ => {}
    }
}
