//! Data that is derived from a content and cached with it: reformatted JSON and outlines.
//!
//! Derived data can be rebuilt, so it is dropped when the content is evicted.

use std::sync::{Arc, OnceLock, PoisonError};

use super::{Content, PrettyError, Reader, Unreadable, pretty};
use dormouse_outlines::Outlines;

/// The data that was derived from one content so far.
#[derive(Default)]
pub(super) struct DerivedData {
    pretty: OnceLock<Result<Content, PrettyError>>,
    pub(super) outlines: Outlines,
}

impl DerivedData {
    /// Estimated memory use. O(1).
    pub(super) fn bytes(&self) -> u64 {
        let pretty = self
            .pretty
            .get()
            .and_then(|cached| cached.as_ref().ok())
            .map_or(0, Content::resident_bytes);
        pretty + self.outlines.bytes()
    }
}

impl Content {
    pub(super) fn derived_data(&self) -> Arc<DerivedData> {
        let mut derived_data = self
            .inner
            .derived_data
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        derived_data.get_or_insert_default().clone()
    }
}

impl Reader<'_> {
    /// The content as reformatted JSON, which is paged, searched and read like any other content.
    /// Only white space differs. The reformatted JSON is built on first use, in two passes at about
    /// 100 MB/s, and cached until the content is evicted.
    ///
    /// # Errors
    /// [`PrettyError`] if the content is not JSON, is nested too deeply or would grow too much
    /// (these errors are cached as well), or if the content cannot be read.
    pub fn pretty(&self) -> Result<Self, PrettyError> {
        if self.is_binary()? {
            return Err(PrettyError::Binary);
        }
        let derived_data = self.content().derived_data();
        if let Some(cached) = derived_data.pretty.get() {
            return cached.clone().map(|cached| self.with_content(cached));
        }
        let text = self.text()?;
        // The read quota counts reformatting as eight passes over the text, since it is slower than
        // searching.
        self.charge(text.len().saturating_mul(8))?;
        let cached = derived_data.pretty.get_or_init(|| {
            let cached = pretty::pretty(&text).map(|text| Content::from_text(text.into()));
            cached.inspect(|content| {
                self.content()
                    .inner
                    .access
                    .add_derived_bytes(content.len_bytes())
            })
        });
        cached.clone().map(|cached| self.with_content(cached))
    }

    /// Whether the content looks like single-line JSON, so that [`pretty`](Self::pretty) is worth
    /// calling. Inspects the leading white space and one character.
    ///
    /// # Errors
    /// [`Unreadable`] if these bytes cannot be read.
    pub fn may_be_json_line(&self) -> Result<bool, Unreadable> {
        /// Characters of the first read: leading white space is rarely longer.
        const FIRST_READ_CHARS: u64 = 1024;
        if self.is_binary()? || self.total_lines()? != 1 {
            return Ok(false);
        }
        match self
            .chars(0, FIRST_READ_CHARS)?
            .map(|beginning| beginning.text)
        {
            Some(text) if pretty::is_blank(&text) => Ok(pretty::may_be_json(&self.text()?)),
            beginning => Ok(beginning.is_some_and(|text| pretty::may_be_json(&text))),
        }
    }
}
