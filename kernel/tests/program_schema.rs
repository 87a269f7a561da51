//! The JSON Schema of program files: it accepts what the reader accepts, and refuses unknown keys
//! and wrong types as that does.
//!
//! The few keywords that the schema uses are checked here. The crate `jsonschema` would bring
//! thirty crates that nothing else here needs, one of them under a licence that `deny.toml` does
//! not list.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use dormouse_kernel::program::schema;
use dormouse_proto::program::parse;
use regex::Regex;
use serde_json::Value;

/// Panics if the text is a program without a mistake of its own, and the schema refuses it.
pub(crate) fn check_against_schema(text: &str) {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    let parsed = parse(text);
    if parsed.is_toml
        && !parsed.diagnostics.has_errors()
        && let Some(program) = as_json(text)
    {
        let refused = refusal(SCHEMA.get_or_init(schema), &program, "");
        assert_eq!(refused, None, "the schema refuses\n{text}");
    }
}

/// The text as JSON; none if JSON has no such number.
fn as_json(text: &str) -> Option<Value> {
    toml::from_str(text).ok()
}

/// Why the schema refuses a value, if it does.
fn refusal(schema: &Value, value: &Value, path: &str) -> Option<String> {
    let rules = match schema {
        Value::Bool(true) => return None,
        Value::Bool(false) => return Some(format!("{path}: an unknown key")),
        schema => schema.as_object().expect("a schema is an object"),
    };
    let refused = |why: String| Some(format!("{path}: {why}: {value}"));
    for (keyword, rule) in rules {
        let number = || rule.as_f64().expect("a bound is a number");
        let is_valid = match (keyword.as_str(), value) {
            ("$schema" | "title" | "description" | "default" | "deprecated", _) => true,
            ("type", _) => has_type(rule, value),
            ("enum", _) => rule.as_array().unwrap().contains(value),
            ("const", _) => rule == value,
            ("minimum", Value::Number(value)) => value.as_f64().unwrap() >= number(),
            ("maximum", Value::Number(value)) => value.as_f64().unwrap() <= number(),
            ("minLength", Value::String(text)) => text.chars().count() as f64 >= number(),
            ("pattern", Value::String(text)) => {
                Regex::new(rule.as_str().unwrap()).unwrap().is_match(text)
            }
            ("minItems", Value::Array(list)) => list.len() as f64 >= number(),
            ("maxItems", Value::Array(list)) => list.len() as f64 <= number(),
            ("maxProperties", Value::Object(table)) => table.len() as f64 <= number(),
            ("required", Value::Object(table)) => {
                let required = rule.as_array().unwrap().iter();
                required
                    .filter_map(Value::as_str)
                    .all(|key| table.contains_key(key))
            }
            ("anyOf", _) => {
                let mut schemas = rule.as_array().unwrap().iter();
                schemas.any(|schema| refusal(schema, value, path).is_none())
            }
            ("items", Value::Array(list)) => {
                let mut items = list.iter();
                match items.find_map(|item| refusal(rule, item, path)) {
                    Some(refusal) => return Some(refusal),
                    None => true,
                }
            }
            ("properties" | "additionalProperties", Value::Object(table)) => {
                let listed = rules.get("properties").and_then(Value::as_object);
                for (key, value) in table {
                    let property = listed.and_then(|listed| listed.get(key));
                    let property = property.or_else(|| rules.get("additionalProperties"));
                    let path = format!("{path}.{key}");
                    if let Some(refusal) = property.and_then(|of| refusal(of, value, &path)) {
                        return Some(refusal);
                    }
                }
                true
            }
            (known, _) if OF_ONE_TYPE.contains(&known) => true,
            (unknown, _) => panic!("the schema uses `{unknown}`, which is not checked here"),
        };
        if !is_valid {
            return refused(format!("not of {keyword} {rule}"));
        }
    }
    None
}

/// Keywords that say nothing of values of other types.
const OF_ONE_TYPE: [&str; 11] = [
    "minimum",
    "maximum",
    "minLength",
    "pattern",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
    "items",
    "properties",
    "additionalProperties",
];

fn has_type(rule: &Value, value: &Value) -> bool {
    let is = |word: &Value| match word.as_str().expect("a type is a word") {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type of JSON: {other}"),
    };
    match rule {
        Value::Array(words) => words.iter().any(is),
        word => is(word),
    }
}

fn files_below(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            files_below(&path, extension, found);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

/// The blocks of TOML in a Markdown text.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    let blocks = text.split("```toml\n").skip(1);
    blocks.filter_map(|rest| Some(rest.split_once("```")?.0))
}

#[test]
fn every_program_of_the_repository_is_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut programs, mut pages) = (Vec::new(), Vec::new());
    files_below(root, "toml", &mut programs);
    files_below(root, "md", &mut pages);
    let read = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
    let pages: Vec<_> = pages.iter().map(read).collect();
    let texts: Vec<_> = programs.iter().map(read).collect();
    let texts = texts.iter().map(String::as_str);
    let mut count = 0;
    for text in texts.chain(pages.iter().flat_map(|page| blocks(page))) {
        check_against_schema(text);
        count += usize::from(!parse(text).diagnostics.has_errors());
    }
    assert!(count >= 8, "only {count} programs were found");
}

#[test]
fn what_the_reader_refuses_in_a_key_the_schema_refuses_too() {
    let model = "[model]\nname = \"m\"\nprovider = \"anthropic\"\n";
    let wrong = [
        "colour = 1",
        "region = 5\ncolour = 1",
        "max_iterations = 0",
        "[[model.fallback]]\nname = \"m\"",
        "[[model.fallback]]\nname = \"m\"\nprovider = \"openai\"\nafter = 101",
        "[prompt]\ncolour = 1",
        "[prompt]\nsystem = 1",
        "[tools]\nenabled = [{ alias = \"a\" }]",
        "[tools]\nenabled = [{ name = \"a\", access = \"all\" }]",
        "[tools.mcp]\na = \"some\"",
        "[tools.mcp.a]\ntool = []",
        "[[tools.command]]\nname = \"a\"\ndescription = \"d\"",
        "[[tools.command]]\nname = \"\"\ndescription = \"d\"\nargv = []",
        "[[tools.command]]\nname = \"a\"\ndescription = \"d\"\nargv = []\ndeadline = \"3w\"",
        "[[tools.command]]\nname = \"a\"\ndescription = \"d\"\nargv = []\nparameters.a = {}",
        "[mcp.servers.a]\ncommand = 1",
        "[mcp.servers.a]\ncomand = \"a\"",
        "[file_descriptor]\nmax_input_chars = 0",
        "[file_descriptor]\nexpand_fds = \"all\"",
        "[file_descriptor]\npreview = \"tail\"",
        "[preload]\nrelative_to = \"home\"",
        "[env_info]\nvariables = [\"shell\"]",
        "[env_info]\nlabel = 1",
        "[linked_programs]\na = {}",
        "[demo]\nprompts = \"a\"",
        "[limits]\nmax_depth = 65",
        "[limits]\ncommand_memory = \"2 PB\"",
        "[budget]\ncost = \"2,50\"",
        "[prices.m]\ninput = 1",
        "[tool]",
    ];
    for rest in wrong {
        let text = format!("{model}{rest}\n");
        assert!(
            parse(&text).diagnostics.has_errors(),
            "the reader accepts\n{text}"
        );
        let refused = refusal(&schema(), &as_json(&text).unwrap(), "");
        assert!(refused.is_some(), "the schema accepts\n{text}");
    }
}

#[test]
fn every_key_has_a_description() {
    fn check(schema: &Value, path: &str) {
        let properties = schema["properties"].as_object().into_iter().flatten();
        for (key, property) in properties {
            let path = format!("{path}.{key}");
            let description = property["description"].as_str().unwrap_or_default();
            assert!(
                description.len() > 8 && description.contains('.'),
                "{path}: {description:?}"
            );
            check(property, &path);
        }
        let inner = ["items", "additionalProperties"].map(|keyword| &schema[keyword]);
        let tables = inner.into_iter().filter(|schema| schema.is_object());
        tables.for_each(|table| check(table, path));
        let alternatives = schema["anyOf"].as_array().into_iter().flatten();
        alternatives.for_each(|alternative| check(alternative, path));
    }
    check(&schema(), "");
}
