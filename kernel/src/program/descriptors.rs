//! Whether the descriptor system is on, and how.

use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::program::{
    At, DescriptorSection, Expansion, Remark, Remarks, ToolEntry, shorten,
};

use super::library::{DescriptorOptions, Expanding};
use super::servers::ServerChoice;
use super::tools::ToolChoice;
use crate::syscall::{self, Group};

/// The settings (none: the system is off), and what else the program wants of it.
pub(super) fn check(
    section: Option<DescriptorSection>,
    tools: &[ToolEntry],
    choices: &[ToolChoice],
    servers: &[ServerChoice],
    remarks: &mut Remarks,
) -> (Option<DescriptorSettings>, DescriptorOptions) {
    let has_tools = tools
        .iter()
        .any(|tool| syscall::is_of(Group::Descriptors, &tool.name.value));
    let Some(section) = section else {
        return (
            has_tools.then(DescriptorSettings::default),
            DescriptorOptions::default(),
        );
    };
    remarks_on_switch(&section, has_tools, remarks);
    if !has_tools {
        return (None, DescriptorOptions::default());
    }
    remarks_on_sizes(&section, remarks);
    (
        Some(section.settings),
        options(section, (choices, servers), remarks),
    )
}

/// The tools and the servers of a program.
type Chosen<'a> = (&'a [ToolChoice], &'a [ServerChoice]);

fn options(
    section: DescriptorSection,
    chosen: Chosen<'_>,
    remarks: &mut Remarks,
) -> DescriptorOptions {
    let DescriptorSection {
        references,
        message_references,
        expansion,
        summary_model,
        ..
    } = section;
    let expansion = match expansion {
        Expansion::Off => Expanding::Off,
        Expansion::All => Expanding::All,
        Expansion::Tools(names) => Expanding::Tools(expanding(names, chosen, remarks)),
    };
    DescriptorOptions {
        references,
        message_references,
        expansion,
        summary_model: summary_model.map(|name| name.value),
    }
}

/// The tools in whose arguments handles are expanded: tools of the program that run outside of the
/// kernel. Which ones a server has is not known yet.
fn expanding(
    names: Vec<At<String>>,
    (choices, servers): Chosen<'_>,
    remarks: &mut Remarks,
) -> Vec<String> {
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
        remarks.push(
            Remark::error(span.clone(), message, "not a tool outside of the kernel").help(help),
        );
    }
    names.into_iter().map(|name| name.value).collect()
}

fn remarks_on_switch(section: &DescriptorSection, has_tools: bool, remarks: &mut Remarks) {
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
            remarks.push(
                Remark::error(span.clone(), message, "nothing could read a descriptor").help(help),
            );
        }
        (Some(At { value: false, .. }) | None, false) => {
            let message = "`[file_descriptor]` has no effect: no descriptor tool is enabled";
            remarks.push(
                Remark::warning(
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
            let remark = Remark::warning(span.clone(), message, "the descriptor system is on");
            remarks.push(
                remark.help("to switch it off, take the descriptor tools out of [tools] enabled"),
            );
        }
        (Some(At { value: true, .. }) | None, true) => {}
    }
}

fn remarks_on_sizes(section: &DescriptorSection, remarks: &mut Remarks) {
    let DescriptorSettings {
        max_direct_output_chars,
        page_chars,
        max_read_chars,
        ..
    } = section.settings;
    if u64::from(page_chars) > max_direct_output_chars {
        let place = section
            .page_size_span
            .as_ref()
            .or(section.max_direct_output_span.as_ref());
        let message = format!(
            "a page of {page_chars} characters is larger than `max_direct_output_chars`, \
             {max_direct_output_chars}"
        );
        let remark = Remark::warning(
            place.unwrap_or(&section.span).clone(),
            message,
            "larger than direct output",
        );
        remarks.push(remark.help("make max_direct_output_chars 1.5 to 2 times default_page_size"));
    }
    if u64::from(page_chars) > max_read_chars {
        let place = section
            .max_read_span
            .as_ref()
            .or(section.page_size_span.as_ref());
        let message =
            format!("a page of {page_chars} characters exceeds `max_read_chars`, {max_read_chars}");
        let remark = Remark::warning(
            place.unwrap_or(&section.span).clone(),
            message,
            "no whole page can be read",
        );
        remarks.push(remark.help("make max_read_chars at least default_page_size"));
    }
}
