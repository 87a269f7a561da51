//! The description of this client that a server receives, and the truncation of texts that a server
//! sends.

use rmcp::ClientHandler;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};

/// The most characters of a text of a server that an error or a log line holds.
const MAX_TEXT_CHARS: usize = 500;

/// The client side of a session. It declares the capabilities of the client that the kernel serves,
/// and receives only answers: see [`AnswersOnly`](super::unsolicited::AnswersOnly).
pub(super) struct ClientInfo {
    pub(super) capabilities: ClientCapabilities,
}

impl ClientHandler for ClientInfo {
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
