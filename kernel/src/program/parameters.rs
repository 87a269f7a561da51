//! Descriptions of parameters: whether the tool has the parameters that a program describes.
//!
//! What a tool of the host takes is not known when a program is compiled; see [`Compiled::fits`].

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_proto::command::Command;
use dormouse_proto::program::{At, Diagnostic, Diagnostics, Named, ToolEntry, nearest, shorten};
use miette::NamedSource;
use serde_json::Value;

use super::compile::Compiled;
use super::finding::{Finding, ProgramErrors, Source};
use super::library::Program;
use crate::syscall;

/// Reports every description of a parameter that the tool does not have.
pub(super) fn check(entry: &ToolEntry, commands: &[Command], diagnostics: &mut Diagnostics) {
    if entry.parameters.is_empty() {
        return;
    }
    if let Some(known) = parameters(&entry.name.value, commands) {
        unknown(&entry.name.value, &entry.parameters, &known)
            .into_iter()
            .for_each(|diagnostic| diagnostics.push(diagnostic));
    }
}

impl Compiled {
    /// The same, now that the tools of the host are known: `schemas` are their JSON schemas by
    /// name.
    ///
    /// # Errors
    /// [`ProgramErrors`]: every description of a parameter that such a tool does not have.
    pub fn fits(self, schemas: &BTreeMap<&str, &str>) -> Result<Self, ProgramErrors> {
        let mut findings = Vec::new();
        for program in self.program.library() {
            let described = program
                .tools()
                .iter()
                .filter(|choice| !choice.parameters.is_empty());
            for choice in described {
                let Some(schema) = schemas.get(choice.name.as_str()) else {
                    continue;
                };
                let diagnostics = unknown(&choice.name, &choice.parameters, &properties(schema));
                findings.extend(
                    diagnostics
                        .into_iter()
                        .map(|diagnostic| Finding::new(&source(&program), diagnostic)),
                );
            }
        }
        if findings.is_empty() {
            Ok(self)
        } else {
            Err(ProgramErrors::new(self.program.key(), findings))
        }
    }
}

/// The text of a program's file.
pub(super) fn source(program: &Program) -> Source {
    let bundle = program.bundle();
    let text = bundle
        .file(program.key())
        .and_then(|bytes| str::from_utf8(bytes).ok())
        .unwrap_or_default();
    Arc::new(NamedSource::new(program.key(), Arc::from(text)))
}

fn unknown(tool: &str, described: &[Named<String>], known: &[String]) -> Vec<Diagnostic> {
    let unknown = described
        .iter()
        .filter(|parameter| !known.contains(&parameter.name.value));
    unknown
        .map(|parameter| no_parameter(tool, &parameter.name, known))
        .collect()
}

fn no_parameter(tool: &str, At { value, span }: &At<String>, known: &[String]) -> Diagnostic {
    let list = if known.is_empty() {
        "none".to_owned()
    } else {
        known.join(", ")
    };
    let help = match nearest(value, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`? its parameters: {list}"),
        None => format!("its parameters: {list}"),
    };
    let message = format!("`{}` has no parameter `{}`", shorten(tool), shorten(value));
    Diagnostic::error(span.clone(), message, "not a parameter of the tool").help(help)
}

/// The parameters of a tool of the kernel or a command; none for a tool of the host.
fn parameters(tool: &str, commands: &[Command]) -> Option<Vec<String>> {
    if let Some(command) = commands.iter().find(|command| command.name == tool) {
        return Some(
            command
                .parameters
                .iter()
                .map(|parameter| parameter.name.clone())
                .collect(),
        );
    }
    Some(
        syscall::tool(tool)?
            .parameter_names()
            .map(str::to_owned)
            .collect(),
    )
}

/// The names of the parameters in a schema.
fn properties(schema: &str) -> Vec<String> {
    let schema = serde_json::from_str::<Value>(schema).ok();
    let properties = schema
        .as_ref()
        .and_then(|schema| schema.get("properties"))
        .and_then(Value::as_object);
    properties
        .into_iter()
        .flat_map(|properties| properties.keys().cloned())
        .collect()
}
