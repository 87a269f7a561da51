//! Checks one parsed program file against the files, tools and programs that it names.
//!
//! `compile.rs` calls `check` for each file. Its `Compilation` reads the files that the program
//! names and collects the errors and warnings. Most sections are checked by the module of their
//! name.

use std::sync::{Arc, OnceLock};

use dormouse_proto::program::{
    Demo, Diagnostic, Diagnostics, Link, ModelEntry, ModelSection, Named, PreloadFile,
    PreloadSection, ProgramFile, PromptSection, Provider, ToolEntry, advice, shorten,
};

use dormouse_proto::server::ServerValue;

use super::compile::{Compilation, KnownProviders};
use super::kernel_tool::KnownTools;
use super::library::{CheckedProgram, ResolvedLink};
use super::model_choice::ModelChoice;
use super::preload::{Preload, PreloadPart};
use super::server_tools::OwnTools;
use super::{
    ask, ca_file, command, descriptors, effects, prices, result, server_tools, servers,
    tool_limits, tools,
};

/// Checks the parsed part of a program file. The result is valid only if `compilation.diagnostics`
/// contains no error afterwards.
pub(super) fn check(mut file: ProgramFile, compilation: &mut Compilation<'_>) -> CheckedProgram {
    let limits = file.limits;
    let known = KnownTools {
        kernel: compilation.kernel,
        host: compilation.registered.tools,
    };
    let name = program_name(&compilation.key, &file.demo, &file.model);
    check_providers(&file.model, compilation);
    let system = read_system_prompt(&file.prompt, compilation);
    let diagnostics = &mut compilation.diagnostics;
    let declared = std::mem::take(&mut file.tools.commands);
    let commands = command::check(declared, limits.commands, known, diagnostics);
    let enabled = &file.tools.enabled;
    let tools = tools::check(enabled, &commands, known, diagnostics);
    let servers = servers::check(
        file.mcp,
        &file.tools.tool_servers,
        limits.commands,
        &tools,
        compilation,
    );
    let own = OwnTools {
        tools: &tools,
        kernel: known.kernel,
        commands: &commands,
        servers: &servers,
    };
    let diagnostics = &mut compilation.diagnostics;
    let ask_rules = ask::check(&file.tools.ask, &tools, &servers, diagnostics);
    let effects = effects::check(&file.tools.effects, &tools, &servers, diagnostics);
    let tool_limits = tool_limits::check(&file.tools.limits, &tools, &servers, diagnostics);
    let provider_tools = server_tools::check(&file.tools, &file.model, own, diagnostics);
    let models = choose_models(file.model, compilation);
    let preloads = read_preloads(&file.preload, compilation);
    warn_of_spawn_without_programs(enabled, &file.linked, &mut compilation.diagnostics);
    let links = check_links(file.linked, compilation);
    let result = result::check(&file.result, enabled, compilation);
    let diagnostics = &mut compilation.diagnostics;
    let descriptors = descriptors::check(
        file.file_descriptor,
        enabled,
        &tools,
        &servers,
        known.kernel,
        diagnostics,
    );
    CheckedProgram {
        key: compilation.key.clone(),
        name,
        models,
        system,
        user: file.prompt.user,
        parameters: Arc::new(file.parameters),
        descriptors,
        tools,
        ask_rules,
        ask_expires_ms: file.tools.ask_expires_ms,
        effects,
        tool_limits,
        provider_tools_of_other_makers: server_tools::for_other_makers(&provider_tools),
        provider_tools: Arc::new(provider_tools),
        commands,
        servers,
        preloads,
        environment: file.environment,
        links,
        result,
        limits,
        context: file.context,
        shared: OnceLock::new(),
        budget: file.budget,
        prices: prices::by_model(file.prices),
        demo: file.demo,
    }
}

fn program_name(key: &str, demo: &Demo, model: &ModelSection) -> String {
    let displayed = demo
        .display_name
        .as_ref()
        .or(model.display_name.as_ref())
        .filter(|name| !name.trim().is_empty());
    let file = key.rsplit('/').next().unwrap_or(key);
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    displayed.map_or(stem, String::as_str).to_owned()
}

/// The models in the order of fallback, each with the number of failures after which the next one
/// is called.
fn choose_models(section: ModelSection, compilation: &mut Compilation<'_>) -> Vec<ModelChoice> {
    let failures: Vec<_> = section
        .fallbacks
        .iter()
        .map(|fallback| fallback.after)
        .collect();
    let fallbacks = section.fallbacks.into_iter().map(|fallback| fallback.model);
    let models = std::iter::once(section.model).chain(fallbacks);
    let failures = failures.into_iter().chain([None]);
    let choice = |(model, failures): (ModelEntry, Option<u32>)| ModelChoice {
        name: model.name,
        provider: model.provider.unwrap_or_default().value,
        max_iterations: section.max_iterations,
        script: model
            .script
            .and_then(|path| Some(compilation.read_named_text(&path)?.0)),
        base_url: model.base_url.map(|url| url.value),
        project_id: model.project_id,
        region: model.region,
        api_key_env: model.api_key_env.map(|name| name.value),
        headers: model
            .headers
            .into_iter()
            .map(|header| (header.name.value, ServerValue::new(header.value)))
            .collect(),
        ca_file: model
            .ca_file
            .and_then(|path| ca_file::read(&path, compilation)),
        timeout_ms: model.timeout_ms,
        idle_timeout_ms: model.idle_timeout_ms,
        tokens_per_minute: model.tokens_per_minute,
        cache_ttl: (!model.disable_automatic_caching).then_some(model.cache_ttl),
        failures,
    };
    models.zip(failures).map(choice).collect()
}

fn read_system_prompt(section: &PromptSection, compilation: &mut Compilation<'_>) -> String {
    let written = section.system.clone().unwrap_or_default();
    let file = section.system_prompt_file.as_ref();
    match file.and_then(|path| compilation.read_named_text(path)) {
        Some((_, text)) if written.is_empty() => text,
        Some((_, text)) => format!("{written}\n\n{text}"),
        None => written,
    }
}

fn read_preloads(section: &PreloadSection, compilation: &mut Compilation<'_>) -> Vec<Preload> {
    let preload = |file: &PreloadFile| {
        let (_, bytes) = compilation.read_named_file(&file.path, section.relative_to)?;
        let shown = match &file.lines {
            Some(lines) => {
                compilation.check_lines_of_file(lines, &file.path.value, &bytes);
                PreloadPart::Lines(lines.value)
            }
            None if file.is_full() => PreloadPart::All,
            None => PreloadPart::WithinLimits,
        };
        let path = file.path.value.clone();
        Some(Preload { path, bytes, shown })
    };
    section.files.iter().filter_map(preload).collect()
}

fn check_links(links: Vec<Named<Link>>, compilation: &mut Compilation<'_>) -> Vec<ResolvedLink> {
    let mut resolved = Vec::new();
    for Named { name, value: link } in links {
        if !tools::is_tool_name(&name.value) {
            let message = "the name of a linked program is not valid";
            let invalid = name.error(message, "not a valid name");
            compilation
                .diagnostics
                .push(invalid.help(tools::VALID_NAME));
        }
        if link.path.value.is_empty() {
            continue;
        }
        let position = compilation.queue_named_program(&link.path);
        resolved.extend(position.map(|position| ResolvedLink {
            name: name.value,
            description: link.description,
            position,
        }));
    }
    resolved
}

/// Reports every provider that is neither built in nor registered by the embedder, and those that
/// a feature would add.
fn check_providers(section: &ModelSection, compilation: &mut Compilation<'_>) {
    let KnownProviders::Only(registered) = compilation.registered.providers else {
        return;
    };
    let mut valid: Vec<&str> = Provider::words().collect();
    // A registered provider can replace a built-in one of the same name.
    let others = registered.iter().filter(|word| !valid.contains(word));
    valid.extend(others.copied().collect::<Vec<_>>());
    let fallbacks = section.fallbacks.iter().map(|fallback| &fallback.model);
    for model in std::iter::once(&section.model).chain(fallbacks) {
        if let Some(written) = &model.provider
            && let Some(feature) = written.value.feature()
            && !registered.contains(&written.value.word())
        {
            let word = written.value.word();
            let message = format!("`model.provider` {word:?} is not part of this build");
            let missing = written.error(message, "compiled without it");
            let help = format!(
                "build it with the feature `{feature}`: `cargo install dormouse-cli --features \
                 {feature}`; a program of your own also registers the provider"
            );
            compilation.diagnostics.push(missing.help(help));
        }
        if let Some(written) = &model.provider
            && let Provider::Custom(word) = &written.value
            && !registered.contains(&&**word)
        {
            let message = format!("`model.provider` cannot be {:?}", shorten(word));
            let unknown = written.error(message, "not one of its values");
            let help = advice(word, &valid, "values");
            compilation.diagnostics.push(unknown.help(help));
        }
    }
}

fn warn_of_spawn_without_programs(
    tools: &[ToolEntry],
    links: &[Named<Link>],
    diagnostics: &mut Diagnostics,
) {
    let spawn = tools.iter().find(|tool| tool.name.value == "spawn");
    match (spawn, links.first()) {
        (Some(spawn), None) => {
            let message = "`spawn` is enabled, but there is no program to spawn";
            let warning = Diagnostic::warning(spawn.span.clone(), message, "nothing to spawn");
            let help = "link programs in [linked_programs]: `name = \"path.toml\"`";
            diagnostics.push(warning.help(help));
        }
        (None, Some(Named { name, .. })) => {
            let message = "programs are linked, but `spawn` is not enabled";
            let warning = Diagnostic::warning(name.span.clone(), message, "cannot be spawned");
            diagnostics.push(warning.help("add \"spawn\" to [tools] enabled"));
        }
        _ => {}
    }
}
