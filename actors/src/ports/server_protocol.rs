//! What a tool server and the client of the kernel say to each other, beyond the tools of a
//! process: prompts, resources, questions to the user. Methods and parameters are those of the
//! servers' protocol (MCP), as JSON; the kernel passes them on and looks at none.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::tool::ToolError;

/// Why a request between a server and a client has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerRequestError {
    /// The other side answered with an error of the protocol.
    #[error("{message} (code {code})")]
    Refused {
        /// The code of the error, as JSON-RPC defines it.
        code: i32,
        /// What went wrong.
        message: String,
        /// Further information, in a form that the code defines.
        data: Option<Value>,
    },
    /// The request was not sent, or its answer got lost.
    #[error(transparent)]
    Failed(#[from] ToolError),
}

impl ServerRequestError {
    /// The answer to a request whose method is not known.
    #[must_use]
    pub fn unknown_method(method: &str) -> Self {
        const METHOD_NOT_FOUND: i32 = -32601;
        Self::Refused {
            code: METHOD_NOT_FOUND,
            message: method.to_owned(),
            data: None,
        }
    }
}

/// The result of a request between a server and a client, or the error.
pub type ServerAnswer = Result<Value, ServerRequestError>;

/// The client that a process serves, as its tool servers see it. A server may ask it for something
/// (a reply of its model, an answer of its user, its folders) and notify it.
pub trait ServerClient: Send + Sync + 'static {
    /// The capabilities of the client, which decide what servers may ask for.
    fn capabilities(&self) -> Value;

    /// A header of the request by which the client began its session, if it has one: a token that a
    /// declaration passes on to its server.
    fn header(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    /// Executes a request of the server `server`. Dropping the future cancels the request.
    fn request(
        &self,
        server: &Arc<str>,
        method: &str,
        params: Value,
    ) -> BoxFuture<'static, ServerAnswer>;

    /// Receives a notification of the server `server`. Returns at once.
    fn notify(&self, server: &Arc<str>, method: &str, params: Value);
}
