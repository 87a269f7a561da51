//! Units of a content: outlines that are built on first use and cached with it.

use std::sync::Arc;

pub use dormouse_outlines::{
    LANGUAGES, MAX_PARSED_BYTES, MAX_UNITS, OutlineEntry, OutlineError, Unit, name,
    names_source_code, source_of_language,
};

use super::{Reader, Unreadable};

/// Why the units of a content cannot be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The content has no such units, or they cannot be recognised.
    #[error(transparent)]
    Outline(#[from] OutlineError),
    /// The content cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// Cost of parsing a byte relative to reading it: source code is parsed at about 3 MB/s, and read
/// at 1 GB/s or more.
const PARSING_COST: usize = 256;

impl Reader<'_> {
    /// The units of a kind, at least one, in the order of their first lines. `source` is the source
    /// of the descriptor (`file:src/main.rs`). One pass on first use, at about 3 MB/s for source
    /// code; then O(1) until the content is evicted, except that the text of source code is read
    /// again if `source` does not name its language.
    ///
    /// # Errors
    /// [`UnitError`] if there are none, or they cannot be recognised.
    pub fn units(&self, unit: Unit, source: &str) -> Result<Arc<[OutlineEntry]>, UnitError> {
        if self.is_binary()? {
            return Err(OutlineError::Binary(unit).into());
        }
        let derived_data = self.content().derived_data();
        let bytes_before = derived_data.bytes();
        let is_parsed_code =
            matches!(unit, Unit::Function | Unit::Class) && cfg!(feature = "grammars");
        if unit == Unit::Section || is_parsed_code {
            self.check_size(unit)?;
        }
        if let Some(cached) = derived_data.outlines.find_cached(unit, source) {
            return Ok(cached?);
        }
        let text = self.text()?;
        if is_parsed_code {
            self.charge(text.len().saturating_mul(PARSING_COST))?;
        }
        let units = derived_data.outlines.get_or_build(unit, &text, source);
        let added_bytes = derived_data.bytes().saturating_sub(bytes_before);
        self.content().inner.access.add_derived_bytes(added_bytes);
        Ok(units?)
    }

    fn check_size(&self, unit: Unit) -> Result<(), UnitError> {
        let len = self.shown_bytes()?;
        if len > MAX_PARSED_BYTES {
            return Err(OutlineError::TooLarge { unit, len }.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
