//! `[env_info]`: what a process is told about the machine at its birth.
//!
//! Only the choice stands here. Whoever starts a process gathers the values, once, under the user's permissions.

use toml::de::DeValue;

use super::reader::{Reader, advice};
use super::{At, Remark, nearest};

const DEFAULT_MAP_FILES: u32 = 50;
const MOST_MAP_FILES: u64 = 10_000;
const ALL: &str = "all";
const VARIABLES: [(&str, Variable); 6] = [
    ("working_directory", Variable::WorkingDirectory),
    ("platform", Variable::Platform),
    ("date", Variable::Date),
    ("hostname", Variable::Hostname),
    ("username", Variable::Username),
    ("file_map", Variable::FileMap),
];
/// A variable of the reference implementation that means nothing here.
const PYTHON_VERSION: &str = "python_version";

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
    /// A list of files: see [`FileMap`].
    FileMap,
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
            Self::FileMap => "file_map",
        }
    }
}

/// What a process is told about the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentChoice {
    /// The facts, in the order written, each once.
    pub variables: Vec<Variable>,
    /// Environment variables: the label that the model reads, and the name of the variable.
    pub env_vars: Vec<(String, String)>,
    /// Commands whose output the model reads, each one line as written.
    pub commands: Vec<String>,
    /// Further labels with their text.
    pub custom: Vec<(String, String)>,
    /// How the list of files is made, where [`Variable::FileMap`] is asked for.
    pub file_map: FileMap,
}

impl EnvironmentChoice {
    /// Whether a process is told anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.variables.is_empty() && self.env_vars.is_empty() && self.commands.is_empty() && self.custom.is_empty()
    }
}

/// How a list of files is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMap {
    /// The folder; none: the working directory.
    pub root: Option<String>,
    /// At most so many files.
    pub max_files: u32,
    /// Whether each file's size is told.
    pub show_size: bool,
}

impl Default for FileMap {
    fn default() -> Self {
        Self { root: None, max_files: DEFAULT_MAP_FILES, show_size: true }
    }
}

pub(super) fn read(root: &mut Reader<'_>) -> EnvironmentChoice {
    let Some(mut section) = root.section("env_info") else { return EnvironmentChoice::default() };
    let variables = variables(&mut section);
    let env_vars = env_vars(&mut section);
    let commands = section.texts("commands").into_iter().map(|command| command.value).collect();
    let file_map = file_map(&mut section);
    let custom = custom(&mut section);
    EnvironmentChoice { variables, env_vars, commands, custom, file_map }
}

fn variables(section: &mut Reader<'_>) -> Vec<Variable> {
    let names = match section.get("variables").map(|node| (node, node.get_ref())) {
        Some((_, DeValue::String(all))) if all == ALL => {
            let standard = VARIABLES.iter().map(|(_, variable)| *variable);
            return standard.filter(|variable| *variable != Variable::FileMap).collect();
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
    if value == PYTHON_VERSION {
        let message = "`python_version` is not supported by this version";
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

fn env_vars(section: &mut Reader<'_>) -> Vec<(String, String)> {
    let Some(mut labels) = section.section("env_vars") else { return Vec::new() };
    let mut chosen = Vec::new();
    for (label, node) in labels.entries() {
        chosen.extend(labels.as_text(&label.value, node).map(|name| (label.value, name.value)));
    }
    chosen
}

fn file_map(section: &mut Reader<'_>) -> FileMap {
    let default = FileMap::default();
    let max_files = section.number("file_map_max_files", 1..=MOST_MAP_FILES);
    FileMap {
        root: section.text("file_map_root").map(|root| root.value),
        max_files: max_files.and_then(|n| u32::try_from(n.value).ok()).unwrap_or(default.max_files),
        show_size: section.flag("file_map_show_size").map_or(default.show_size, |flag| flag.value),
    }
}

/// Any other key with a text is a label of its own, unless it looks like a misspelt one.
fn custom(section: &mut Reader<'_>) -> Vec<(String, String)> {
    let known = ["variables", "env_vars", "commands", "file_map_root", "file_map_max_files", "file_map_show_size"];
    let mut labels = Vec::new();
    for (key, node) in section.others() {
        match node.get_ref() {
            DeValue::String(text) if nearest(&key.value, known).is_none() => labels.push((key.value, text.to_string())),
            DeValue::String(_) => section.unknown_key(&key),
            _ if nearest(&key.value, known).is_some() => section.unknown_key(&key),
            _ => section.wrong_type(&key.value, node, "a string, as a label of your own"),
        }
    }
    labels
}
