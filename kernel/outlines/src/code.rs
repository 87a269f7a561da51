//! Functions and classes of source code, found by tree-sitter grammars.
//!
//! A query for each language (`code/queries`) captures definitions: `@function` and `@class` with
//! their `@name`, `@scope` for the type of a method that is defined outside of it, `@implemented`
//! and `@trait` for `impl` blocks, and `@above` for comments, attributes and decorators, which
//! belong to a definition directly below them.

mod definition;
mod definition_name;
mod detect;
mod language;
mod leading;
mod neighbours;
mod nesting;
mod parse;

use std::sync::OnceLock;

use super::{Outline, OutlineError, Unit, estimated_bytes};
use definition::find_definitions;
use language::Language;

/// The definitions of one text, cached by language. A text is parsed as one language, rarely two.
#[derive(Debug, Default)]
pub(super) struct Code {
    by_language: [OnceLock<Option<Definitions>>; Language::ALL.len()],
    detected: OnceLock<Option<Language>>,
}

/// The definitions of a text. Functions and classes are found in the same pass.
#[derive(Debug)]
struct Definitions {
    functions: Outline,
    classes: Outline,
}

impl Definitions {
    fn units(&self, unit: Unit) -> Outline {
        match unit {
            Unit::Class => self.classes.clone(),
            _ => self.functions.clone(),
        }
    }

    fn is_empty(&self) -> bool {
        [&self.functions, &self.classes]
            .iter()
            .all(|units| units.as_ref().is_ok_and(|units| units.is_empty()))
    }
}

/// Whether a file name has the extension of a known language.
pub(super) fn names_language(file: &str) -> bool {
    Language::of_source(file).is_some()
}

impl Code {
    /// The cached units of a kind, if `source` names the language.
    pub(super) fn find_cached(&self, unit: Unit, source: &str) -> Option<Outline> {
        let language = Language::of_source(source)?;
        let definitions = self.by_language[language as usize].get()?;
        let units = definitions.as_ref().map(|found| found.units(unit));
        Some(units.unwrap_or(Err(OutlineError::Tangled(unit))))
    }

    /// The units of a kind. The language is determined by the source, else by the first line, else
    /// by the text, if the text has definitions in that language.
    pub(super) fn outline(&self, unit: Unit, text: &str, source: &str) -> Outline {
        let named_language = Language::of_source(source).or_else(|| Language::of_shebang(text));
        let detect = || *self.detected.get_or_init(|| detect::detect_language(text));
        let language = named_language
            .or_else(detect)
            .ok_or(OutlineError::UnknownLanguage(unit))?;
        let definitions =
            self.by_language[language as usize].get_or_init(|| find_definitions(text, language));
        let definitions = definitions.as_ref().ok_or(OutlineError::Tangled(unit))?;
        if named_language.is_none() && definitions.is_empty() {
            return Err(OutlineError::UnknownLanguage(unit));
        }
        definitions.units(unit)
    }

    /// Estimated memory use.
    pub(super) fn bytes(&self) -> u64 {
        let definitions = self
            .by_language
            .iter()
            .filter_map(|cached| cached.get()?.as_ref());
        definitions
            .map(|found| estimated_bytes(&found.functions) + estimated_bytes(&found.classes))
            .sum()
    }
}

#[cfg(test)]
mod tests;
