//! The client of a session, as the tool servers behind it see it: their requests and notifications
//! go to the client over the connection of its session.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dormouse_actors::ports::{ServerAnswer, ServerClient, ServerRequestError};
use futures_util::future::{BoxFuture, FutureExt};
use http::HeaderMap;
use rmcp::model::{
    ClientCapabilities, CustomRequest, ProtocolVersion, RequestId, ServerNotification,
    ServerRequest,
};
use rmcp::service::{
    OriginatingRequestId, Peer, PeerRequestOptions, RequestHandle, RoleServer, ServiceError,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// The capabilities of a client that its servers learn of.
const PASSED_CAPABILITIES: [&str; 5] = [
    "roots",
    "sampling",
    "elicitation",
    "experimental",
    "extensions",
];

/// Extensions that need methods which this server does not pass on.
const OWN_EXTENSIONS: [&str; 1] = ["io.modelcontextprotocol/tasks"];

/// The most notifications of servers that wait for a client. A client that reads too slowly misses
/// further ones.
const MAX_WAITING_NOTIFICATIONS: usize = 1_000;

/// A notification of a server for the client.
#[derive(Debug)]
pub(crate) struct FromServer {
    pub(crate) server: Arc<str>,
    pub(crate) notification: ServerNotification,
}

/// The client of one session.
pub(crate) struct SessionClient {
    /// The connection, and the capabilities that the servers learn of. Set by the handshake.
    connected: OnceLock<(Peer<RoleServer>, Value)>,
    /// The headers of the handshake, over HTTP.
    headers: OnceLock<HeaderMap>,
    notifications: mpsc::Sender<FromServer>,
    receiver: Mutex<Option<mpsc::Receiver<FromServer>>>,
    /// The calls of the client that run now. Over HTTP, the request of a server reaches the client
    /// over the response to the last of them.
    calls: Mutex<Vec<RequestId>>,
}

impl SessionClient {
    /// A client that has not sent a handshake yet.
    pub(crate) fn new() -> Self {
        let (notifications, receiver) = mpsc::channel(MAX_WAITING_NOTIFICATIONS);
        Self {
            connected: OnceLock::new(),
            headers: OnceLock::new(),
            notifications,
            receiver: Mutex::new(Some(receiver)),
            calls: Mutex::default(),
        }
    }

    /// Records the handshake of the client.
    pub(crate) fn connect(
        &self,
        peer: Peer<RoleServer>,
        capabilities: &ClientCapabilities,
        version: &ProtocolVersion,
    ) {
        let capabilities = passed_capabilities(capabilities, version);
        // A second handshake of the same session changes nothing.
        let _ = self.connected.set((peer, capabilities));
    }

    /// Records the headers of the client's handshake, of which a declaration may pass some on.
    pub(crate) fn keep_headers(&self, headers: HeaderMap) {
        let _ = self.headers.set(headers);
    }

    /// Where the notifications of the servers arrive; `None` from the second time on.
    pub(crate) fn take_notifications(&self) -> Option<mpsc::Receiver<FromServer>> {
        self.receiver
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Notes that a call of the client runs, until the guard is dropped.
    pub(crate) fn running_call(self: &Arc<Self>, id: RequestId) -> RunningCall {
        self.calls().push(id.clone());
        RunningCall {
            client: self.clone(),
            id,
        }
    }

    fn calls(&self) -> std::sync::MutexGuard<'_, Vec<RequestId>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for SessionClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers may hold secrets.
        f.debug_struct("SessionClient").finish_non_exhaustive()
    }
}

/// A call of the client that runs.
pub(crate) struct RunningCall {
    client: Arc<SessionClient>,
    id: RequestId,
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.client.calls().retain(|id| *id != self.id);
    }
}

/// The capabilities that servers learn of. From 2026-07-28 on, a server cannot send requests to a
/// client, so that the capabilities to answer them are left out.
fn passed_capabilities(capabilities: &ClientCapabilities, version: &ProtocolVersion) -> Value {
    let takes_requests = version.as_str() < ProtocolVersion::V_2026_07_28.as_str();
    let mut capabilities = json!(capabilities);
    if let Some(capabilities) = capabilities.as_object_mut() {
        capabilities.retain(|key, _| {
            PASSED_CAPABILITIES.contains(&key.as_str())
                && (takes_requests || !matches!(key.as_str(), "roots" | "sampling" | "elicitation"))
        });
    }
    if let Some(Value::Object(extensions)) = capabilities.get_mut("extensions") {
        extensions.retain(|key, _| !OWN_EXTENSIONS.contains(&key.as_str()));
    }
    capabilities
}

impl ServerClient for SessionClient {
    fn header(&self, name: &str) -> Option<String> {
        let value = self.headers.get()?.get(name)?;
        value.to_str().ok().map(str::to_owned)
    }

    fn capabilities(&self) -> Value {
        self.connected
            .get()
            .map_or_else(|| json!({}), |(_, capabilities)| capabilities.clone())
    }

    fn request(
        &self,
        _server: &Arc<str>,
        method: &str,
        params: Value,
    ) -> BoxFuture<'static, ServerAnswer> {
        let peer = self.connected.get().map(|(peer, _)| peer.clone());
        let originating = self.calls().last().cloned();
        // A request of this type is sent as it was received.
        let mut request =
            CustomRequest::new(method, Some(params).filter(|params| !params.is_null()));
        if let Some(originating) = originating {
            let marker = OriginatingRequestId(originating);
            request.extensions.insert(marker);
        }
        let unknown = ServerRequestError::unknown_method(method);
        async move {
            let peer = peer.ok_or(unknown)?;
            ask_client(&peer, ServerRequest::CustomRequest(request)).await
        }
        .boxed()
    }

    fn notify(&self, server: &Arc<str>, method: &str, params: Value) {
        let message = json!({ "method": method, "params": params });
        let Ok(notification) = serde_json::from_value(message) else {
            return;
        };
        let notification = FromServer {
            server: server.clone(),
            notification,
        };
        if self.notifications.try_send(notification).is_err() {
            tracing::debug!(
                server = &**server,
                "the client reads slowly: {method} is dropped"
            );
        }
    }
}

/// Sends a request to the client. Dropping the future cancels the request at the client.
async fn ask_client(peer: &Peer<RoleServer>, request: ServerRequest) -> ServerAnswer {
    let options = PeerRequestOptions::no_options();
    let handle = peer.send_cancellable_request(request, options).await;
    let mut pending = PendingRequest(Some(handle.map_err(to_port_error)?));
    let handle = pending.0.as_mut().expect("it is taken only by dropping");
    let answer = (&mut handle.rx).await;
    pending.0 = None;
    let result = answer
        .map_err(|_| ServerRequestError::Failed("the client has left".into()))?
        .map_err(to_port_error)?;
    serde_json::to_value(result)
        .map_err(|error| ServerRequestError::Failed(error.to_string().into()))
}

/// A request that the client has not answered.
struct PendingRequest(Option<RequestHandle<RoleServer>>);

impl Drop for PendingRequest {
    fn drop(&mut self) {
        let (Some(handle), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        runtime.spawn(async move {
            // The client may have left, and needs no notification then.
            let _ = handle
                .cancel(Some("the tool server gave up the request".to_owned()))
                .await;
        });
    }
}

fn to_port_error(error: ServiceError) -> ServerRequestError {
    match error {
        ServiceError::McpError(error) => ServerRequestError::Refused {
            code: error.code.0,
            message: error.message.into_owned(),
            data: error.data,
        },
        error => ServerRequestError::Failed(error.to_string().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_learn_what_the_client_can_be_asked_for() {
        let capabilities: ClientCapabilities = serde_json::from_value(json!({
            "roots": { "listChanged": true }, "sampling": {}, "elicitation": { "form": {} },
            "extensions": { "io.modelcontextprotocol/tasks": {}, "io.modelcontextprotocol/ui": {} },
        }))
        .unwrap();
        let extensions = json!({ "io.modelcontextprotocol/ui": {} });
        assert_eq!(
            passed_capabilities(&capabilities, &ProtocolVersion::V_2025_11_25),
            json!({
                "roots": { "listChanged": true }, "sampling": {}, "elicitation": { "form": {} },
                "extensions": extensions,
            })
        );
        assert_eq!(
            passed_capabilities(&capabilities, &ProtocolVersion::V_2026_07_28),
            json!({ "extensions": extensions })
        );
    }
}
