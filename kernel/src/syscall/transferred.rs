//! Parses the descriptors that a call transfers to another process: whole descriptors, or parts of
//! them.
//!
//! The preloads of `spawn` and the descriptors of `send_message` have the same syntax. The bytes
//! are shared with the original descriptors.

use dormouse_proto::descriptor::{FdError, FdErrorKind};
use dormouse_proto::id::FdId;
use dormouse_proto::program::nearest;
use dormouse_proto::record::{Annotations, Entry};
use serde_json::{Map, Value};

use super::args::Args;
use super::parameter::MAX_ITEMS;
use super::part::{PARTS, PartReference, UNITS};
use super::{Call, Refusal, TransferredDescriptor};
use dormouse_content::Content;

/// Maximum number of descriptors that an error lists.
const MAX_LISTED: usize = 20;

/// The descriptors in the list `key` of a call, in order.
pub(super) fn transferred_descriptors(
    args: &Args,
    key: &'static str,
    call: &Call<'_>,
) -> Result<Vec<TransferredDescriptor>, Refusal> {
    let finder = DescriptorFinder { key, call };
    check_list_length(key, args.list(key))?
        .iter()
        .map(|item| finder.find(item))
        .collect()
}

/// Returns the items of a list. Refuses more than [`MAX_ITEMS`].
pub(super) fn check_list_length<'a>(key: &str, items: &'a [Value]) -> Result<&'a [Value], Refusal> {
    match items.len() {
        count if count > MAX_ITEMS => {
            Err(format!("'{key}' holds {count} items: up to {MAX_ITEMS} are valid.").into())
        }
        _ => Ok(items),
    }
}

/// Resolves the items of the list `key` to descriptors of the caller's table.
struct DescriptorFinder<'a> {
    key: &'static str,
    call: &'a Call<'a>,
}

impl DescriptorFinder<'_> {
    fn find(&self, item: &Value) -> Result<TransferredDescriptor, Refusal> {
        match item {
            Value::String(words) => self.find_by_text(words.trim()),
            Value::Object(fields) => self.find_by_object(fields),
            other => Err(self.form_error(&other.to_string())),
        }
    }

    /// Resolves a text such as `fd:1` or `fd:1 lines 10-40`.
    fn find_by_text(&self, words: &str) -> Result<TransferredDescriptor, Refusal> {
        let reference = PartReference::parse(self.call, words)
            .map_err(|error| self.resolve_error(words, error))?;
        transfer(&reference.ok_or_else(|| self.unknown_error(words))?)
    }

    /// Resolves an object such as `{"fd": "fd:1", "lines": "10-40"}`.
    fn find_by_object(
        &self,
        fields: &Map<String, Value>,
    ) -> Result<TransferredDescriptor, Refusal> {
        let as_json = || Value::Object(fields.clone()).to_string();
        let Some(Value::String(fd)) = fields.get("fd") else {
            return Err(self.form_error(&as_json()));
        };
        let parts: Vec<_> = fields.iter().filter(|(key, _)| *key != "fd").collect();
        let part = match parts[..] {
            [] => None,
            [(unit, value)] => Some((
                self.known_unit(unit)?,
                range_text(value).ok_or_else(|| self.form_error(&as_json()))?,
            )),
            _ => {
                return Err(format!(
                    "{} names several parts: give one of {}.",
                    as_json(),
                    UNITS.join(", ")
                )
                .into());
            }
        };
        let part = part.as_ref().map(|(unit, value)| (*unit, value.as_str()));
        let reference = PartReference::new(self.call, fd, part)
            .map_err(|error| self.resolve_error(fd, error))?;
        transfer(&reference)
    }

    fn known_unit(&self, unit: &str) -> Result<&'static str, Refusal> {
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
                .into()
            })
    }

    fn form_error(&self, shown: &str) -> Refusal {
        format!(
            "'{}' must be a list of descriptors, each a string such as \"fd:1\" or \"fd:1 lines \
             10-40\", or an object such as {{\"fd\": \"fd:1\", \"lines\": \"10-40\"}}, and holds \
             {shown}. Parts: {PARTS}.",
            self.key
        )
        .into()
    }

    /// The error for a descriptor that does not resolve. An unreadable descriptor exists, so its
    /// error states that it cannot be read.
    fn resolve_error(&self, requested: &str, FdError { kind, message, .. }: FdError) -> Refusal {
        if kind == FdErrorKind::ContentUnreadable {
            format!("{requested}: {message}").into()
        } else {
            self.unknown_error(requested)
        }
    }

    fn unknown_error(&self, requested: &str) -> Refusal {
        let name = |(id, entry): (&FdId, &Entry<Content>)| match &entry.notes.name {
            Some(name) => format!("{id} ({name})"),
            None => id.to_string(),
        };
        let mut known: Vec<_> = self.call.table.iter().take(MAX_LISTED).map(name).collect();
        if self.call.table.len() > MAX_LISTED {
            known.push(format!("and {} more", self.call.table.len() - MAX_LISTED));
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
            "There is no descriptor '{requested}' for '{}'. The descriptors are: {known}",
            self.key
        )
        .into()
    }
}

/// Converts a range or a section id to text. A single number is accepted as well.
fn range_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => number.as_u64().map(|number| number.to_string()),
        _ => None,
    }
}

/// Makes the transferred descriptor. A part becomes a content of its own and keeps the assigned
/// name, but not the sections and the summary, which describe the whole content.
fn transfer(reference: &PartReference<'_>) -> Result<TransferredDescriptor, Refusal> {
    let id = reference.id().clone();
    let entry = reference.entry();
    let Some((unit, value)) = reference.part() else {
        return Ok(TransferredDescriptor {
            id,
            part: None,
            entry: entry.clone(),
        });
    };
    let content = reference.content()?;
    let notes = Annotations {
        name: entry.notes.name.clone(),
        ..Annotations::default()
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
    Ok(TransferredDescriptor {
        id,
        part: Some(format!("{unit} {value}")),
        entry,
    })
}
