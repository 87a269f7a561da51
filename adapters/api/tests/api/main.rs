//! The control API over real sockets: what it answers, what it refuses, and who gets in.

#![allow(
    clippy::unwrap_used,
    clippy::allow_attributes,
    reason = "tests: a failure is a panic"
)]

mod acting;
mod document;
mod hostile;
mod reading;
mod streaming;
mod support;
#[cfg(unix)]
mod unix_socket;
