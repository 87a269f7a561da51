//! A store of the kernel on top of any log of records.
//!
//! To keep the kernel's processes in a database of your own, implement [`RecordLog`]: bytes by
//! stream and number, contents by name, one writer. [`RecordStore`] turns it into a
//! [`Store`](dormouse_actors::ports::Store) and adds what every store needs:
//!
//! * validation of commits ([`validator`]): journals without gaps, creations before facts, pids and
//!   checkpoint numbers that are never reused;
//! * the process table, checkpoints and their members, and deletions, which are refused for
//!   processes and facts that a checkpoint needs;
//! * garbage collection, with [`GcPins`] for contents that are committed during a collection;
//! * a checksum for each record, and a hash for each 64 KiB of a content: changed bytes, and
//!   missing records between others, are detected when they are read, and the error names them;
//! * encryption ([`RecordStore::key`]) and compression ([`RecordStore::compression`]). In an
//!   encrypted log, neither the bytes nor the hashes of contents are visible. An implementation of
//!   [`RecordLog`] has to do nothing for either.
//!
//! A [`RecordStore`] cannot detect that a log loses the last records of a stream after it has
//! acknowledged them, or that the log returns an earlier version of a record that was rewritten
//! (the row of a process, the header). Encryption does not authenticate which commit wrote a
//! record, and when.
//!
//! [`MemoryStore`] is such a store, on top of a [`MemoryLog`]. The crate
//! `dormouse-store-conformance` contains the tests that every store passes.
//!
//! The store of the crate `dormouse-store` does not use this port. It reports which process lost
//! which facts by a damage, and needs an index of processes for that. It shares the validation, the
//! encryption ([`secret`]) and the compression ([`compression`]). `docs/format.md` describes the
//! bytes that a log receives.
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
//! let created = WriteOp::ProcessCreated { row: Box::new(row), image: b"image".to_vec() };
//! store.commit(owner, Batch::durable(&[created], 1_700_000_000_000))?;
//! assert_eq!(store.journal(Pid(1), None)?.image, b"image");
//! # Ok::<(), dormouse_actors::ports::StoreError>(())
//! ```
//!
//! The same store, encrypted and compressed. After its first commit, it can be opened only with the
//! same key:
//!
//! ```
//! use std::sync::Arc;
//!
//! use dormouse_actors::ports::{Batch, Store, StoreError, WriteOp};
//! # use dormouse_proto::id::Pid;
//! # use dormouse_proto::process::ProcessRow;
//! use dormouse_records::{Compression, MemoryLog, RecordStore, StoreSecret};
//!
//! let log = Arc::new(MemoryLog::default());
//! let store = RecordStore::new_on(log.clone())
//!     .key(StoreSecret::new([7; 32])) // a real key comes from a secret manager, not from source
//!     .compression(Compression::Zstd(3));
//! # let row = ProcessRow::started(Pid(1), "auditor");
//! # let born = WriteOp::ProcessCreated { row: Box::new(row), image: b"image".to_vec() };
//! let owner = store.claim()?;
//! store.commit(owner, Batch::durable(&[born], 1_700_000_000_000))?;
//! let without_key = RecordStore::new_on(log);
//! assert!(matches!(without_key.claim(), Err(StoreError::Key { .. })));
//! # Ok::<(), StoreError>(())
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
