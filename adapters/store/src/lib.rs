//! The durable store of the kernel: one append-only log that is the truth, and an index that can be
//! thrown away.
//!
//! ```text
//! DIR/LOCK              who has the store open (one writer, by file lock)
//! DIR/HEAD, DIR/HEAD2   the store's key, how far the log reaches at least, who may write
//! DIR/log/00000001.seg  records in envelopes, chained by hash; only appended to, or swept and replaced by one record
//! DIR/index/            where in the log things are (sled): derived, checked, rebuilt when in doubt
//! ```
//!
//! * **LOG-1** what was acknowledged is in the log, synced, before anyone hears of it.
//! * **LOG-2** a commit is found again wholly or not at all.
//! * **LOG-3** nothing that HEAD vouches for is ever cut from the log: damage there is reported by
//!   name.
//! * **INDEX-1** the index holds nothing that the log lacks. Deleting it between any two operations
//!   changes no answer.
//! * **READ-1** an answer is what was written, or an error: every byte is checked against its hash
//!   before it is given out.
//! * **SWEEP-1** a sweep changes no answer but that nothing is known of contents to which nothing
//!   refers. A crash at any moment of it leaves each segment either as it was or swept, and of what
//!   is live at least one copy.
//! * **SEAL-1** of what an encrypted store holds, no byte in its folder tells anything to who does
//!   not have the secret, but kinds, numbers, times and lengths of records.
//! * **LOOK-1** who opens a store for reading only changes nothing in its folder, and takes nothing
//!   for damage that a writer is just doing.
//!
//! This crate never decodes a fact or an image, never looks at a clock, and starts no thread of its
//! own (sled has one). A panic of sled is caught, and the index is built again, in memory if its
//! folder does not take it. The program's panic hook sees the panic first, and this crate never
//! replaces it: a hook that reports panics asks [`catches_panic_here`]. The bytes of a record are
//! described in the module `envelope`, those of a whole store in `docs/format.md`, the way back
//! after a crash in `scan`.
//!
//! ```
//! use dormouse_actors::ports::{Batch, Entry, Store};
//! use dormouse_proto::id::Pid;
//! use dormouse_proto::process::ProcessRow;
//! use dormouse_store::LogStore;
//!
//! # let folder = tempfile::tempdir()?;
//! let store = LogStore::open(folder.path())?;
//! let owner = store.claim()?;
//! let row = ProcessRow::started(Pid(1), "auditor");
//! store.commit(owner, Batch::durable(&[Entry::Born { row, image: b"image".to_vec() }], 1_700_000_000_000))?;
//! assert_eq!(store.journal(Pid(1), None)?.image, b"image");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod append_file;
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
mod pace;
mod packed;
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
mod secret;
mod segment;
mod stored_content;
mod writer;

#[cfg(test)]
mod power_tests;

pub use dormouse_records::MemoryStore;
pub use fsck::{FsckReport, Repair, fsck};
pub use issue::Issue;
pub use kv::catches_panic_here;
pub use log_position::Location;
pub use log_store::LogStore;
pub use options::Options;
pub use packed::Compression;
pub use secret::{InvalidSecret, StoreSecret};
