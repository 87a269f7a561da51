//! Passes the requests of a server on to the downstream client, the MCP client that the kernel
//! itself serves: for a reply of its model (sampling), an answer of its user (elicitation), or its
//! folders (roots).

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};

use dormouse_actors::ports::{ServerAnswer, ServerClient, ServerRequestError, ToolError};
use futures_util::future::FutureExt;
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
        // A panic must not leave the server without an answer.
        let answer = AssertUnwindSafe(answer).catch_unwind().map(|answer| {
            answer.unwrap_or_else(|_| Err(ToolError::from("the client failed internally.").into()))
        });
        let abort = self.running.spawn(answer.map(|answer| (answer_id, answer)));
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

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures_util::future::{BoxFuture, poll_fn};
    use serde_json::json;

    use super::*;

    /// A client that fails inside when it is asked.
    struct Panics;

    impl ServerClient for Panics {
        fn capabilities(&self) -> Value {
            json!({ "roots": {} })
        }

        fn request(
            &self,
            _server: &Arc<str>,
            _method: &str,
            _params: Value,
        ) -> BoxFuture<'static, ServerAnswer> {
            poll_fn(|_| -> Poll<ServerAnswer> { panic!("a fault of the client") }).boxed()
        }

        fn notify(&self, _server: &Arc<str>, _method: &str, _params: Value) {}
    }

    #[tokio::test]
    async fn a_client_that_panics_leaves_no_request_open() {
        let client: Arc<dyn ServerClient> = Arc::new(Panics);
        let (open_count, open) = watch::channel(0);
        let downstream = Some(Arc::downgrade(&client));
        let mut requests = DownstreamRequests::new("s".into(), downstream, open_count);
        let request = ServerRequest::ListRootsRequest(Default::default());
        requests.begin(RequestId::Number(7), &request).unwrap();
        assert_eq!(*open.borrow(), 1);
        let JsonRpcMessage::Error(error) = requests.next_answer().await else {
            panic!("the answer is no error")
        };
        assert_eq!(error.id, Some(RequestId::Number(7)));
        assert_eq!(*open.borrow(), 0);
    }
}
