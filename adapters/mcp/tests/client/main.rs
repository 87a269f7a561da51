//! Tests of the client against a server that misbehaves on request (`server.py`), over its standard
//! streams and over HTTP.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod features;
mod http;
mod kernel;
mod login;
mod stdio;
mod support;
#[path = "../../../../tests/tls.rs"]
mod tls;
mod trees;
