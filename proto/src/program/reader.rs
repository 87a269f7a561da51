//! Reads a table of a program file key by key. The caller requests each valid key; every key that
//! was not requested is then reported as unknown.
//!
//! A value of the wrong type is reported and then treated as absent, so that one mistake gives one
//! diagnostic.

use toml::Spanned;
use toml::de::{DeInteger, DeString, DeTable, DeValue};

use super::{Diagnostic, Diagnostics, Key, Span, Value, WithSpan, advice, shorten};

/// A value of a program file with its span.
pub(crate) type Node<'a> = &'a Spanned<DeValue<'a>>;

/// A table that is being read.
pub(crate) struct Reader<'a> {
    table: &'a DeTable<'a>,
    span: Span,
    /// The keys from the file's root, dotted; empty for the root.
    path: String,
    requested_keys: Vec<&'static str>,
    ignored: Vec<&'static str>,
    /// Whether a key of any name is valid.
    accepts_any_key: bool,
    diagnostics: &'a mut Diagnostics,
}

impl<'a> Reader<'a> {
    pub(super) fn root(
        table: &'a DeTable<'a>,
        span: Span,
        diagnostics: &'a mut Diagnostics,
    ) -> Self {
        Self {
            table,
            span,
            path: String::new(),
            requested_keys: Vec::new(),
            ignored: Vec::new(),
            accepts_any_key: false,
            diagnostics,
        }
    }

    /// A reader for a table that is the value of `key` here, or an element of it.
    pub(super) fn nested<'b>(
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
            requested_keys: Vec::new(),
            ignored: Vec::new(),
            accepts_any_key: false,
            diagnostics: self.diagnostics,
        }
    }

    /// The value of a key, if it is given and valid.
    pub(crate) fn key<T: Value>(&mut self, key: &Key) -> Option<T> {
        let name = match key.alias {
            Some(alias) => self.resolve_alias(key.name, alias),
            None => key.name,
        };
        self.requested_keys
            .extend([key.name].into_iter().chain(key.alias));
        let Some(node) = self.table.get(name) else {
            if key.rules.is_required {
                self.report_missing(key.name, key.help);
            }
            return None;
        };
        T::read(self, name, node, &key.rules)
    }

    /// The value of a key, whatever its type. Does not mark the key as requested.
    pub(super) fn node(&self, key: &str) -> Option<Node<'a>> {
        self.table.get(key)
    }

    /// The span of the value of a key, if it is given.
    pub(crate) fn span_of(&self, key: &str) -> Option<Span> {
        self.node(key).map(Spanned::span)
    }

    /// The span of the whole table.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Every entry in the order written.
    pub(super) fn entries(&self) -> Vec<(WithSpan<String>, Node<'a>)> {
        let entries = self.table.iter();
        let mut entries: Vec<_> = entries
            .map(|(key, value)| (key_with_span(key), value))
            .collect();
        entries.sort_by_key(|(key, _)| key.span.start);
        entries
    }

    /// The entries whose keys were not requested, in the order written.
    pub(super) fn unrequested_entries(&self) -> Vec<(WithSpan<String>, Node<'a>)> {
        let mut entries = self.entries();
        entries.retain(|(key, _)| !self.known_keys().any(|known| known == key.value));
        entries
    }

    /// The keys that were requested, and those without effect.
    pub(super) fn known_keys(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.ignored.iter().chain(&self.requested_keys).copied()
    }

    /// The name of a key that the file uses: `name` or `alias`. Using both is reported as an error.
    fn resolve_alias(&mut self, name: &'static str, alias: &'static str) -> &'static str {
        let place = |key: &str| self.table.get_key_value(key).map(|(key, _)| key.span());
        match (place(name), place(alias)) {
            (Some(first), Some(second)) => {
                let message = format!(
                    "`{}` and `{}` are the same key",
                    self.path_of(name),
                    self.path_of(alias)
                );
                let duplicate = Diagnostic::error(first, message, "given here");
                let help = format!("keep one of them; the name is `{name}`");
                self.report(duplicate.label(second, "and here").help(help));
                name
            }
            (None, Some(_)) => alias,
            _ => name,
        }
    }

    pub(super) fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
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

    /// Whether a list or table has at most `max` entries. A longer one is reported.
    pub(super) fn check_length(
        &mut self,
        key: &str,
        node: Node<'_>,
        count: usize,
        max: usize,
    ) -> bool {
        if count > max {
            let message = format!("`{}` holds {count} entries", self.path_of(key));
            let many = Diagnostic::error(node.span(), message, "too many");
            self.report(many.help(format!("valid: up to {max}")));
        }
        count <= max
    }

    pub(super) fn report_missing(&mut self, key: &str, help: Option<&str>) {
        let message = format!("`{}` is missing", self.path_of(key));
        let missing = Diagnostic::error(self.span(), message, format!("needs `{key}`"));
        self.report(match help {
            Some(help) => missing.help(help),
            None => missing,
        });
    }

    pub(super) fn report_empty(&mut self, key: &str, place: Span) {
        let message = format!("`{}` is empty", self.path_of(key));
        self.report(Diagnostic::error(place, message, "empty"));
    }

    pub(super) fn report_wrong_type(&mut self, key: &str, node: Node<'_>, expected: &str) {
        let (path, found) = (self.path_of(key), value_type_phrase(node.get_ref()));
        let message = format!("`{path}` must be {expected}, not {found}");
        let label = format!("expected {expected}");
        self.report(Diagnostic::error(node.span(), message, label));
    }

    pub(super) fn report_out_of_range(&mut self, key: &str, node: Node<'_>, valid: &str) {
        let message = format!("`{}` is out of range", self.path_of(key));
        let outside = Diagnostic::error(node.span(), message, "out of range");
        self.report(outside.help(format!("valid: {valid}")));
    }

    /// Warns of keys that only the reference implementation supports.
    pub(crate) fn warn_ignored(&mut self, keys: &'static [&'static str]) {
        for key in keys {
            if let Some((place, _)) = self.table.get_key_value(*key) {
                let message = format!("`{}` is not supported by this version", self.path_of(key));
                self.report(Diagnostic::warning(place.span(), message, "has no effect"));
            }
        }
        self.ignored.extend(keys);
    }

    /// Passes the reader to `read`, for all keys that were not requested. No key is unknown
    /// afterwards.
    pub(crate) fn other_keys<T>(&mut self, read: fn(&mut Self) -> T) -> T {
        self.accepts_any_key = true;
        read(self)
    }

    /// Reports every key that was not requested.
    pub(super) fn finish(mut self) {
        if self.accepts_any_key {
            return;
        }
        for (key, _) in self.unrequested_entries() {
            if self.diagnostics.is_full() {
                return;
            }
            self.report_unknown_key(&key);
        }
    }

    pub(super) fn report_unknown_key(&mut self, key: &WithSpan<String>) {
        let place = match self.path.as_str() {
            "" => "a program".to_owned(),
            path => format!("`{path}`"),
        };
        let message = format!("unknown key `{}`", shorten(&key.value));
        let label = format!("not a key of {place}");
        let help = advice(&key.value, &self.requested_keys, "keys");
        self.report(Diagnostic::error(key.span.clone(), message, label).help(help));
    }
}

/// The number, unless no integer type can represent it.
pub(super) fn integer(number: &DeInteger<'_>) -> Option<i128> {
    i128::from_str_radix(number.as_str(), number.radix()).ok()
}

fn key_with_span(key: &Spanned<DeString<'_>>) -> WithSpan<String> {
    WithSpan {
        value: key.get_ref().to_string(),
        span: key.span(),
    }
}

fn value_type_phrase(value: &DeValue<'_>) -> &'static str {
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
