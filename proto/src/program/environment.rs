//! The table `[env_info]`: facts about the machine that the model of a new process reads.
//!
//! This module only parses which facts the program selects (`program.rs` says what `Section`,
//! `Value` and `Reader` are). `actors/src/environment.rs` collects their values before a process is
//! born, under the user's permissions.

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::{
    Diagnostic, Keyword, Named, Node, Reader, Rules, Section, Value, WithSpan, advice,
    command_line, is_parameter_name, nearest,
};

const ALL: &str = "all";
/// Variables of the reference implementation that this version does not support.
const UNSUPPORTED: [&str; 2] = ["python_version", "file_map"];

/// A fact about the machine that a program may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Keyword)]
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
    /// The word for it, in a program file and in the text for the model.
    #[must_use]
    pub fn word(self) -> &'static str {
        Keyword::word(self)
    }
}

/// The facts about the machine that a program selects for its model.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
#[section(ignored = ["file_map_root", "file_map_max_files", "file_map_show_size"])]
pub struct EnvironmentChoice {
    /// Facts about the machine: one of the words, a list of them, or all.
    #[key(with = Variables)]
    pub variables: Vec<Variable>,
    /// Environment variables of the host: a list of names, or a table of labels and names. The user
    /// has to permit each.
    #[key(with = EnvVars, max_items = 64)]
    pub env_vars: Vec<EnvVar>,
    /// Commands whose output the model is told. Each is a text that needs no shell, or a list of
    /// the program and its arguments. The user has to permit each program.
    // Each is a program that runs before the model is asked for the first time.
    #[key(max_items = 16)]
    pub commands: Vec<EnvCommand>,
    /// A label of your own: the model is told its text as it is written.
    #[key(other_keys = read_custom_labels)]
    pub custom: Vec<(String, String)>,
}

/// An environment variable whose value the model reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvVar {
    /// The text in front of the value.
    pub label: String,
    /// The name of the variable.
    pub name: String,
}

/// A command whose output a process is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvCommand {
    /// The command as it is written, which the model reads above its output.
    pub written: String,
    /// The program and its arguments; `None` for a text that needs a shell, which is not run.
    pub argv: Option<Vec<String>>,
}

impl EnvironmentChoice {
    /// Whether the table selects nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.variables.is_empty() && self.custom.is_empty() && !self.needs_gathering()
    }

    /// Whether values have to be gathered for each process, under the user's permissions.
    #[must_use]
    pub fn needs_gathering(&self) -> bool {
        !self.env_vars.is_empty() || !self.commands.is_empty()
    }
}

/// A table of label and variable, or a list of variables that are their own labels.
struct EnvVars(Vec<EnvVar>);

impl Value for EnvVars {
    const EXPECTED: &'static str = "a table of labels and variables, or a list of variables";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let named: Vec<Named<WithSpan<String>>> = if node.get_ref().is_array() {
            let names: Vec<WithSpan<String>> = Vec::read(table, key, node, rules)?;
            let label = |value: WithSpan<String>| (value.clone(), value);
            let labelled = names.into_iter().map(label);
            labelled
                .map(|(name, value)| Named { name, value })
                .collect()
        } else {
            let expected = Some(Self::EXPECTED);
            let rules = Rules {
                expected,
                ..rules.clone()
            };
            Vec::read(table, key, node, &rules)?
        };
        let variables = named.into_iter().map(|Named { name: label, value }| {
            if !is_parameter_name(&value.value) {
                let message = "`env_info.env_vars` takes the names of environment variables";
                let help =
                    "a label and the variable behind it: env_vars = { region = \"MY_REGION\" }";
                table.report(value.error(message, "not a valid name").help(help));
            }
            EnvVar {
                label: label.value,
                name: value.value,
            }
        });
        Some(Self(variables.collect()))
    }

    fn schema(rules: &Rules) -> Json {
        let list = Vec::<String>::schema(rules);
        json!({ "anyOf": [list, Vec::<Named<String>>::schema(rules)] })
    }
}

/// A text that is split into words, or the words themselves.
impl Value for EnvCommand {
    const EXPECTED: &'static str = "a command as a string, or as a list of its words";
    const LIST: &'static str = "a list of commands";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let (written, argv) = match node.get_ref() {
            DeValue::String(text) => (text.to_string(), command_line::split(text)),
            DeValue::Array(_) => {
                let argv: Vec<String> = Vec::read(table, key, node, &Rules::ANY)?;
                (argv.join(" "), Ok(argv))
            }
            _ => {
                table.report_wrong_type(key, node, rules.expected::<Self>());
                return None;
            }
        };
        if let Err(shell) = &argv {
            let message = format!("a command of `env_info.commands` cannot be run: {shell}");
            let warning = Diagnostic::warning(node.span(), message, "is not run");
            let help = "no shell reads it; ask for one by name: [\"sh\", \"-c\", \"ls | wc -l\"]";
            table.report(warning.help(help));
        } else if let Ok(argv) = &argv
            && argv.first().is_none_or(|program| program.trim().is_empty())
        {
            let message = "the command has no program to run";
            table.report(Diagnostic::error(node.span(), message, "empty"));
            return None;
        }
        let argv = argv.ok();
        Some(Self { written, argv })
    }

    fn schema(_rules: &Rules) -> Json {
        let words = json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 });
        json!({ "anyOf": [{ "type": "string", "minLength": 1 }, words] })
    }
}

/// `"all"`, one variable, or a list of them, each once.
struct Variables(Vec<Variable>);

impl Value for Variables {
    const EXPECTED: &'static str = Vec::<String>::EXPECTED;

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let names: Vec<WithSpan<String>> = match node.get_ref() {
            DeValue::String(all) if *all == ALL => {
                let all = Variable::WORDS.iter().map(|(_, variable, _)| *variable);
                return Some(Self(all.collect()));
            }
            DeValue::String(_) => vec![Value::read(table, key, node, rules)?],
            _ => Value::read(table, key, node, rules)?,
        };
        let mut chosen = Vec::new();
        for name in names {
            let variable = parse_variable(table, &name);
            chosen.extend(variable.filter(|variable| !chosen.contains(variable)));
        }
        Some(Self(chosen))
    }

    fn schema(_rules: &Rules) -> Json {
        let foreign = json!({ "enum": UNSUPPORTED, "deprecated": true });
        let mut word = <Variable as Keyword>::schema_of_words();
        let meanings = word["description"].take();
        let word = json!({ "anyOf": [{ "enum": word["enum"] }, foreign] });
        let list = json!({ "type": "array", "items": word });
        json!({ "description": meanings, "anyOf": [{ "const": ALL }, word, list] })
    }
}

fn parse_variable(table: &mut Reader<'_>, name: &WithSpan<String>) -> Option<Variable> {
    let WithSpan { value, span } = name;
    if UNSUPPORTED.contains(&value.as_str()) {
        let message = format!("`{value}` is not supported by this version");
        table.report(Diagnostic::warning(span.clone(), message, "has no effect"));
        return None;
    }
    let found = Variable::from_word(value);
    if found.is_none() {
        let words: Vec<_> = Variable::WORDS.iter().map(|(word, ..)| *word).collect();
        let message = "unknown variable of `env_info.variables`";
        let unknown = Diagnostic::error(span.clone(), message, "not a variable");
        table.report(unknown.help(format!(
            "{}; or \"all\"",
            advice(value, &words, "variables")
        )));
    }
    found
}

/// Reads all other keys with a text as labels, except those that look like a misspelt key.
fn read_custom_labels(table: &mut Reader<'_>) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    for (key, node) in table.unrequested_entries() {
        let is_misspelt = nearest(&key.value, table.known_keys()).is_some();
        match node.get_ref() {
            _ if is_misspelt => table.report_unknown_key(&key),
            DeValue::String(text) => labels.push((key.value, text.to_string())),
            _ => table.report_wrong_type(&key.value, node, "a string, as a label of your own"),
        }
    }
    labels
}
