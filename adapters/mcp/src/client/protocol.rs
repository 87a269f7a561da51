//! Requests of the protocol that are passed on as they are: prompts, resources, completions, and
//! whatever else the downstream client (the MCP client that the kernel itself serves) asks a server
//! for.

use dormouse_actors::ports::{ServerAnswer, ServerRequestError};
use rmcp::model::{
    ClientNotification, ClientRequest, CustomNotification, CustomRequest, CustomResult,
    ServerResult,
};
use serde_json::{Value, json};

use super::request_error::RequestError;
use super::session::Session;

/// Sends a request to the server, and returns its result as it wrote it.
///
/// # Errors
/// [`ServerRequestError`]: the server refused, or its answer got lost.
pub(super) async fn request(session: &Session, method: &str, params: Value) -> ServerAnswer {
    let limit_ms = session.server().deadline_ms;
    let result = session
        .request_within(typed_request(method, params), limit_ms)
        .await
        .map_err(|error| to_port_error(error, &session.server().name))?;
    let result = match result {
        ServerResult::CustomResult(CustomResult(result)) => Ok(result),
        result => serde_json::to_value(result),
    };
    result.map_err(|error| ServerRequestError::Failed(error.to_string().into()))
}

/// Sends a notification to the server.
pub(super) async fn notify(session: &Session, method: &str, params: Value) {
    let notification = CustomNotification::new(method, Some(params));
    session
        .notify(ClientNotification::CustomNotification(notification))
        .await;
}

/// The request of this method. The protocol library has to know its type, where it has one: over
/// HTTP, headers follow from it.
fn typed_request(method: &str, params: Value) -> ClientRequest {
    let message = json!({ "method": method, "params": params });
    serde_json::from_value(message)
        .unwrap_or_else(|_| ClientRequest::CustomRequest(CustomRequest::new(method, Some(params))))
}

fn to_port_error(error: RequestError, server: &str) -> ServerRequestError {
    match error {
        RequestError::Refused {
            code,
            message,
            data,
        } => ServerRequestError::Refused {
            code,
            message,
            data,
        },
        error => ServerRequestError::Failed(format!("the tool server `{server}`: {error}.").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_request_has_its_type_and_an_unknown_one_is_kept() {
        let known = typed_request("prompts/get", json!({ "name": "p" }));
        assert!(matches!(known, ClientRequest::GetPromptRequest(_)));
        let unknown = typed_request("x/y", json!({ "z": 1 }));
        let expected = json!({ "method": "x/y", "params": { "z": 1 } });
        assert_eq!(serde_json::to_value(unknown).unwrap(), expected);
    }
}
