//! The table `[result]`: the typed result with which a process ends.
//!
//! `program.rs` says what `Section`, `Value` and `Reader` are.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};
use toml::de::DeValue;

use super::{Node, Reader, Rules, Section, Span, Value};

/// `[result]`: the typed result with which a process, or each turn of a session, ends. The model
/// submits it by calling `submit_result`.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
pub struct ResultSection {
    /// The JSON Schema of the result: a table, or the path of a JSON file. It refers only to
    /// itself.
    pub schema: Option<SchemaSource>,
    /// How many attempts a model has in a turn: a value that the schema does not accept, and a
    /// reply that ends the turn without a result, are one each. After the last one the turn fails
    /// as `invalid_result`.
    #[key(default = 3, range = 1..=20)]
    pub attempts: u32,
    /// Whether the provider has to make the result valid, if it has strict tools and can express
    /// the schema. `false` is for a model that does not know strict tools.
    #[key(default = true)]
    pub strict: bool,
}

/// Where the schema of a result is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaSource {
    /// In the program file.
    Inline {
        /// The schema.
        schema: Map<String, Json>,
        /// The spans of its values, by JSON pointer.
        spans: BTreeMap<String, Span>,
    },
    /// In a file of its own.
    File(super::WithSpan<String>),
}

impl SchemaSource {
    /// The span of the value at a JSON pointer, or of the nearest value around it. For a file, the
    /// span of its path.
    #[must_use]
    pub fn span_at(&self, pointer: &str) -> Span {
        match self {
            Self::Inline { spans, .. } => {
                let mut pointer = pointer;
                loop {
                    match (spans.get(pointer), pointer.rfind('/')) {
                        (Some(span), _) => return span.clone(),
                        (None, Some(end)) => pointer = &pointer[..end],
                        (None, None) => return 0..0,
                    }
                }
            }
            Self::File(path) => path.span.clone(),
        }
    }
}

impl Value for SchemaSource {
    const EXPECTED: &'static str = "a table or the path of a file";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        match node.get_ref() {
            DeValue::Table(_) => {
                let schema = Map::read(table, key, node, rules)?;
                let mut spans = BTreeMap::new();
                collect_spans(node, String::new(), &mut spans);
                Some(Self::Inline { schema, spans })
            }
            DeValue::String(_) => Some(Self::File(Value::read(table, key, node, rules)?)),
            _ => {
                table.report_wrong_type(key, node, rules.expected::<Self>());
                None
            }
        }
    }

    fn schema(_rules: &Rules) -> Json {
        json!({ "anyOf": [{ "type": "object" }, { "type": "string", "minLength": 1 }] })
    }
}

/// Recursion is bounded, since the parser bounds the nesting.
fn collect_spans(node: Node<'_>, at: String, spans: &mut BTreeMap<String, Span>) {
    match node.get_ref() {
        DeValue::Table(table) => {
            for (key, inner) in table.iter() {
                let key = key.get_ref().replace('~', "~0").replace('/', "~1");
                collect_spans(inner, format!("{at}/{key}"), spans);
            }
        }
        DeValue::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                collect_spans(inner, format!("{at}/{index}"), spans);
            }
        }
        _ => {}
    }
    spans.insert(at, node.span());
}
