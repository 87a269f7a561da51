//! Parses and resolves references to a descriptor or a part of it, such as `fd:3` or
//! `fd:3 lines 10-40`.
//!
//! Handles (`{{fd:3}}` in the arguments of other tools), preloads of `spawn` and descriptors of a
//! message use such references.

use std::ops::Range;

use dormouse_proto::descriptor::{FdError, FdErrorKind, HintableTools};
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;

use super::Call;
use super::args::Args;
use super::get_fd_section;
use super::selection::Selection;
use crate::table::View;
use dormouse_content::{Content, Slice};

/// The syntax of parts, as errors state it.
pub(super) const PARTS: &str = "lines 10-40, page 2, pages 2-4, chars 0-99, or section ID";

/// The keywords for parts.
pub(super) const UNITS: [&str; 7] = ["lines", "pages", "chars", "section", "line", "page", "char"];

/// A resolved reference.
pub(super) struct PartReference<'a> {
    args: Args,
    id: FdId,
    view: View<'a>,
    /// Unit and range, or `section` and its id. `None` for the whole.
    part: Option<(&'a str, &'a str)>,
    tools: HintableTools,
}

impl<'a> PartReference<'a> {
    /// Parses and resolves a reference. `None` if the text is not a reference.
    ///
    /// # Errors
    /// `not_found` if the text begins with a descriptor id that does not exist.
    pub(super) fn parse(call: &Call<'a>, words: &'a str) -> Result<Option<Self>, FdError> {
        if let Ok(reference) = Self::new(call, words, None) {
            return Ok(Some(reference));
        }
        // A name may contain spaces: the part is the last two words.
        let split = words.rsplit_once(' ').and_then(|(rest, value)| {
            let (fd, unit) = rest.trim_end().rsplit_once(' ')?;
            Some((fd.trim_end(), unit, value))
        });
        let (fd, part) = split.map_or((words, None), |(fd, unit, value)| (fd, Some((unit, value))));
        let is_id = |name: &str| {
            name.split(' ')
                .next()
                .is_some_and(|word| word.parse::<FdId>().is_ok())
        };
        match Self::new(call, fd, part) {
            Ok(reference) => Ok(Some(reference)),
            Err(error) if is_id(words) || error.kind == FdErrorKind::ContentUnreadable => {
                Err(error)
            }
            Err(_) => Ok(None),
        }
    }

    /// Resolves descriptor `fd`; `part` is the unit and the range or id.
    ///
    /// # Errors
    /// `not_found`, `content_unreadable`. Whether the part exists is checked by
    /// [`slice`](Self::slice).
    pub(super) fn new(
        call: &Call<'a>,
        fd: &'a str,
        part: Option<(&'a str, &'a str)>,
    ) -> Result<Self, FdError> {
        let (id, entry) = call.table.resolve(fd)?;
        // Line and page numbers refer to the text that the model saw, for example reformatted JSON.
        // Without a part, the original bytes are used.
        let args = Args::for_descriptor(fd);
        let view = match part {
            Some(_) => call
                .in_default_form(entry)
                .map_err(|error| args.unreadable_error(error))?,
            None => View::plain(entry, call.quota),
        };
        Ok(Self {
            args,
            id,
            view,
            part,
            tools: call.settings.hintable_tools,
        })
    }

    pub(super) fn id(&self) -> &FdId {
        &self.id
    }

    /// The entry of the whole descriptor.
    pub(super) fn entry(&self) -> &Entry<Content> {
        &self.view.entry
    }

    /// Unit and range or id of the part; `None` for the whole.
    pub(super) fn part(&self) -> Option<(&'a str, &'a str)> {
        self.part
    }

    /// The referenced bytes as a content that shares them.
    ///
    /// # Errors
    /// As [`slice`](Self::slice).
    pub(super) fn content(&self) -> Result<Content, FdError> {
        let byte_range = self.byte_range()?;
        self.view
            .content
            .extract(byte_range)
            .map_err(|error| self.args.unreadable_error(error))
    }

    /// The referenced text.
    ///
    /// # Errors
    /// `invalid_page`, `invalid_range`, `invalid_parameter`, `not_found` for a section; each states
    /// what is valid. `content_unreadable`.
    pub(super) fn slice(&self) -> Result<Slice, FdError> {
        let byte_range = self.byte_range()?;
        self.view
            .content
            .slice(byte_range)
            .map_err(|error| self.args.unreadable_error(error))
    }

    /// The byte range in the shown text of the descriptor.
    pub(super) fn byte_range(&self) -> Result<Range<usize>, FdError> {
        let selection = self.part.map_or(Ok(Selection::All), |(unit, value)| {
            self.parse_selection(unit, value)
        })?;
        Ok(selection.resolve(&self.args, &self.view)?.byte_range)
    }

    fn parse_selection(&self, unit: &str, value: &str) -> Result<Selection, FdError> {
        if unit == "section" {
            return get_fd_section::find_section(
                &self.args,
                &self.view.entry.notes,
                value,
                self.tools,
            )
            .map(get_fd_section::select_lines);
        }
        let (first, last) = self.parse_range(value)?;
        let count = last.saturating_sub(first).saturating_add(1);
        match unit {
            "line" | "lines" => Ok(Selection::LineRange {
                first,
                last: Some(last),
            }),
            "page" | "pages" => Ok(Selection::Pages {
                start: first,
                count,
            }),
            "char" | "chars" => Ok(Selection::Chars {
                start: first,
                count,
            }),
            _ => Err(self.args.invalid_error(format!(
                "A part cannot be named by '{unit}'. Parts: {PARTS}."
            ))),
        }
    }

    /// Parses `10-40` or `10`.
    fn parse_range(&self, value: &str) -> Result<(i64, i64), FdError> {
        let (first, last) = value.split_once('-').unwrap_or((value, value));
        let numbers = first
            .parse::<i64>()
            .ok()
            .zip(last.parse::<i64>().ok())
            .filter(|(first, last)| first <= last);
        numbers.ok_or_else(|| {
            self.args.invalid_error(format!(
                "'{value}' is no range: give a number, or two as 10-40."
            ))
        })
    }

    pub(super) fn error(&self, kind: FdErrorKind, message: String) -> FdError {
        self.args.error(kind, message)
    }
}
