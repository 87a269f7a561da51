//! The handler of a session for the protocol library: it describes this client to the server. And
//! the truncation of texts that a server sends.

use rmcp::ClientHandler;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};

/// The most characters of a text of a server that an error or a log line holds.
const MAX_TEXT_CHARS: usize = 500;

/// The client side of a session. It declares the capabilities of the downstream client (the MCP
/// client that the kernel itself serves), since requests of the server are passed on to it. It
/// receives only answers: see [`AnswersOnly`](super::unsolicited::AnswersOnly).
pub(super) struct ProtocolHandler {
    pub(super) capabilities: ClientCapabilities,
}

impl ClientHandler for ProtocolHandler {
    fn get_info(&self) -> ClientConfig {
        let name = Implementation::new("dormouse", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(self.capabilities.clone(), name)
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }
}

/// The beginning of a text, with control characters replaced by spaces.
pub(super) fn truncate_text(text: &str) -> String {
    text.chars()
        .take(MAX_TEXT_CHARS)
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .collect()
}
