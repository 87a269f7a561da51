//! Builds programs in Rust code instead of a file.

use bytes::Bytes;
use toml::{Table, Value};

use super::Provider;

/// A program under construction. It is stored as TOML, so that it is checked by the same rules as a
/// program file, can be stored with its processes, and can be saved as a file.
///
/// Methods set the keys that most programs have; [`set`](Self::set) sets any other. Nothing is
/// checked before the program is compiled.
///
/// ```
/// use dormouse_proto::program::{Provider, ProgramBuilder, parse};
///
/// let program = ProgramBuilder::new("claude-sonnet-4-5", Provider::Anthropic)
///     .system("You find the cause of failing builds.")
///     .tools(["read_fd", "search_fd", "fork"])
///     .set(&["parameters", "max_tokens"], 4096)
///     .set(&["limits", "max_fork_children"], 4);
/// let parsed = parse(&program.to_toml());
/// assert!(parsed.diagnostics.is_empty());
/// assert_eq!(parsed.file.tools.enabled.len(), 3);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct ProgramBuilder {
    root: Table,
}

impl ProgramBuilder {
    /// A program whose processes call this model.
    pub fn new(model: impl Into<String>, provider: Provider) -> Self {
        let builder = Self { root: Table::new() };
        builder
            .set(&["model", "name"], model.into())
            .set(&["model", "provider"], provider.word())
    }

    /// The system prompt.
    pub fn system(self, text: impl Into<String>) -> Self {
        self.set(&["prompt", "system"], text.into())
    }

    /// The first message of a process, if its start gives no input.
    pub fn user(self, text: impl Into<String>) -> Self {
        self.set(&["prompt", "user"], text.into())
    }

    /// Enables further tools of the kernel or the host.
    pub fn tools(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let names = names.into_iter().map(|name| Value::String(name.into()));
        let tools = get_or_create_table(&mut self.root, "tools");
        let enabled = tools
            .entry("enabled")
            .or_insert_with(|| Value::Array(Vec::new()));
        match enabled {
            Value::Array(enabled) => enabled.extend(names),
            other => *other = Value::Array(names.collect()),
        }
        self
    }

    /// Links a program, which processes of this program can spawn by the name. The path is relative
    /// to the folder of the path under which this program is compiled.
    pub fn link(self, name: &str, path: impl Into<String>, description: impl Into<String>) -> Self {
        self.set(&["linked_programs", name, "path"], path.into())
            .set(
                &["linked_programs", name, "description"],
                description.into(),
            )
    }

    /// Sets a key by its path: `&["limits", "max_children"]`. If the path needs a table where
    /// another value is, the value is replaced. An empty path sets nothing.
    pub fn set(mut self, path: &[&str], value: impl Into<Value>) -> Self {
        if let [tables @ .., key] = path {
            let mut at = &mut self.root;
            for name in tables {
                at = get_or_create_table(at, name);
            }
            at.insert((*key).to_owned(), value.into());
        }
        self
    }

    /// The program as the text of a program file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        self.root.to_string()
    }
}

/// The table of this name. A missing table, or another value of this name, becomes an empty table.
fn get_or_create_table<'t>(parent: &'t mut Table, name: &str) -> &'t mut Table {
    let value = parent
        .entry(name)
        .or_insert_with(|| Value::Table(Table::new()));
    if !value.is_table() {
        *value = Value::Table(Table::new());
    }
    value.as_table_mut().expect("it was made a table above")
}

impl From<ProgramBuilder> for Bytes {
    fn from(program: ProgramBuilder) -> Self {
        program.to_toml().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::parse;

    fn check(program: &ProgramBuilder) -> super::super::ProgramFile {
        let text = program.to_toml();
        let parsed = parse(&text);
        assert!(
            parsed.diagnostics.is_empty(),
            "{text}\n{:?}",
            parsed.diagnostics
        );
        parsed.file
    }

    #[test]
    fn every_value_that_is_set_is_parsed_back() {
        let hostile = "\"\"\"\n[tools]\n'''\u{0}\u{7f}\\ = # \u{202e}";
        let program = ProgramBuilder::new("m", Provider::Scripted)
            .system(hostile)
            .user("go")
            .tools(["read_fd"])
            .tools(["search_fd"])
            .link("re viewer", "re\"viewer.toml", hostile)
            .set(&["model", "max_iterations"], 7)
            .set(&["prices", "gpt-4.1", "input"], 3.0)
            .set(&["prices", "gpt-4.1", "output"], 15.0);
        let file = check(&program);
        let system = file.prompt.system.expect("it is set");
        assert_eq!(system, hostile);
        let tools: Vec<_> = file
            .tools
            .enabled
            .iter()
            .map(|tool| &*tool.name.value)
            .collect();
        assert_eq!(tools, ["read_fd", "search_fd"]);
        assert_eq!(file.linked[0].name.value, "re viewer");
        assert_eq!(file.prices[0].name.value, "gpt-4.1");
    }

    #[test]
    fn an_unknown_key_is_reported_by_the_parser() {
        let program = ProgramBuilder::new("m", Provider::Scripted).set(&["limits", "childs"], 1);
        let parsed = parse(&program.to_toml());
        assert!(parsed.diagnostics.has_errors());
    }

    #[test]
    fn a_later_value_replaces_an_earlier_one() {
        let program = ProgramBuilder::new("m", Provider::Scripted)
            .set(&["tools", "enabled"], "read_fd")
            .tools(["search_fd"])
            .set(&["limits"], 1)
            .set(&["limits", "max_children"], 2)
            .set(&[], 3);
        assert_eq!(check(&program).tools.enabled.len(), 1);
    }
}
