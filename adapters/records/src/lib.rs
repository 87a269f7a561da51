//! A store of the kernel on top of any log of records.
//!
//! To keep the kernel's processes in a database of your own, implement [`RecordLog`]: bytes by
//! stream and number, contents by hash, one writer. [`RecordStore`] turns it into a
//! [`Store`](dormouse_actors::ports::Store) and adds what every store needs:
//!
//! * validation of commits ([`validator`]): journals without gaps, creations before facts, pids and
//!   checkpoint numbers that are never reused;
//! * the process table, checkpoints and their members, deletions, and what checkpoints still need;
//! * garbage collection, with [`GcPins`] for contents that are committed during a collection;
//! * a checksum for each record, and a hash for each 64 KiB of a content: changed bytes, and
//!   missing records between others, are detected when they are read, and reported by name.
//!
//! It cannot detect that a log loses the last records of a stream after it has acknowledged them.
//!
//! [`MemoryStore`] is such a store, on top of a [`MemoryLog`]. The crate
//! `dormouse-store-conformance` contains the tests that every store passes.
//!
//! The store of the crate `dormouse-store` does not use this port: its log reports for damage which
//! process lost which facts, which takes an index that knows processes. It shares the validation.
//!
//! ```
//! use dormouse_actors::ports::{Batch, Store, WriteOp};
//! use dormouse_proto::id::Pid;
//! use dormouse_proto::process::ProcessRow;
//! use dormouse_records::{MemoryLog, RecordStore};
//!
//! let store = RecordStore::new_on(MemoryLog::default());
//! let owner = store.claim()?;
//! let row = ProcessRow::started(Pid(1), "auditor");
//! let born = WriteOp::ProcessCreated { row, image: b"image".to_vec() };
//! store.commit(owner, Batch::durable(&[born], 1_700_000_000_000))?;
//! assert_eq!(store.journal(Pid(1), None)?.image, b"image");
//! # Ok::<(), dormouse_actors::ports::StoreError>(())
//! ```

pub mod chunks;
mod commit;
pub mod compression;
mod content;
mod error;
mod frame;
mod gc;
mod gc_pins;
mod log;
mod log_header;
mod memory;
mod row;
pub mod secret;
mod store;
pub mod validator;

pub use compression::Compression;
pub use gc_pins::GcPins;
pub use log::{NewContent, Record, RecordBatch, RecordLog, RecordOp, Stream, StreamKind};
pub use memory::{MemoryLog, MemoryStore};
pub use secret::{InvalidSecret, StoreSecret};
pub use store::RecordStore;
