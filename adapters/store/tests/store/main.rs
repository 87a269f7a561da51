//! The stores of this crate, from outside: what every store does, and what the durable one does after crashes and damage.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
mod damage;
mod fsck;
mod lock;
mod recovery;
mod sharing;
mod support;
mod sweep;
