//! Checks parameter descriptions: whether the tool has the parameters that a program describes.
//!
//! The parameters of host tools are not known at compile time; see [`Compiled::check_parameters`].

use std::collections::BTreeMap;

use dormouse_proto::command::Command;
use dormouse_proto::program::{
    Diagnostic, Diagnostics, Named, ToolEntry, WithSpan, listed, shorten, suggestion,
};
use serde_json::Value;

use super::compile::Compiled;
use super::finding::{Finding, ProgramErrors};
use super::kernel_tool::{self, KernelTool};

/// Reports every description of a parameter that the tool does not have.
pub(super) fn check(
    entry: &ToolEntry,
    commands: &[Command],
    kernel: &[KernelTool],
    diagnostics: &mut Diagnostics,
) {
    if let Some(known) = find_parameters(&entry.name.value, commands, kernel) {
        unknown_parameters(&entry.name.value, &entry.parameters, &known)
            .into_iter()
            .for_each(|diagnostic| diagnostics.push(diagnostic));
    }
}

impl Compiled {
    /// Checks the descriptions for host tools, given their JSON schemas by name.
    ///
    /// # Errors
    /// [`ProgramErrors`]: every description of a parameter that a host tool does not have.
    pub fn check_parameters(self, schemas: &BTreeMap<&str, &str>) -> Result<Self, ProgramErrors> {
        let mut findings = Vec::new();
        for program in self.program.all_programs() {
            for choice in program
                .tools()
                .iter()
                .filter(|choice| !choice.parameters.is_empty())
            {
                let Some(schema) = schemas.get(choice.name.as_str()) else {
                    continue;
                };
                let schema: Value = serde_json::from_str(schema).unwrap_or_default();
                let known = schema["properties"].as_object().into_iter().flatten();
                let known: Vec<_> = known.map(|(name, _)| name.as_str()).collect();
                let unknown =
                    unknown_parameters(&choice.name, &choice.parameters, &known).into_iter();
                findings.extend(unknown.map(|found| Finding::new(&program.source(), found)));
            }
        }
        self.fail_on_findings(findings)
    }
}

fn unknown_parameters(tool: &str, described: &[Named<String>], known: &[&str]) -> Vec<Diagnostic> {
    let described = described.iter().map(|parameter| &parameter.name);
    let unknown = described.filter(|name| !known.contains(&name.value.as_str()));
    unknown
        .map(|name| unknown_parameter_error(tool, name, known))
        .collect()
}

fn unknown_parameter_error(tool: &str, name: &WithSpan<String>, known: &[&str]) -> Diagnostic {
    let list = format!("its parameters: {}", listed(known));
    let help = suggestion(&name.value, known, &list).unwrap_or(list);
    let (tool, parameter) = (shorten(tool), shorten(&name.value));
    let message = format!("`{tool}` has no parameter `{parameter}`");
    name.error(message, "not a parameter of the tool")
        .help(help)
}

/// The parameters of a kernel tool or a command; `None` for a host tool.
fn find_parameters<'a>(
    tool: &str,
    commands: &'a [Command],
    kernel: &[KernelTool],
) -> Option<Vec<&'a str>> {
    match commands.iter().find(|command| command.name == tool) {
        Some(command) => {
            let parameters = command.parameters.iter();
            Some(
                parameters
                    .map(|parameter| parameter.name.as_str())
                    .collect(),
            )
        }
        None => Some(kernel_tool::find(kernel, tool)?.parameters.to_vec()),
    }
}
