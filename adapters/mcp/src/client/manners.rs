//! What we tell a server of ourselves, and how its words are shortened.

use rmcp::ClientHandler;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};

/// So much of a word of a server is shown or traced, in characters.
const SHOWN_CHARS: usize = 500;

/// The side of the client in a session. It declares no capability, and no message but an answer
/// comes to it: see [`Inbound`](super::inbound::Inbound).
pub(super) struct Manners;

impl ClientHandler for Manners {
    fn get_info(&self) -> ClientConfig {
        let name = Implementation::new("dormouse", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), name)
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }
}

/// The beginning of a text, without line ends.
pub(super) fn shortened(text: &str) -> String {
    text.chars()
        .take(SHOWN_CHARS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
