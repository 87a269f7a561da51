//! The server, by a pipe and by HTTP, spoken to in the words of the protocol.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crowd;
mod http;
mod pipe;
mod support;
