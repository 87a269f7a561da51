//! `fd_to_file`: writes a content or a part of it to a file.
//!
//! The tool only describes the write; the host performs it under the user's permissions. The bytes
//! are written exactly, even if the model saw other characters in their place, and their length is
//! not limited. Text that is shown decoded is written in its own encoding, also a part of it. A
//! whole binary content is written as raw bytes; a part of it is written as a part of its base64
//! text. JSON is written reformatted if the call requests it. A part is also written reformatted if
//! `read_fd` shows it reformatted, since the model counted its lines there.

use std::ops::Range;

use bytes::Bytes;
use dormouse_proto::descriptor::view::Encoding;
use dormouse_proto::descriptor::{FdError, FdErrorKind};
use dormouse_proto::file::{FileWrite, Presence, WriteMode};
use dormouse_proto::tool::Access;

use super::args::Args;
use super::selection::{Selection, unit};
use super::{
    Call, DESCRIPTOR_NAMES, Group, Handler, Outcome, Parameter, PendingWrite, Tool, form, selection,
};
use crate::table::Form;
use dormouse_content::{Reader, Unreadable};

/// `fd_to_file` as a tool.
pub const TOOL: Tool = Tool {
    name: "fd_to_file",
    group: Group::Descriptors,
    access: Access::Write,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: Some(
        "fd_to_file(fd=\"fd:1\", file_path=\"out.txt\") - write it to a file, exactly, without \
         repeating it",
    ),
    may_repeat: is_repeatable,
    handler: Handler::Table(fd_to_file),
};

const DESCRIPTION: &str = "Writes content that is kept in a file descriptor to a file, exactly and \
without passing through your context. Everything, unless you say which part: `page`; or \
`start_line` and `end_line`; or `select` with `start` and `count`; or `unit` with `index` or \
`name`. `mode` says how the file is written.";

const PARAMETERS: [Parameter; 23] = [
    Parameter::word("fd", "The descriptor, such as fd:1 or ref:plan")
        .required()
        .also(&DESCRIPTOR_NAMES),
    Parameter::text("file_path", "The file; folders on the way to it are made")
        .required()
        .also(&[
            "path",
            "file",
            "filename",
            "output_path",
            "output_file",
            "destination",
        ]),
    Parameter::text(
        "mode",
        "Replace the file (if left out), add to its end, or insert before a line",
    )
    .one_of(&["write", "append", "insert"])
    .suggested_for(&["append"]),
    Parameter::integer(
        "insert_at_line",
        "For mode insert: the line, counted from 1, that the content goes before, on lines of its \
         own and with the line ends of the file",
    )
    .at_least(1),
    Parameter::flag("create", "Whether the file may be new; true if left out"),
    Parameter::flag(
        "exist_ok",
        "Whether the file may be there already; true if left out",
    )
    .also(&["overwrite"]),
    Parameter::integer("page", "Only this page, counted from 1")
        .at_least(1)
        .also(&["page_number", "page_num"])
        .hinting(selection::PAGE_HINT),
    Parameter::integer("start_line", "Only from this line on, counted from 1")
        .at_least(1)
        .also(&selection::FIRST_LINE_NAMES),
    Parameter::integer("end_line", "Only up to this line")
        .at_least(1)
        .also(&selection::LAST_LINE_NAMES)
        .suggested_for(&["end"]),
    Parameter::text("select", "The unit of start and count; page if left out")
        .one_of(&["page", "line", "char"]),
    Parameter::integer(
        "start",
        "Where to begin: pages and lines count from 1, characters from 0",
    )
    .at_least(0),
    Parameter::integer("count", "How many units; 1 if left out").at_least(1),
    Parameter::text(
        "unit",
        "Only this part by its meaning, said by index or name",
    )
    .one_of(&["paragraph", "section", "function", "class"]),
    Parameter::integer("index", "Which unit, counted from 1").at_least(1),
    Parameter::text(
        "name",
        "Which unit, by a heading or a name such as area or Circle.area",
    ),
    unit::LANGUAGE,
    Parameter::flag("read_all", "Everything; wins over every other selection"),
    Parameter::flag(
        "pretty",
        "Whether JSON is written reformatted. If left out, everything is written as it is, and a \
         part as read_fd counts and shows it",
    ),
    selection::LINES,
    selection::PAGES,
    selection::CHARS,
    selection::OFFSET,
    selection::LIMIT,
];

/// Executes a call: returns the write for the host, or an error. Copies nothing; JSON is
/// reformatted once if requested.
#[must_use]
pub fn fd_to_file(call: &Call<'_>) -> Outcome {
    run(call).into()
}

fn run(call: &Call<'_>) -> Result<Outcome, FdError> {
    let args = Args::parse(&TOOL, call.args)?;
    let requested = args.fd()?;
    let path = args
        .required_text("file_path", "the file to write to")?
        .to_owned();
    let mode = parse_mode(&args)?;
    let selection = Selection::parse(&args, "select")?.unwrap_or(Selection::All);
    let (fd, entry) = call.table.resolve_argument(requested)?;
    // Unlike a part, the whole content is not reformatted by default.
    let default_form = (selection == Selection::All).then_some(Form::Plain);
    let view = form::view(&args, entry, form::requested(&args).or(default_form), call)?;
    let range = selection.resolve(&args, &view)?.byte_range;
    let (bytes, lines) =
        read_original(&view.content, range).map_err(|error| args.unreadable_error(error))?;
    let write = FileWrite {
        path,
        bytes,
        mode,
        presence: parse_presence(&args),
    };
    Ok(Outcome::Write(PendingWrite {
        write,
        requested_fd: requested.to_owned(),
        fd,
        lines,
        pretty: view.pretty,
    }))
}

/// Whether executing the call twice writes the same file. Depends only on the arguments, since the
/// descriptor may no longer exist.
fn is_repeatable(args: &str) -> bool {
    let args = Args::parse(&TOOL, args);
    args.is_ok_and(|args| {
        parse_mode(&args).is_ok_and(|mode| mode.is_repeatable(parse_presence(&args)))
    })
}

fn parse_mode(args: &Args) -> Result<WriteMode, FdError> {
    let line = args.integer("insert_at_line");
    match (args.text("mode").unwrap_or("write"), line) {
        ("write" | "w" | "overwrite", None) => Ok(WriteMode::Write),
        ("append" | "a", None) => Ok(WriteMode::Append),
        ("insert", Some(line)) => match u64::try_from(line) {
            Ok(at_line) if at_line > 0 => Ok(WriteMode::Insert { at_line }),
            _ => {
                let message = format!("Invalid insert_at_line {line}: lines count from 1.");
                Err(args.error(FdErrorKind::InvalidRange, message))
            }
        },
        ("insert", None) => {
            Err(args
                .invalid_error("Mode insert needs 'insert_at_line': the line to insert before."))
        }
        (mode @ ("write" | "w" | "overwrite" | "append" | "a"), Some(_)) => Err(args
            .invalid_error(format!(
                "Parameter 'insert_at_line' goes with mode insert only, not with mode {mode}."
            ))),
        (mode, _) => Err(args.invalid_error(format!(
            "Unknown mode '{mode}'. Accepted: write, append, insert. To choose a part of the \
             content, use 'select'."
        ))),
    }
}

fn parse_presence(args: &Args) -> Presence {
    match (
        args.flag("create").unwrap_or(true),
        args.flag("exist_ok").unwrap_or(true),
    ) {
        (true, true) => Presence::Any,
        (true, false) => Presence::Absent,
        (false, true) => Presence::Present,
        (false, false) => Presence::Neither,
    }
}

/// The bytes that a range of the shown text stands for, and their number of lines.
fn read_original(content: &Reader<'_>, range: Range<usize>) -> Result<(Bytes, u64), Unreadable> {
    let bytes = content.original_bytes(range.clone())?;
    let lines = match content.encoding()? {
        Encoding::Text | Encoding::Base64 => count_lines(&bytes),
        Encoding::Decoded { .. } => {
            let last = range.end.saturating_sub(1).max(range.start);
            content.line_at(last)? - content.line_at(range.start)? + 1
        }
    };
    Ok((bytes, lines))
}

/// Number of lines, counted in the same way as by all tools: a final LF starts no further line, and
/// empty content has one line.
fn count_lines(bytes: &Bytes) -> u64 {
    let feeds = memchr::memchr_iter(b'\n', bytes).count() as u64;
    feeds + u64::from(bytes.last() != Some(&b'\n'))
}

#[cfg(test)]
mod tests;
