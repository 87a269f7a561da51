//! The program `dormouse` on clusters: nodes as it runs them, and its commands as a user gives
//! them.
//!
//! `.ci/cluster` starts the server of PostgreSQL. Without it the tests fail.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod book;
mod commands;
mod nodes;
mod people;
#[path = "../cli/ran.rs"]
mod ran;
mod refusals;
mod whole_stores;
mod world;
