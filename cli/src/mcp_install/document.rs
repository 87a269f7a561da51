//! A configuration file that is changed in few places: comments, order and spacing of everything
//! else stay as they are.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use serde_json::{Map, Value};
use toml_edit::{DocumentMut, Item, Table};

use super::clients::Syntax;

/// Why a file cannot be changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DocumentError {
    #[error("it is not valid: {0}. Correct it first")]
    Syntax(String),
    #[error("its `{0}` is not a table of servers. Correct it first")]
    NoTable(String),
}

/// A parsed file.
pub(super) enum Document {
    Json(CstRootNode),
    Toml(Box<DocumentMut>),
}

impl Document {
    /// Parses a file. An empty one has no entries.
    ///
    /// # Errors
    /// [`DocumentError::Syntax`].
    pub(super) fn parse(syntax: Syntax, text: &str) -> Result<Self, DocumentError> {
        match syntax {
            Syntax::Json => {
                let text = if text.trim().is_empty() { "{}\n" } else { text };
                CstRootNode::parse(text, &ParseOptions::default())
                    .map(Self::Json)
                    .map_err(|error| DocumentError::Syntax(error.to_string()))
            }
            Syntax::Toml => text
                .parse()
                .map(|document| Self::Toml(Box::new(document)))
                .map_err(|error: toml_edit::TomlError| DocumentError::Syntax(error.to_string())),
        }
    }

    /// The entries of the table `key`, in order.
    ///
    /// # Errors
    /// [`DocumentError::NoTable`].
    pub(super) fn entries(&self, key: &str) -> Result<Vec<(String, Value)>, DocumentError> {
        let no_table = || DocumentError::NoTable(key.to_owned());
        match self {
            Self::Json(root) => {
                let root = root.object_value().ok_or_else(no_table)?;
                let Some(table) = root.get(key) else {
                    return Ok(Vec::new());
                };
                let table = table.object_value().ok_or_else(no_table)?;
                let entries = table.properties().into_iter();
                Ok(entries
                    .filter_map(|entry| Some((entry.decoded_name()?, entry.to_serde_value()?)))
                    .collect())
            }
            Self::Toml(document) => {
                let Some(table) = document.get(key) else {
                    return Ok(Vec::new());
                };
                let table = table.as_table_like().ok_or_else(no_table)?;
                Ok(table
                    .iter()
                    .map(|(name, entry)| (name.to_owned(), toml_entry(entry)))
                    .collect())
            }
        }
    }

    /// Sets keys of an entry of the table `table`. The table and the entry are added if they are
    /// absent.
    ///
    /// # Errors
    /// [`DocumentError::NoTable`].
    pub(super) fn set(
        &mut self,
        table: &str,
        name: &str,
        keys: &Map<String, Value>,
    ) -> Result<(), DocumentError> {
        let no_table = || DocumentError::NoTable(table.to_owned());
        match self {
            Self::Json(root) => {
                let root = root.object_value_or_create().ok_or_else(no_table)?;
                let servers = root.object_value_or_create(table).ok_or_else(no_table)?;
                set_json(&servers, name, keys).ok_or_else(no_table)
            }
            Self::Toml(document) => {
                let mut servers = Table::new();
                servers.set_implicit(true);
                let servers = document
                    .entry(table)
                    .or_insert(Item::Table(servers))
                    .as_table_like_mut()
                    .ok_or_else(no_table)?;
                let entry = servers
                    .entry(name)
                    .or_insert(Item::Table(Table::new()))
                    .as_table_like_mut()
                    .ok_or_else(no_table)?;
                for (key, value) in keys {
                    match entry.get_mut(key).and_then(Item::as_value_mut) {
                        Some(written) => {
                            // The comment after a value belongs to it.
                            let decor = written.decor().clone();
                            *written = toml_value(value);
                            *written.decor_mut() = decor;
                        }
                        None => drop(entry.insert(key, Item::Value(toml_value(value)))),
                    }
                }
                Ok(())
            }
        }
    }

    /// The text of the file.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Json(root) => root.to_string(),
            Self::Toml(document) => document.to_string(),
        }
    }
}

fn set_json(servers: &CstObject, name: &str, keys: &Map<String, Value>) -> Option<()> {
    if servers.get(name).is_none() {
        servers.append(name, json_value(&Value::Object(keys.clone())));
        return Some(());
    }
    let entry = servers.object_value(name)?;
    for (key, value) in keys {
        match entry.get(key) {
            Some(property) => property.set_value(json_value(value)),
            None => drop(entry.append(key, json_value(value))),
        }
    }
    Some(())
}

fn json_value(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(json_value).collect()),
        Value::Object(values) => CstInputValue::Object(
            values
                .iter()
                .map(|(key, value)| (key.clone(), json_value(value)))
                .collect(),
        ),
    }
}

/// The command and the arguments of an entry: all that is read of it.
fn toml_entry(entry: &Item) -> Value {
    let texts = |key: &str| -> Value {
        match entry.get(key) {
            Some(item) if item.is_array() => {
                let values = item.as_array().into_iter().flatten();
                values.map(|value| Value::from(value.as_str())).collect()
            }
            Some(item) => item.as_str().into(),
            None => Value::Null,
        }
    };
    serde_json::json!({ "command": texts("command"), "args": texts("args") })
}

fn toml_value(value: &Value) -> toml_edit::Value {
    match value {
        Value::Array(values) => values.iter().map(toml_value).collect(),
        Value::Bool(value) => (*value).into(),
        Value::String(text) => text.as_str().into(),
        // Entries have only texts, lists of texts and booleans.
        other => other.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn keys(program: &str) -> Map<String, Value> {
        match json!({ "command": program, "args": ["mcp", "--", "x"] }) {
            Value::Object(keys) => keys,
            _ => unreachable!("it is an object"),
        }
    }

    #[test]
    fn comments_order_and_spacing_stay() {
        let json = "{\n  // mine\n  \"theme\": \"dark\", // trailing\n  \"mcpServers\": {\n    \"a\": {\n      \
                    \"command\": \"x\", /* why */\n      \"env\": { \"K\": \"v\" },\n    },\n  },\n}\n";
        let toml = "# mine\nmodel = \"m\"   # trailing\n\n[mcp_servers.a]\ncommand = \"x\" # why\nenv = { K = \
                    \"v\" }\n";
        for (syntax, table, text) in [
            (Syntax::Json, "mcpServers", json),
            (Syntax::Toml, "mcp_servers", toml),
        ] {
            let mut document = Document::parse(syntax, text).unwrap();
            assert_eq!(document.text(), text);
            document.set(table, "a", &keys("dormouse")).unwrap();
            document.set(table, "new one", &keys("dormouse")).unwrap();
            let changed = document.text();
            for kept in ["mine\n", "trailing\n", "why", "\"v\""] {
                assert!(changed.contains(kept), "{kept}: {changed}");
            }
            let again = Document::parse(syntax, &changed).unwrap();
            let entries = again.entries(table).unwrap();
            assert_eq!(entries.len(), 2, "{changed}");
            for (_, entry) in &entries {
                assert_eq!(entry["command"], "dormouse", "{changed}");
                assert_eq!(entry["args"], json!(["mcp", "--", "x"]));
            }
        }
    }

    #[test]
    fn an_empty_file_gets_its_first_entry_and_a_wrong_one_is_left_alone() {
        for (syntax, table) in [(Syntax::Json, "mcpServers"), (Syntax::Toml, "mcp_servers")] {
            let mut document = Document::parse(syntax, "").unwrap();
            assert!(document.entries(table).unwrap().is_empty());
            document.set(table, "s", &keys("d")).unwrap();
            let text = document.text();
            let entries = Document::parse(syntax, &text).unwrap().entries(table);
            assert_eq!(entries.unwrap()[0].0, "s", "{text}");
        }
        assert!(Document::parse(Syntax::Json, "{ \"a\": ").is_err());
        assert!(Document::parse(Syntax::Toml, "a = ").is_err());
        let mut list = Document::parse(Syntax::Json, "{ \"mcpServers\": [] }").unwrap();
        assert!(list.entries("mcpServers").is_err());
        assert!(list.set("mcpServers", "s", &keys("d")).is_err());
    }
}
