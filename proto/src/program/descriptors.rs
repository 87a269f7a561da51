//! The table `[file_descriptor]`: settings of descriptors, which hold content that is too large for
//! the context of a model.
//!
//! `program.rs` says what `Section`, `Value` and `Reader` are.

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::{Node, Reader, Rules, Section, Span, Value, WithSpan};
use crate::descriptor::DescriptorSettings;

/// `[file_descriptor]` as written.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
pub struct DescriptorSection {
    /// The span of the section.
    #[key(span)]
    pub span: Span,
    /// This key does not turn descriptors on; a descriptor tool in `[tools]` does. `true` without
    /// one is an error, `false` with one a warning.
    pub enabled: Option<WithSpan<bool>>,
    /// The sizes.
    #[key(flatten)]
    pub settings: DescriptorSettings,
    /// The span of `default_page_size`, if it is given.
    #[key(span = "default_page_size")]
    pub page_size_at: Option<Span>,
    /// The span of `max_direct_output_chars`, if it is given.
    #[key(span = "max_direct_output_chars")]
    pub max_direct_output_at: Option<Span>,
    /// The span of `max_read_chars`, if it is given.
    #[key(span = "max_read_chars")]
    pub max_read_at: Option<Span>,
    /// Whether parts of replies that the model marks (`<ref id="…">…</ref>`) become descriptors.
    #[key(name = "enable_references")]
    pub references: bool,
    /// Whether every message becomes a descriptor.
    #[key(name = "reference_messages")]
    pub message_references: bool,
    /// Which tools get the content where their arguments hold a handle such as `{{fd:3}}`: `true`
    /// for all that run outside of the kernel, `false` for none, or a list of them.
    #[key(name = "expand_fds")]
    pub expansion: Expansion,
    /// The model that writes summaries, at the same provider; otherwise the program's own model.
    pub summary_model: Option<String>,
}

/// The tools in whose arguments a handle such as `{{fd:3}}` is replaced by its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Expansion {
    /// No tool.
    #[default]
    Off,
    /// Every tool that runs outside of the kernel.
    All,
    /// These tools.
    Tools(Vec<WithSpan<String>>),
}

impl Value for Expansion {
    const EXPECTED: &'static str = "true, false or a list of tools";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        match node.get_ref() {
            DeValue::Boolean(true) => Some(Self::All),
            DeValue::Boolean(false) => Some(Self::Off),
            DeValue::Array(_) => Vec::read(table, key, node, rules).map(Self::Tools),
            _ => {
                table.report_wrong_type(key, node, rules.expected::<Self>());
                None
            }
        }
    }

    fn schema(rules: &Rules) -> Json {
        json!({ "anyOf": [bool::schema(rules), Vec::<String>::schema(rules)] })
    }

    fn show(&self) -> Option<Json> {
        (*self == Self::Off).then(|| json!(false))
    }
}
