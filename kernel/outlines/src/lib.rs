//! Outlines: the paragraphs, Markdown sections, functions and classes of a text.
//!
//! A unit is a range of whole lines, or exactly its text where it shares a line with another one or
//! with much other code, as in minified code. Sections, functions and classes nest, so that a line
//! can belong to several. Functions and classes are found by a parser for the language of the text.
//! The language is determined by the file name in the source, by the first line, or by the text
//! itself.
//!
//! An outline has at most [`MAX_UNITS`] units. Callers must not parse more than
//! [`MAX_PARSED_BYTES`].
//!
//! This crate never executes, resolves or completes source code. Code with errors yields the units
//! that can be recognised, and hostile text uses no more stack than any other. The crate depends on
//! no other crate of the workspace.
//!
//! ```
//! use dormouse_outlines::{Outlines, Unit};
//!
//! let text = "# Mice\n\nThey sleep.\n\n# Bats\n\nThey hang.\n";
//! let sections = Outlines::default().get_or_build(Unit::Section, text, "file:animals.md")?;
//! assert_eq!((&*sections[1].name, sections[1].first_line), ("Bats", 5));
//! # Ok::<(), dormouse_outlines::OutlineError>(())
//! ```

#[cfg(feature = "grammars")]
mod code;
pub mod name;
mod paragraph;
mod section;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Maximum size of a text that is parsed for sections, functions and classes. A syntax tree takes
/// tens of times as much memory as its source, and parsing this much takes seconds.
pub const MAX_PARSED_BYTES: usize = 8 << 20;

/// Maximum number of units of one outline. Each takes about 80 bytes in addition to its name.
pub const MAX_UNITS: usize = 1_000_000;

/// A kind of unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Lines up to a blank one, which contains only white space.
    Paragraph,
    /// A Markdown heading and the text up to the next heading of the same or a higher level.
    Section,
    /// A function, method or constructor with a body, and the comments and attributes directly
    /// above it.
    Function,
    /// A class, struct, union, enum, trait, interface or `impl` block, and the comments and
    /// attributes directly above it.
    Class,
}

impl Unit {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Paragraph, Self::Section, Self::Function, Self::Class];

    /// The name of the kind in tool calls and answers.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Paragraph => "paragraph",
            Self::Section => "section",
            Self::Function => "function",
            Self::Class => "class",
        }
    }

    /// The plural of the name.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::Paragraph => "paragraphs",
            Self::Section => "sections",
            Self::Function => "functions",
            Self::Class => "classes",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.word() == word)
    }
}

/// A unit of a text: its name, and its lines, or its bytes if it does not consist of whole lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlineEntry {
    /// Text of a heading, name of a type, `impl Shape for Circle`, or the qualified name of a
    /// function, such as `Circle.area`. Empty for paragraphs.
    pub name: Box<str>,
    /// Name of the type of an `impl` block; otherwise empty.
    pub implemented: Box<str>,
    /// The first line, counted from 1.
    pub first_line: u64,
    /// The last line, counted from 1.
    pub last_line: u64,
    /// The bytes of the unit if it does not consist of whole lines.
    pub within_lines: Option<Range<usize>>,
}

impl OutlineEntry {
    /// Number of lines.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.last_line - self.first_line + 1
    }
}

/// Why there is no outline. The caller can use another unit, or lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutlineError {
    /// Base64 has no units.
    #[error("Binary content has no {}. Read it by page or by characters.", .0.plural())]
    Binary(Unit),
    /// The content has no such unit.
    #[error("The content has no {}: {}. Read it by page or by lines, or find a place with \
         search_fd.", .0.plural(), explain_absence(*.0))]
    None(Unit),
    /// The content is too large to parse.
    #[error(
        "The content is too large to find its {} ({len} bytes, at most {MAX_PARSED_BYTES} are \
         parsed). Read it by lines, or make a part of it a descriptor of its own with \
         extract_to_new_fd.", .unit.plural()
    )]
    TooLarge {
        /// Requested unit.
        unit: Unit,
        /// Size of the content in bytes.
        len: usize,
    },
    /// The content has too many units.
    #[error("The content has more than {MAX_UNITS} {}. Read it by page or by lines.", .0.plural())]
    TooMany(Unit),
    /// The parser gave up on the source code.
    #[error("The content is nested too deeply, or has too many syntax errors, to find its {}. Read \
         it by lines, or find a place with search_fd.", .0.plural())]
    Tangled(Unit),
    /// The language cannot be determined.
    #[error(
        "The content is in none of the languages whose {} are known: Rust, Python, JavaScript, \
         TypeScript, Go, Java, C, C++. Say which with language, or read it by lines.", .0.plural()
    )]
    UnknownLanguage(Unit),
    /// The feature `grammars` is disabled.
    #[error("This kernel was built without grammars (the feature `grammars`), so it cannot find \
         {}. Read by lines.", .0.plural())]
    NoGrammars(Unit),
}

fn explain_absence(unit: Unit) -> &'static str {
    match unit {
        Unit::Paragraph => "it is blank",
        Unit::Section => "there is no Markdown heading in it",
        Unit::Function | Unit::Class => "none is defined in it",
    }
}

/// The languages whose functions and classes are known, by their names in calls, and a file
/// extension of each.
pub const LANGUAGES: [(&str, &str); 9] = [
    ("rust", "rs"),
    ("python", "py"),
    ("go", "go"),
    ("java", "java"),
    ("c", "c"),
    ("cpp", "cpp"),
    ("javascript", "js"),
    ("typescript", "ts"),
    ("tsx", "tsx"),
];

/// The source that stands for a language: a file name. `None` for an unknown name.
#[must_use]
pub fn source_of_language(name: &str) -> Option<String> {
    LANGUAGES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, extension)| format!("file:text.{extension}"))
}

/// Whether a file name has the extension of a known programming language. O(length).
#[must_use]
pub fn names_source_code(file: &str) -> bool {
    #[cfg(feature = "grammars")]
    let is_known = code::names_language(file);
    #[cfg(not(feature = "grammars"))]
    let (is_known, _) = (false, file);
    is_known
}

/// The units of a kind, or why there are none.
pub type Outline = Result<Arc<[OutlineEntry]>, OutlineError>;

/// A cache of the outlines of one text.
#[derive(Debug, Default)]
pub struct Outlines {
    cached: OnceLock<Box<CachedOutlines>>,
}

#[derive(Debug, Default)]
struct CachedOutlines {
    paragraphs: OnceLock<Outline>,
    sections: OnceLock<Outline>,
    #[cfg(feature = "grammars")]
    code: code::Code,
}

impl Outlines {
    /// Estimated memory use. O(1).
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let Some(cached) = self.cached.get() else {
            return 0;
        };
        let bytes = cached_bytes(&cached.paragraphs) + cached_bytes(&cached.sections);
        #[cfg(feature = "grammars")]
        let bytes = bytes + cached.code.bytes();
        bytes
    }

    /// A cached outline. `None` also for functions and classes if `source` names no language, since
    /// the language is then determined from the text. O(1).
    #[must_use]
    pub fn find_cached(&self, unit: Unit, source: &str) -> Option<Outline> {
        let cached = self.cached.get()?;
        let outline = match unit {
            Unit::Paragraph => cached.paragraphs.get().cloned(),
            Unit::Section => cached.sections.get().cloned(),
            #[cfg(feature = "grammars")]
            Unit::Function | Unit::Class => cached.code.find_cached(unit, source),
            #[cfg(not(feature = "grammars"))]
            Unit::Function | Unit::Class => Some(Err(no_grammars(unit, source))),
        };
        outline.map(|outline| outline.and_then(|units| non_empty(unit, units)))
    }

    /// The units of a kind in `text`, at least one, in the order of their first lines. `source` is
    /// the source of the text (`file:src/main.rs`). One pass; about 3 MB/s for source code.
    ///
    /// # Errors
    /// [`OutlineError`] if there are none, or they cannot be recognised.
    pub fn get_or_build(&self, unit: Unit, text: &str, source: &str) -> Outline {
        let cached = self.cached.get_or_init(Box::default);
        match unit {
            Unit::Paragraph => cached
                .paragraphs
                .get_or_init(|| paragraph::outline(text).and_then(|units| non_empty(unit, units)))
                .clone(),
            Unit::Section => cached
                .sections
                .get_or_init(|| section::outline(text).and_then(|units| non_empty(unit, units)))
                .clone(),
            #[cfg(feature = "grammars")]
            Unit::Function | Unit::Class => cached
                .code
                .outline(unit, text, source)
                .and_then(|units| non_empty(unit, units)),
            #[cfg(not(feature = "grammars"))]
            Unit::Function | Unit::Class => Err(no_grammars(unit, source)),
        }
    }
}

/// The units, or [`OutlineError::None`] if the list is empty.
fn non_empty(unit: Unit, units: Arc<[OutlineEntry]>) -> Outline {
    if units.is_empty() {
        Err(OutlineError::None(unit))
    } else {
        Ok(units)
    }
}

#[cfg(not(feature = "grammars"))]
fn no_grammars(unit: Unit, _source: &str) -> OutlineError {
    OutlineError::NoGrammars(unit)
}

fn cached_bytes(outline: &OnceLock<Outline>) -> u64 {
    outline.get().map_or(0, estimated_bytes)
}

/// Estimated memory use of an outline, with an average length of names.
fn estimated_bytes(outline: &Outline) -> u64 {
    const NAME_BYTES: usize = 32;
    outline.as_ref().map_or(0, |units| {
        (units.len() * (size_of::<OutlineEntry>() + NAME_BYTES)) as u64
    })
}

/// The units, unless there are too many.
fn checked_count(unit: Unit, units: Vec<OutlineEntry>) -> Outline {
    if units.len() > MAX_UNITS {
        Err(OutlineError::TooMany(unit))
    } else {
        Ok(units.into())
    }
}
