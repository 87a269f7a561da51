//! A request that was sent, and its outcome for the liveness of the session. A request that is
//! given up is cancelled at the server.

use rmcp::model::{CancelledNotification, CancelledNotificationParam, ProgressToken, ServerResult};
use rmcp::service::{RequestHandle, RoleClient};
use tokio::time::timeout;

use super::super::liveness::{CallEnd, CallNumber};
use super::super::request_error::RequestError;
use super::{PING_TIMEOUT, Session};

/// A request that waits for its answer.
pub(super) struct PendingRequest<'a> {
    session: &'a Session,
    handle: RequestHandle<RoleClient>,
    number: CallNumber,
    end: CallEnd,
}

impl<'a> PendingRequest<'a> {
    pub(super) fn new(session: &'a Session, handle: RequestHandle<RoleClient>) -> Self {
        Self {
            session,
            handle,
            number: session.liveness().begin_call(),
            end: CallEnd::Cancelled,
        }
    }

    /// What the reports of the progress of this request are marked with.
    pub(super) fn progress_token(&self) -> ProgressToken {
        self.handle.progress_token.clone()
    }

    /// Waits for the answer.
    pub(super) async fn answer(&mut self) -> Result<ServerResult, RequestError> {
        let answer = (&mut self.handle.rx).await;
        let answer = answer
            .map_err(|_| RequestError::Disconnected)
            .and_then(|answer| answer.map_err(RequestError::from))
            .map_err(|error| error.or_closed(&self.session.close_reason));
        self.end = call_end(&answer);
        answer
    }
}

/// The outcome of a call, for its effect on the liveness of the session.
pub(super) fn call_end(answer: &Result<ServerResult, RequestError>) -> CallEnd {
    answer
        .as_ref()
        .map_or_else(RequestError::call_end, |_| CallEnd::Answered)
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.session
            .progress_sinks()
            .remove(&self.handle.progress_token);
        self.session.liveness().end_call(self.number, self.end);
        if self.end != CallEnd::Cancelled {
            return;
        }
        let (peer, id) = (self.session.peer.clone(), self.handle.id.clone());
        // Without a runtime, the connection has ended already.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            let params =
                CancelledNotificationParam::new(Some(id), Some("the call was given up".to_owned()));
            let notification = CancelledNotification::new(params);
            // The notification is best effort: the request is over in any case.
            let _ = timeout(PING_TIMEOUT, peer.send_notification(notification.into())).await;
        });
    }
}
