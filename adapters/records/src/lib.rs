//! A store of the kernel above any log of records.
//!
//! Whoever wants the kernel's processes in a database of their own implements [`RecordLog`]: bytes
//! by stream and number, contents by hash, one writer. [`RecordStore`] makes a
//! [`Store`](dormouse_actors::ports::Store) of it, and keeps what every store has to keep:
//!
//! * the rules of a commit ([`validator`]): journals without gaps, births before facts, pids and
//!   numbers of checkpoints that are never used again;
//! * the process table, checkpoints and their members, what is deleted and what is still needed;
//! * garbage collection, with [`GcPins`] for what is committed meanwhile;
//! * a checksum for each record, and a hash for each 64 KiB of a content: what a carrier changes, or
//!   loses between others, is found when it is read, and reported by name.
//!
//! What it cannot find out is a carrier that loses the last records of a stream after it has
//! acknowledged them.
//!
//! [`MemoryStore`] is such a store, above a [`MemoryLog`]. The crate `dormouse-store-conformance`
//! has the tests that every store passes.
//!
//! The store of the crate `dormouse-store` does not stand on this port: its log says of damage
//! which process lost which facts, which takes an index that knows processes. It keeps the same
//! rules by the same code.
//!
//! ```
//! use dormouse_actors::ports::{Batch, Entry, Store};
//! use dormouse_proto::id::Pid;
//! use dormouse_proto::process::ProcessRow;
//! use dormouse_records::{MemoryLog, RecordStore};
//!
//! let store = RecordStore::new_on(MemoryLog::default());
//! let owner = store.claim()?;
//! let row = ProcessRow::started(Pid(1), "auditor");
//! let born = Entry::Born { row, image: b"image".to_vec() };
//! store.commit(owner, Batch::durable(&[born], 1_700_000_000_000))?;
//! assert_eq!(store.journal(Pid(1), None)?.image, b"image");
//! # Ok::<(), dormouse_actors::ports::StoreError>(())
//! ```

pub mod chunks;
mod commit;
mod content;
mod error;
mod frame;
mod gc;
mod gc_pins;
mod log;
mod memory;
mod row;
mod store;
pub mod validator;

pub use gc_pins::GcPins;
pub use log::{NewContent, Record, RecordBatch, RecordLog, RecordOp, Stream, StreamKind};
pub use memory::{MemoryLog, MemoryStore};
pub use store::RecordStore;
