//! What a block says about tools of the provider, without the contents: names, types and sizes.
//! That is called a *summary* here. It is computed, and no model writes it.
//!
//! The JSON of a block can hold an image or a file of many megabytes. A summary of it is computed
//! once, kept with the block and its later clones, and never stored.

use std::sync::{Arc, OnceLock};

use super::{Media, ServerBlock, of_raw, raw_of};
use crate::message::{Block, Raw};
use crate::text::shorten;

/// A [`ServerBlock`] with the sizes of its contents in place of the contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerBlockSummary {
    /// The name of the tool, as in [`ServerBlock::tool`].
    pub tool: String,
    /// The number of calls that the block stands for.
    pub calls: u32,
    /// Characters of the text that the tool returned.
    pub text_chars: u64,
    /// Bytes of that text.
    pub text_bytes: u64,
    /// The files and images that the tool returned.
    pub media: Vec<MediaSummary>,
    /// What is to be said of each file that the process does not get: the provider has it and the
    /// reply does not hold it, or it is not base64.
    pub missing: Vec<String>,
}

/// The name, type and size of a file or an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaSummary {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its media type, such as `image/png`.
    pub media_type: String,
    /// The number of its bytes; `None` if it is not base64, so that it cannot be kept. The summary
    /// then lists it as missing, too.
    pub bytes: Option<u64>,
    /// The length of its base64 text.
    pub base64_chars: usize,
}

impl From<ServerBlock> for ServerBlockSummary {
    fn from(block: ServerBlock) -> Self {
        let mut output = block.output.unwrap_or_default();
        let media: Vec<_> = output.media.iter().map(MediaSummary::from).collect();
        let undecodable = media.iter().filter(|media| media.bytes.is_none());
        output.missing.extend(undecodable.map(|media| {
            let name = media.name.as_deref().unwrap_or(&media.media_type);
            format!(
                "{} is not kept: what the provider sent is not base64",
                shorten(name)
            )
        }));
        Self {
            tool: block.tool,
            calls: block.calls,
            text_chars: output.text.chars().count() as u64,
            text_bytes: output.text.len() as u64,
            media,
            missing: output.missing,
        }
    }
}

impl From<&Media> for MediaSummary {
    fn from(media: &Media) -> Self {
        Self {
            name: media.name.clone(),
            media_type: media.media_type.clone(),
            bytes: media.bytes().map(|bytes| bytes.len() as u64),
            base64_chars: media.base64.chars().count(),
        }
    }
}

/// What a block of a reply says about tools of the provider, without contents. O(n) in the block
/// for the first call; after that O(1), also for clones of the block that are made later.
#[must_use]
pub fn server_summaries(block: &Block) -> &[ServerBlockSummary] {
    raw_of(block).map_or(&[], |raw| raw.server_summaries.get_or_compute(raw))
}

/// The summaries of a block, once they are computed. Cells are equal, whether computed or not: they
/// follow from the JSON next to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SummaryCell(OnceLock<Arc<[ServerBlockSummary]>>);

impl SummaryCell {
    fn get_or_compute(&self, raw: &Raw) -> &[ServerBlockSummary] {
        self.0
            .get_or_init(|| of_raw(raw).into_iter().map(Into::into).collect())
    }
}

impl PartialEq for SummaryCell {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SummaryCell {}
