//! The running kernel: ractor actors that drive the pure process machine and execute its effects.
//!
//! * Each process has one process actor, which owns the state of the process. The pure functions of
//!   [`dormouse_kernel::process`] make its decisions.
//! * The supervisor owns the process table: it creates processes, knows their parents and children,
//!   and restarts processes that fault (whose actors fail or panic).
//! * The checkpoint actor is the only writer of journals. It commits the records of all processes
//!   in groups, and no effect starts before the facts that caused it are durable.
//! * The temporary files actor owns the files that the processes of a tree share.
//!
//! Embedders use [`handle`]; adapters implement [`ports`]. This crate opens no file and no socket,
//! and a message handler never blocks and never waits for I/O.

mod checkpoint;
mod clock;
mod commit_feed;
mod consistent_cut;
mod content_cache;
mod context;
mod durability;
mod environment;
mod error;
mod event;
mod export;
pub mod garbage;
pub mod handle;
mod held_call;
mod import;
mod in_use;
mod labels;
mod ownership;
mod permits;
pub mod ports;
mod process;
mod process_status;
mod read_pool;
mod recovery;
mod server_questions;
mod servers;
mod spans;
mod store_handle;
mod supervisor;
mod temp_files;

pub use durability::Durability;
pub use error::{
    ExportFailure, KernelError, NameError, NotFound, ProcessError, RaceError, StartError,
    StoreFailure,
};
pub use event::{DescriptorView, Event, Fact, ProcessView};
pub use export::ExportSummary;
pub use held_call::HeldCall;
pub use import::{read_export, scan_export};
pub use ownership::CloseReason;
pub use permits::{ModelPermits, ModelServer, ServerDemand};
pub use process_status::ProcessStatus;
pub use recovery::LoadError;
pub use server_questions::{ServerQuestion, ServerQuestionError, WantedAnswer};
