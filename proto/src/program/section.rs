//! Describes a table of a program file: a struct whose fields are its keys.
//!
//! `#[derive(Section)]` generates the parser and the description from the same attributes, so that
//! the parser, the JSON Schema and the reference always know the same keys.

use std::ops::RangeInclusive;

pub(crate) use dormouse_macros::Section;
use serde_json::Value as Json;
use toml::de::DeValue;

use super::{Node, Reader, TableSchema, Value};

/// A key of a table.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// Another name, which the reference implementation uses.
    pub(crate) alias: Option<&'static str>,
    /// The description in the reference.
    pub(crate) doc: &'static str,
    /// A hint for the error if a required key is missing: the text to write.
    pub(crate) help: Option<&'static str>,
    pub(crate) rules: Rules,
}

/// The rules for a value in addition to its type.
#[derive(Clone)]
pub(crate) struct Rules {
    /// The range of numbers and amounts, in the unit in which they are stored.
    pub(crate) range: RangeInclusive<u64>,
    /// The maximum number of entries of a list or table, if it differs from that of the type.
    pub(crate) max_items: Option<usize>,
    /// Whether the key must be given; a required text must not be blank.
    pub(crate) is_required: bool,
    /// The phrase for a valid value in errors, if it differs from that of the type.
    pub(crate) expected: Option<&'static str>,
}

impl Rules {
    /// No rules: every value of the type is valid.
    pub(crate) const ANY: Self = Self {
        range: 0..=u64::MAX,
        max_items: None,
        is_required: false,
        expected: None,
    };

    /// The phrase in errors for a valid value of the type `T`.
    pub(super) fn expected<T: Value>(&self) -> &'static str {
        self.expected.unwrap_or(T::EXPECTED)
    }

    /// The rules for the text of a word, which names a value of the type `T`.
    pub(super) fn of_word<T: Value>(&self) -> Self {
        Self {
            expected: Some(self.expected::<T>()),
            ..Self::ANY
        }
    }

    /// The rules for the entries of a list or table.
    pub(super) fn of_entries(&self) -> Self {
        Self {
            range: self.range.clone(),
            ..Self::ANY
        }
    }
}

/// A table of a program file. `dormouse_macros::Section` derives it from a struct.
pub(crate) trait Section: Default {
    /// The keys, without those of flattened sections.
    const KEYS: &'static [Key];
    /// The phrase for the table in errors.
    const EXPECTED: &'static str = "a table";
    /// The phrase for a list of such tables in errors.
    const LIST: &'static str = "a list of tables";

    /// Reads the keys and checks them against each other. `None` if the table is invalid, which was
    /// reported.
    fn read(table: &mut Reader<'_>) -> Option<Self>;

    /// Adds its keys to a schema.
    fn describe(schema: &mut TableSchema);

    /// Reads a value that the file has in place of the table, such as a name.
    fn read_shorthand(table: &mut Reader<'_>, key: &str, node: Node<'_>) -> Option<Self> {
        table.report_wrong_type(key, node, Self::EXPECTED);
        None
    }

    /// The schema of such a value.
    fn shorthand_schema() -> Option<Json> {
        None
    }
}

impl<S: Section> Value for S {
    const EXPECTED: &'static str = S::EXPECTED;
    const LIST: &'static str = S::LIST;

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, _rules: &Rules) -> Option<Self> {
        let DeValue::Table(inner) = node.get_ref() else {
            return S::read_shorthand(table, key, node);
        };
        let mut inner = table.nested(key, inner, node.span());
        let section = S::read(&mut inner);
        inner.finish();
        section
    }

    fn schema(_rules: &Rules) -> Json {
        let table = TableSchema::of::<S>();
        match S::shorthand_schema() {
            Some(other) => serde_json::json!({ "anyOf": [other, table] }),
            None => table,
        }
    }
}
