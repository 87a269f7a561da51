//! Whether the descriptor system is on, and how.

use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::program::{
    At, DescriptorSection, Diagnostic, Diagnostics, Expansion, ToolEntry, shorten,
};

use super::servers::ServerChoice;
use super::tools::ToolChoice;
use crate::syscall::{self, Group};

/// The section, with defaults where it is not written. None: the system is off.
pub(super) fn check(
    section: Option<DescriptorSection>,
    tools: &[ToolEntry],
    choices: &[ToolChoice],
    servers: &[ServerChoice],
    diagnostics: &mut Diagnostics,
) -> Option<DescriptorSection> {
    let has_tools = tools
        .iter()
        .any(|tool| syscall::is_of(Group::Descriptors, &tool.name.value));
    if let Some(section) = &section {
        check_switch(section, has_tools, diagnostics);
    }
    if !has_tools {
        return None;
    }
    let section = section.unwrap_or_default();
    warn_of_sizes(&section, diagnostics);
    if let Expansion::Tools(names) = &section.expansion {
        check_expansion(names, choices, servers, diagnostics);
    }
    Some(section)
}

/// Reports tools in whose arguments no handle is expanded: those that do not run outside of the
/// kernel. Which ones a server has is not known yet.
fn check_expansion(
    names: &[At<String>],
    choices: &[ToolChoice],
    servers: &[ServerChoice],
    diagnostics: &mut Diagnostics,
) {
    let outside = choices
        .iter()
        .map(|choice| choice.name.as_str())
        .filter(|name| syscall::tool(name).is_none());
    let outside: Vec<_> = outside.collect();
    let is_served = |name: &str| servers.iter().any(|choice| choice.may_give(name));
    let is_outside = |name: &str| outside.contains(&name) || is_served(name);
    for At { value, span } in names.iter().filter(|name| !is_outside(&name.value)) {
        let message = format!(
            "`expand_fds` names `{}`, which takes no handles",
            shorten(value)
        );
        let help = match outside.len() {
            0 => "the program has no command and no tool of the host".to_owned(),
            _ => format!("tools that take handles: {}", outside.join(", ")),
        };
        diagnostics.push(
            Diagnostic::error(span.clone(), message, "not a tool outside of the kernel").help(help),
        );
    }
}

fn check_switch(section: &DescriptorSection, has_tools: bool, diagnostics: &mut Diagnostics) {
    let list = syscall::names_of(Group::Descriptors)
        .collect::<Vec<_>>()
        .join(", ");
    let help = format!(
        "add \"read_fd\" to [tools] enabled; descriptor tools: {}",
        list
    );
    match (&section.enabled, has_tools) {
        (Some(At { value: true, span }), false) => {
            let message = "`file_descriptor.enabled` is true, but no descriptor tool is enabled";
            diagnostics.push(
                Diagnostic::error(span.clone(), message, "nothing could read a descriptor")
                    .help(help),
            );
        }
        (Some(At { value: false, .. }) | None, false) => {
            let message = "`[file_descriptor]` has no effect: no descriptor tool is enabled";
            diagnostics.push(
                Diagnostic::warning(
                    section.span.clone(),
                    message,
                    "the descriptor system is off",
                )
                .help(help),
            );
        }
        (Some(At { value: false, span }), true) => {
            let message =
                "`file_descriptor.enabled = false` has no effect: a descriptor tool is enabled";
            let diagnostic =
                Diagnostic::warning(span.clone(), message, "the descriptor system is on");
            diagnostics.push(
                diagnostic
                    .help("to switch it off, take the descriptor tools out of [tools] enabled"),
            );
        }
        (Some(At { value: true, .. }) | None, true) => {}
    }
}

fn warn_of_sizes(section: &DescriptorSection, diagnostics: &mut Diagnostics) {
    let DescriptorSettings {
        max_direct_output_chars,
        page_chars,
        max_read_chars,
        ..
    } = section.settings;
    if u64::from(page_chars) > max_direct_output_chars {
        let place = section
            .page_size_at
            .as_ref()
            .or(section.max_direct_output_at.as_ref());
        let message = format!(
            "a page of {page_chars} characters is larger than `max_direct_output_chars`, \
             {max_direct_output_chars}"
        );
        let diagnostic = Diagnostic::warning(
            place.unwrap_or(&section.span).clone(),
            message,
            "larger than direct output",
        );
        diagnostics
            .push(diagnostic.help("make max_direct_output_chars 1.5 to 2 times default_page_size"));
    }
    if u64::from(page_chars) > max_read_chars {
        let place = section
            .max_read_at
            .as_ref()
            .or(section.page_size_at.as_ref());
        let message =
            format!("a page of {page_chars} characters exceeds `max_read_chars`, {max_read_chars}");
        let diagnostic = Diagnostic::warning(
            place.unwrap_or(&section.span).clone(),
            message,
            "no whole page can be read",
        );
        diagnostics.push(diagnostic.help("make max_read_chars at least default_page_size"));
    }
}
