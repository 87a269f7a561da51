//! Selects a unit of a content, such as a paragraph or a function, by `index` or `name`, or lists
//! all units of a kind.

use std::ops::Range;
use std::sync::Arc;

use dormouse_proto::descriptor::view::{Listed, ShownPart, Units};
use dormouse_proto::descriptor::{FdError, FdErrorKind};

use super::super::Parameter;
use super::super::args::Args;
use super::check_range;
use crate::table::View;
use dormouse_content::Unreadable;
use dormouse_content::units::{LANGUAGES, OutlineEntry, Unit, UnitError, name, source_of_language};

/// The parameter that names the language of a content, if its source does not.
pub(in crate::syscall) const LANGUAGE: Parameter = Parameter::text(
    "language",
    "With unit function or class: the language of the code, if it is not recognised",
)
.one_of(&[
    "rust",
    "python",
    "go",
    "java",
    "c",
    "cpp",
    "javascript",
    "typescript",
    "tsx",
]);

/// Maximum number of names that an error lists.
const MAX_NAMES: usize = 20;

/// Characters of a paragraph that a list shows.
const PARAGRAPH_CHARS: usize = 60;

/// Characters of a name that a list shows.
const NAME_CHARS: usize = 200;

/// Upper bound for the characters of a list without its items.
const LIST_CHARS: u64 = 400;

/// How a call names one of the units: by index, by name, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::syscall) enum UnitKey {
    Index(i64),
    Name,
    Unspecified,
}

/// Parses the arguments `unit`, `index` and `name`.
///
/// # Errors
/// `invalid_parameter`: no unit or an unknown one, or both an index and a name.
pub(super) fn parse(args: &Args) -> Result<(Unit, UnitKey), FdError> {
    let kinds = Unit::ALL.map(Unit::word).join(", ");
    let Some(word) = args.text("unit") else {
        return Err(args.invalid_error(format!(
            "Parameters 'index' and 'name' need 'unit', which says of what: {kinds}."
        )));
    };
    let unit = Unit::from_word(word);
    let unit = unit
        .ok_or_else(|| args.invalid_error(format!("Unknown unit '{word}'. Accepted: {kinds}.")))?;
    match (args.integer("index"), args.contains("name")) {
        (Some(_), true) => Err(args.invalid_error(
            "Parameters 'index' and 'name' cannot be combined: one of them is enough.",
        )),
        (Some(index), false) => Ok((unit, UnitKey::Index(index))),
        (None, true) if unit == Unit::Paragraph => Err(args.invalid_error(
            "Paragraphs have no names. Use 'index', or 'start_line' and 'end_line'.",
        )),
        (None, true) => Ok((unit, UnitKey::Name)),
        (None, false) => Ok((unit, UnitKey::Unspecified)),
    }
}

/// Selects the requested unit.
///
/// # Errors
/// `invalid_range`: no unit has this index. `invalid_parameter`: the content has no such units, no
/// unit or several units have this name, or the call has neither index nor name.
pub(super) fn resolve(
    args: &Args,
    view: &View<'_>,
    unit: Unit,
    which: UnitKey,
) -> Result<ShownPart, FdError> {
    let units = &*read_outline(args, view, unit)?;
    let at = match which {
        UnitKey::Index(index) => {
            let what = format!("{} index", unit.word());
            check_range(
                args,
                FdErrorKind::InvalidRange,
                &what,
                index,
                (1, units.len() as u64),
            )? as usize
                - 1
        }
        UnitKey::Name => find_by_name(args, units, unit)?,
        UnitKey::Unspecified => {
            let message = format!(
                "Which {} is not said. Use 'index' (1-{}) or 'name'.",
                unit.word(),
                units.len()
            );
            return Err(args.invalid_error(message));
        }
    };
    let chosen = &units[at];
    let (unit, index, name) = (unit.word(), at as u64 + 1, (*chosen.name).into());
    let chars = char_range(view, chosen).map_err(|error| args.unreadable_error(error))?;
    Ok(match chars {
        Some(chars) => ShownPart::UnitChars {
            unit,
            index,
            name,
            start: chars.start,
            count: chars.end - chars.start,
        },
        None => ShownPart::Unit {
            unit,
            index,
            name,
            start: chosen.first_line,
            count: chosen.lines(),
        },
    })
}

/// The characters of a unit that does not consist of whole lines.
fn char_range(view: &View<'_>, unit: &OutlineEntry) -> Result<Option<Range<u64>>, Unreadable> {
    let char_at = |byte| view.content.char_at(byte);
    let bytes = unit.within_lines.as_ref();
    bytes
        .map(|bytes| Ok(char_at(bytes.start)?..char_at(bytes.end)?))
        .transpose()
}

/// Lists the units of a kind from `start` on, as many as fit into `max_chars` and at most `count`.
///
/// # Errors
/// `invalid_parameter`: there are no such units. `invalid_range`.
pub(in crate::syscall) fn list(
    args: &Args,
    view: &View<'_>,
    unit: Unit,
    max_chars: u64,
) -> Result<Units, FdError> {
    let units = read_outline(args, view, unit)?;
    let unreadable = |error| args.unreadable_error(error);
    let total = units.len() as u64;
    let what = format!("{} index", unit.word());
    let start = args.integer("start").unwrap_or(1);
    let start = check_range(args, FdErrorKind::InvalidRange, &what, start, (1, total))?;
    let count = args.integer_at_least("count", 1, total)?;
    let mut chars = LIST_CHARS;
    let mut listed = Vec::new();
    for unit in units.iter().skip(start as usize - 1).take(count as usize) {
        let item = Listed {
            name: unit_label(view, unit).map_err(unreadable)?,
            lines: (unit.first_line, unit.last_line),
            chars: char_range(view, unit)
                .map_err(unreadable)?
                .map(|chars| (chars.start, chars.end.saturating_sub(1))),
        };
        chars += item_chars(&item);
        if chars > max_chars && !listed.is_empty() {
            break;
        }
        listed.push(item);
    }
    Ok(Units {
        unit: unit.word(),
        plural: unit.plural(),
        total,
        start,
        listed,
    })
}

/// Upper bound for the characters of a list item. An escaped character has up to six.
fn item_chars(item: &Listed) -> u64 {
    let digits = |(first, last): (u64, u64)| (first.to_string() + &last.to_string()).len();
    let numbers = digits(item.lines) + item.chars.map_or(0, |chars| 10 + digits(chars));
    let escaped = |c: char| {
        if c.is_alphanumeric() || "_. ".contains(c) {
            1
        } else {
            6
        }
    };
    let name: usize = item.name.chars().map(escaped).sum();
    (50 + numbers + name) as u64
}

/// The name of a unit, or its first words if it has none.
fn unit_label(view: &View<'_>, unit: &OutlineEntry) -> Result<String, Unreadable> {
    if !unit.name.is_empty() {
        return Ok(name::words(&unit.name, NAME_CHARS));
    }
    let slice = view.content.lines(unit.first_line, unit.lines())?;
    Ok(slice.map_or_else(String::new, |slice| {
        name::words(&slice.text, PARAGRAPH_CHARS)
    }))
}

fn read_outline(args: &Args, view: &View<'_>, unit: Unit) -> Result<Arc<[OutlineEntry]>, FdError> {
    let language = args.text("language").map(|name| {
        source_of_language(name).ok_or_else(|| {
            let known = LANGUAGES.map(|(name, _)| name).join(", ");
            args.invalid_error(format!("Unknown language '{name}'. Accepted: {known}."))
        })
    });
    let language = language.transpose()?;
    let source = language.as_deref().unwrap_or(&view.entry.source);
    view.content
        .units(unit, source)
        .map_err(|error| match error {
            UnitError::Unreadable(error) => args.unreadable_error(error),
            error => args.invalid_error(error.to_string()),
        })
}

fn find_by_name(args: &Args, units: &[OutlineEntry], unit: Unit) -> Result<usize, FdError> {
    let requested = args.text("name").unwrap_or_default();
    match name::find(units, requested)[..] {
        [at] => Ok(at),
        [] => Err(args.invalid_error(format!(
            "No {} is named '{requested}'.{} {}.",
            unit.word(),
            format_suggestion(units, requested),
            list_names(unit, units)
        ))),
        ref several => {
            let which = several
                .iter()
                .take(MAX_NAMES)
                .map(|at| describe_unit(units, *at))
                .collect::<Vec<_>>()
                .join("; ");
            let message = format!(
                "{} {} are named '{requested}'. Say which with 'index' in place of 'name': {which}{}.",
                several.len(),
                unit.plural(),
                format_more(several.len())
            );
            Err(args.invalid_error(message))
        }
    }
}

fn format_suggestion(units: &[OutlineEntry], requested: &str) -> String {
    let nearest: Vec<_> = name::nearest(units, requested)
        .into_iter()
        .map(|at| describe_unit(units, at))
        .collect();
    if nearest.is_empty() {
        String::new()
    } else {
        format!(" Did you mean {}?", nearest.join(", or "))
    }
}

fn describe_unit(units: &[OutlineEntry], at: usize) -> String {
    let OutlineEntry {
        name,
        first_line,
        last_line,
        ..
    } = &units[at];
    format!(
        "'{name}' (index {}, lines {first_line}-{last_line})",
        at + 1
    )
}

fn list_names(unit: Unit, units: &[OutlineEntry]) -> String {
    let names: Vec<_> = units
        .iter()
        .take(MAX_NAMES)
        .map(|unit| &*unit.name)
        .collect();
    format!(
        "The content has {} {}: {}{}",
        units.len(),
        unit.plural(),
        names.join(", "),
        format_more(units.len())
    )
}

fn format_more(of: usize) -> String {
    if of > MAX_NAMES {
        format!(", and {} more", of - MAX_NAMES)
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::LANGUAGES;
    use crate::syscall::read_fd;

    #[test]
    fn each_known_language_can_be_named() {
        let accepted = read_fd::TOOL.schema()["properties"]["language"]["enum"].clone();
        assert_eq!(accepted, serde_json::json!(LANGUAGES.map(|(name, _)| name)));
    }
}
