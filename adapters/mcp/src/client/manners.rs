//! What we tell a server of ourselves, and what it is answered when it asks: a ping is answered, everything else is refused, since
//! no capability for it is declared. What it reports is traced, and its words are bounded.

use std::sync::{Arc, PoisonError};

use dormouse_proto::tool::Progress;
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationCreateRequestMethod, ErrorData,
    Implementation, ListRootsRequestMethod, ProgressNotificationParam, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use tokio::sync::watch;

use super::session::Watched;

/// So much of a word of a server is traced, in characters.
const TRACED_CHARS: usize = 500;

/// The side of the client in a session.
pub(super) struct Manners {
    pub(super) server: Arc<str>,
    /// How often the server said that its tools changed.
    pub(super) changes: watch::Sender<u64>,
    pub(super) watched: Watched,
}

impl ClientHandler for Manners {
    fn get_info(&self) -> ClientConfig {
        let name = Implementation::new("dormouse", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), name).with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    #[expect(deprecated, reason = "older servers ask for it")]
    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListRootsRequestMethod>())
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Err(ErrorData::method_not_found::<ElicitationCreateRequestMethod>())
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        let ProgressNotificationParam { progress_token, progress: done, total, message, .. } = progress;
        let message = shortened(message.as_deref().unwrap_or_default());
        tracing::debug!(server = &*self.server, done, total, message);
        let out = self.watched.lock().unwrap_or_else(PoisonError::into_inner).get(&progress_token).cloned();
        // A call that has ended makes no progress.
        if let Some(out) = out {
            out.tell(Progress { done, total, message: message.into() });
        }
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changes.send_modify(|changes| *changes += 1);
        tracing::debug!(
            server = &*self.server,
            "the tools of a server changed: for processes that are born from now on"
        );
    }
}

/// The beginning of a text, without line ends.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(TRACED_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
