//! The durable store of the kernel: an append-only log, and an index that can be rebuilt from it.
//!
//! ```text
//! DIR/LOCK              locked by the one program that has the store open for writing
//! DIR/HEAD, DIR/HEAD2   the store's key, a lower bound of the log's end, the current owner
//! DIR/log/00000001.seg  records, chained by hash; a segment is only appended to, or replaced by a stub when it is compacted
//! DIR/index/            the locations of records (sled): derived from the log, rebuilt if damaged
//! ```
//!
//! * **LOG-1** a commit is in the log, and synced if the caller asked for that, before it is
//!   acknowledged.
//! * **LOG-2** after a crash, the log contains a commit completely or not at all.
//! * **LOG-3** records before the position in HEAD are never cut from the log: damage there is
//!   reported as a list of [`Issue`]s.
//! * **INDEX-1** the index contains nothing that the log lacks. Deleting it between any two
//!   operations changes no answer.
//! * **READ-1** a query returns the bytes that were written, or an error: every byte is checked
//!   against its hash before it is returned.
//! * **SWEEP-1** a compaction changes no answer, except that unreferenced contents become unknown.
//!   A crash at any moment leaves each segment either unchanged or compacted, and at least one copy
//!   of each live record.
//! * **SEAL-1** without the secret, the folder of an encrypted store reveals only kinds, numbers,
//!   times and lengths of records.
//! * **LOOK-1** opening a store for reading changes nothing in its folder, and never reports a
//!   write in progress as damage.
//!
//! This crate never decodes a fact or an image, never reads a clock, and starts no thread of its
//! own (sled has one). A panic of sled is caught, and the index is rebuilt, in memory if its folder
//! cannot be written. The program's panic hook runs before the panic is caught, and this crate
//! never replaces the hook: a hook that reports panics calls [`catches_panic_here`]. The module
//! `record_header` describes the bytes of a record, `docs/format.md` those of a whole store, and
//! `log_walk` the recovery after a crash.
//!
//! ```
//! use dormouse_actors::ports::{Batch, WriteOp, Store};
//! use dormouse_proto::id::Pid;
//! use dormouse_proto::process::ProcessRow;
//! use dormouse_store::LogStore;
//!
//! # let folder = tempfile::tempdir()?;
//! let store = LogStore::open(folder.path())?;
//! let owner = store.claim()?;
//! let row = ProcessRow::started(Pid(1), "auditor");
//! store.commit(owner, Batch::durable(&[WriteOp::ProcessCreated { row: Box::new(row), image: b"image".to_vec() }], 1_700_000_000_000))?;
//! assert_eq!(store.journal(Pid(1), None)?.image, b"image");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod append_file;
mod commit;
mod compaction;
mod disk;
mod error;
mod fsck;
mod head;
mod header_window;
mod index;
mod inventory_pass;
mod issue;
mod kv;
mod liveness;
mod location_index;
mod lock;
mod log;
mod log_position;
mod log_scan;
mod log_store;
mod log_walk;
mod mmap;
mod options;
mod packed;
mod payload;
mod process_table;
mod progress;
mod queries;
mod quota;
mod read_only;
mod record_builder;
mod record_header;
mod record_read;
mod recovery;
mod search;
mod segment;
mod stored_content;
mod throttle;
mod writer;

#[cfg(test)]
mod power_tests;

pub use dormouse_records::{Compression, InvalidSecret, MemoryStore, StoreSecret};
pub use fsck::{FsckReport, Repair, fsck};
pub use issue::Issue;
pub use kv::catches_panic_here;
pub use log_position::Location;
pub use log_store::LogStore;
pub use options::Options;
