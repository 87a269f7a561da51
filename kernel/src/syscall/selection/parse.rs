//! Parses the arguments that select a part of a content.
//!
//! A *form* is one way to select it: by pages, lines or characters (the *mode*), or by a unit of
//! the content's outline, such as a function or a section. A call may use one form.
//!
//! Models also write what they know from other tools for reading: `offset` and `limit`, which are
//! lines unless a mode says otherwise; ranges, such as `lines` with the value that answers show, or
//! `view_range`; `start_line` or `page` with a `count`. Each has one meaning and is accepted, but
//! not in the schema.

use dormouse_proto::descriptor::FdError;

use super::super::Parameter;
use super::super::args::Args;
use super::{Selection, unit};

/// Lines as a range.
pub(in crate::syscall) const LINES: Parameter = Parameter::range("lines")
    .also(&["view_range", "line_range", "range"])
    .hidden();

/// Pages as a range.
pub(in crate::syscall) const PAGES: Parameter =
    Parameter::range("pages").also(&["page_range"]).hidden();

/// Characters as a range.
pub(in crate::syscall) const CHARS: Parameter =
    Parameter::range("chars").also(&["char_range"]).hidden();

/// The first line, or the first page or character if the mode says so.
pub(in crate::syscall) const OFFSET: Parameter = Parameter::integer("offset", "").hidden();

/// The number of lines, or of pages or characters if the mode says so.
pub(in crate::syscall) const LIMIT: Parameter = Parameter::integer("limit", "")
    .also(&["num_lines", "line_count", "max_lines"])
    .hidden();

/// The number of lines after `start_line`, where the schema has no `count`.
pub(in crate::syscall) const COUNT: Parameter = Parameter::integer("count", "").hidden();

/// Other names of `start_line`.
pub(in crate::syscall) const FIRST_LINE_NAMES: [&str; 5] = [
    "from_line",
    "first_line",
    "line_start",
    "line_number",
    "begin_line",
];

/// Other names of `end_line`.
pub(in crate::syscall) const LAST_LINE_NAMES: [&str; 4] =
    ["to_line", "last_line", "line_end", "stop_line"];

/// What an error about a page that is not a number says.
pub(in crate::syscall) const PAGE_HINT: &str =
    " For several pages give 'start' and 'count', for everything read_all=true.";

impl Selection {
    /// Parses the selection; `None` if the arguments contain none. `mode_key` is the parameter that
    /// takes `page`, `line` or `char`. A mode that agrees with the other parameters, such as `page`
    /// together with the parameter `page`, is not a conflict.
    ///
    /// # Errors
    /// `invalid_parameter`: two forms at once, or an unknown mode.
    pub(in crate::syscall) fn parse(
        args: &Args,
        mode_key: &'static str,
    ) -> Result<Option<Self>, FdError> {
        if args.flag("read_all") == Some(true) {
            return Ok(Some(Self::All));
        }
        let mode = Mode::parse(args, mode_key)?;
        let forms = present_forms(args, mode_key, mode);
        match forms[..] {
            [] => Ok(None),
            [one, other, ..] => Err(args.invalid_error(format!(
                "Parameters '{one}' and '{other}' cannot be combined: give either page, or \
                 start_line and end_line, or {mode_key}, start and count, or unit with index or \
                 name."
            ))),
            [form] => parse_form(args, form, mode).map(Some),
        }
    }
}

/// What `start` and `count` count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Page,
    Line,
    Char,
}

impl Mode {
    /// Parses the parameter `key`; `None` if it is missing.
    fn parse(args: &Args, key: &str) -> Result<Option<Self>, FdError> {
        match args.text(key) {
            None => Ok(None),
            Some("page" | "pages") => Ok(Some(Self::Page)),
            Some("line" | "lines") => Ok(Some(Self::Line)),
            Some("char" | "chars") => Ok(Some(Self::Char)),
            Some(unknown) => Err(args.invalid_error(format!(
                "Unknown {key} '{unknown}'. Accepted: page, line, char."
            ))),
        }
    }

    fn selection(self, start: Option<i64>, count: i64) -> Selection {
        match self {
            Self::Page => Selection::Pages {
                start: start.unwrap_or(1),
                count,
            },
            Self::Line => Selection::Lines {
                start: start.unwrap_or(1),
                count,
            },
            Self::Char => Selection::Chars {
                start: start.unwrap_or(0),
                count,
            },
        }
    }
}

/// The forms of which a call has a parameter, each by the first of its parameters.
fn present_forms(args: &Args, mode_key: &'static str, mode: Option<Mode>) -> Vec<&'static str> {
    let first_present = |keys: &[&'static str]| keys.iter().copied().find(|key| args.contains(key));
    let by_page = first_present(&["page"]).or(first_present(&["pages"]));
    let by_line = first_present(&["start_line", "end_line"]).or(first_present(&["lines"]));
    let by_char = first_present(&["chars"]);
    let is_open = |end: &str| !args.contains(end);
    let takes_count =
        by_page == Some("page") || by_line == Some("start_line") && is_open("end_line");
    let by_offset = match takes_count {
        true => first_present(&["offset"]),
        false => first_present(&["offset", "limit"]),
    };
    let agrees = match mode {
        Some(Mode::Page) => by_page.is_some() || by_offset.is_some(),
        Some(Mode::Line) => by_line.is_some() || by_offset.is_some(),
        Some(Mode::Char) => by_char.is_some() || by_offset.is_some(),
        None => false,
    };
    // A list of units is shown from one of them on.
    let lists_units = args.contains("unit") && !args.contains("index") && !args.contains("name");
    let counted: &[&'static str] = match (agrees, takes_count) {
        _ if lists_units => &[mode_key],
        (true, true) => &["start"],
        (true, false) => &["start", "count"],
        (false, true) => &[mode_key, "start"],
        (false, false) => &[mode_key, "start", "count"],
    };
    let forms = [
        by_page,
        by_line,
        by_char,
        by_offset,
        first_present(counted),
        first_present(&["unit", "index", "name"]),
    ];
    forms.into_iter().flatten().collect()
}

/// Parses the form that has the parameter `form`.
fn parse_form(args: &Args, form: &str, mode: Option<Mode>) -> Result<Selection, FdError> {
    let count = args.integer("count").or(args.integer("limit"));
    let start = args.integer("start");
    Ok(match form {
        "page" => match (args.integer("page").unwrap_or(1), count) {
            (page, None) => Selection::Page(page),
            (page, Some(count)) => Mode::Page.selection(Some(page), count),
        },
        "start_line" | "end_line" | "lines" => parse_lines(args),
        "pages" => parse_range(args, "pages", Mode::Page),
        "chars" => parse_range(args, "chars", Mode::Char),
        "offset" | "limit" => parse_offset(args, mode.unwrap_or(Mode::Line)),
        "unit" | "index" | "name" => {
            let (unit, which) = unit::parse(args)?;
            Selection::Unit { unit, which }
        }
        _ => match (mode.unwrap_or(Mode::Page), count) {
            (Mode::Page, None) => Selection::Page(start.unwrap_or(1)),
            (mode, count) => mode.selection(start, count.unwrap_or(1)),
        },
    })
}

/// Parses lines: `lines`, or `start_line` with `end_line` or with the number of lines.
pub(in crate::syscall) fn parse_lines(args: &Args) -> Selection {
    if let Some((first, last)) = args.range("lines") {
        return Selection::LineRange { first, last };
    }
    let first = args.integer("start_line").unwrap_or(1);
    let count = args.integer("count").or(args.integer("limit"));
    match (args.integer("end_line"), count) {
        (None, Some(count)) => Selection::Lines {
            start: first,
            count,
        },
        (last, _) => Selection::LineRange { first, last },
    }
}

/// Parses a range of pages or characters. A range without an end has the rest.
fn parse_range(args: &Args, key: &str, mode: Mode) -> Selection {
    let (first, last) = args.range(key).unwrap_or((1, None));
    let count = last.map_or(i64::MAX, |last| {
        last.saturating_sub(first).saturating_add(1)
    });
    mode.selection(Some(first), count)
}

/// Parses `offset` and `limit`. Tools count lines from 0 or from 1: 0 is the beginning in any case.
fn parse_offset(args: &Args, mode: Mode) -> Selection {
    let limit = args.integer("limit").or(args.integer("count"));
    let offset = args.integer("offset");
    let start = match mode {
        Mode::Char => offset,
        Mode::Page | Mode::Line => offset.map(|offset| if offset == 0 { 1 } else { offset }),
    };
    mode.selection(start, limit.unwrap_or(i64::MAX))
}
