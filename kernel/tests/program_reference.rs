//! `docs/program-reference.md`, which is written from the JSON Schema of program files.
//! `UPDATE_GOLDEN=1` writes it anew.

use std::fmt::Write;
use std::path::Path;

use dormouse_kernel::program::schema;
use serde_json::Value;

const HEAD: &str = "\
# Program files

A program is a TOML file. This page lists its tables and their keys; `dormouse schema` prints the
same as a JSON Schema, with which an editor completes and checks program files. A key that is not
listed is an error.

This page is written from the types that read a program file. Do not edit it: change the doc comment
of the field, and run
`UPDATE_GOLDEN=1 cargo test -p dormouse-kernel --test kernel program_reference`.
";

/// The width of lines that are not rows of a table.
const WIDTH: usize = 100;

/// The table at `path` and all tables in it. A table with the keys of an earlier one is left out:
/// the description of what holds it refers to that one.
fn write_table(page: &mut String, heading: &str, path: &str, schema: &Value) {
    if let Some(properties) = schema["properties"].as_object() {
        if page.contains(&rows(schema)) {
            return;
        }
        write!(page, "\n## {heading}\n").unwrap();
        if let Some(description) = schema["description"].as_str() {
            write!(page, "\n{}", wrapped(description)).unwrap();
        }
        let head = "| key | type | default | description |\n|---|---|---|---|";
        write!(page, "\n{head}\n{}", rows(schema)).unwrap();
        let current = properties
            .iter()
            .filter(|(_, property)| property["deprecated"] != true);
        for (key, property) in current {
            let path = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            write_table(page, &format!("`[{path}]`"), &path, property);
        }
    } else if schema["items"].is_object() {
        let heading = match &schema["items"]["anyOf"] {
            Value::Null => format!("`[[{path}]]`"),
            _ => format!("An entry of `{path}`"),
        };
        write_table(page, &heading, path, &described(&schema["items"], schema));
    } else if schema["additionalProperties"].is_object() {
        let path = format!("{path}.NAME");
        let entry = described(&schema["additionalProperties"], schema);
        write_table(page, &format!("`[{path}]`"), &path, &entry);
    }
    for alternative in schema["anyOf"].as_array().into_iter().flatten() {
        write_table(page, heading, path, &described(alternative, schema));
    }
}

/// The table with the description of what holds it, if it has none.
fn described(table: &Value, holder: &Value) -> Value {
    let mut table = table.clone();
    if table["description"].is_null() && table.is_object() {
        table["description"] = holder["description"].clone();
    }
    table
}

/// The rows of a table, one for each key.
fn rows(schema: &Value) -> String {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let rows = properties.map(|(key, property)| {
        let is_deprecated = property["deprecated"] == true;
        let default = match &property["default"] {
            _ if is_deprecated => String::new(),
            Value::Null if required.contains(&key.as_str().into()) => "required".to_owned(),
            Value::Null => String::new(),
            default => format!("`{default}`"),
        };
        let of = if is_deprecated {
            String::new()
        } else {
            type_of(property)
        };
        let description = property["description"].as_str().unwrap_or_default();
        let description = description.replace('|', "\\|");
        format!("| `{key}` | {of} | {default} | {description} |\n")
    });
    let other = &schema["additionalProperties"]["description"];
    let other = other
        .as_str()
        .map(|doc| format!("| any other key | string |  | {doc} |\n"));
    rows.chain(other).collect()
}

fn joined(words: impl Iterator<Item = String>, between: &str) -> String {
    words.collect::<Vec<_>>().join(between)
}

/// The type of a value, as the reference says it.
fn type_of(schema: &Value) -> String {
    let rest = &schema["additionalProperties"];
    if let Some(title) = schema["title"].as_str() {
        title.to_owned()
    } else if let Some(words) = schema["enum"].as_array() {
        joined(words.iter().map(|word| format!("`{word}`")), ", ")
    } else if schema["const"].is_string() {
        format!("`{}`", schema["const"])
    } else if schema["anyOf"].is_array() {
        joined(alternatives(schema).map(type_of), " or ")
    } else if let Some(types) = schema["type"].as_array() {
        joined(
            types.iter().filter_map(Value::as_str).map(str::to_owned),
            " or ",
        )
    } else if schema["items"].is_object() {
        format!("list of {}", plural(&schema["items"]))
    } else if rest.is_object() && schema["properties"].is_null() {
        match alternatives(rest).any(|schema| schema["anyOf"].is_array()) {
            true => "table".to_owned(),
            false => format!("table of {}", plural(rest)),
        }
    } else if schema["type"] == "object" {
        "table".to_owned()
    } else if schema["type"] == "integer" {
        format!("integer, {} to {}", schema["minimum"], schema["maximum"])
    } else {
        schema["type"]
            .as_str()
            .expect("a key has a type")
            .to_owned()
    }
}

fn plural(schema: &Value) -> String {
    if schema["title"].is_null() && schema["anyOf"].is_array() {
        return joined(alternatives(schema).map(plural), " or ");
    }
    match schema["type"].as_str() {
        Some("array") => format!("lists of {}", plural(&schema["items"])),
        Some("string" | "object") => format!("{}s", type_of(schema)),
        _ => type_of(schema),
    }
}

fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    let all = schema["anyOf"].as_array().into_iter().flatten();
    all.filter(|schema| schema["deprecated"] != true)
}

fn wrapped(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push_str(&line);
            lines.push('\n');
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    format!("{lines}{line}\n")
}

#[test]
fn the_reference_of_program_files_is_that_of_the_types() {
    let mut page = HEAD.to_owned();
    write_table(&mut page, "Tables", "", &schema());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/program-reference.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/program-reference.md is not what the types say. Write it anew: \
         UPDATE_GOLDEN=1 cargo test -p dormouse-kernel --test kernel program_reference"
    );
}
