//! `read_fd`: shows a part of a content, or makes it a descriptor of its own.

use dormouse_proto::descriptor::{FdError, view};
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use dormouse_proto::text::truncate;
use dormouse_proto::tool::Access;

use super::args::Args;
use super::selection::unit::{self, UnitKey};
use super::selection::{ResolvedSelection, Selection};
use super::{Call, FD_NAMES, Group, Handler, Outcome, Parameter, Tool, form, selection};
use crate::table::{NewDescriptor, View};
use dormouse_content::Unreadable;

/// `read_fd` as a tool.
pub const TOOL: Tool = Tool {
    name: "read_fd",
    group: Group::Descriptors,
    access: Access::Read,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: Some(
        "read_fd(fd=\"fd:1\", page=2), or start_line=45, end_line=90, or unit=\"function\", \
         name=\"main\" in place of page - read a part",
    ),
    may_repeat: super::always_repeatable,
    handler: Handler::Table(read_fd),
};

const DESCRIPTION: &str = "Reads content that is kept in a file descriptor. Say which part in one \
of these ways: `page`; or `start_line` and `end_line`; or `mode` with `start` and `count`; or \
`unit` with `index` or `name`, such as the function main; or `read_all`. A `unit` alone lists what \
there is. Without any of them you get page 1. With `extract_to_new_fd` the part becomes a new \
descriptor and only its name is returned.";

/// The most characters of a summary that each answer repeats. `list_fds` shows all of it.
const MAX_SUMMARY_CHARS: usize = 300;

const PARAMETERS: [Parameter; 20] = [
    Parameter::word("fd", "The descriptor, such as fd:1 or ref:plan").also(&FD_NAMES),
    Parameter::integer("page", "A page, counted from 1")
        .at_least(1)
        .also(&["page_number", "page_num"])
        .hinting(selection::PAGE_HINT),
    Parameter::integer("start_line", "The first line, counted from 1")
        .at_least(1)
        .also(&selection::FIRST_LINE_NAMES),
    Parameter::integer("end_line", "The last line; the end if left out")
        .at_least(1)
        .also(&selection::LAST_LINE_NAMES)
        .suggested_for(&["end"]),
    Parameter::text("mode", "The unit of start and count; page if left out")
        .one_of(&["page", "line", "char"])
        .also(&["select"]),
    Parameter::integer(
        "start",
        "Where to begin: pages and lines count from 1, characters from 0",
    )
    .at_least(0),
    Parameter::integer("count", "How many units; 1 if left out").at_least(1),
    Parameter::text(
        "unit",
        "A part by its meaning: sections are those of Markdown, classes are types of any kind; \
         without index and name you get a list, of a long one from start on",
    )
    .one_of(&["paragraph", "section", "function", "class"]),
    Parameter::integer("index", "Which unit, counted from 1").at_least(1),
    Parameter::text(
        "name",
        "With unit: which one, by a heading or a name such as area or Circle.area. Without unit, \
         in place of fd: the name that the descriptor was given",
    ),
    unit::LANGUAGE,
    Parameter::flag("read_all", "Everything; wins over every other selection").also(&["all"]),
    Parameter::flag(
        "extract_to_new_fd",
        "Make the part a new descriptor instead of showing it",
    ),
    Parameter::flag(
        "pretty",
        "Whether JSON is reformatted: its pages, lines and characters are then those of the \
         reformatted text. If left out, JSON on one line is, where the program wants that",
    ),
    LINE_NUMBERS,
    selection::LINES,
    selection::PAGES,
    selection::CHARS,
    selection::OFFSET,
    selection::LIMIT,
];

/// Executes a call. `max_read_chars` of the settings limits what is shown, never what is extracted.
/// O(log n + shown), after JSON has been reformatted or the outline of a unit has been built.
#[must_use]
pub fn read_fd(call: &Call<'_>) -> Outcome {
    run(call).into()
}

fn run(call: &Call<'_>) -> Result<Outcome, FdError> {
    let args = Args::parse(&TOOL, call.args)?;
    // With a unit, `name` is the name of the unit.
    let args = if args.contains("unit") {
        args
    } else {
        args.with_fd_from("name")
    };
    let fd = args.fd()?;
    let unreadable = |error| args.unreadable_error(error);
    let selection = Selection::parse(&args, "mode")?.unwrap_or(Selection::Page(1));
    let (id, entry) = call.table.resolve_argument(fd)?;
    let view = form::view(&args, entry, form::requested(&args), call)?;
    let extracts = args.flag("extract_to_new_fd") == Some(true);
    if let (
        Selection::Unit {
            unit,
            which: UnitKey::Unspecified,
        },
        false,
    ) = (selection, extracts)
    {
        let units = unit::list(&args, &view, unit, call.settings.max_read_chars)?;
        return Ok(Outcome::Answer(view::units(
            &id,
            view.extent().map_err(unreadable)?,
            &units,
        )));
    }
    let part = selection.resolve(&args, &view)?;
    let is_numbered = wants_line_numbers(&args, call);
    if extracts {
        return extract(call, &id, &view, part).map_err(unreadable);
    }
    let bounded = part
        .limit_numbered(&view, call.settings.max_read_chars, is_numbered)
        .map_err(unreadable)?;
    let extent = view.extent().map_err(unreadable)?;
    let (part, rest) = (bounded.part(is_numbered), bounded.rest.as_ref());
    let shown_part = &bounded.shown_part;
    Ok(Outcome::Answer(match automatic_summary(call, &view) {
        Some(summary) => view::summarized_content((&id, &summary), extent, shown_part, part, rest),
        None => view::content(&id, extent, shown_part, part, rest),
    }))
}

/// The parameter that overrides the setting of the program.
pub(super) const LINE_NUMBERS: Parameter = Parameter::flag(
    "line_numbers",
    "Whether each line has its number and a tab before it, which are not content; as the program \
     wants it if left out",
)
.also(&["number_lines", "show_line_numbers", "with_line_numbers"]);

/// Whether the answer shows line numbers.
pub(super) fn wants_line_numbers(args: &Args, call: &Call<'_>) -> bool {
    args.flag("line_numbers")
        .unwrap_or(call.settings.line_numbers)
}

/// The beginning of the summary, where summaries are made without being asked for: the model may
/// not have seen it. `None` where the model asks for them.
fn automatic_summary(call: &Call<'_>, view: &View<'_>) -> Option<String> {
    call.settings.auto_summary_chars?;
    let summary = view.entry.notes.summary.as_deref()?;
    Some(truncate(summary, MAX_SUMMARY_CHARS))
}

/// Makes a part of a descriptor a new descriptor with the same page size.
pub(super) fn extract(
    call: &Call<'_>,
    id: &FdId,
    view: &View<'_>,
    part: ResolvedSelection,
) -> Result<Outcome, Unreadable> {
    let ResolvedSelection {
        byte_range,
        shown_part,
    } = part;
    let source = &view.content;
    let last = byte_range.end.saturating_sub(1).max(byte_range.start);
    let lines = (source.line_at(byte_range.start)?, source.line_at(last)?);
    let content = source.extract(byte_range)?;
    let extent = view.describe(content.clone())?;
    let entry = Entry::new(
        content,
        view.page_chars(),
        format!("extract:{id}"),
        call.now_ms,
    );
    Ok(Outcome::Opened(Box::new(NewDescriptor::part(
        entry,
        id.clone(),
        shown_part,
        lines,
        extent,
    ))))
}

#[cfg(test)]
mod tests;
