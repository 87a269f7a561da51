//! Parses which part of a content a call requests, and limits how much of it an answer shows.
//!
//! There are four exclusive ways: `page`; `start_line` and `end_line`; a mode with `start` and
//! `count`; a [`unit`] with `index` or `name`. `read_all` overrides all of them. Pages and lines
//! count from 1, characters from 0. A start out of range is an error that states what is valid; a
//! count past the end is reduced.
//!
//! What models write on their own is taken as well ([`parse`]).
//!
//! A selection is resolved in a `View`, a descriptor in the form in which its lines are counted
//! (`kernel/machine/src/table/form.rs`). The result is a byte range with a `ShownPart`, which
//! states the part in the units of the request, as the answer shows it.

mod parse;
pub(super) mod unit;

pub(super) use self::parse::{
    CHARS, COUNT, FIRST_LINE_NAMES, LAST_LINE_NAMES, LIMIT, LINES, OFFSET, PAGE_HINT, PAGES,
    parse_lines,
};

use std::ops::Range;

use dormouse_proto::descriptor::view::{Part, ShownPart};
use dormouse_proto::descriptor::{FdError, FdErrorKind};

use super::args::Args;
use crate::table::View;
use dormouse_content::units::Unit;
use dormouse_content::{Slice, Unreadable};

/// A requested part, not yet checked against a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    All,
    Page(i64),
    Pages { start: i64, count: i64 },
    Lines { start: i64, count: i64 },
    LineRange { first: i64, last: Option<i64> },
    Chars { start: i64, count: i64 },
    Unit { unit: Unit, which: unit::UnitKey },
}

impl Selection {
    /// Resolves the selection in a content.
    ///
    /// # Errors
    /// `invalid_page` or `invalid_range`, stating what is valid; `content_unreadable`.
    pub(super) fn resolve(
        self,
        args: &Args,
        view: &View<'_>,
    ) -> Result<ResolvedSelection, FdError> {
        let content = &view.content;
        let unreadable = |error| args.unreadable_error(error);
        let shown_part = match self {
            Self::All => ShownPart::All,
            Self::Page(page) => ShownPart::Page(check_page(args, page, view)?),
            Self::Pages { start, count } => {
                let total = content.total_pages(view.page_chars()).map_err(unreadable)?;
                let start = check_page(args, start, view)?;
                ShownPart::Pages {
                    start,
                    count: check_count(args, count)?.min(total - start + 1),
                }
            }
            Self::Lines { start, count } => {
                let total = content.total_lines().map_err(unreadable)?;
                let start =
                    check_range(args, FdErrorKind::InvalidRange, "line", start, (1, total))?;
                ShownPart::Lines {
                    start,
                    count: check_count(args, count)?.min(total - start + 1),
                }
            }
            Self::LineRange { first, last } => line_range(
                args,
                first,
                last,
                content.total_lines().map_err(unreadable)?,
            )?,
            Self::Chars { start, count } => {
                let total = content.total_chars().map_err(unreadable)?;
                let range = (0, total.saturating_sub(1));
                let start = check_range(
                    args,
                    FdErrorKind::InvalidRange,
                    "character position",
                    start,
                    range,
                )?;
                ShownPart::Chars {
                    start,
                    count: check_count(args, count)?.min(total - start),
                }
            }
            Self::Unit { unit, which } => unit::resolve(args, view, unit, which)?,
        };
        Ok(ResolvedSelection {
            byte_range: byte_range(view, &shown_part).map_err(unreadable)?,
            shown_part,
        })
    }
}

fn check_page(args: &Args, page: i64, view: &View<'_>) -> Result<u64, FdError> {
    let total = view
        .content
        .total_pages(view.page_chars())
        .map_err(|error| args.unreadable_error(error))?;
    check_range(
        args,
        FdErrorKind::InvalidPage,
        "page number",
        page,
        (1, total),
    )
}

fn line_range(
    args: &Args,
    first: i64,
    last: Option<i64>,
    total: u64,
) -> Result<ShownPart, FdError> {
    let start = check_range(args, FdErrorKind::InvalidRange, "line", first, (1, total))?;
    let end = last.map_or(Ok(total), |last| {
        u64::try_from(last)
            .ok()
            .filter(|last| *last >= start)
            .ok_or_else(|| {
                let message = format!(
                    "The end_line {last} is before line {start}. Valid range: {start}-{total}"
                );
                args.error(FdErrorKind::InvalidRange, message)
            })
    })?;
    Ok(ShownPart::Lines {
        start,
        count: end.min(total) - start + 1,
    })
}

fn check_range(
    args: &Args,
    kind: FdErrorKind,
    what: &str,
    requested: i64,
    (first, last): (u64, u64),
) -> Result<u64, FdError> {
    let found = u64::try_from(requested)
        .ok()
        .filter(|start| (first..=last).contains(start));
    found.ok_or_else(|| {
        args.error(
            kind,
            format!("Invalid {what} {requested}. Valid range: {first}-{last}"),
        )
    })
}

fn check_count(args: &Args, count: i64) -> Result<u64, FdError> {
    let counted = u64::try_from(count).ok().filter(|count| *count > 0);
    counted.ok_or_else(|| {
        args.error(
            FdErrorKind::InvalidRange,
            format!("Invalid count {count}: it must be 1 or more."),
        )
    })
}

/// Byte range of a part in the shown text.
fn byte_range(view: &View<'_>, shown_part: &ShownPart) -> Result<Range<usize>, Unreadable> {
    let content = &view.content;
    let bytes = match *shown_part {
        ShownPart::All => Some(0..content.shown_bytes()?),
        ShownPart::Page(page) => content.pages_at(view.page_chars(), page, 1)?,
        ShownPart::Pages { start, count } => content.pages_at(view.page_chars(), start, count)?,
        ShownPart::Lines { start, count } | ShownPart::Unit { start, count, .. } => {
            content.lines_at(start, count)?
        }
        // Empty content has an empty part at the position of its first character.
        ShownPart::Chars { start, count } | ShownPart::UnitChars { start, count, .. } => {
            content.chars_at(start, count.max(1))?
        }
    };
    Ok(bytes.expect("the part was checked against the content"))
}

/// A selection that was checked against a content. Its bytes have not been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResolvedSelection {
    /// Byte range in the shown text.
    pub(super) byte_range: Range<usize>,
    pub(super) shown_part: ShownPart,
}

/// The portion of a part that one answer shows.
pub(super) struct BoundedPart {
    pub(super) slice: Slice,
    pub(super) shown_part: ShownPart,
    /// The remaining part, which the next call can request. `None` if the part is complete.
    pub(super) rest: Option<ShownPart>,
}

impl BoundedPart {
    /// The text, with or without line numbers.
    pub(super) fn part(&self, is_numbered: bool) -> Part<'_> {
        Part {
            is_numbered,
            ..self.slice.part()
        }
    }
}

impl ResolvedSelection {
    /// Limits the part to one answer. Pages are cut after whole pages; lines, units and whole
    /// contents after whole lines, if at least one fits; other parts at the limit. Reads only the
    /// shown bytes.
    pub(super) fn limit_to(
        self,
        view: &View<'_>,
        max_chars: u64,
    ) -> Result<BoundedPart, Unreadable> {
        let (bytes, shown_part, rest) = self.split_at_limit(view, max_chars.max(1))?;
        Ok(BoundedPart {
            slice: view.content.slice(bytes)?,
            shown_part,
            rest,
        })
    }

    /// Limits the part as [`limit_to`](Self::limit_to) does, with room for the numbers of its lines
    /// if they are shown.
    pub(super) fn limit_numbered(
        self,
        view: &View<'_>,
        max_chars: u64,
        is_numbered: bool,
    ) -> Result<BoundedPart, Unreadable> {
        let mut limit = max_chars;
        loop {
            let bounded = self.clone().limit_to(view, limit)?;
            let part = bounded.part(is_numbered);
            let added = part.number_chars();
            let chars = if added == 0 {
                0
            } else {
                part.text.chars().count() as u64 + added
            };
            if chars <= max_chars || limit <= 1 {
                return Ok(bounded);
            }
            let scaled = u128::from(limit.min(max_chars)) * u128::from(max_chars);
            // Fewer characters have fewer lines, so this ends.
            limit = (scaled / u128::from(chars)).max(1) as u64;
        }
    }

    /// Returns the bytes and the description of the shown portion, and the remaining part.
    fn split_at_limit(
        self,
        view: &View<'_>,
        max_chars: u64,
    ) -> Result<(Range<usize>, ShownPart, Option<ShownPart>), Unreadable> {
        let Self {
            byte_range: bytes,
            shown_part,
        } = self;
        let content = &view.content;
        // A character has at least one byte, so this part fits.
        if bytes.len() as u64 <= max_chars {
            return Ok((bytes, shown_part, None));
        }
        let first = content.char_at(bytes.start)?;
        let requested = content.char_at(bytes.end)? - first;
        if requested <= max_chars {
            return Ok((bytes, shown_part, None));
        }
        let limit = content.byte_at(first + max_chars)?;
        let page = content.page_at(view.page_chars(), limit)?;
        let line = content.line_at(limit)?;
        let (shown_part, rest) = match shown_part {
            ShownPart::Pages { start, count } if page > start => {
                let fit = page - start;
                (
                    ShownPart::Pages { start, count: fit },
                    ShownPart::Pages {
                        start: start + fit,
                        count: count - fit,
                    },
                )
            }
            ShownPart::All if line > 1 => split_lines(1, line, content.total_lines()?),
            ShownPart::Lines { start, count } if line > start => split_lines(start, line, count),
            ShownPart::Unit {
                unit,
                index,
                name,
                start,
                count,
            } if line > start => {
                let fit = line - start;
                let shown = ShownPart::Unit {
                    unit,
                    index,
                    name,
                    start,
                    count: fit,
                };
                (
                    shown,
                    ShownPart::Lines {
                        start: start + fit,
                        count: count - fit,
                    },
                )
            }
            ShownPart::UnitChars {
                unit, index, name, ..
            } => (
                ShownPart::UnitChars {
                    unit,
                    index,
                    name,
                    start: first,
                    count: max_chars,
                },
                ShownPart::Chars {
                    start: first + max_chars,
                    count: requested - max_chars,
                },
            ),
            _ => {
                let start = first;
                let count = max_chars;
                (
                    ShownPart::Chars { start, count },
                    ShownPart::Chars {
                        start: first + count,
                        count: requested - count,
                    },
                )
            }
        };
        Ok((byte_range(view, &shown_part)?, shown_part, Some(rest)))
    }
}

/// Splits `count` lines from `start` on into those before line `next` and the rest.
fn split_lines(start: u64, next: u64, count: u64) -> (ShownPart, ShownPart) {
    let fit = next - start;
    (
        ShownPart::Lines { start, count: fit },
        ShownPart::Lines {
            start: next,
            count: count - fit,
        },
    )
}
