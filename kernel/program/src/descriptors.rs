//! Decides whether a program has descriptors, and checks their settings (`[file_descriptor]`). A
//! program has descriptors if it enables one of the kernel's tools for them, such as `read_fd`.

use dormouse_proto::descriptor::HintableTools;
use dormouse_proto::program::{
    DescriptorSection, Diagnostic, Diagnostics, Expansion, Span, ToolEntry, WithSpan, shorten,
};

use super::kernel_tool::{self, KernelTool};
use super::servers::EnabledServer;
use super::tools::EnabledTool;

/// The section with its defaults; `None` if the descriptor system is disabled.
pub(super) fn check(
    section: Option<DescriptorSection>,
    tools: &[ToolEntry],
    enabled_tools: &[EnabledTool],
    servers: &[EnabledServer],
    kernel: &[KernelTool],
    diagnostics: &mut Diagnostics,
) -> Option<DescriptorSection> {
    let has_tools = tools.iter().any(|tool| {
        let kernel_tool = kernel_tool::find(kernel, &tool.name.value);
        kernel_tool.is_some_and(|tool| tool.is_for_descriptors)
    });
    if let Some(section) = &section {
        check_enabled_key(section, has_tools, kernel, diagnostics);
    }
    if !has_tools {
        return None;
    }
    let mut section = section.unwrap_or_default();
    let names = tools.iter().map(|tool| tool.name.value.as_str());
    section.settings.hintable_tools = HintableTools::of(names);
    warn_of_sizes(&section, diagnostics);
    if let Expansion::Tools(names) = &section.expansion {
        check_expansion(names, enabled_tools, servers, kernel, diagnostics);
    }
    Some(section)
}

/// Checks the tools that `expand_fds` names. A handle, such as `{{fd:3}}`, stands for the content
/// of a descriptor in the arguments of a tool. Tools that run inside the kernel take no handles,
/// and each of them is reported. The tools of a server are not known yet, so a name that a server
/// may provide is accepted.
fn check_expansion(
    names: &[WithSpan<String>],
    enabled_tools: &[EnabledTool],
    servers: &[EnabledServer],
    kernel: &[KernelTool],
    diagnostics: &mut Diagnostics,
) {
    let outside = enabled_tools.iter().map(|tool| tool.name.as_str());
    let outside: Vec<_> = outside
        .filter(|name| kernel_tool::find(kernel, name).is_none())
        .collect();
    let help = match outside.len() {
        0 => "the program has no command and no tool of the host".to_owned(),
        _ => format!("tools that take handles: {}", outside.join(", ")),
    };
    for WithSpan { value, span } in names {
        let is_served = servers.iter().any(|server| server.may_provide(value));
        if !is_served && !outside.contains(&value.as_str()) {
            let name = shorten(value);
            let message = format!("`expand_fds` names `{name}`, which takes no handles");
            let label = "not a tool outside of the kernel";
            diagnostics.push(Diagnostic::error(span.clone(), message, label).help(&help));
        }
    }
}

/// Reports a section that contradicts the enabled tools or has no effect.
fn check_enabled_key(
    section: &DescriptorSection,
    has_tools: bool,
    kernel: &[KernelTool],
    diagnostics: &mut Diagnostics,
) {
    let list = kernel.iter().filter(|tool| tool.is_for_descriptors);
    let list: Vec<_> = list.map(|tool| tool.name).collect();
    let list = list.join(", ");
    let add = format!("add \"read_fd\" to [tools] enabled; descriptor tools: {list}");
    let found = match (&section.enabled, has_tools) {
        (Some(WithSpan { value: true, span }), false) => {
            let message = "`file_descriptor.enabled` is true, but no descriptor tool is enabled";
            let label = "nothing could read a descriptor";
            Diagnostic::error(span.clone(), message, label).help(add)
        }
        (_, false) => {
            let message = "`[file_descriptor]` has no effect: no descriptor tool is enabled";
            let label = "the descriptor system is off";
            Diagnostic::warning(section.span.clone(), message, label).help(add)
        }
        (Some(WithSpan { value: false, span }), true) => {
            let message =
                "`file_descriptor.enabled = false` has no effect: a descriptor tool is enabled";
            let label = "the descriptor system is on";
            let help = "to switch it off, take the descriptor tools out of [tools] enabled";
            Diagnostic::warning(span.clone(), message, label).help(help)
        }
        _ => return,
    };
    diagnostics.push(found);
}

/// Warns of page sizes that do not fit the other limits.
fn warn_of_sizes(section: &DescriptorSection, diagnostics: &mut Diagnostics) {
    let settings = &section.settings;
    let (page, direct) = (
        u64::from(settings.page_chars),
        settings.max_direct_output_chars,
    );
    let mut warn = |spans: [&Option<Span>; 2], message: String, label: &str, help: &str| {
        let span = spans.into_iter().flatten().next();
        let span = span.unwrap_or(&section.span).clone();
        diagnostics.push(Diagnostic::warning(span, message, label).help(help));
    };
    if page > direct {
        let message = format!(
            "a page of {page} characters is larger than `max_direct_output_chars`, {direct}"
        );
        let help = "make max_direct_output_chars 1.5 to 2 times default_page_size";
        let spans = [&section.page_size_at, &section.max_direct_output_at];
        warn(spans, message, "larger than direct output", help);
    }
    if page > settings.max_read_chars {
        let most = settings.max_read_chars;
        let message = format!("a page of {page} characters exceeds `max_read_chars`, {most}");
        let help = "make max_read_chars at least default_page_size";
        let spans = [&section.max_read_at, &section.page_size_at];
        warn(spans, message, "no whole page can be read", help);
    }
}
