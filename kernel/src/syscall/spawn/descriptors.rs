//! The descriptors that a child is given: whole ones as they are, parts as contents of their own, under the same ids.

use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::id::FdId;
use dormouse_proto::program::nearest;
use dormouse_proto::record::{Entry, Notes};
use serde_json::{Map, Value};

use super::super::part::{Named, PARTS, UNITS};
use super::{FDS, lists};
use crate::content::Content;
use crate::program::Program;
use crate::table::Table;

/// How many descriptors an error names.
const SHOWN: usize = 20;

/// A descriptor under the name that the child has for it.
type Preload = (FdId, Entry<Content>);

/// What `asked` names, in its order, for a process of `child`.
pub(super) fn preloads(
    asked: &[Value],
    table: &Table,
    settings: &DescriptorSettings,
    child: &Program,
) -> Result<Vec<Preload>, String> {
    let mut found: Vec<Preload> = Vec::new();
    for item in lists::bounded(FDS, asked)? {
        let (id, entry) = match item {
            Value::String(words) => by_words(words.trim(), table, settings)?,
            Value::Object(fields) => by_object(fields, table, settings)?,
            other => return Err(wrong_form(&other.to_string())),
        };
        check_name(&id, child)?;
        if found.iter().any(|(known, _)| *known == id) {
            return Err(format!(
                "'{FDS}' names {id} twice, and the child would have one id for two contents. Make a part a descriptor of \
                 its own (read_fd with extract_to_new_fd), then name that."
            ));
        }
        found.push((id, entry));
    }
    Ok(found)
}

/// `fd:1`, or `fd:1 lines 10-40`.
fn by_words(words: &str, table: &Table, settings: &DescriptorSettings) -> Result<Preload, String> {
    let named = Named::parse(table, words, settings).ok().flatten();
    preload(&named.ok_or_else(|| unknown(words, table))?)
}

/// `{"fd": "fd:1", "lines": "10-40"}`.
fn by_object(fields: &Map<String, Value>, table: &Table, settings: &DescriptorSettings) -> Result<Preload, String> {
    let shown = || Value::Object(fields.clone()).to_string();
    let Some(Value::String(fd)) = fields.get("fd") else { return Err(wrong_form(&shown())) };
    let parts: Vec<_> = fields.iter().filter(|(key, _)| *key != "fd").collect();
    let part = match parts[..] {
        [] => None,
        [(unit, value)] => Some((known_unit(unit)?, which(value).ok_or_else(|| wrong_form(&shown()))?)),
        _ => return Err(format!("{} names several parts: give one of {}.", shown(), UNITS.join(", "))),
    };
    let part = part.as_ref().map(|(unit, value)| (*unit, value.as_str()));
    let named = Named::new(table, fd, part, settings).map_err(|_| unknown(fd, table))?;
    preload(&named)
}

fn known_unit(unit: &str) -> Result<&'static str, String> {
    UNITS.into_iter().find(|known| *known == unit).ok_or_else(|| {
        let near = nearest(unit, UNITS).map(|near| format!(" Did you mean '{near}'?")).unwrap_or_default();
        format!("A descriptor of '{FDS}' has no key '{unit}'.{near} The keys are: fd, {}.", UNITS.join(", "))
    })
}

/// Which lines, pages, characters or section: a text, or a number where it is one of them.
fn which(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => number.as_u64().map(|number| number.to_string()),
        _ => None,
    }
}

/// A part is a content of its own: it keeps the name and says what it is a part of. Lines that were marked and the summary
/// are those of the whole.
fn preload(named: &Named<'_>) -> Result<Preload, String> {
    let (id, entry) = (named.id().clone(), named.entry());
    let Some((unit, value)) = named.part() else { return Ok((id, entry.clone())) };
    let content = named.content().map_err(|error| error.message)?;
    let source = format!("{id} {unit} {value} of the parent");
    let notes = Notes { name: entry.notes.name.clone(), ..Notes::default() };
    Ok((id, Entry { notes, ..Entry::new(content, entry.page_chars, source, entry.opened_ms) }))
}

/// A message goes by its number in the conversation of its process: where the child counts its own so as well, the same id
/// would mean two of them.
fn check_name(id: &FdId, child: &Program) -> Result<(), String> {
    if !matches!(id, FdId::Message { .. }) || !child.message_references() {
        return Ok(());
    }
    Err(format!(
        "{id} cannot be preloaded, since program '{}' has messages of its own under such names. Make it a descriptor first: \
         read_fd with fd=\"{id}\", read_all=true and extract_to_new_fd=true.",
        child.name()
    ))
}

fn wrong_form(shown: &str) -> String {
    format!(
        "'{FDS}' must be a list of descriptors, each a string such as \"fd:1\" or \"fd:1 lines 10-40\", or an object such as \
         {{\"fd\": \"fd:1\", \"lines\": \"10-40\"}}, and holds {shown}. Parts: {PARTS}."
    )
}

fn unknown(asked: &str, table: &Table) -> String {
    let name = |(id, entry): (&FdId, &Entry<Content>)| match &entry.notes.name {
        Some(name) => format!("{id} ({name})"),
        None => id.to_string(),
    };
    let mut known: Vec<_> = table.iter().take(SHOWN).map(name).collect();
    if table.len() > SHOWN {
        known.push(format!("and {} more", table.len() - SHOWN));
    }
    if let Some((last, _)) = table.messages().last() {
        known.push(format!("and messages up to {last}"));
    }
    let known = if known.is_empty() { "none yet".to_owned() } else { known.join(", ") };
    format!("There is no descriptor '{asked}' to preload. The descriptors are: {known}")
}
