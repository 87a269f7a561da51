//! What is shown of a match: its line, or on a long line its surroundings.

use std::ops::Range;

use dormouse_proto::descriptor::view::Excerpt;

use dormouse_content::{Reader, Slice, Unreadable};

/// Characters shown before and after a match on a line that is too long to show; such a line has
/// more than twice as many.
const AROUND_CHARS: u64 = 200;

/// Each line of context makes room for so many characters more, before and after.
const CONTEXT_LINE_CHARS: u64 = 400;

/// What the element around an excerpt is reckoned at, so that a flood of tiny ones is bounded as
/// well.
pub(super) const ELEMENT_CHARS: u64 = 64;

/// The excerpts of one answer, bounded: beyond the bound matches are counted but not shown. The
/// first is always shown, cut to the bound.
#[derive(Debug)]
pub(super) struct Excerpts {
    context_lines: u64,
    max_chars: u64,
    chars_left: u64,
    shown: u64,
    is_full: bool,
    excerpts: Vec<Excerpted>,
    /// The bytes of the last excerpt, if it is a whole line that further matches may share.
    last_line: Range<usize>,
}

/// A place where something was found, with a share in the text around it.
#[derive(Debug)]
pub(super) struct Excerpted {
    slice: Slice,
    line: u64,
    page: u64,
    char: u64,
    count: u64,
}

impl Excerpted {
    pub(super) fn excerpt(&self) -> Excerpt<'_> {
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
            last_line: 0..0,
        }
    }

    /// Shows the match at these bytes of a content, if there is still room. Matches of another
    /// content come after those before were [taken](Self::take).
    ///
    /// # Errors
    /// What stands around it cannot be read.
    pub(super) fn push(
        &mut self,
        content: &Reader<'_>,
        page_chars: u32,
        found: Range<usize>,
    ) -> Result<(), Unreadable> {
        let shared = self.last_line.contains(&found.start) && found.end <= self.last_line.end;
        match self.excerpts.last_mut() {
            _ if self.is_full => return Ok(()),
            Some(last) if shared => last.count += 1,
            _ => {
                let Some(excerpt) = self.excerpt(content, page_chars, &found)? else {
                    return Ok(());
                };
                self.excerpts.push(excerpt);
            }
        }
        self.shown += 1;
        Ok(())
    }

    /// How many matches are shown so far.
    pub(super) fn shown(&self) -> u64 {
        self.shown
    }

    /// The excerpts since they were last taken.
    pub(super) fn take(&mut self) -> Vec<Excerpted> {
        std::mem::take(&mut self.excerpts)
    }

    /// Reckons with one more element around excerpts. Whether there is room for it.
    pub(super) fn make_room(&mut self) -> bool {
        let has_room = self.chars_left >= ELEMENT_CHARS;
        self.chars_left = self.chars_left.saturating_sub(ELEMENT_CHARS);
        has_room
    }

    fn excerpt(
        &mut self,
        content: &Reader<'_>,
        page_chars: u32,
        found: &Range<usize>,
    ) -> Result<Option<Excerpted>, Unreadable> {
        let bytes = self.window(content, found)?;
        let chars = content.char_at(bytes.end)? - content.char_at(bytes.start)? + ELEMENT_CHARS;
        if chars > self.chars_left && self.shown > 0 {
            self.is_full = true;
            return Ok(None);
        }
        self.chars_left = self.chars_left.saturating_sub(chars);
        let mut slice = content.slice(bytes)?;
        // A line is shown without the LF that ends it: that is no cut.
        slice.truncated &= !is_feed(content, slice.bytes().end)?;
        let single_line =
            slice.first_line == slice.last_line && !slice.continued && !slice.truncated;
        self.last_line = if single_line { slice.bytes() } else { 0..0 };
        Ok(Some(Excerpted {
            slice,
            line: content.line_at(found.start)?,
            page: content.page_at(page_chars, found.start)?,
            char: content.char_at(found.start)?,
            count: 1,
        }))
    }

    /// The lines of the match and of its context, without the last LF; cut around the match if they
    /// are too long.
    fn window(
        &self,
        content: &Reader<'_>,
        found: &Range<usize>,
    ) -> Result<Range<usize>, Unreadable> {
        let around =
            AROUND_CHARS.saturating_add(CONTEXT_LINE_CHARS.saturating_mul(self.context_lines));
        // No context is wider than the answer.
        let around = around.min(self.max_chars / 2);
        let first = content
            .line_at(found.start)?
            .saturating_sub(self.context_lines)
            .max(1);
        let last = content
            .line_at(found.end - 1)?
            .saturating_add(self.context_lines);
        let start = content.line_start(first)?;
        let mut end = content.line_start(last.saturating_add(1))?;
        if end > found.end && is_feed(content, end - 1)? {
            end -= 1;
        }
        let (start_char, end_char) = (content.char_at(start)?, content.char_at(end)?);
        if end_char - start_char <= around.saturating_mul(2) {
            return Ok(start..end);
        }
        let found_char = content.char_at(found.start)?;
        // A match that is itself too long is shown by its beginning.
        let found_end = content
            .char_at(found.end)?
            .min(found_char.saturating_add(around.max(1)));
        let from = found_char.saturating_sub(around).max(start_char);
        let to = found_end
            .saturating_add(around)
            .min(end_char)
            .min(from.saturating_add(self.max_chars));
        Ok(content.byte_at(from)?..content.byte_at(to)?)
    }
}

/// Whether an LF stands at this byte of the shown text: then the next byte is of another line.
fn is_feed(content: &Reader<'_>, byte: usize) -> Result<bool, Unreadable> {
    Ok(byte < content.shown_bytes()? && content.line_at(byte)? != content.line_at(byte + 1)?)
}
