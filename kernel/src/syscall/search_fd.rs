//! `search_fd`: finds text in a content without reading it all.
//!
//! A match is an occurrence: occurrences do not overlap and are numbered from 1 in the order of the content, whatever part
//! of them an answer shows. Occurrences side by side on one short line share one `match` element, with their `count`; on a
//! long line each has an element of its own, with the text around it. The scan is one pass, and only what is shown is looked
//! up in the index.

mod excerpt;
mod matcher;

use dormouse_proto::descriptor::view::{self, Found};
use dormouse_proto::descriptor::{DescriptorSettings, FdError, FdErrorKind};
use dormouse_proto::record::Entry;
use dormouse_proto::tool::Access;

use self::excerpt::Excerpts;
use self::matcher::{Case, Matcher};
use super::args::{Args, Key, Kind};
use super::{Outcome, Tool, form};
use crate::content::Content;
use crate::table::Table;

/// `search_fd` as a tool.
pub const TOOL: Tool =
    Tool { name: "search_fd", access: Access::Read, description: DESCRIPTION, schema: SCHEMA, call: search_fd };

/// Matches in one answer, if the call does not say how many.
const MAX_MATCHES: u64 = 50;

const KEYS: [Key; 8] = [
    ("fd", Kind::Text),
    ("query", Kind::Text),
    ("case_sensitive", Kind::Flag),
    ("regex", Kind::Flag),
    ("context", Kind::Integer),
    ("start", Kind::Integer),
    ("max_matches", Kind::Integer),
    form::KEY,
];

const DESCRIPTION: &str = "Finds text in content that is kept in a file descriptor. Returns the number of all matches, and \
each match with its line, its page and its character position, which read_fd takes to show what stands around it.";

const SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "fd": {"type": "string", "description": "The descriptor, such as fd:1 or ref:plan"},
    "query": {"type": "string", "minLength": 1, "description": "The text to find, taken literally unless regex is true"},
    "case_sensitive": {"type": "boolean", "description": "Whether upper and lower case differ; true if left out"},
    "regex": {"type": "boolean", "description": "Take the query as a regular expression; ^ and $ match at lines"},
    "context": {"type": "integer", "minimum": 0, "description": "Lines to show before and after each match; 0 if left out"},
    "start": {"type": "integer", "minimum": 1, "description": "The number of the first match to show; 1 if left out"},
    "max_matches": {"type": "integer", "minimum": 1, "description": "The most matches to show; 50 if left out"},
    "pretty": {"type": "boolean", "description": "Whether JSON is reformatted: its pages, lines and characters are then those of the reformatted text. If left out, JSON on one line is, where the program wants that"}
  },
  "required": ["fd", "query"],
  "additionalProperties": false
}"#;

/// Answers a call. `max_read_chars` of the settings bounds what is shown. O(n) in the content.
#[must_use]
pub fn search_fd(table: &Table, args: &str, settings: &DescriptorSettings, _now_ms: u64) -> Outcome {
    run(table, args, settings).into()
}

fn run(table: &Table, args: &str, settings: &DescriptorSettings) -> Result<Outcome, FdError> {
    let args = Args::parse(TOOL.name, args, &[&KEYS])?;
    let fd = args.fd()?;
    let search = Search::parse(&args)?;
    let (id, entry) = table.resolve(fd)?;
    let view = form::view(&args, entry, form::asked(&args), settings)?;
    let found = search.find(&args, &view.entry, settings.max_read_chars)?;
    Ok(Outcome::Answer(view::search(&id, view.extent(), &found)))
}

#[derive(Debug)]
struct Search<'a> {
    query: &'a str,
    matcher: Matcher<'a>,
    context_lines: u64,
    start: u64,
    max_matches: u64,
}

impl<'a> Search<'a> {
    fn parse(args: &'a Args) -> Result<Self, FdError> {
        let query = args.required_text("query", "the text to find")?;
        let case = if args.flag("case_sensitive") == Some(false) { Case::Ignored } else { Case::Kept };
        let matcher = match args.flag("regex") {
            Some(true) => Matcher::pattern(query, case),
            _ => Matcher::literal(query, case),
        };
        Ok(Self {
            query,
            matcher: matcher.map_err(|error| args.invalid(format!("The query cannot be searched for: {error}")))?,
            context_lines: number(args, "context", 0, 0)?,
            start: number(args, "start", 1, 1)?,
            max_matches: number(args, "max_matches", MAX_MATCHES, 1)?,
        })
    }

    fn find<'c>(&self, args: &Args, entry: &'c Entry<Content>, max_chars: u64) -> Result<Found<'c>, FdError>
    where
        'a: 'c,
    {
        let mut excerpts = Excerpts::new(entry, self.context_lines, max_chars);
        let end = self.start.saturating_add(self.max_matches);
        let mut matches = 0;
        for bytes in self.matcher.find_iter(entry.content.text()) {
            matches += 1;
            if (self.start..end).contains(&matches) {
                excerpts.push(bytes);
            }
        }
        if self.start > matches.max(1) {
            let message = format!("Invalid match number {}. Valid range: 1-{}", self.start, matches.max(1));
            return Err(args.error(FdErrorKind::InvalidRange, message));
        }
        let (shown, excerpts) = excerpts.finish();
        let shown = (shown > 0).then(|| (self.start, self.start + shown - 1));
        Ok(Found { query: self.query, matches, shown, excerpts })
    }
}

fn number(args: &Args, key: &str, default: u64, least: u64) -> Result<u64, FdError> {
    let Some(asked) = args.integer(key) else { return Ok(default) };
    let found = u64::try_from(asked).ok().filter(|number| *number >= least);
    found.ok_or_else(|| {
        args.error(FdErrorKind::InvalidRange, format!("Invalid {key} {asked}: it must be {least} or more."))
    })
}

#[cfg(test)]
mod tests;
