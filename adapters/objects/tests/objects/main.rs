//! Contents in real stores: the servers that `DORMOUSE_OBJECT_STORES` names, and a local folder.
//! `.ci/objects` starts the servers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cache;
mod child;
mod contents;
mod damage;
mod fake_server;
mod faults;
mod kills;
mod large;
mod log;
mod proxy;
mod secrets;
mod stores;
