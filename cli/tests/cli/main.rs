//! The program `dormouse`, started as a user starts it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod book;
mod compaction;
#[cfg(target_os = "linux")]
mod confinement;
mod dormouse;
mod export;
mod index_faults;
mod mcp;
mod mcp_features;
mod mcp_install;
mod mcp_lazy_servers;
mod mcp_login;
mod mcp_sessions;
mod ran;
mod recordings;
mod refusals;
mod results;
mod resume;
mod review;
mod schema;
mod server_questions;
mod sleepers;
mod stopped;
mod stores;
mod terminal;
mod verdict;
