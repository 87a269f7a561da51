//! `[env_info]`: what a process is told about the machine at its birth.
//!
//! Only the choice stands here. Whoever starts a process gathers the values, once, under the user's permissions.

use toml::de::DeValue;

use super::reader::{Reader, advice};
use super::{At, Remark, nearest};

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
const WITHOUT_EFFECT: [&str; 5] = ["env_vars", "commands", "file_map_root", "file_map_max_files", "file_map_show_size"];

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
}

impl EnvironmentChoice {
    /// Whether a process is told anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.variables.is_empty() && self.custom.is_empty()
    }
}

pub(super) fn read(root: &mut Reader<'_>) -> EnvironmentChoice {
    let Some(mut section) = root.section("env_info") else { return EnvironmentChoice::default() };
    let variables = variables(&mut section);
    WITHOUT_EFFECT.into_iter().for_each(|key| section.without_effect(key));
    let custom = custom(&mut section);
    EnvironmentChoice { variables, custom }
}

fn variables(section: &mut Reader<'_>) -> Vec<Variable> {
    let names = match section.get("variables").map(|node| (node, node.get_ref())) {
        Some((_, DeValue::String(all))) if all == ALL => {
            return VARIABLES.iter().map(|(_, variable)| *variable).collect();
        }
        Some((node, DeValue::String(_))) => section.as_text("variables", node).into_iter().collect(),
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
        let remark = Remark::error(span.clone(), "unknown variable of `env_info.variables`", "not a variable");
        section.remark(remark.help(format!("{}; or \"all\"", advice(value, &words, "variables"))));
    }
    found.map(|(_, variable)| *variable)
}

/// Any other key with a text is a label of its own, unless it looks like a misspelt one.
fn custom(section: &mut Reader<'_>) -> Vec<(String, String)> {
    let known = || WITHOUT_EFFECT.into_iter().chain(["variables"]);
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
