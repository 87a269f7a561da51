//! `[file_descriptor]`: how large content is kept away from the model's context.

use toml::de::DeValue;

use super::amount::read_amount;
use super::reader::Reader;
use super::{At, Span, parse_bytes};
use crate::descriptor::{DescriptorSettings, Preview};

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
    /// `enable_references`: parts of replies that the model marks are descriptors.
    pub references: bool,
    /// `reference_messages`: every message is a descriptor.
    pub message_references: bool,
    /// `expand_fds`: in whose arguments a handle stands for its content.
    pub expansion: Expansion,
    /// `summary_model`: the model that summarizes, if not the process's own.
    pub summary_model: Option<At<String>>,
}

/// In the arguments of which tools a handle such as `{{fd:3}}` stands for its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Expansion {
    /// Of none.
    #[default]
    Off,
    /// Of every tool that runs outside of the kernel.
    All,
    /// Of these.
    Tools(Vec<At<String>>),
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
    let content = read_amount(&mut section, "max_content_bytes", parse_bytes, 1);
    let preview = section.word(
        "preview",
        &[("head", Preview::Head), ("head_tail", Preview::HeadTail)],
    );
    let mut flag = |key| section.flag(key).is_some_and(|flag| flag.value);
    let pretty_json = flag("pretty_json");
    let references = flag("enable_references");
    let message_references = flag("reference_messages");
    let expansion = expansion(&mut section);
    let summary_model = section.text("summary_model");
    section.finish();
    let default = DescriptorSettings::default();
    let page_chars = page
        .as_ref()
        .and_then(|page| u32::try_from(page.value).ok());
    let settings = DescriptorSettings {
        max_direct_output_chars: direct
            .as_ref()
            .map_or(default.max_direct_output_chars, |chars| chars.value),
        page_chars: page_chars.unwrap_or(default.page_chars),
        max_input_chars: input.map_or(default.max_input_chars, |chars| chars.value),
        page_user_input: page_user_input.map_or(default.page_user_input, |flag| flag.value),
        max_read_chars: read
            .as_ref()
            .map_or(default.max_read_chars, |chars| chars.value),
        max_content_bytes: content.unwrap_or(default.max_content_bytes),
        preview: preview.map_or(default.preview, |preview| preview.value),
        pretty_json,
    };
    let [page_size_span, max_direct_output_span, max_read_span] =
        [page, direct, read].map(|size| size.map(|s| s.span));
    Some(DescriptorSection {
        span,
        enabled,
        settings,
        page_size_span,
        max_direct_output_span,
        max_read_span,
        references,
        message_references,
        expansion,
        summary_model,
    })
}

fn expansion(section: &mut Reader<'_>) -> Expansion {
    let Some(node) = section.get("expand_fds") else {
        return Expansion::Off;
    };
    match node.get_ref() {
        DeValue::Boolean(true) => Expansion::All,
        DeValue::Boolean(false) => Expansion::Off,
        DeValue::Array(_) => Expansion::Tools(section.texts("expand_fds")),
        _ => {
            section.wrong_type("expand_fds", node, "true, false or a list of tools");
            Expansion::Off
        }
    }
}
