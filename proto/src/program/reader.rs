//! Reading a table key by key: what is asked for is known, what is left in the end is not.
//!
//! A value of the wrong type is remarked on and then treated as absent, so that one mistake is one
//! remark.

use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeInteger, DeString, DeTable, DeValue};

use super::{At, Remark, Remarks, Span, nearest, shorten};

/// The longest list of texts: far more than any program has files or arguments.
const MOST_TEXTS: usize = 1024;

/// A value of a program file with its place.
pub(super) type Node<'a> = &'a Spanned<DeValue<'a>>;

/// A table that is being read.
pub(super) struct Reader<'a> {
    table: &'a DeTable<'a>,
    span: Span,
    /// The keys from the file's root, dotted; empty for the root.
    path: String,
    known: Vec<&'static str>,
    ignored: Vec<&'static str>,
    remarks: &'a mut Remarks,
}

impl<'a> Reader<'a> {
    pub(super) fn root(table: &'a DeTable<'a>, span: Span, remarks: &'a mut Remarks) -> Self {
        Self {
            table,
            span,
            path: String::new(),
            known: Vec::new(),
            ignored: Vec::new(),
            remarks,
        }
    }

    /// A reader for a table that is the value of `key` here, or an element of it.
    pub(super) fn inner<'b>(
        &'b mut self,
        key: &str,
        table: &'b DeTable<'b>,
        span: Span,
    ) -> Reader<'b>
    where
        'a: 'b,
    {
        Reader {
            table,
            span,
            path: self.path_of(key),
            known: Vec::new(),
            ignored: Vec::new(),
            remarks: self.remarks,
        }
    }

    /// The place of the whole table.
    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    pub(super) fn remark(&mut self, remark: Remark) {
        self.remarks.push(remark);
    }

    /// The keys from the root to `key`, dotted.
    pub(super) fn path_of(&self, key: &str) -> String {
        let key = shorten(key);
        if self.path.is_empty() {
            key
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// The value of a key, whatever its type.
    pub(super) fn get(&mut self, key: &'static str) -> Option<Node<'a>> {
        self.know(key);
        self.table.get(key)
    }

    fn know(&mut self, key: &'static str) {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
    }

    /// Every entry in the order written; none of them is unknown afterwards.
    pub(super) fn entries(&self) -> Vec<(At<String>, Node<'a>)> {
        let mut entries: Vec<_> = self
            .table
            .iter()
            .map(|(key, value)| (at_key(key), value))
            .collect();
        entries.sort_by_key(|(key, _)| key.span.start);
        entries
    }

    /// The entries that have not been asked for, in the order written.
    pub(super) fn others(&self) -> Vec<(At<String>, Node<'a>)> {
        let mut entries = self.entries();
        let is_known = |key: &str| self.known.contains(&key) || self.ignored.contains(&key);
        entries.retain(|(key, _)| !is_known(&key.value));
        entries
    }

    /// A key under two names, of which only one may be given.
    pub(super) fn either(&mut self, name: &'static str, alias: &'static str) -> &'static str {
        let place = |key: &str| self.table.get_key_value(key).map(|(key, _)| key.span());
        let (first, second) = (place(name), place(alias));
        self.know(name);
        self.know(alias);
        if let (Some(first), Some(second)) = (&first, &second) {
            let message = format!(
                "`{}` and `{}` are the same key",
                self.path_of(name),
                self.path_of(alias)
            );
            let remark = Remark::error(first.clone(), message, "given here")
                .label(second.clone(), "and here");
            self.remark(remark.help(format!("keep one of them; the name is `{name}`")));
        }
        if first.is_none() && second.is_some() {
            alias
        } else {
            name
        }
    }

    pub(super) fn text(&mut self, key: &'static str) -> Option<At<String>> {
        let node = self.get(key)?;
        self.as_text(key, node)
    }

    /// A text that must be there and must not be empty. If it is not, the remark is made and an
    /// empty one given.
    pub(super) fn required_text(&mut self, key: &'static str) -> At<String> {
        let is_missing = !self.table.contains_key(key);
        let text = self.text(key);
        if is_missing {
            let span = self.span.clone();
            self.remark(Remark::error(
                span,
                format!("`{}` is missing", self.path_of(key)),
                format!("needs `{key}`"),
            ));
        }
        if let Some(text) = &text
            && text.value.trim().is_empty()
        {
            self.remark(Remark::error(
                text.span.clone(),
                format!("`{}` is empty", self.path_of(key)),
                "empty",
            ));
        }
        text.unwrap_or_else(|| At {
            value: String::new(),
            span: self.span.clone(),
        })
    }

    pub(super) fn texts(&mut self, key: &'static str) -> Vec<At<String>> {
        let Some(node) = self.get(key) else {
            return Vec::new();
        };
        let Some(list) = node.get_ref().as_array() else {
            self.wrong_type(key, node, "a list of strings");
            return Vec::new();
        };
        if !self.is_within(key, node, list.len(), MOST_TEXTS) {
            return Vec::new();
        }
        list.iter()
            .filter_map(|item| self.as_text(key, item))
            .collect()
    }

    /// Whether a list or table of so many is within its bound; remarked on if not.
    pub(super) fn is_within(
        &mut self,
        key: &str,
        node: Node<'_>,
        count: usize,
        most: usize,
    ) -> bool {
        if count > most {
            let message = format!("`{}` holds {count} entries", self.path_of(key));
            let remark = Remark::error(node.span(), message, "too many");
            self.remark(remark.help(format!("valid: up to {most}")));
        }
        count <= most
    }

    pub(super) fn flag(&mut self, key: &'static str) -> Option<At<bool>> {
        let node = self.get(key)?;
        let Some(value) = node.get_ref().as_bool() else {
            self.wrong_type(key, node, "true or false");
            return None;
        };
        Some(At {
            value,
            span: node.span(),
        })
    }

    /// A whole number within a range.
    pub(super) fn number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<At<u64>> {
        let node = self.get(key)?;
        let Some(number) = node.get_ref().as_integer() else {
            self.wrong_type(key, node, "a whole number");
            return None;
        };
        match integer(number).and_then(|number| u64::try_from(number).ok()) {
            Some(value) if range.contains(&value) => Some(At {
                value,
                span: node.span(),
            }),
            _ => {
                self.out_of_range(key, node, &format!("{} to {}", range.start(), range.end()));
                None
            }
        }
    }

    /// One word out of a few.
    pub(super) fn word<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&'static str, T)],
    ) -> Option<At<T>> {
        let At { value, span } = self.text(key)?;
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == value) {
            return Some(At {
                value: *meaning,
                span,
            });
        }
        let valid: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let message = format!("`{}` cannot be {:?}", self.path_of(key), shorten(&value));
        self.remark(
            Remark::error(span, message, "not one of its values")
                .help(advice(&value, &valid, "values")),
        );
        None
    }

    pub(super) fn section<'b>(&'b mut self, key: &'static str) -> Option<Reader<'b>>
    where
        'a: 'b,
    {
        let node = self.get(key)?;
        match node.get_ref() {
            DeValue::Table(table) => Some(self.inner(key, table, node.span())),
            _ => {
                self.wrong_type(key, node, "a table");
                None
            }
        }
    }

    pub(super) fn as_text(&mut self, key: &str, node: Node<'_>) -> Option<At<String>> {
        let Some(value) = node.get_ref().as_str() else {
            self.wrong_type(key, node, "a string");
            return None;
        };
        Some(At {
            value: value.to_owned(),
            span: node.span(),
        })
    }

    pub(super) fn wrong_type(&mut self, key: &str, node: Node<'_>, expected: &str) {
        let message = format!(
            "`{}` must be {expected}, not {}",
            self.path_of(key),
            with_article(node.get_ref())
        );
        self.remark(Remark::error(
            node.span(),
            message,
            format!("expected {expected}"),
        ));
    }

    pub(super) fn out_of_range(&mut self, key: &str, node: Node<'_>, valid: &str) {
        let message = format!("`{}` is out of range", self.path_of(key));
        self.remark(
            Remark::error(node.span(), message, "out of range").help(format!("valid: {valid}")),
        );
    }

    /// A key that the reference implementation knows and this version does not.
    pub(super) fn without_effect(&mut self, key: &'static str) {
        self.ignored.push(key);
        let Some((place, _)) = self.table.get_key_value(key) else {
            return;
        };
        let message = format!("`{}` is not supported by this version", self.path_of(key));
        self.remark(Remark::warning(place.span(), message, "has no effect"));
    }

    /// Remarks on every key that was not asked for.
    pub(super) fn finish(mut self) {
        for (key, _) in self.others() {
            if self.remarks.is_full() {
                return;
            }
            self.unknown_key(&key);
        }
    }

    pub(super) fn unknown_key(&mut self, key: &At<String>) {
        let place = if self.path.is_empty() {
            "a program".to_owned()
        } else {
            format!("`{}`", self.path)
        };
        let message = format!("unknown key `{}`", shorten(&key.value));
        let remark = Remark::error(key.span.clone(), message, format!("not a key of {place}"));
        let help = advice(&key.value, &self.known, "keys");
        self.remark(remark.help(help));
    }
}

/// The help of a remark: "did you mean … ?" if something is near, and always what is valid.
#[must_use]
pub fn advice(word: &str, valid: &[&str], what: &str) -> String {
    let list = format!("valid {what}: {}", valid.join(", "));
    match nearest(word, valid.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? {list}"),
        None => list,
    }
}

/// The number, unless no integer type holds it.
pub(super) fn integer(number: &DeInteger<'_>) -> Option<i128> {
    i128::from_str_radix(number.as_str(), number.radix()).ok()
}

fn at_key(key: &Spanned<DeString<'_>>) -> At<String> {
    At {
        value: key.get_ref().to_string(),
        span: key.span(),
    }
}

fn with_article(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
