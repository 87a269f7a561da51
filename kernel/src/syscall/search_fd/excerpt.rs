//! Excerpts: the line of a match, or the text around it if the line is long.

use std::ops::Range;

use dormouse_proto::descriptor::view::Excerpt;

use dormouse_content::{Reader, Slice, Unreadable};

/// Characters shown before and after a match. A line with at most twice as many is shown in full.
const SURROUNDING_CHARS: u64 = 200;

/// Additional characters before and after a match for each line of context.
const CONTEXT_LINE_CHARS: u64 = 400;

/// Estimated characters of an excerpt's element, so that many tiny excerpts are limited as well.
pub(super) const ELEMENT_CHARS: u64 = 64;

/// The excerpts of one answer. Past the limit, further matches are not shown. The first match is
/// always shown, truncated to the limit.
#[derive(Debug)]
pub(super) struct Excerpts {
    context_lines: u64,
    max_chars: u64,
    chars_left: u64,
    shown: u64,
    is_full: bool,
    excerpts: Vec<MatchExcerpt>,
    /// Byte range of the last excerpt if it is a whole line, which further matches may share.
    last_line: Option<Range<usize>>,
}

/// An excerpt with the position of its first match.
#[derive(Debug)]
pub(super) struct MatchExcerpt {
    slice: Slice,
    line: u64,
    page: u64,
    char: u64,
    count: u64,
}

impl MatchExcerpt {
    pub(super) fn to_excerpt(&self) -> Excerpt<'_> {
        let Self {
            slice,
            line,
            page,
            char,
            count,
        } = self;
        Excerpt {
            part: slice.part(),
            line: *line,
            page: *page,
            char: *char,
            count: *count,
        }
    }
}

impl Excerpts {
    pub(super) fn new(context_lines: u64, max_chars: u64) -> Self {
        Self {
            context_lines,
            max_chars: max_chars.max(1),
            chars_left: max_chars,
            shown: 0,
            is_full: false,
            excerpts: Vec::new(),
            last_line: None,
        }
    }

    /// Shows the match at these bytes if there is room. Before the first match of another content,
    /// the excerpts must be removed with [`take_excerpts`](Self::take_excerpts).
    ///
    /// # Errors
    /// [`Unreadable`] if the text around the match cannot be read.
    pub(super) fn push(
        &mut self,
        content: &Reader<'_>,
        page_chars: u32,
        found: Range<usize>,
    ) -> Result<(), Unreadable> {
        let last_line = self.last_line.as_ref();
        let is_on_last_line =
            last_line.is_some_and(|line| line.start <= found.start && found.end <= line.end);
        match self.excerpts.last_mut() {
            _ if self.is_full => return Ok(()),
            Some(last) if is_on_last_line => last.count += 1,
            _ => {
                let Some(excerpt) = self.make_excerpt(content, page_chars, &found)? else {
                    return Ok(());
                };
                self.excerpts.push(excerpt);
            }
        }
        self.shown += 1;
        Ok(())
    }

    /// Number of matches shown so far.
    pub(super) fn shown(&self) -> u64 {
        self.shown
    }

    /// Removes and returns the excerpts.
    pub(super) fn take_excerpts(&mut self) -> Vec<MatchExcerpt> {
        self.last_line = None;
        std::mem::take(&mut self.excerpts)
    }

    /// Takes back matches whose excerpts are not shown after all.
    pub(super) fn withdraw(&mut self, excerpts: &[MatchExcerpt]) {
        let matches: u64 = excerpts.iter().map(|excerpt| excerpt.count).sum();
        self.shown -= matches;
    }

    /// Reserves room for another enclosing element. Returns whether there was room.
    pub(super) fn reserve_element(&mut self) -> bool {
        let has_room = self.chars_left >= ELEMENT_CHARS;
        self.chars_left = self.chars_left.saturating_sub(ELEMENT_CHARS);
        has_room
    }

    /// Makes the excerpt of a match. `None` if there is no room.
    fn make_excerpt(
        &mut self,
        content: &Reader<'_>,
        page_chars: u32,
        found: &Range<usize>,
    ) -> Result<Option<MatchExcerpt>, Unreadable> {
        let bytes = self.excerpt_range(content, found)?;
        let chars = content.char_at(bytes.end)? - content.char_at(bytes.start)? + ELEMENT_CHARS;
        if chars > self.chars_left && self.shown > 0 {
            self.is_full = true;
            return Ok(None);
        }
        self.chars_left = self.chars_left.saturating_sub(chars);
        let mut slice = content.slice(bytes)?;
        // A line is shown without its line end; that does not count as truncation.
        let is_before_line_feed = is_line_feed(content, slice.bytes().end)?;
        slice.truncated &= !is_before_line_feed;
        let is_single_line =
            slice.first_line == slice.last_line && !slice.continued && !slice.truncated;
        self.last_line = is_single_line.then(|| slice.bytes());
        let without_cr = slice
            .text
            .strip_suffix('\r')
            .filter(|_| is_before_line_feed && found.end < slice.bytes().end);
        if let Some(line) = without_cr.map(|line| slice.text.slice_ref(line)) {
            slice.text = line;
        }
        Ok(Some(MatchExcerpt {
            slice,
            line: content.line_at(found.start)?,
            page: content.page_at(page_chars, found.start)?,
            char: content.char_at(found.start)?,
            count: 1,
        }))
    }

    /// The byte range of the match's lines and context lines, without the last LF. If these lines
    /// are too long, the range is limited to the characters next to the match.
    fn excerpt_range(
        &self,
        content: &Reader<'_>,
        found: &Range<usize>,
    ) -> Result<Range<usize>, Unreadable> {
        let surrounding_chars =
            SURROUNDING_CHARS.saturating_add(CONTEXT_LINE_CHARS.saturating_mul(self.context_lines));
        // The context must fit the answer.
        let surrounding_chars = surrounding_chars.min(self.max_chars / 2);
        let first = content
            .line_at(found.start)?
            .saturating_sub(self.context_lines)
            .max(1);
        let last = content
            .line_at(found.end.saturating_sub(1).max(found.start))?
            .saturating_add(self.context_lines);
        let start = content.line_start(first)?;
        let mut end = content.line_start(last.saturating_add(1))?;
        if end > found.end && is_line_feed(content, end - 1)? {
            end -= 1;
        }
        let start_char = content.char_at(start)?;
        let end_char = content.char_at(end)?;
        if end_char - start_char <= surrounding_chars.saturating_mul(2) {
            return Ok(start..end);
        }
        let found_char = content.char_at(found.start)?;
        // If the match itself is too long, its beginning is shown.
        let found_end = content
            .char_at(found.end)?
            .min(found_char.saturating_add(surrounding_chars.max(1)));
        let from = found_char.saturating_sub(surrounding_chars).max(start_char);
        let to = found_end
            .saturating_add(surrounding_chars)
            .min(end_char)
            .min(from.saturating_add(self.max_chars));
        Ok(content.byte_at(from)?..content.byte_at(to)?)
    }
}

/// Whether the byte at this position of the content's text is an LF. (The text of a binary content
/// is its base64 form.)
fn is_line_feed(content: &Reader<'_>, byte: usize) -> Result<bool, Unreadable> {
    Ok(byte < content.shown_bytes()? && content.line_at(byte)? != content.line_at(byte + 1)?)
}

#[cfg(test)]
mod tests {
    use dormouse_content::Content;

    use super::*;

    #[test]
    fn matches_that_are_withdrawn_do_not_count_as_shown() {
        let content = Content::new("a a\na\n");
        let reader = content.unlimited_reader();
        let mut excerpts = Excerpts::new(0, 1_000);
        for at in [0, 2, 4] {
            excerpts.push(&reader, 100, at..at + 1).unwrap();
        }
        let taken = excerpts.take_excerpts();
        assert_eq!((taken.len(), excerpts.shown()), (2, 3));
        excerpts.withdraw(&taken);
        assert_eq!(excerpts.shown(), 0);
    }
}
