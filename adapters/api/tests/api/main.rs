//! The control API over real sockets: what it answers, what it refuses, and who gets in.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod acting;
mod document;
mod hostile;
mod reading;
mod streaming;
mod support;
#[cfg(unix)]
mod unix_socket;
