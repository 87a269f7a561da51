//! The client of the Model Context Protocol (MCP): tools of servers that programs name.
//!
//! [`client`] implements the port [`dormouse_actors::ports::ToolServers`]. No type of the protocol
//! library is part of a public signature.
//!
//! A server counts as hostile. Every wait has a limit, everything that is read is bounded, and the
//! texts of a server are texts for a model, never a reason to trust the server more. No value of a
//! declaration (an environment variable, a header) appears in an error, an event or a log.

pub mod client;

pub use client::McpClient;
