//! How requests differ where a cloud serves Anthropic's models.

/// Who serves the models. Clouds have the model in the path, and do not place cache breakpoints by
/// themselves, so the conversation is cached only up to the parts that forks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Anthropic, and servers that are compatible.
    Anthropic,
    /// Amazon Bedrock. The path says whether the reply is streamed.
    #[cfg(feature = "bedrock")]
    Bedrock,
    /// Google Vertex AI.
    #[cfg(feature = "vertex")]
    Vertex,
}

impl Dialect {
    /// The version of the API, where the body holds it.
    pub(super) fn version_in_body(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => None,
            #[cfg(feature = "bedrock")]
            Self::Bedrock => Some("bedrock-2023-05-31"),
            #[cfg(feature = "vertex")]
            Self::Vertex => Some("vertex-2023-10-16"),
        }
    }

    /// Whether the body says if the reply is streamed.
    pub(super) fn has_stream_field(self) -> bool {
        match self {
            Self::Anthropic => true,
            #[cfg(feature = "bedrock")]
            Self::Bedrock => false,
            #[cfg(feature = "vertex")]
            Self::Vertex => true,
        }
    }
}
