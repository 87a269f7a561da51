//! `[env_info]`: what a process is told about the machine at its birth.
//!
//! Only the choice stands here. Whoever starts a process gathers the values, once, under the user's
//! permissions.

use toml::de::DeValue;

use super::reader::{Node, Reader, advice};
use super::{At, Remark, is_parameter_name, nearest, words};

const ALL: &str = "all";
const VARIABLES: [(&str, Variable); 5] = [
    ("working_directory", Variable::WorkingDirectory),
    ("platform", Variable::Platform),
    ("date", Variable::Date),
    ("hostname", Variable::Hostname),
    ("username", Variable::Username),
];
/// Variables of the reference implementation that this version does not know.
const FOREIGN: [&str; 2] = ["python_version", "file_map"];
/// Keys of the reference implementation that this version accepts and does not follow.
const WITHOUT_EFFECT: [&str; 3] = ["file_map_root", "file_map_max_files", "file_map_show_size"];
const KEYS: [&str; 3] = ["variables", "env_vars", "commands"];
/// The most commands, since each is a program that runs before the first word is said.
const MOST_COMMANDS: usize = 16;
const MOST_ENV_VARS: usize = 64;

/// A fact about the machine that a program may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variable {
    /// The working directory.
    WorkingDirectory,
    /// The operating system, in lower case.
    Platform,
    /// The day, as `2026-01-31`.
    Date,
    /// The machine's name.
    Hostname,
    /// The user's name.
    Username,
}

impl Variable {
    /// The word for it, in a program file and in what the model is told.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::WorkingDirectory => "working_directory",
            Self::Platform => "platform",
            Self::Date => "date",
            Self::Hostname => "hostname",
            Self::Username => "username",
        }
    }
}

/// What a process is told about the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentChoice {
    /// The facts, in the order written, each once.
    pub variables: Vec<Variable>,
    /// Further labels with their text.
    pub custom: Vec<(String, String)>,
    /// Environment variables by label, in the order written. Their values are the user's, who has
    /// to permit each.
    pub env_vars: Vec<EnvVar>,
    /// Commands whose output is told, in the order written. The user has to permit each program.
    pub commands: Vec<EnvCommand>,
}

/// An environment variable that a process is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvVar {
    /// What the model reads in front of its value.
    pub label: String,
    /// The variable.
    pub name: String,
}

/// A command whose output a process is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvCommand {
    /// As it is written: what the model reads above its output.
    pub written: String,
    /// The program and its arguments; none where it asks for a shell, and there is none.
    pub argv: Option<Vec<String>>,
}

impl EnvironmentChoice {
    /// Whether a process is told anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.variables.is_empty() && self.custom.is_empty() && !self.is_gathered()
    }

    /// Whether something of it has to be found out for each process, under the user's permissions.
    #[must_use]
    pub fn is_gathered(&self) -> bool {
        !self.env_vars.is_empty() || !self.commands.is_empty()
    }
}

pub(super) fn read(root: &mut Reader<'_>) -> EnvironmentChoice {
    let Some(mut section) = root.section("env_info") else {
        return EnvironmentChoice::default();
    };
    let variables = variables(&mut section);
    let env_vars = env_vars(&mut section);
    let commands = commands(&mut section);
    WITHOUT_EFFECT
        .into_iter()
        .for_each(|key| section.without_effect(key));
    let custom = custom(&mut section);
    EnvironmentChoice {
        variables,
        custom,
        env_vars,
        commands,
    }
}

/// A table of label and variable, or a list of variables that are their own labels.
fn env_vars(section: &mut Reader<'_>) -> Vec<EnvVar> {
    let Some(node) = section.get("env_vars") else {
        return Vec::new();
    };
    let written: Vec<(String, At<String>)> = match node.get_ref() {
        DeValue::Array(_) => {
            let names = section.texts("env_vars");
            names
                .into_iter()
                .map(|name| (name.value.clone(), name))
                .collect()
        }
        DeValue::Table(table) => {
            let mut inner = section.inner("env_vars", table, node.span());
            let entries = inner.entries().into_iter();
            entries
                .filter_map(|(label, node)| {
                    Some((label.value.clone(), inner.as_text(&label.value, node)?))
                })
                .collect()
        }
        _ => {
            section.wrong_type(
                "env_vars",
                node,
                "a table of labels and variables, or a list of variables",
            );
            Vec::new()
        }
    };
    if !section.is_within("env_vars", node, written.len(), MOST_ENV_VARS) {
        return Vec::new();
    }
    for (_, At { span, .. }) in written
        .iter()
        .filter(|(_, name)| !is_parameter_name(&name.value))
    {
        let message = "`env_info.env_vars` takes the names of environment variables";
        let remark = Remark::error(span.clone(), message, "not such a name");
        section.remark(
            remark
                .help("a label and the variable behind it: env_vars = { region = \"MY_REGION\" }"),
        );
    }
    written
        .into_iter()
        .map(|(label, name)| EnvVar {
            label,
            name: name.value,
        })
        .collect()
}

fn commands(section: &mut Reader<'_>) -> Vec<EnvCommand> {
    let Some(node) = section.get("commands") else {
        return Vec::new();
    };
    let Some(list) = node.get_ref().as_array() else {
        section.wrong_type("commands", node, "a list of commands");
        return Vec::new();
    };
    if !section.is_within("commands", node, list.len(), MOST_COMMANDS) {
        return Vec::new();
    }
    list.iter()
        .filter_map(|item| command(section, item))
        .collect()
}

/// A text that is split into words, or the words themselves.
fn command(section: &mut Reader<'_>, node: Node<'_>) -> Option<EnvCommand> {
    let (written, argv) = match node.get_ref() {
        DeValue::String(text) => (text.to_string(), words::split(text)),
        DeValue::Array(list) => {
            let argv: Vec<_> = list
                .iter()
                .filter_map(|word| section.as_text("commands", word))
                .collect();
            let argv: Vec<_> = argv.into_iter().map(|word| word.value).collect();
            (argv.join(" "), Ok(argv))
        }
        _ => {
            section.wrong_type(
                "commands",
                node,
                "a command as a string, or as a list of its words",
            );
            return None;
        }
    };
    if argv
        .as_ref()
        .is_ok_and(|argv| argv.first().is_none_or(|program| program.trim().is_empty()))
    {
        section.remark(Remark::error(
            node.span(),
            "the command has no program to run",
            "empty",
        ));
        return None;
    }
    if let Err(shell) = &argv {
        let message = format!("a command of `env_info.commands` cannot be run: {shell}");
        let remark = Remark::warning(node.span(), message, "is not run");
        section.remark(
            remark.help("no shell reads it; ask for one by name: [\"sh\", \"-c\", \"ls | wc -l\"]"),
        );
    }
    Some(EnvCommand {
        written,
        argv: argv.ok(),
    })
}

fn variables(section: &mut Reader<'_>) -> Vec<Variable> {
    let names = match section.get("variables").map(|node| (node, node.get_ref())) {
        Some((_, DeValue::String(all))) if all == ALL => {
            return VARIABLES.iter().map(|(_, variable)| *variable).collect();
        }
        Some((node, DeValue::String(_))) => {
            section.as_text("variables", node).into_iter().collect()
        }
        _ => section.texts("variables"),
    };
    let mut chosen = Vec::new();
    for name in names {
        if let Some(variable) = variable(section, &name)
            && !chosen.contains(&variable)
        {
            chosen.push(variable);
        }
    }
    chosen
}

fn variable(section: &mut Reader<'_>, name: &At<String>) -> Option<Variable> {
    let At { value, span } = name;
    if FOREIGN.contains(&value.as_str()) {
        let message = format!("`{value}` is not supported by this version");
        section.remark(Remark::warning(span.clone(), message, "has no effect"));
        return None;
    }
    let found = VARIABLES.iter().find(|(word, _)| word == value);
    if found.is_none() {
        let words = VARIABLES.map(|(word, _)| word);
        let remark = Remark::error(
            span.clone(),
            "unknown variable of `env_info.variables`",
            "not a variable",
        );
        section.remark(remark.help(format!(
            "{}; or \"all\"",
            advice(value, &words, "variables")
        )));
    }
    found.map(|(_, variable)| *variable)
}

/// Any other key with a text is a label of its own, unless it looks like a misspelt one.
fn custom(section: &mut Reader<'_>) -> Vec<(String, String)> {
    let known = || WITHOUT_EFFECT.into_iter().chain(KEYS);
    let mut labels = Vec::new();
    for (key, node) in section.others() {
        match node.get_ref() {
            DeValue::String(text) if nearest(&key.value, known()).is_none() => {
                labels.push((key.value, text.to_string()))
            }
            DeValue::String(_) => section.unknown_key(&key),
            _ if nearest(&key.value, known()).is_some() => section.unknown_key(&key),
            _ => section.wrong_type(&key.value, node, "a string, as a label of your own"),
        }
    }
    labels
}
