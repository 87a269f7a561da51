//! The running kernel: actors that feed the pure machine and perform what it decides.
//!
//! * One actor per process owns its descriptor table and conversation ([`dormouse_kernel::process`]
//!   decides for it).
//! * The supervisor makes processes, knows who is whose child, and restarts one that faults.
//! * The checkpoint actor makes facts and contents durable, many at once, before anything that
//!   follows from them is done.
//! * The temporary files actor keeps what the processes of a tree share.
//!
//! What an embedder sees is [`handle`]; what adapters implement is [`ports`]. Nothing here opens a
//! file or a socket.

mod checkpoint;
mod checkpoint_guard;
mod clock;
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
mod import;
mod permits;
pub mod ports;
mod process;
mod read_pool;
mod recovery;
mod servers;
mod spans;
mod store_handle;
mod supervisor;
mod temp_files;

pub use durability::Durability;
pub use error::{
    ExportFailure, KernelError, NameError, NotFound, ProcessError, StartError, StoreFailure,
};
pub use event::{DescriptorView, Event, Fact, View};
pub use export::Exported;
pub use import::{look, skim};
pub use recovery::LoadError;
