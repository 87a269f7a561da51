//! Lists of the units of a content: paragraphs, sections, functions or classes.

use super::{ContentSummary, Shown};
use crate::id::FdId;
use crate::tool::Answer;
use crate::xml::Element;

/// The units of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Units {
    /// `paragraph`, `section`, `function` or `class`.
    pub unit: &'static str,
    /// The plural of `unit`.
    pub plural: &'static str,
    /// Number of units.
    pub total: u64,
    /// Number of the first listed unit, from 1.
    pub start: u64,
    /// The listed units.
    pub listed: Vec<Listed>,
}

/// A unit in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name of the unit, or its first words.
    pub name: String,
    /// First and last line, from 1.
    pub lines: (u64, u64),
    /// First and last character, from 0, of a unit that does not consist of whole lines.
    pub chars: Option<(u64, u64)>,
}

/// `fd_units`: a list of units, numbered from 1.
#[must_use]
pub fn units(fd: &FdId, extent: ContentSummary, units: &Units) -> Answer {
    let Units {
        unit,
        plural,
        total,
        start,
        listed,
    } = units;
    let shown = Shown {
        total: *total,
        start: *start,
        count: listed.len() as u64,
    };
    let next = shown.next();
    let message = next.map(|next| {
        format!(
            "{total} {plural} in all. Go on with unit={unit}, start={next}. Any of them can be \
             read with index."
        )
    });
    let element = Element::new("fd_units")
        .attribute("fd", fd)
        .attribute("unit", unit)
        .attribute("total", total)
        .attribute_if("shown", (shown.count < shown.total).then(|| shown.range()))
        .attribute("total_lines", extent.total_lines)
        .attribute_if("next_start", next)
        .attribute_if("message", message);
    Answer::shown(
        (*start..)
            .zip(listed)
            .fold(element, |element, (index, unit)| {
                element.child(unit.element(index))
            }),
    )
}

impl Listed {
    fn element(&self, index: u64) -> Element {
        let (first, last) = self.lines;
        Element::new("unit")
            .attribute("index", index)
            .attribute("name", &self.name)
            .attribute("lines", format!("{first}-{last}"))
            .attribute_if(
                "chars",
                self.chars.map(|(first, last)| format!("{first}-{last}")),
            )
    }
}
