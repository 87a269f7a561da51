//! Clusters on a real database, with nodes in this program and as programs that are killed.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails where something is missing"
)]

mod common;
mod drain;
mod failing;
mod failover;
mod garbage;
mod handles;
mod joining;
mod labels;
mod messages;
mod moving;
mod permits;
mod placement;
mod stores;
mod storm;
mod token;
mod zombie;
