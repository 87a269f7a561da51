//! Describes the requirements of programs: `dormouse show` lists them, and commands that run
//! programs warn of permissions that are missing.

use std::collections::BTreeMap;

use anyhow::Context;
use dormouse::Kernel;
use dormouse::command::CommandLimits;
use dormouse::id::ContentHash;
use dormouse::program::{self, Bundle, FileUse, NeededBy, Program, Requirement, Resource};
use serde_json::{Value, json};

use crate::terminal::{one_line, print_stderr};

/// Warns of permissions that these programs need and do not have. The programs run without them.
pub(crate) fn warn_of_missing_permissions<'a>(
    kernel: &Kernel,
    programs: impl IntoIterator<Item = &'a Program>,
) {
    let mut warnings = Vec::new();
    for program in programs {
        for missing in kernel.missing_permissions(program) {
            let warning = one_line(&format!(
                "warning: {}, {}: {}",
                quoted(&missing.requirement.program),
                describe_needed_by(&missing.requirement.needed_by),
                missing.why
            ));
            // Processes of one program have the same requirements: each warning is printed once.
            if !warnings.contains(&warning) {
                print_stderr(&warning);
                warnings.push(warning);
            }
        }
    }
}

/// Compiles the programs that the processes of an export run, each once. For each process,
/// `programs` holds the hash of the bundle of files, and the key of the process's program in it.
///
/// # Errors
/// Why a program cannot be compiled.
pub(crate) fn compile_exported<'a, B: AsRef<[u8]>>(
    programs: impl Iterator<Item = (ContentHash, &'a str)>,
    bundles: &BTreeMap<ContentHash, B>,
) -> anyhow::Result<Vec<Program>> {
    let mut seen = Vec::new();
    let mut compiled_programs = Vec::new();
    for (hash, key) in programs {
        if seen.contains(&(hash, key)) {
            continue;
        }
        seen.push((hash, key));
        let bundle = bundles
            .get(&hash)
            .context("the export does not contain a program of its processes")?;
        let bundle = Bundle::from_bytes(bundle.as_ref())?;
        let tools = program::host_tools(&bundle);
        let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
        let compiled = program::compile_bundle(&bundle, &tools)?;
        let program = compiled
            .program
            .by_key(key)
            .with_context(|| format!("its files hold no program {key}"))?;
        compiled_programs.push(program);
    }
    Ok(compiled_programs)
}

/// The requirements of these programs, each once.
pub(crate) fn collect_requirements(programs: &[Program]) -> Vec<Requirement> {
    let mut all = Vec::new();
    for requirement in programs.iter().flat_map(Program::requirements) {
        if !all.contains(&requirement) {
            all.push(requirement);
        }
    }
    all
}

/// A requirement as a line of a table: the program, the part of it that has the requirement, and
/// what that part does.
pub(crate) fn format_table_line(requirement: &Requirement) -> String {
    let Requirement {
        program,
        needed_by,
        resource,
    } = requirement;
    let action = match resource {
        Resource::Command(argv) => {
            let words: Vec<_> = argv.iter().map(|word| quoted(word)).collect();
            format!("runs {}", words.join(" "))
        }
        Resource::Address { url, .. } => format!("connects to {}", quoted(url)),
        Resource::Variable(name) => format!("reads the variable {}", quoted(name)),
        Resource::Authorities(file) => {
            format!("trusts the authorities in {} there", quoted(file))
        }
        Resource::Files(FileUse::Read) => "reads files".to_owned(),
        Resource::Files(FileUse::Write) => "writes files".to_owned(),
        Resource::SetVariable {
            name,
            value: Some(value),
        } => {
            format!("sets the variable {} to {}", quoted(name), quoted(value))
        }
        Resource::SetVariable { name, value: None } => {
            format!("sets the variable {}", quoted(name))
        }
        Resource::Folder(folder) => format!("runs in the folder {}", quoted(folder)),
        Resource::Limits(CommandLimits {
            memory_bytes,
            processes,
            file_bytes,
            open_files,
        }) => format!(
            "may use {memory_bytes} bytes of memory, {processes} processes, files of {file_bytes} \
             bytes, {open_files} open files"
        ),
    };
    one_line(&format!(
        "{:<20} {:<28} {action}",
        quoted(program),
        describe_needed_by(needed_by)
    ))
}

/// The public JSON form of a requirement. Scripts read it.
pub(crate) fn as_json(requirement: &Requirement) -> Value {
    let Requirement {
        program,
        needed_by,
        resource,
    } = requirement;
    let (kind, name, access) = match needed_by {
        NeededBy::Model(name) => ("model", Some(name), None),
        NeededBy::Command(name, access) => ("command", Some(name), Some(access.word())),
        NeededBy::Tool(name) => ("tool", Some(name), None),
        NeededBy::Server(name) => ("server", Some(name), None),
        NeededBy::Environment => ("env_info", None, None),
    };
    let resource = match resource {
        Resource::Command(argv) => json!({ "runs": argv }),
        Resource::Address { url, .. } => json!({ "connects_to": url }),
        Resource::Variable(name) => json!({ "reads_variable": name }),
        Resource::Authorities(file) => json!({ "trusts_authorities": file }),
        Resource::Files(FileUse::Read) => json!({ "files": "read" }),
        Resource::Files(FileUse::Write) => json!({ "files": "write" }),
        Resource::SetVariable { name, value } => json!({ "sets_variable": name, "value": value }),
        Resource::Folder(folder) => json!({ "runs_in": folder }),
        Resource::Limits(CommandLimits {
            memory_bytes,
            processes,
            file_bytes,
            open_files,
        }) => json!({ "limits": {
            "memory_bytes": memory_bytes, "processes": processes, "file_bytes": file_bytes, "open_files": open_files,
        } }),
    };
    json!({ "program": program, "by": kind, "name": name, "access": access, "needs": resource })
}

/// The part of a program that has a requirement.
fn describe_needed_by(needed_by: &NeededBy) -> String {
    match needed_by {
        NeededBy::Model(name) => format!("model {}", quoted(name)),
        NeededBy::Command(name, access) => format!("command {} ({})", quoted(name), access.word()),
        NeededBy::Tool(name) => format!("tool {}", quoted(name)),
        NeededBy::Server(name) => format!("server {}", quoted(name)),
        NeededBy::Environment => "env_info".to_owned(),
    }
}

/// A word of a listing or a command line, in quotes if a reader could take it for several words.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = !word.is_empty()
        && !word.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\'));
    if is_plain {
        word.to_owned()
    } else {
        format!("{word:?}")
    }
}
