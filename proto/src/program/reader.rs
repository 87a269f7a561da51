//! Reads a table of a program file key by key. The caller requests each valid key; every key that
//! was not requested is then reported as unknown.
//!
//! A value of the wrong type is reported and then treated as absent, so that one mistake gives one
//! diagnostic.

use toml::Spanned;
use toml::de::{DeInteger, DeString, DeTable, DeValue};

use super::{At, Diagnostic, Diagnostics, Key, Span, Value, advice, shorten};

/// A value of a program file with its span.
pub(crate) type Node<'a> = &'a Spanned<DeValue<'a>>;

/// A table that is being read.
pub(crate) struct Reader<'a> {
    table: &'a DeTable<'a>,
    span: Span,
    /// The keys from the file's root, dotted; empty for the root.
    path: String,
    known: Vec<&'static str>,
    ignored: Vec<&'static str>,
    /// Whether a key of any name is valid.
    is_open: bool,
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
            known: Vec::new(),
            ignored: Vec::new(),
            is_open: false,
            diagnostics,
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
            is_open: false,
            diagnostics: self.diagnostics,
        }
    }

    /// The value of a key, if it is given and valid.
    pub(crate) fn key<T: Value>(&mut self, key: &Key) -> Option<T> {
        let name = match key.alias {
            Some(alias) => self.either(key.name, alias),
            None => key.name,
        };
        self.known.extend([key.name].into_iter().chain(key.alias));
        let Some(node) = self.table.get(name) else {
            if key.rules.is_required {
                self.missing(key.name, key.help);
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
    pub(super) fn entries(&self) -> Vec<(At<String>, Node<'a>)> {
        let entries = self.table.iter();
        let mut entries: Vec<_> = entries.map(|(key, value)| (at_key(key), value)).collect();
        entries.sort_by_key(|(key, _)| key.span.start);
        entries
    }

    /// The entries whose keys were not requested, in the order written.
    pub(super) fn others(&self) -> Vec<(At<String>, Node<'a>)> {
        let mut entries = self.entries();
        entries.retain(|(key, _)| !self.known_keys().any(|known| known == key.value));
        entries
    }

    /// The keys that were requested, and those without effect.
    pub(super) fn known_keys(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.ignored.iter().chain(&self.known).copied()
    }

    /// Which of the two names of a key the file uses; using both is an error.
    fn either(&mut self, name: &'static str, alias: &'static str) -> &'static str {
        let place = |key: &str| self.table.get_key_value(key).map(|(key, _)| key.span());
        match (place(name), place(alias)) {
            (Some(first), Some(second)) => {
                let message = format!(
                    "`{}` and `{}` are the same key",
                    self.path_of(name),
                    self.path_of(alias)
                );
                let twice = Diagnostic::error(first, message, "given here");
                let help = format!("keep one of them; the name is `{name}`");
                self.report(twice.label(second, "and here").help(help));
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

    /// Whether the length of a list or table is within its bound; reported if not.
    pub(super) fn is_within(
        &mut self,
        key: &str,
        node: Node<'_>,
        count: usize,
        most: usize,
    ) -> bool {
        if count > most {
            let message = format!("`{}` holds {count} entries", self.path_of(key));
            let many = Diagnostic::error(node.span(), message, "too many");
            self.report(many.help(format!("valid: up to {most}")));
        }
        count <= most
    }

    pub(super) fn missing(&mut self, key: &str, help: Option<&str>) {
        let message = format!("`{}` is missing", self.path_of(key));
        let missing = Diagnostic::error(self.span(), message, format!("needs `{key}`"));
        self.report(match help {
            Some(help) => missing.help(help),
            None => missing,
        });
    }

    pub(super) fn empty(&mut self, key: &str, place: Span) {
        let message = format!("`{}` is empty", self.path_of(key));
        self.report(Diagnostic::error(place, message, "empty"));
    }

    pub(super) fn wrong_type(&mut self, key: &str, node: Node<'_>, expected: &str) {
        let (path, found) = (self.path_of(key), with_article(node.get_ref()));
        let message = format!("`{path}` must be {expected}, not {found}");
        let label = format!("expected {expected}");
        self.report(Diagnostic::error(node.span(), message, label));
    }

    pub(super) fn out_of_range(&mut self, key: &str, node: Node<'_>, valid: &str) {
        let message = format!("`{}` is out of range", self.path_of(key));
        let outside = Diagnostic::error(node.span(), message, "out of range");
        self.report(outside.help(format!("valid: {valid}")));
    }

    /// Warns of keys that the reference implementation knows and that do nothing here.
    pub(crate) fn ignore(&mut self, keys: &'static [&'static str]) {
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
        self.is_open = true;
        read(self)
    }

    /// Reports every key that was not requested.
    pub(super) fn finish(mut self) {
        if self.is_open {
            return;
        }
        for (key, _) in self.others() {
            if self.diagnostics.is_full() {
                return;
            }
            self.unknown_key(&key);
        }
    }

    pub(super) fn unknown_key(&mut self, key: &At<String>) {
        let place = match self.path.as_str() {
            "" => "a program".to_owned(),
            path => format!("`{path}`"),
        };
        let message = format!("unknown key `{}`", shorten(&key.value));
        let label = format!("not a key of {place}");
        let help = advice(&key.value, &self.known, "keys");
        self.report(Diagnostic::error(key.span.clone(), message, label).help(help));
    }
}

/// The number, unless no integer type can represent it.
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
