//! Tests of the server over a pipe and over HTTP, with raw messages of the protocol.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod completions;
mod half_open_connections;
mod http;
mod http_client;
mod kept_outputs;
mod pipe;
mod support;
