//! What this client tells a server about itself, and how texts of a server are shortened.

use rmcp::ClientHandler;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};

/// The longest text of a server that is shown or logged, in characters.
const SHOWN_CHARS: usize = 500;

/// The client in a session. It declares no capability, and receives only answers: see
/// [`AnswersOnly`](super::unsolicited::AnswersOnly).
pub(super) struct ClientInfo;

impl ClientHandler for ClientInfo {
    fn get_info(&self) -> ClientConfig {
        let name = Implementation::new("dormouse", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), name)
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }
}

/// The beginning of a text, with control characters replaced by spaces.
pub(super) fn shortened(text: &str) -> String {
    text.chars()
        .take(SHOWN_CHARS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
