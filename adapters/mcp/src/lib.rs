//! Tools by the Model Context Protocol.
//!
//! [`client`] reaches the tool servers that programs name: the port
//! [`dormouse_actors::ports::ToolServers`]. The library that knows the protocol's messages stays
//! behind it: nothing of it stands in a public signature.
//!
//! A server is hostile until it has shown otherwise. Every wait has an end, whatever is read is
//! bounded, and what it says is text for a model: never a reason to trust it more. No value of a
//! declaration (an environment variable, a header) stands in an error, an event or a log.

pub mod client;

pub use client::McpClient;
