//! The types of values in a program file: parsing, their names in errors, and their JSON Schema.
//!
//! `reader.rs` reads the table that holds a value; `section.rs` defines the `Rules` of a key, and
//! implements `Value` for tables.

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::reader::integer;
use super::{Named, Node, Reader, Rules, WithSpan};

/// A type that a value in a program file can have.
pub(crate) trait Value: Sized {
    /// The phrase for a valid value in errors.
    const EXPECTED: &'static str;
    /// The phrase for a list of such values in errors.
    const LIST: &'static str = "a list";
    /// The maximum number of entries of a list, if the key does not set one.
    const MAX_ITEMS: usize = usize::MAX;

    /// Reads a value. Returns `None` if it is invalid, which was reported.
    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self>;

    /// The JSON Schema of the valid values.
    fn schema(rules: &Rules) -> Json;

    /// The value as JSON for the `default` of a schema; `None` leaves `default` out of the schema.
    fn show(&self) -> Option<Json> {
        None
    }
}

impl Value for String {
    const EXPECTED: &'static str = "a string";
    const LIST: &'static str = "a list of strings";
    const MAX_ITEMS: usize = 1024;

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let Some(text) = node.get_ref().as_str() else {
            table.report_wrong_type(key, node, rules.expected::<Self>());
            return None;
        };
        if rules.is_required && text.trim().is_empty() {
            table.report_empty(key, node.span());
        }
        Some(text.to_owned())
    }

    fn schema(rules: &Rules) -> Json {
        match rules.is_required {
            true => json!({ "type": "string", "minLength": 1 }),
            false => json!({ "type": "string" }),
        }
    }

    fn show(&self) -> Option<Json> {
        (!self.is_empty()).then(|| json!(self))
    }
}

impl Value for bool {
    const EXPECTED: &'static str = "true or false";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let flag = node.get_ref().as_bool();
        if flag.is_none() {
            table.report_wrong_type(key, node, rules.expected::<Self>());
        }
        flag
    }

    fn schema(_rules: &Rules) -> Json {
        json!({ "type": "boolean" })
    }

    fn show(&self) -> Option<Json> {
        Some(json!(self))
    }
}

impl Value for u64 {
    const EXPECTED: &'static str = "a whole number";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let Some(number) = node.get_ref().as_integer() else {
            table.report_wrong_type(key, node, rules.expected::<Self>());
            return None;
        };
        let number = integer(number).and_then(|number| Self::try_from(number).ok());
        let valid = number.filter(|number| rules.range.contains(number));
        if valid.is_none() {
            let (min, max) = (rules.range.start(), rules.range.end());
            table.report_out_of_range(key, node, &format!("{min} to {max}"));
        }
        valid
    }

    fn schema(rules: &Rules) -> Json {
        let (min, max) = (rules.range.start(), rules.range.end());
        json!({ "type": "integer", "minimum": min, "maximum": max })
    }

    fn show(&self) -> Option<Json> {
        Some(json!(self))
    }
}

/// Give each key of this type a range that ends at `u32::MAX` or below: a larger value would be
/// dropped without a report.
impl Value for u32 {
    const EXPECTED: &'static str = u64::EXPECTED;

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        u64::read(table, key, node, rules).and_then(|number| number.try_into().ok())
    }

    fn schema(rules: &Rules) -> Json {
        u64::schema(rules)
    }

    fn show(&self) -> Option<Json> {
        Some(json!(self))
    }
}

impl<T: Value> Value for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        T::read(table, key, node, rules).map(Some)
    }

    fn schema(rules: &Rules) -> Json {
        T::schema(rules)
    }

    fn show(&self) -> Option<Json> {
        self.as_ref().and_then(T::show)
    }
}

impl<T: Value> Value for WithSpan<T> {
    const EXPECTED: &'static str = T::EXPECTED;
    const LIST: &'static str = T::LIST;
    const MAX_ITEMS: usize = T::MAX_ITEMS;

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let value = T::read(table, key, node, rules)?;
        let span = node.span();
        Some(Self { value, span })
    }

    fn schema(rules: &Rules) -> Json {
        T::schema(rules)
    }

    fn show(&self) -> Option<Json> {
        self.value.show()
    }
}

/// A list. Invalid entries are dropped.
impl<T: Value> Value for Vec<T> {
    const EXPECTED: &'static str = T::LIST;

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let Some(list) = node.get_ref().as_array() else {
            table.report_wrong_type(key, node, rules.expected::<Self>());
            return None;
        };
        let (max, rules) = (rules.max_items.unwrap_or(T::MAX_ITEMS), rules.of_entries());
        if !table.check_length(key, node, list.len(), max) {
            return None;
        }
        let entries = list
            .iter()
            .filter_map(|item| T::read(table, key, item, &rules));
        Some(entries.collect())
    }

    fn schema(rules: &Rules) -> Json {
        let mut list = json!({ "type": "array", "items": T::schema(&rules.of_entries()) });
        set_bound(
            &mut list,
            "maxItems",
            rules.max_items.unwrap_or(T::MAX_ITEMS),
        );
        list
    }
}

/// A table whose keys are names, in the order written. Invalid entries are dropped.
impl<T: Value> Value for Vec<Named<T>> {
    const EXPECTED: &'static str = "a table";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let DeValue::Table(inner) = node.get_ref() else {
            table.report_wrong_type(key, node, rules.expected::<Self>());
            return None;
        };
        if !table.check_length(
            key,
            node,
            inner.len(),
            rules.max_items.unwrap_or(usize::MAX),
        ) {
            return None;
        }
        let (mut inner, rules) = (table.nested(key, inner, node.span()), rules.of_entries());
        let mut named = Vec::new();
        for (name, node) in inner.entries() {
            let value = T::read(&mut inner, &name.value, node, &rules);
            named.extend(value.map(|value| Named { name, value }));
        }
        Some(named)
    }

    fn schema(rules: &Rules) -> Json {
        let entry = T::schema(&rules.of_entries());
        let mut table = json!({ "type": "object", "additionalProperties": entry });
        set_bound(
            &mut table,
            "maxProperties",
            rules.max_items.unwrap_or(usize::MAX),
        );
        table
    }
}

fn set_bound(schema: &mut Json, keyword: &str, max: usize) {
    if max < usize::MAX {
        schema[keyword] = json!(max);
    }
}
