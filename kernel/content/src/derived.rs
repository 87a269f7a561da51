//! What is made of a content's bytes and kept with it: its JSON reformatted, and outlines of its
//! units.
//!
//! It can be made again, so that it is let go of with the bytes.

use std::sync::{Arc, OnceLock, PoisonError};

use super::{Content, PrettyError, Reader, Unreadable, pretty};
use dormouse_outlines::Outlines;

#[derive(Default)]
pub(super) struct Derived {
    pretty: OnceLock<Result<Content, PrettyError>>,
    pub(super) outlines: Outlines,
}

impl Derived {
    /// About what it takes in memory. O(1).
    pub(super) fn bytes(&self) -> u64 {
        let pretty = self
            .pretty
            .get()
            .and_then(|made| made.as_ref().ok())
            .map_or(0, Content::resident_bytes);
        pretty + self.outlines.bytes()
    }
}

impl Content {
    pub(super) fn derived(&self) -> Arc<Derived> {
        let mut derived = self
            .inner
            .derived
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        derived.get_or_insert_default().clone()
    }
}

impl Reader<'_> {
    /// JSON reformatted, as a content of its own: paged, searched and read like any other. Only
    /// white space differs. It is made when it is first asked for, in two passes at some 100 MB/s,
    /// and kept in memory until this content is offloaded.
    ///
    /// # Errors
    /// It is not JSON, nests too deep, or would grow too much: that is kept as well. Or it cannot
    /// be read.
    pub fn pretty(&self) -> Result<Self, PrettyError> {
        if self.is_binary()? {
            return Err(PrettyError::Binary);
        }
        let derived = self.content().derived();
        if let Some(made) = derived.pretty.get() {
            return made.clone().map(|made| self.of(made));
        }
        let text = self.text()?;
        // Two passes, and slower ones than those that find text.
        self.charge(text.len().saturating_mul(8))?;
        let made = derived.pretty.get_or_init(|| {
            let made = pretty::pretty(&text).map(|text| Content::from_text(text.into()));
            made.inspect(|content| self.content().inner.stamp.grown(content.len_bytes()))
        });
        made.clone().map(|made| self.of(made))
    }

    /// Whether it may be JSON on a single line: worth [`pretty`](Self::pretty). Looks at the white
    /// space that it begins with and a character.
    ///
    /// # Errors
    /// They are lost.
    pub fn may_be_json_line(&self) -> Result<bool, Unreadable> {
        /// As much as is read at first: white space seldom goes on for longer.
        const LOOKED_AT: u64 = 1024;
        if self.is_binary()? || self.total_lines()? != 1 {
            return Ok(false);
        }
        match self.chars(0, LOOKED_AT)?.map(|beginning| beginning.text) {
            Some(text) if pretty::is_blank(&text) => Ok(pretty::may_be_json(&self.text()?)),
            beginning => Ok(beginning.is_some_and(|text| pretty::may_be_json(&text))),
        }
    }
}
