//! Descriptors that a call hands to another process: whole ones as they are, parts as contents of
//! their own.
//!
//! What a spawn preloads and what a message carries is named in the same words, and shares the
//! bytes of its descriptor.

use dormouse_proto::descriptor::{FdError, FdErrorKind};
use dormouse_proto::id::FdId;
use dormouse_proto::program::nearest;
use dormouse_proto::record::{Entry, Notes};
use serde_json::{Map, Value, json};

use super::Call;
use super::args::Args;
use super::part::{Named, PARTS, UNITS};
use dormouse_content::Content;

/// How many descriptors an error names.
const SHOWN: usize = 20;

/// The most items of a list that a call hands over.
pub(super) const MAX_ITEMS: usize = 64;

/// A descriptor, or a part of one, for another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// Its name in the table that it comes from.
    pub id: FdId,
    /// Which part of it, such as `lines 10-40`; none: all of it.
    pub part: Option<String>,
    /// What it holds. The source is that of the whole.
    pub entry: Entry<Content>,
}

/// What the list `key` of a call names, in its order.
pub(super) fn handed(
    args: &Args,
    key: &'static str,
    call: &Call<'_>,
) -> Result<Vec<Handed>, String> {
    let finder = Finder { key, call };
    bounded(key, args.list(key))?
        .iter()
        .map(|item| finder.find(item))
        .collect()
}

/// The items, if they are not too many.
pub(super) fn bounded<'a>(key: &str, items: &'a [Value]) -> Result<&'a [Value], String> {
    match items.len() {
        count if count > MAX_ITEMS => Err(format!(
            "'{key}' holds {count} items: up to {MAX_ITEMS} are valid."
        )),
        _ => Ok(items),
    }
}

/// The schema of a descriptor in a list: by words, or as an object.
pub(super) fn item_schema() -> Value {
    json!({ "anyOf": [{ "type": "string" }, part_schema()] })
}

/// A part of a descriptor as an object.
fn part_schema() -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    json!({
        "type": "object",
        "properties": {
            "fd": text("The descriptor, such as fd:1"),
            "lines": text("Only these lines, such as 10-40"),
            "pages": text("Only these pages, such as 2-3"),
            "chars": text("Only these characters, such as 0-99"),
            "section": text("Only this marked section")
        },
        "required": ["fd"],
        "additionalProperties": false
    })
}

struct Finder<'a> {
    key: &'static str,
    call: &'a Call<'a>,
}

impl Finder<'_> {
    fn find(&self, item: &Value) -> Result<Handed, String> {
        match item {
            Value::String(words) => self.by_words(words.trim()),
            Value::Object(fields) => self.by_object(fields),
            other => Err(self.wrong_form(&other.to_string())),
        }
    }

    /// `fd:1`, or `fd:1 lines 10-40`.
    fn by_words(&self, words: &str) -> Result<Handed, String> {
        let named = Named::parse(self.call, words).map_err(|error| self.not_found(words, error))?;
        handed_over(&named.ok_or_else(|| self.unknown(words))?)
    }

    /// `{"fd": "fd:1", "lines": "10-40"}`.
    fn by_object(&self, fields: &Map<String, Value>) -> Result<Handed, String> {
        let shown = || Value::Object(fields.clone()).to_string();
        let Some(Value::String(fd)) = fields.get("fd") else {
            return Err(self.wrong_form(&shown()));
        };
        let parts: Vec<_> = fields.iter().filter(|(key, _)| *key != "fd").collect();
        let part = match parts[..] {
            [] => None,
            [(unit, value)] => Some((
                self.known_unit(unit)?,
                which(value).ok_or_else(|| self.wrong_form(&shown()))?,
            )),
            _ => {
                return Err(format!(
                    "{} names several parts: give one of {}.",
                    shown(),
                    UNITS.join(", ")
                ));
            }
        };
        let part = part.as_ref().map(|(unit, value)| (*unit, value.as_str()));
        let named = Named::new(self.call, fd, part).map_err(|error| self.not_found(fd, error))?;
        handed_over(&named)
    }

    fn known_unit(&self, unit: &str) -> Result<&'static str, String> {
        UNITS
            .into_iter()
            .find(|known| *known == unit)
            .ok_or_else(|| {
                let near = nearest(unit, UNITS)
                    .map(|near| format!(" Did you mean '{near}'?"))
                    .unwrap_or_default();
                format!(
                    "A descriptor of '{}' has no key '{unit}'.{near} The keys are: fd, {}.",
                    self.key,
                    UNITS.join(", ")
                )
            })
    }

    fn wrong_form(&self, shown: &str) -> String {
        format!(
            "'{}' must be a list of descriptors, each a string such as \"fd:1\" or \"fd:1 lines \
             10-40\", or an object such as {{\"fd\": \"fd:1\", \"lines\": \"10-40\"}}, and holds \
             {shown}. Parts: {PARTS}.",
            self.key
        )
    }

    /// What is there and cannot be read is not unknown.
    fn not_found(&self, asked: &str, FdError { kind, message, .. }: FdError) -> String {
        if kind == FdErrorKind::ContentUnreadable {
            format!("{asked}: {message}")
        } else {
            self.unknown(asked)
        }
    }

    fn unknown(&self, asked: &str) -> String {
        let name = |(id, entry): (&FdId, &Entry<Content>)| match &entry.notes.name {
            Some(name) => format!("{id} ({name})"),
            None => id.to_string(),
        };
        let mut known: Vec<_> = self.call.table.iter().take(SHOWN).map(name).collect();
        if self.call.table.len() > SHOWN {
            known.push(format!("and {} more", self.call.table.len() - SHOWN));
        }
        if let Some((last, _)) = self.call.table.messages().last() {
            known.push(format!("and messages up to {last}"));
        }
        let known = if known.is_empty() {
            "none yet".to_owned()
        } else {
            known.join(", ")
        };
        format!(
            "There is no descriptor '{asked}' for '{}'. The descriptors are: {known}",
            self.key
        )
    }
}

/// Which lines, pages, characters or section: a text, or a number where it is one of them.
fn which(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => number.as_u64().map(|number| number.to_string()),
        _ => None,
    }
}

/// A part is a content of its own: it keeps the name. Lines that were marked and the summary are
/// those of the whole.
fn handed_over(named: &Named<'_>) -> Result<Handed, String> {
    let (id, entry) = (named.id().clone(), named.entry());
    let Some((unit, value)) = named.part() else {
        return Ok(Handed {
            id,
            part: None,
            entry: entry.clone(),
        });
    };
    let content = named.content().map_err(|error| error.message)?;
    let notes = Notes {
        name: entry.notes.name.clone(),
        ..Notes::default()
    };
    let entry = Entry {
        notes,
        ..Entry::new(
            content,
            entry.page_chars,
            entry.source.clone(),
            entry.opened_ms,
        )
    };
    Ok(Handed {
        id,
        part: Some(format!("{unit} {value}")),
        entry,
    })
}
