//! Redaction of exports: masks the bytes of each text that the host selects.
//!
//! A mask preserves lengths and positions: each character is replaced by one of the same length,
//! line breaks and control characters stay, and invalid UTF-8 stays invalid. Lengths, lines, pages,
//! sections and versions of a text therefore stay valid, and a redacted export can be imported. Only
//! hashes of contents change.
//!
//! How a content is shown that is not UTF-8 follows from its bytes: binary data stays binary where
//! control characters make it so, and UTF-16 of ASCII characters stays UTF-16. Otherwise a mask may
//! change which encoding the bytes are taken for, and so the number of their characters.
//!
//! Characters and line breaks are those of UTF-8. In a content of another encoding, such as UTF-16, a
//! mask replaces bytes and keeps only the byte of each line feed: masked characters become others,
//! and a mask across a line break may join lines. Select ranges within lines there.
//!
//! A text is masked only if it occurs literally, not if it is escaped in JSON or XML, encoded as
//! base64, or split across two answers. Masking may make JSON or programs invalid.

use std::ops::Range;

use bytes::Bytes;

use crate::program::Bundle;

/// Selects the bytes to mask. Called from a thread that may block, in no particular order, and
/// possibly twice for a text: it must be deterministic.
pub trait Redact: Send + Sync {
    /// The byte ranges to mask, in any order. A range that ends within a character covers the whole
    /// character of UTF-8. Contents longer than 8 MiB arrive in overlapping windows, cut at line breaks if
    /// possible: a secret longer than 64 KiB may be missed.
    fn masks(&self, target: MaskTarget, bytes: &[u8]) -> Vec<Range<usize>>;
}

/// The kind of bytes that leave the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskTarget {
    /// A UTF-8 text of a record: a message, the arguments or the answer of a call, a system prompt,
    /// a name, a label, a tool's schema.
    Text,
    /// A file of a program. Its name counts as `Text`.
    Program,
    /// The content of a descriptor or temporary file, which may be binary.
    Content,
}

/// Masks a text; `None` if nothing in it is selected.
#[must_use]
pub fn mask_text(redact: &dyn Redact, text: &str) -> Option<String> {
    let masks = redact.masks(MaskTarget::Text, text.as_bytes());
    if masks.is_empty() {
        return None;
    }
    let mut bytes = text.as_bytes().to_vec();
    let is_masked = mask(&mut bytes, masks);
    is_masked.then(|| String::from_utf8(bytes).expect("characters are replaced by characters"))
}

/// Masks the files of a program. Their names also occur in images and are masked in the same way
/// there.
///
/// # Errors
/// [`MaskError`].
pub fn masked_bundle(redact: &dyn Redact, bytes: &[u8]) -> Result<Bytes, MaskError> {
    let name = |name: &str| mask_text(redact, name).unwrap_or_else(|| name.to_owned());
    let file = |file: &Bytes| {
        let mut bytes = file.to_vec();
        mask(&mut bytes, redact.masks(MaskTarget::Program, file));
        Bytes::from(bytes)
    };
    let bundle = Bundle::from_bytes(bytes).map_err(|_| MaskError::NotABundle)?;
    Ok(bundle
        .with_rewritten_files(name, file)
        .ok_or(MaskError::DuplicateName)?
        .to_bytes())
}

/// Why a bundle cannot be masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskError {
    /// The bytes are not a bundle.
    NotABundle,
    /// Two masked file names would be equal.
    DuplicateName,
}

/// Size of the window that is passed to [`Redact`].
const WINDOW_BYTES: usize = 8 << 20;
/// Overlap of consecutive windows.
const OVERLAP_BYTES: usize = 64 << 10;

/// Masks a content while its bytes arrive. Buffers one window.
pub struct Masker<'a> {
    redact: &'a dyn Redact,
    window: Vec<u8>,
}

impl<'a> Masker<'a> {
    /// A masker for one content.
    #[must_use]
    pub fn new(redact: &'a dyn Redact) -> Self {
        Self {
            redact,
            window: Vec::new(),
        }
    }

    /// Adds the next bytes. Returns the bytes that are completely masked.
    #[must_use]
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.window.extend_from_slice(bytes);
        if self.window.len() <= WINDOW_BYTES {
            return Vec::new();
        }
        let split = self.window.len() - OVERLAP_BYTES;
        let split = match memchr::memrchr(b'\n', &self.window[split - OVERLAP_BYTES..split]) {
            Some(at) => split - OVERLAP_BYTES + at + 1,
            None => char_start(&self.window, split),
        };
        let masks = self.redact.masks(MaskTarget::Content, &self.window);
        // A range that starts in the overlap is selected again in the next window, which contains
        // its end.
        mask(
            &mut self.window,
            masks.into_iter().filter(|range| range.start < split),
        );
        let rest = self.window.split_off(split);
        std::mem::replace(&mut self.window, rest)
    }

    /// Ends the input. Returns the masked rest.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let masks = self.redact.masks(MaskTarget::Content, &self.window);
        mask(&mut self.window, masks);
        self.window
    }
}

/// Masks these ranges. Returns whether there were any.
fn mask(bytes: &mut [u8], ranges: impl IntoIterator<Item = Range<usize>>) -> bool {
    let mut is_masked = false;
    for range in ranges {
        let end = range.end.min(bytes.len());
        if range.start < end {
            let start = char_start(bytes, range.start);
            let end = char_end(bytes, end);
            replace_characters(&mut bytes[start..end]);
            is_masked = true;
        }
    }
    is_masked
}

/// Start of the character that contains `at`.
fn char_start(bytes: &[u8], at: usize) -> usize {
    let is_inside = |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let start = (at.saturating_sub(3)..=at).rev().find(|at| !is_inside(at));
    start.unwrap_or(at)
}

/// End of the character that ends at or contains `at`.
fn char_end(bytes: &[u8], at: usize) -> usize {
    let is_inside = |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let end = (at..=at + 3).find(|at| !is_inside(at));
    end.unwrap_or(at).min(bytes.len())
}

/// Replaces each character except line breaks and control characters by one of the same length, and
/// invalid UTF-8 by other invalid bytes.
fn replace_characters(bytes: &mut [u8]) {
    let mut masked = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut kept = [0];
            masked.extend_from_slice(match (character, character.len_utf8()) {
                // By control characters binary data and UTF-16 are told from other text.
                ('\n' | '\0'..'\x08' | '\x0e'..' ', _) => {
                    character.encode_utf8(&mut kept).as_bytes()
                }
                (_, 1) => "*".as_bytes(),
                (_, 2) => "·".as_bytes(),
                (_, 3) => "█".as_bytes(),
                _ => "🔒".as_bytes(),
            });
        }
        masked.extend(std::iter::repeat_n(0xFF, chunk.invalid().len()));
    }
    bytes.copy_from_slice(&masked);
}
