//! The client of the Model Context Protocol (MCP), by which processes call tools of the servers
//! that their programs name.
//!
//! [`client`] implements the port [`dormouse_actors::ports::ToolServers`]. No type of the protocol
//! library is part of a public signature.
//!
//! Servers are not trusted. Every wait has a limit, everything that is read is bounded, and no text
//! of a server gives the server further permissions. No value of a declaration (an environment
//! variable, a header) appears in an error, an event, a log or a file. The only files that this
//! crate writes hold what servers last listed ([`KnownLists`]) and the tokens of logins
//! ([`Logins`](login::Logins)), in folders that its caller names.

pub mod client;
pub mod login;

pub use client::{KnownLists, McpClient};
