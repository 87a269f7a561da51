//! Passes the requests of a server on to the downstream client, the MCP client that the kernel
//! itself serves: for a reply of its model (sampling), an answer of its user (elicitation), or its
//! folders (roots).

use std::sync::{Arc, Weak};

use dormouse_actors::ports::{ServerAnswer, ServerClient, ServerRequestError};
use rmcp::model::{
    ClientCapabilities, ClientResult, CustomResult, ErrorCode, ErrorData, JsonRpcMessage,
    RequestId, ServerNotification, ServerRequest,
};
use rmcp::service::{RoleClient, TxJsonRpcMessage};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::protocol_handler::truncate_text;

/// The most requests of a server that wait for the downstream client at once. Further ones are
/// refused.
const MAX_OPEN_REQUESTS: usize = 32;

/// The downstream client of this connection, if there is one. It may leave before the connection
/// ends.
pub(super) type DownstreamClient = Option<Weak<dyn ServerClient>>;

/// The capabilities that the downstream client declares. Without a client, none.
pub(super) fn capabilities(client: Option<&Weak<dyn ServerClient>>) -> ClientCapabilities {
    let client = client.and_then(Weak::upgrade);
    client
        .and_then(|client| serde_json::from_value(client.capabilities()).ok())
        .unwrap_or_default()
}

/// The requests of one server that wait for the downstream client.
pub(super) struct DownstreamRequests {
    server: Arc<str>,
    client: DownstreamClient,
    running: JoinSet<(RequestId, ServerAnswer)>,
    open: Vec<(RequestId, AbortHandle)>,
    /// How many requests are open: a call of a tool does not run out of time meanwhile.
    open_count: watch::Sender<usize>,
}

impl DownstreamRequests {
    pub(super) fn new(
        server: Arc<str>,
        client: DownstreamClient,
        open_count: watch::Sender<usize>,
    ) -> Self {
        Self {
            server,
            client,
            running: JoinSet::new(),
            open: Vec::new(),
            open_count,
        }
    }

    fn client(&self) -> Option<Arc<dyn ServerClient>> {
        self.client.as_ref().and_then(Weak::upgrade)
    }

    /// Passes a request on. Its answer comes from [`next_answer`](Self::next_answer).
    ///
    /// # Errors
    /// The request cannot be passed on: the error is its answer.
    pub(super) fn begin(
        &mut self,
        id: RequestId,
        request: &ServerRequest,
    ) -> Result<(), ErrorData> {
        let (method, params) = method_and_params(request);
        let Some(client) = self.client().filter(|_| is_passed_on(request)) else {
            return Err(ErrorData::new(
                ErrorCode::METHOD_NOT_FOUND,
                truncate_text(&method),
                None,
            ));
        };
        if self.open.len() >= MAX_OPEN_REQUESTS {
            let why =
                format!("{MAX_OPEN_REQUESTS} requests wait for the downstream client already");
            return Err(ErrorData::internal_error(why, None));
        }
        let answer = client.request(&self.server, &method, params);
        let answer_id = id.clone();
        let abort = self.running.spawn(async move { (answer_id, answer.await) });
        self.open.push((id, abort));
        self.open_count.send_replace(self.open.len());
        Ok(())
    }

    /// Cancels a request, because the server asked for that.
    pub(super) fn cancel(&mut self, id: &RequestId) {
        if let Some((_, abort)) = self.open.iter().find(|(open, _)| open == id) {
            abort.abort();
        }
        self.close(id);
    }

    /// The next answer of the downstream client. Never resolves while no request is open.
    pub(super) async fn next_answer(&mut self) -> TxJsonRpcMessage<RoleClient> {
        loop {
            match self.running.join_next().await {
                Some(Ok((id, answer))) => {
                    self.close(&id);
                    return to_message(id, answer);
                }
                // Cancelled: the server expects no answer.
                Some(Err(_)) => {}
                None => std::future::pending::<()>().await,
            }
        }
    }

    /// Passes a notification on, if there is a downstream client.
    pub(super) fn notify(&self, notification: ServerNotification) {
        let Some(client) = self.client() else {
            return;
        };
        let mut message = serde_json::to_value(notification).unwrap_or_default();
        let params = message["params"].take();
        let method = message["method"].as_str().unwrap_or_default();
        client.notify(&self.server, method, params);
    }

    fn close(&mut self, id: &RequestId) {
        self.open.retain(|(open, _)| open != id);
        self.open_count.send_replace(self.open.len());
    }
}

/// The requests that a client of the protocol knows, except the ping.
fn is_passed_on(request: &ServerRequest) -> bool {
    matches!(
        request,
        ServerRequest::CreateMessageRequest(_)
            | ServerRequest::ElicitRequest(_)
            | ServerRequest::ListRootsRequest(_)
    )
}

#[expect(deprecated, reason = "servers of earlier versions ask for it")]
fn method_and_params(request: &ServerRequest) -> (String, Value) {
    let mut message = serde_json::to_value(request).unwrap_or_default();
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    let mut params = message["params"].take();
    if let ServerRequest::CreateMessageRequest(request) = request
        && let Some(temperature) = request.params.temperature
    {
        // The library keeps an `f32`. Its shortest decimal form is the number that the server
        // wrote.
        params["temperature"] = temperature
            .to_string()
            .parse()
            .map_or(Value::Null, Value::Number);
    }
    if let Some(params) = params.as_object_mut()
        && params.get("mode").is_some_and(|mode| mode == "form")
    {
        // The library adds the mode of a question, which clients of earlier versions do not know.
        // This one is the default.
        params.remove("mode");
    }
    (method, params)
}

fn to_message(id: RequestId, answer: ServerAnswer) -> TxJsonRpcMessage<RoleClient> {
    match answer {
        Ok(result) => {
            JsonRpcMessage::response(ClientResult::CustomResult(CustomResult(result)), id)
        }
        Err(ServerRequestError::Refused {
            code,
            message,
            data,
        }) => JsonRpcMessage::error(ErrorData::new(ErrorCode(code), message, data), Some(id)),
        Err(ServerRequestError::Failed(why)) => {
            JsonRpcMessage::error(ErrorData::internal_error(why.to_string(), None), Some(id))
        }
    }
}
