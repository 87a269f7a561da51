//! The schemas within a schema: where they are, and to which parts of a value each applies.

use std::collections::BTreeSet;

use dormouse_proto::text::shorten;
use serde_json::{Map, Value};

use super::{SchemaError, schema_error};

/// A schema directly within a schema.
pub(super) struct NestedSchema<'a> {
    /// Its place in the outer schema.
    key: Key<'a>,
    /// The parts of the value that it applies to, if the outer schema applies to the value.
    pub(super) target: Target<'a>,
    pub(super) schema: &'a Value,
}

/// The place of a nested schema: a keyword, or an entry of a keyword.
#[derive(Clone, Copy)]
enum Key<'a> {
    Keyword(&'a str),
    Name(&'a str, &'a str),
    Item(&'a str, usize),
}

/// The parts of a value that a schema applies to.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    /// None: it is a definition.
    Nothing,
    /// The value itself.
    Same,
    /// The property of this name.
    Property(&'a str),
    /// Every property.
    EachProperty,
    /// The item at this index.
    Item(usize),
    /// Every item.
    EachItem,
    /// The name of every property.
    EachName,
}

/// A schema that is part of another, with the JSON pointer to it.
pub(super) struct Subschema<'a> {
    pub(super) at: String,
    pub(super) fields: &'a Map<String, Value>,
}

/// Whether the keyword holds schemas by name.
pub(super) fn holds_named_schemas(keyword: &str) -> bool {
    matches!(
        keyword,
        "properties"
            | "patternProperties"
            | "$defs"
            | "definitions"
            | "dependentSchemas"
            | "dependencies"
    )
}

/// Whether the keyword holds values, which are no schemas even if they look like one.
pub(super) fn holds_plain_values(keyword: &str) -> bool {
    matches!(keyword, "const" | "enum" | "default" | "examples")
}

/// The schemas directly within a schema, without those that it refers to.
pub(super) fn nested_schemas(schema: &Map<String, Value>) -> Vec<NestedSchema<'_>> {
    schema
        .iter()
        .flat_map(|(keyword, inner)| schemas_of_keyword(keyword, inner))
        .collect()
}

fn schemas_of_keyword<'a>(keyword: &'a str, inner: &'a Value) -> Vec<NestedSchema<'a>> {
    let one = |target| {
        let key = Key::Keyword(keyword);
        vec![NestedSchema {
            key,
            target,
            schema: inner,
        }]
    };
    let items = |target: fn(usize) -> Target<'a>| {
        let items = inner.as_array().into_iter().flatten().enumerate();
        let nested = |(index, schema)| NestedSchema {
            key: Key::Item(keyword, index),
            target: target(index),
            schema,
        };
        items.map(nested).collect()
    };
    let named = |target: fn(&'a str) -> Target<'a>| {
        let named = inner.as_object().into_iter().flatten();
        let nested = |(name, schema): (&'a String, &'a Value)| NestedSchema {
            key: Key::Name(keyword, name),
            target: target(name),
            schema,
        };
        named.map(nested).collect()
    };
    match keyword {
        "allOf" | "anyOf" | "oneOf" => items(|_| Target::Same),
        "not" | "if" | "then" | "else" => one(Target::Same),
        "dependentSchemas" | "dependencies" => named(|_| Target::Same),
        "properties" => named(Target::Property),
        "patternProperties" => named(|_| Target::EachProperty),
        "additionalProperties" | "unevaluatedProperties" => one(Target::EachProperty),
        "propertyNames" => one(Target::EachName),
        "prefixItems" => items(Target::Item),
        "items" if inner.is_array() => items(Target::Item),
        "items" | "additionalItems" | "unevaluatedItems" | "contains" => one(Target::EachItem),
        "$defs" | "definitions" => named(|_| Target::Nothing),
        _ => Vec::new(),
    }
}

impl NestedSchema<'_> {
    /// The JSON pointer to the schema, if `at` is the one to the outer schema.
    fn pointer(&self, at: &str) -> String {
        let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
        match self.key {
            Key::Keyword(keyword) => format!("{at}/{keyword}"),
            Key::Name(keyword, name) => format!("{at}/{keyword}/{}", escaped(name)),
            Key::Item(keyword, index) => format!("{at}/{keyword}/{index}"),
        }
    }
}

/// The schema that `fields` refers to, after the reference as it is written: a `#` and a JSON
/// pointer. `None` without a reference. The target of a checked reference exists.
pub(super) fn reference<'a>(
    root: &'a Value,
    fields: &'a Map<String, Value>,
) -> Option<(&'a str, Option<&'a Value>)> {
    let target = fields.get("$ref")?.as_str().unwrap_or_default();
    let pointer = target.strip_prefix('#');
    Some((target, pointer.and_then(|pointer| root.pointer(pointer))))
}

/// The schema, all schemas nested in it, and all that references lead to, each once. O(n).
///
/// # Errors
/// A reference leads out of the schema, or nowhere.
pub(super) fn all_subschemas(root: &Value) -> Result<Vec<Subschema<'_>>, SchemaError> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut queue = vec![(String::new(), root)];
    while let Some((at, schema)) = queue.pop() {
        let Some(fields) = schema.as_object() else {
            continue;
        };
        if !seen.insert(std::ptr::from_ref(schema)) {
            continue;
        }
        match reference(root, fields) {
            Some((target, Some(schema))) => queue.push((target[1..].to_owned(), schema)),
            Some((target, None)) => {
                let target = shorten(target);
                let message =
                    format!("`$ref` cannot be \"{target}\": it names no part of this schema");
                let help = "Valid: \"#\" for the whole schema, and JSON pointers, such as \
                            \"#/$defs/NAME\". Nothing is read from elsewhere";
                return Err(schema_error(&format!("{at}/$ref"), message, help));
            }
            None => {}
        }
        for nested in nested_schemas(fields) {
            queue.push((nested.pointer(&at), nested.schema));
        }
        found.push(Subschema { at, fields });
    }
    Ok(found)
}
