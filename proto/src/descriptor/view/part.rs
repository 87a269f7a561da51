//! Parts of a content: their text with its position, and which part an answer contains.

use std::borrow::Cow;
use std::sync::Arc;

use crate::xml::Element;

/// A part of a content with its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The text.
    pub text: &'a str,
    /// The line of its first character, from 1.
    pub first_line: u64,
    /// The line of its last character.
    pub last_line: u64,
    /// Whether the part starts within a line.
    pub continued: bool,
    /// Whether the part ends within a line.
    pub truncated: bool,
    /// Whether each line is shown with its number and a tab before it, which the content does not
    /// contain.
    pub is_numbered: bool,
}

impl Part<'_> {
    /// The text as it is shown.
    pub(super) fn shown_text(&self) -> Cow<'_, str> {
        if !self.is_numbered {
            return Cow::Borrowed(self.text);
        }
        let mut numbered = String::with_capacity(self.text.len() * 5 / 4);
        for (number, line) in (self.first_line..).zip(self.text.split_inclusive('\n')) {
            numbered += &number.to_string();
            numbered.push('\t');
            numbered += line;
        }
        Cow::Owned(numbered)
    }

    /// Characters that the numbers add to the text.
    #[must_use]
    pub fn number_chars(&self) -> u64 {
        let lines = self.last_line - self.first_line + 1;
        let digits = self.last_line.to_string().len() as u64;
        if self.is_numbered {
            lines * (digits + 1)
        } else {
            0
        }
    }

    pub(super) fn line_range(&self) -> String {
        format!("{}-{}", self.first_line, self.last_line)
    }
}

/// The part of a content that an answer contains, in the units of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShownPart {
    /// The whole content.
    All,
    /// One page, from 1, requested without a count.
    Page(u64),
    /// Pages, from 1.
    Pages {
        /// The first unit.
        start: u64,
        /// The number of units.
        count: u64,
    },
    /// Lines, from 1.
    Lines {
        /// The first unit.
        start: u64,
        /// The number of units.
        count: u64,
    },
    /// Characters, from 0.
    Chars {
        /// The first unit.
        start: u64,
        /// The number of units.
        count: u64,
    },
    /// The lines of a unit, or the first of them.
    Unit {
        /// `paragraph`, `section`, `function` or `class`.
        unit: &'static str,
        /// Number of the unit among its kind, from 1.
        index: u64,
        /// Name of the unit; empty if it has none.
        name: Arc<str>,
        /// First line.
        start: u64,
        /// Number of lines.
        count: u64,
    },
    /// The characters of a unit that does not consist of whole lines.
    UnitChars {
        /// `function` or `class`.
        unit: &'static str,
        /// Number of the unit among its kind, from 1.
        index: u64,
        /// Name of the unit.
        name: Arc<str>,
        /// First character, from 0.
        start: u64,
        /// Number of characters.
        count: u64,
    },
}

impl ShownPart {
    /// The `mode`, `start` and `count` that request this part.
    #[must_use]
    pub fn request(&self) -> Option<(&'static str, u64, u64)> {
        match *self {
            Self::All => None,
            Self::Page(page) => Some(("page", page, 1)),
            Self::Pages { start, count } => Some(("page", start, count)),
            Self::Lines { start, count } | Self::Unit { start, count, .. } => {
                Some(("line", start, count))
            }
            Self::Chars { start, count } | Self::UnitChars { start, count, .. } => {
                Some(("char", start, count))
            }
        }
    }

    /// Adds the attributes of the part. One page is `page="2"`, several are `page="2-4"`,
    /// everything is `page="all"`; lines and characters have `mode`, `start` and `count`; a unit
    /// has `unit`, `index` and, if it has one, `name`. Pages that were requested with a count have
    /// `start` and `count` in addition to `page`.
    pub(super) fn add_attributes(&self, element: Element) -> Element {
        match self {
            Self::All => element.attribute("page", "all"),
            Self::Page(page) => element.attribute("page", page),
            Self::Pages { start, count } => {
                let pages = if *count == 1 {
                    start.to_string()
                } else {
                    format!("{start}-{}", start + count - 1)
                };
                element
                    .attribute("page", pages)
                    .attribute("start", start)
                    .attribute("count", count)
            }
            Self::Lines { start, count } | Self::Chars { start, count } => {
                let mode = self.request().map(|(mode, ..)| mode);
                element
                    .attribute_if("mode", mode)
                    .attribute("start", start)
                    .attribute("count", count)
            }
            Self::Unit {
                unit, index, name, ..
            } => {
                let name = (!name.is_empty()).then_some(name);
                element
                    .attribute("unit", unit)
                    .attribute("index", index)
                    .attribute_if("name", name)
            }
            Self::UnitChars {
                unit,
                index,
                name,
                start,
                count,
            } => element
                .attribute("unit", unit)
                .attribute("index", index)
                .attribute("name", name)
                .attribute("mode", "char")
                .attribute("start", start)
                .attribute("count", count),
        }
    }
}
