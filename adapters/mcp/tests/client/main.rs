//! The client against a server that misbehaves as it is asked to (`server.py`), by its standard
//! streams and by HTTP.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod http;
mod kernel;
mod stdio;
mod support;
