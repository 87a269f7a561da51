//! Tests of the public interface of the durable store: the behaviour of every store, and recovery
//! after crashes and damage.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod closing;
mod compaction;
mod conformance;
mod damage;
mod encryption;
mod figures;
mod fsck;
mod golden;
mod inventory;
mod lock;
mod permissions;
mod reading;
mod recovery;
mod salvage;
mod scrub;
mod sequences;
mod sharing;
mod support;
