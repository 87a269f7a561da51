//! Outlines: a text as paragraphs, Markdown sections, functions and classes.
//!
//! A unit is a run of whole lines, in the order of the text. Sections, functions and classes nest:
//! a line can be in several. Functions and classes depend on the language, which the name of the
//! text's source says, or its first line, or what the text looks like.
//!
//! An outline is bounded by [`MAX_UNITS`]. A caller parses at most [`MAX_PARSED_BYTES`].
//!
//! This crate never executes, resolves or completes what it reads. Source code with mistakes gives
//! the units that can be recognised, and hostile text costs no more stack than any other. It
//! imports nothing else of the workspace.
//!
//! ```
//! use dormouse_outlines::{Outlines, Unit};
//!
//! let text = "# Mice\n\nThey sleep.\n\n# Bats\n\nThey hang.\n";
//! let sections = Outlines::default().make(Unit::Section, text, "file:animals.md")?;
//! assert_eq!((&*sections[1].name, sections[1].first_line), ("Bats", 5));
//! # Ok::<(), dormouse_outlines::OutlineError>(())
//! ```

#[cfg(feature = "grammars")]
mod code;
pub mod name;
mod paragraph;
mod section;

use std::sync::{Arc, OnceLock};

/// The most bytes that are parsed for sections, functions and classes. While source code is parsed
/// its tree takes tens of times as much memory, and this much takes seconds.
pub const MAX_PARSED_BYTES: usize = 8 << 20;

/// The most units of one outline, which takes some 50 bytes for each beside its name.
pub const MAX_UNITS: usize = 1_000_000;

/// A kind of unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Lines up to a blank one, which holds nothing but whitespace.
    Paragraph,
    /// A Markdown heading with what follows, up to the next heading of its level or above.
    Section,
    /// A function, method or constructor with a body, and the comments and attributes directly
    /// above it.
    Function,
    /// A class, struct, union, enum, trait or interface, or an `impl` block, and what stands
    /// directly above it.
    Class,
}

impl Unit {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Paragraph, Self::Section, Self::Function, Self::Class];

    /// Its name in calls and answers.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Paragraph => "paragraph",
            Self::Section => "section",
            Self::Function => "function",
            Self::Class => "class",
        }
    }

    /// More than one of it.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::Paragraph => "paragraphs",
            Self::Section => "sections",
            Self::Function => "functions",
            Self::Class => "classes",
        }
    }

    /// The kind of this name.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.word() == word)
    }
}

/// A unit of a content: whole lines with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlined {
    /// A heading's text, a type's name, `impl Shape for Circle`, or a function's name after those
    /// of what it is in, as `Circle.area`. Empty for paragraphs.
    pub name: Box<str>,
    /// The name of the type that an `impl` block is of; empty for all else.
    pub implemented: Box<str>,
    /// Its first line, from 1.
    pub first_line: u64,
    /// Its last line.
    pub last_line: u64,
}

impl Outlined {
    /// How many lines it has.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.last_line - self.first_line + 1
    }
}

/// Why there is no outline. Another unit, or lines, can be read instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutlineError {
    /// Base64 has no units.
    #[error("Binary content has no {}. Read it by page or by characters.", .0.plural())]
    Binary(Unit),
    /// There is nothing of the kind.
    #[error("The content has no {}: {}. Read it by page or by lines, or find a place with \
         search_fd.", .0.plural(), absent(*.0))]
    None(Unit),
    /// More text than is parsed.
    #[error(
        "The content is too large to find its {} ({len} bytes, at most {MAX_PARSED_BYTES} are \
         parsed). Read it by lines, or make a part of it a descriptor of its own with \
         extract_to_new_fd.", .unit.plural()
    )]
    TooLarge {
        /// What was asked for.
        unit: Unit,
        /// Bytes of the content.
        len: usize,
    },
    /// More units than are listed.
    #[error("The content has more than {MAX_UNITS} {}. Read it by page or by lines.", .0.plural())]
    TooMany(Unit),
    /// The source code defeats the parser.
    #[error("The content is nested too deeply, or has too many syntax errors, to find its {}. Read \
         it by lines, or find a place with search_fd.", .0.plural())]
    Tangled(Unit),
    /// It cannot be told what language it is.
    #[error(
        "The content is in none of the languages whose {} are known: Rust, Python, JavaScript, \
         TypeScript, Go, Java, C, C++. Read it by lines; a language is told by the file name in \
         the descriptor's source.", .0.plural()
    )]
    UnknownLanguage(Unit),
    /// The feature `grammars` is off.
    #[error("This kernel was built without grammars (the feature `grammars`), so it cannot find \
         {}. Read by lines.", .0.plural())]
    NoGrammars(Unit),
}

fn absent(unit: Unit) -> &'static str {
    match unit {
        Unit::Paragraph => "it is blank",
        Unit::Section => "there is no Markdown heading in it",
        Unit::Function | Unit::Class => "none is defined in it",
    }
}

/// The units of a kind, or why there are none.
pub type Outline = Result<Arc<[Outlined]>, OutlineError>;

/// The outlines of one text, each kept once it was made.
#[derive(Debug, Default)]
pub struct Outlines {
    made: OnceLock<Box<Made>>,
}

#[derive(Debug, Default)]
struct Made {
    paragraphs: OnceLock<Outline>,
    sections: OnceLock<Outline>,
    #[cfg(feature = "grammars")]
    code: code::Code,
}

impl Outlines {
    /// About what they take in memory. O(1).
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let Some(made) = self.made.get() else {
            return 0;
        };
        let listed = bytes_of(&made.paragraphs) + bytes_of(&made.sections);
        #[cfg(feature = "grammars")]
        let listed = listed + made.code.bytes();
        listed
    }

    /// An outline that was made before. None of functions and classes: which language they are of
    /// is read from the text.
    #[must_use]
    pub fn kept(&self, unit: Unit) -> Option<Outline> {
        let made = self.made.get()?;
        match unit {
            Unit::Paragraph => made.paragraphs.get().cloned(),
            Unit::Section => made.sections.get().cloned(),
            Unit::Function | Unit::Class => None,
        }
    }

    /// The units of a kind in `text`, at least one, in the order of their first lines. `source` is
    /// where the text comes from (`file:src/main.rs`). One pass; for source code at some 3 MB/s.
    ///
    /// # Errors
    /// There are none, or they cannot be recognised: see [`OutlineError`].
    pub fn make(&self, unit: Unit, text: &str, source: &str) -> Outline {
        let made = self.made.get_or_init(Box::default);
        match unit {
            Unit::Paragraph => made
                .paragraphs
                .get_or_init(|| paragraph::outline(text).and_then(|units| some(unit, units)))
                .clone(),
            Unit::Section => made
                .sections
                .get_or_init(|| section::outline(text).and_then(|units| some(unit, units)))
                .clone(),
            #[cfg(feature = "grammars")]
            Unit::Function | Unit::Class => made
                .code
                .outline(unit, text, source)
                .and_then(|units| some(unit, units)),
            #[cfg(not(feature = "grammars"))]
            Unit::Function | Unit::Class => Err(without_grammars(unit, source)),
        }
    }
}

/// The units, or the error that there are none.
fn some(unit: Unit, units: Arc<[Outlined]>) -> Outline {
    if units.is_empty() {
        Err(OutlineError::None(unit))
    } else {
        Ok(units)
    }
}

#[cfg(not(feature = "grammars"))]
fn without_grammars(unit: Unit, _source: &str) -> OutlineError {
    OutlineError::NoGrammars(unit)
}

fn bytes_of(outline: &OnceLock<Outline>) -> u64 {
    outline.get().map_or(0, reckoned)
}

/// What an outline is reckoned at: its names are seldom longer.
fn reckoned(outline: &Outline) -> u64 {
    const NAME_BYTES: usize = 32;
    outline.as_ref().map_or(0, |units| {
        (units.len() * (size_of::<Outlined>() + NAME_BYTES)) as u64
    })
}

/// So many, or an error.
fn counted(unit: Unit, units: Vec<Outlined>) -> Outline {
    if units.len() > MAX_UNITS {
        Err(OutlineError::TooMany(unit))
    } else {
        Ok(units.into())
    }
}
