//! `[file_descriptor]`: how large content is kept away from the model's context.

use super::reader::Reader;
use super::{At, Span};
use crate::descriptor::DescriptorSettings;

/// The largest size that makes sense, in characters.
const MOST_CHARS: u64 = 1_000_000_000;

/// `[file_descriptor]` as written, with the defaults for what is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorSection {
    /// The place of the section.
    pub span: Span,
    /// `enabled`, if it is given.
    pub enabled: Option<At<bool>>,
    /// The sizes.
    pub settings: DescriptorSettings,
    /// The place of `default_page_size`, if it is given.
    pub page_size_span: Option<Span>,
    /// The place of `max_direct_output_chars`, if it is given.
    pub max_direct_output_span: Option<Span>,
    /// The place of `max_read_chars`, if it is given.
    pub max_read_span: Option<Span>,
    /// `enable_references`, if it is given.
    pub references: Option<At<bool>>,
}

pub(super) fn read(root: &mut Reader<'_>) -> Option<DescriptorSection> {
    let mut section = root.section("file_descriptor")?;
    let span = section.span();
    let enabled = section.flag("enabled");
    let direct = section.number("max_direct_output_chars", 1..=MOST_CHARS);
    let page = section.number("default_page_size", 1..=MOST_CHARS);
    let input = section.number("max_input_chars", 1..=MOST_CHARS);
    let page_user_input = section.flag("page_user_input");
    let read = section.number("max_read_chars", 1..=MOST_CHARS);
    let references = section.flag("enable_references");
    section.finish();
    let default = DescriptorSettings::default();
    let page_chars = page.as_ref().and_then(|page| u32::try_from(page.value).ok());
    let settings = DescriptorSettings {
        max_direct_output_chars: direct.as_ref().map_or(default.max_direct_output_chars, |chars| chars.value),
        page_chars: page_chars.unwrap_or(default.page_chars),
        max_input_chars: input.map_or(default.max_input_chars, |chars| chars.value),
        page_user_input: page_user_input.map_or(default.page_user_input, |flag| flag.value),
        max_read_chars: read.as_ref().map_or(default.max_read_chars, |chars| chars.value),
    };
    let [page_size_span, max_direct_output_span, max_read_span] = [page, direct, read].map(|size| size.map(|s| s.span));
    Some(DescriptorSection {
        span,
        enabled,
        settings,
        page_size_span,
        max_direct_output_span,
        max_read_span,
        references,
    })
}
