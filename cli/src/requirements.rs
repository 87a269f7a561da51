//! The requirements of programs, in words: `dormouse show` lists them, and commands that run
//! programs warn of the missing ones.

use std::collections::BTreeMap;

use dormouse::Kernel;
use dormouse::command::CommandLimits;
use dormouse::id::ContentHash;
use dormouse::program::{self, Bundle, FileUse, NeededBy, Program, Requirement, Resource};
use serde_json::{Value, json};

use crate::terminal::{line, tell};

/// Warns of permissions that these programs need and do not have. The programs run without them.
pub(crate) fn warn_of_missing<'a>(
    kernel: &Kernel,
    programs: impl IntoIterator<Item = &'a Program>,
) {
    let mut warnings = Vec::new();
    for missing in programs
        .into_iter()
        .flat_map(|program| kernel.missing(program))
    {
        let Requirement {
            program, needed_by, ..
        } = &missing.requirement;
        let warning = line(&format!(
            "warning: {}, {}: {}",
            quoted(program),
            needed_by_words(needed_by),
            missing.why
        ));
        if !warnings.contains(&warning) {
            tell(&warning);
            warnings.push(warning);
        }
    }
}

/// The programs that the processes of an export run, each once. `named` has a bundle and the key of
/// a program in it for each process.
///
/// # Errors
/// Why a program cannot be compiled.
pub(crate) fn compile_exported<'a, B: AsRef<[u8]>>(
    named: impl Iterator<Item = (ContentHash, &'a str)>,
    bundles: &BTreeMap<ContentHash, B>,
) -> Result<Vec<Program>, String> {
    let mut known = Vec::new();
    let mut programs = Vec::new();
    for (hash, key) in named {
        if known.contains(&(hash, key)) {
            continue;
        }
        known.push((hash, key));
        let bundle = bundles.get(&hash).ok_or("a program is not in it")?;
        let bundle = Bundle::from_bytes(bundle.as_ref()).map_err(|error| error.to_string())?;
        let tools = program::host_tools(&bundle);
        let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
        let compiled =
            program::compile_bundle(&bundle, &tools).map_err(|errors| errors.to_string())?;
        programs.push(
            compiled
                .program
                .by_key(key)
                .ok_or_else(|| format!("its files hold no program {key}"))?,
        );
    }
    Ok(programs)
}

/// The requirements of these programs, each once.
pub(crate) fn of_all(programs: &[Program]) -> Vec<Requirement> {
    let mut all = Vec::new();
    for requirement in programs.iter().flat_map(Program::requirements) {
        if !all.contains(&requirement) {
            all.push(requirement);
        }
    }
    all
}

/// A requirement as a line: the program, the part that needs it, and what that part does.
pub(crate) fn words(requirement: &Requirement) -> String {
    let Requirement {
        program,
        needed_by,
        resource,
    } = requirement;
    let does = match resource {
        Resource::Command(argv) => {
            format!(
                "runs {}",
                argv.iter()
                    .map(|word| quoted(word))
                    .collect::<Vec<_>>()
                    .join(" ")
            )
        }
        Resource::Address { url, .. } => format!("connects to {}", quoted(url)),
        Resource::Variable(name) => format!("reads the variable {}", quoted(name)),
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
    line(&format!(
        "{:<20} {:<28} {does}",
        quoted(program),
        needed_by_words(needed_by)
    ))
}

/// A requirement as JSON.
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

fn needed_by_words(needed_by: &NeededBy) -> String {
    match needed_by {
        NeededBy::Model(name) => format!("model {}", quoted(name)),
        NeededBy::Command(name, access) => format!("command {} ({})", quoted(name), access.word()),
        NeededBy::Tool(name) => format!("tool {}", quoted(name)),
        NeededBy::Server(name) => format!("server {}", quoted(name)),
        NeededBy::Environment => "env_info".to_owned(),
    }
}

/// A word of a listing or a command line, quoted if it could be taken for several.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = !word.is_empty()
        && !word.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\'));
    if is_plain {
        word.to_owned()
    } else {
        format!("{word:?}")
    }
}
