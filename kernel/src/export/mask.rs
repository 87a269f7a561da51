//! What is kept out of an export: a host says which bytes of a text are to be masked, and they are.
//!
//! A mask keeps whatever else refers to a text by length or by place: each character is replaced by
//! one of as many bytes, line breaks stay, and what is no text stays none. So lengths, lines,
//! pages, sections and versions mean in a redacted export what they meant before, and it can be
//! imported. Only the names of contents change, as they are hashes.
//!
//! A text is masked where it stands as it is said to. What stands elsewhere in another spelling
//! (escaped in JSON or XML, as base64, split by a tool over two answers) is another text. What no
//! longer is JSON or a program when it was masked is not mended.

use std::ops::Range;

use bytes::Bytes;

use crate::program::Bundle;

/// Says what is to be masked. Called from a thread where blocking is allowed, in no certain order,
/// and of some texts twice: it must say the same of the same.
pub trait Redact: Send + Sync {
    /// The bytes that are to be masked, in any order; ends within a character take the whole of it.
    /// Contents that are longer than 8 MiB come in parts, at line breaks where there are some: what
    /// is longer than 64 KiB may not be found in them.
    fn masks(&self, place: Place, bytes: &[u8]) -> Vec<Range<usize>>;
}

/// Where bytes stand that leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A text of a record, UTF-8: a message, the arguments or the answer of a call, a system
    /// prompt, a name, a label, a tool's schema.
    Text,
    /// A file that a program was made of. Its name is a text.
    Program,
    /// A content: of a descriptor or a temporary file. It need not be text.
    Content,
}

/// The text masked; none where nothing of it is.
#[must_use]
pub fn mask_text(redact: &dyn Redact, text: &str) -> Option<String> {
    let masks = redact.masks(Place::Text, text.as_bytes());
    if masks.is_empty() {
        return None;
    }
    let mut bytes = text.as_bytes().to_vec();
    let is_masked = mask(&mut bytes, masks);
    is_masked.then(|| String::from_utf8(bytes).expect("characters are replaced by characters"))
}

/// The files of a program masked. Their names stand in images as well, and are masked here as
/// there.
///
/// # Errors
/// [`Unmasked`].
pub fn masked_bundle(redact: &dyn Redact, bytes: &[u8]) -> Result<Bytes, Unmasked> {
    let name = |name: &str| mask_text(redact, name).unwrap_or_else(|| name.to_owned());
    let file = |file: &Bytes| {
        let mut bytes = file.to_vec();
        mask(&mut bytes, redact.masks(Place::Program, file));
        Bytes::from(bytes)
    };
    let bundle = Bundle::from_bytes(bytes).map_err(|_| Unmasked::NoBundle)?;
    Ok(bundle
        .rewritten(name, file)
        .ok_or(Unmasked::Alike)?
        .to_bytes())
}

/// Why no bundle was masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmasked {
    /// It is none.
    NoBundle,
    /// Two of its files would come to have one name.
    Alike,
}

/// So much is looked at together.
const WINDOW_BYTES: usize = 8 << 20;
/// So much of it is looked at again with what follows.
const OVERLAP_BYTES: usize = 64 << 10;

/// Masks a content as its bytes come. Holds a window of it.
pub struct Masker<'a> {
    redact: &'a dyn Redact,
    window: Vec<u8>,
}

impl<'a> Masker<'a> {
    /// Of one content.
    #[must_use]
    pub fn new(redact: &'a dyn Redact) -> Self {
        Self {
            redact,
            window: Vec::new(),
        }
    }

    /// Takes the next bytes, and answers with those that are masked by now.
    #[must_use]
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.window.extend_from_slice(bytes);
        if self.window.len() <= WINDOW_BYTES {
            return Vec::new();
        }
        let upto = self.window.len() - OVERLAP_BYTES;
        let upto = match memchr::memrchr(b'\n', &self.window[upto - OVERLAP_BYTES..upto]) {
            Some(at) => upto - OVERLAP_BYTES + at + 1,
            None => start_of(&self.window, upto),
        };
        let masks = self.redact.masks(Place::Content, &self.window);
        // What begins further on is seen again, and its end with it.
        mask(
            &mut self.window,
            masks.into_iter().filter(|range| range.start < upto),
        );
        let rest = self.window.split_off(upto);
        std::mem::replace(&mut self.window, rest)
    }

    /// Nothing more comes: the rest, masked.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let masks = self.redact.masks(Place::Content, &self.window);
        mask(&mut self.window, masks);
        self.window
    }
}

/// Whether anything was masked.
fn mask(bytes: &mut [u8], ranges: impl IntoIterator<Item = Range<usize>>) -> bool {
    let mut is_masked = false;
    for range in ranges {
        let end = range.end.min(bytes.len());
        if range.start < end {
            let (start, end) = (start_of(bytes, range.start), end_of(bytes, end));
            replace(&mut bytes[start..end]);
            is_masked = true;
        }
    }
    is_masked
}

/// Where the character begins that `at` is in.
fn start_of(bytes: &[u8], at: usize) -> usize {
    let is_inside = |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let start = (at.saturating_sub(3)..=at).rev().find(|at| !is_inside(at));
    start.unwrap_or(at)
}

/// Where the character ends that ends at `at` or goes on there.
fn end_of(bytes: &[u8], at: usize) -> usize {
    let is_inside = |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let end = (at..=at + 3).find(|at| !is_inside(at));
    end.unwrap_or(at).min(bytes.len())
}

/// Replaces each character by one of the same length, but for line breaks; what is no text by what
/// is none.
fn replace(bytes: &mut [u8]) {
    let mut masked = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            masked.extend_from_slice(match (character, character.len_utf8()) {
                ('\n', _) => "\n".as_bytes(),
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
