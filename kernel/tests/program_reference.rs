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

/// The table at `path` and all tables in it.
fn write_table(page: &mut String, heading: &str, path: &str, schema: &Value) {
    if let Some(properties) = schema["properties"].as_object() {
        write!(page, "\n## {heading}\n").unwrap();
        if let Some(description) = schema["description"].as_str() {
            write!(page, "\n{}", wrapped(description)).unwrap();
        }
        write_rows(page, schema);
        for (key, property) in properties {
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

fn write_rows(page: &mut String, schema: &Value) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let rows = properties.map(|(key, property)| {
        let default = match &property["default"] {
            Value::Null if required.contains(&key.as_str().into()) => "required".to_owned(),
            Value::Null => String::new(),
            default => format!("`{default}`"),
        };
        let description = property["description"].as_str().unwrap_or_default();
        let of = type_of(property);
        format!(
            "| `{key}` | {of} | {default} | {} |\n",
            description.replace('|', "\\|")
        )
    });
    let other = &schema["additionalProperties"]["description"];
    let other = other
        .as_str()
        .map(|doc| format!("| any other key | string | | {doc} |\n"));
    let rows: String = rows.chain(other).collect();
    write!(
        page,
        "\n| key | type | default | description |\n|---|---|---|---|\n{rows}"
    )
    .unwrap();
}

fn type_of(schema: &Value) -> String {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array()
            .unwrap()
            .iter()
            .map(|word| format!("`{word}`"))
            .collect()
    };
    if let Some(title) = schema["title"].as_str() {
        return title.to_owned();
    }
    if schema["enum"].is_array() {
        return texts(&schema["enum"]).join(", ");
    }
    if let Some(alternatives) = schema["anyOf"].as_array() {
        return alternatives
            .iter()
            .map(type_of)
            .collect::<Vec<_>>()
            .join(" or ");
    }
    let entry = |schema: &Value| match schema["type"].as_str() {
        Some("string") => "strings".to_owned(),
        Some("object") => "tables".to_owned(),
        _ => type_of(schema),
    };
    match schema["type"].as_str() {
        Some("array") => format!("list of {}", entry(&schema["items"])),
        Some("object") if schema["properties"].is_null() => match &schema["additionalProperties"] {
            Value::Null => "table".to_owned(),
            inner => format!("table of {}", entry(inner)),
        },
        Some("object") => "table".to_owned(),
        Some("integer") => format!("integer, {} to {}", schema["minimum"], schema["maximum"]),
        Some(word) => word.to_owned(),
        None if schema["const"].is_string() => format!("`{}`", schema["const"]),
        None => match schema["type"].as_array() {
            Some(_) => "string, number or boolean".to_owned(),
            None => String::new(),
        },
    }
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
