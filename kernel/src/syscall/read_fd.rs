//! `read_fd`: shows a part of a content, or makes it a descriptor of its own.

use dormouse_proto::descriptor::{DescriptorSettings, FdError, view};
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use dormouse_proto::tool::{Access, ToolSpec};

use super::Outcome;
use super::args::{Args, Key, Kind};
use super::selection::unit::{self, Which};
use super::selection::{self, Chosen, Selection};
use crate::content::Content;
use crate::table::{Table, extent};

/// What a process must be allowed to do to call it.
pub const ACCESS: Access = Access::Read;

/// Its name.
pub const NAME: &str = "read_fd";

const KEYS: [Key; 3] = [("fd", Kind::Text), ("mode", Kind::Text), ("extract_to_new_fd", Kind::Flag)];

/// What a model is told of it.
#[must_use]
pub fn spec() -> ToolSpec {
    ToolSpec { name: NAME.into(), description: DESCRIPTION.into(), schema: SCHEMA.into() }
}

const DESCRIPTION: &str = "Reads content that is kept in a file descriptor. Say which part in one of these ways: `page`; or \
`start_line` and `end_line`; or `mode` with `start` and `count`; or `unit` with `index` or `name`, such as the function main; or `read_all`. A `unit` \
alone lists what there is. Without any of them you get page 1. With \
`extract_to_new_fd` the part becomes a new descriptor and only its name is returned.";

const SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "fd": {"type": "string", "description": "The descriptor, such as fd:1 or ref:plan"},
    "page": {"type": "integer", "minimum": 1, "description": "A page, counted from 1"},
    "start_line": {"type": "integer", "minimum": 1, "description": "The first line, counted from 1"},
    "end_line": {"type": "integer", "minimum": 1, "description": "The last line; the end if left out"},
    "mode": {"type": "string", "enum": ["page", "line", "char"], "description": "The unit of start and count; page if left out"},
    "start": {"type": "integer", "minimum": 0, "description": "Where to begin: pages and lines count from 1, characters from 0"},
    "count": {"type": "integer", "minimum": 1, "description": "How many units; 1 if left out"},
    "unit": {"type": "string", "enum": ["paragraph", "section", "function", "class"], "description": "A part by its meaning: sections are those of Markdown, classes are types of any kind; without index and name you get a list"},
    "index": {"type": "integer", "minimum": 1, "description": "Which unit, counted from 1"},
    "name": {"type": "string", "description": "Which unit, by a heading or a name such as area or Circle.area"},
    "read_all": {"type": "boolean", "description": "Everything; wins over every other selection"},
    "extract_to_new_fd": {"type": "boolean", "description": "Make the part a new descriptor instead of showing it"}
  },
  "required": ["fd"],
  "additionalProperties": false
}"#;

/// Answers a call. `max_read_chars` of the settings bounds what is shown, never what is extracted. O(log n + shown),
/// once a unit's outline is made.
#[must_use]
pub fn read_fd(table: &Table, args: &str, settings: &DescriptorSettings, now_ms: u64) -> Outcome {
    run(table, args, settings, now_ms).into()
}

fn run(table: &Table, args: &str, settings: &DescriptorSettings, now_ms: u64) -> Result<Outcome, FdError> {
    let args = Args::parse(NAME, args, &[&KEYS, &selection::KEYS, &unit::KEYS])?;
    let selection = Selection::parse(&args, "mode")?.unwrap_or(Selection::Page(1));
    let (id, entry) = table.resolve(args.fd())?;
    let extracts = args.flag("extract_to_new_fd") == Some(true);
    if let (Selection::Unit { unit, which: Which::Unsaid }, false) = (selection, extracts) {
        let units = unit::list(&args, entry, unit, settings.max_read_chars)?;
        return Ok(Outcome::Answer(view::units(&id, extent(entry), &units)));
    }
    let chosen = selection.choose(&args, entry)?;
    if extracts {
        return Ok(extract(table, &id, entry, chosen, now_ms));
    }
    let (shown, rest) = chosen.bound(entry, settings.max_read_chars);
    Ok(Outcome::Answer(view::content(&id, extent(entry), shown.served, shown.slice.part(), rest)))
}

/// The new descriptor keeps the page size of its source (ruling 12 of the design).
fn extract(table: &Table, id: &FdId, entry: &Entry<Content>, chosen: Chosen<'_>, now_ms: u64) -> Outcome {
    let Chosen { slice, served } = chosen;
    let extracted = Entry {
        content: entry.content.extract(&slice),
        page_chars: entry.page_chars,
        source: format!("extract:{id}").into(),
        opened_ms: now_ms,
    };
    let new = table.next_id();
    let answer = view::extraction(id, &new, served, slice.part(), extent(&extracted));
    Outcome::Opened { id: new, entry: extracted, answer }
}

#[cfg(test)]
mod tests;
