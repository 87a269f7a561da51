//! The control API: what the embedding API can do to a kernel, as HTTP with JSON, and one stream of
//! events.
//!
//! [`ControlApi`] holds a kernel and answers requests. [`ControlApi::serve_tcp`] and
//! [`ControlApi::serve_unix`] are the ways in: by TCP with tokens, and by a socket in the folder of a
//! store. [`openapi`] is the document that describes it all, made from the handlers themselves.
//!
//! * Each route needs a [`Scope`]: to look, to speak with processes, or to control them. A request
//!   without a token has none, and is refused.
//! * Names of fields are stable: they are those that the command line prints as JSON (`view`).
//! * Facts of the stream come from the log, so that a client that connects again loses none
//!   (`events`).
//! * Everything is bounded: bodies, connections, streams, pages, and the time that each may take.
//! * A kernel whose store is open for reading only answers the same, and refuses to act.

mod api;
mod error;
mod events;
mod extract;
mod openapi;
mod routes;
mod scope;
mod serve;
pub mod view;

pub use dormouse_http::server::{Hosts, Token};

pub use self::api::ControlApi;
pub use self::error::{ErrorBody, ErrorDetail};
pub use self::events::{InvalidPosition, LogPosition};
pub use self::openapi::openapi;
pub use self::scope::{Scope, Tokens};
#[cfg(unix)]
pub use self::serve::unix::{ControlSocket, SOCKET, SocketError, TOKEN_FILE};
pub use self::serve::{ServeError, TcpSettings};
