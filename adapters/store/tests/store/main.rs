//! The stores of this crate, from outside: what every store does, and what the durable one does after crashes and damage.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod closing;
mod conformance;
mod damage;
mod fsck;
mod golden;
mod lock;
mod permissions;
mod reading;
mod recovery;
mod sealed;
mod sequences;
mod sharing;
mod support;
mod sweep;
