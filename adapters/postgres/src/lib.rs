//! A store of the kernel on PostgreSQL, versions 15 to 18: one database for many shards and nodes.
//!
//! A *shard* is one log with one owner. [`PostgresLog`] is the log of a shard, an implementation of
//! [`RecordLog`](dormouse_records::RecordLog), and [`RecordStore`](dormouse_records::RecordStore)
//! makes a store of it. [`Database`] is the pool of connections that all shards of a program share,
//! and hands out shards to nodes ([`Claim`]).
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use dormouse_postgres::{ClaimMode, Database, DatabaseOptions, PostgresLog, ShardId};
//! use dormouse_records::RecordStore;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = DatabaseOptions::new("postgres://dormouse@db.example.com/agents")?;
//! let database = Database::connect(&options)?;
//! database.create_shards(64)?;
//! let lease = Duration::from_secs(15);
//! if let Some(claim) = database.claim_shard(ShardId(7), "node-1", lease, ClaimMode::IfFree)? {
//!     let store = RecordStore::new_on(PostgresLog::claimed(&database, &claim));
//!     // Give the store to `Kernel::open`, and renew the claim every third of its lease:
//!     let lost = database.renew(&[claim])?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A program that is alone needs no leases: `PostgresLog::unleased(&database, ShardId(0))`.
//!
//! # Who may write
//!
//! A claim raises the *epoch* of its shard, which is the owner's token. Each write is one statement
//! that checks the epoch and takes the next commit number under the lock of the shard's row, so
//! that an owner that was superseded writes nothing, however late it wakes up. A lease ends by the
//! clock of the database. A node asks [`Claim::is_surely_held`] before it does what cannot be
//! undone; between that check and the effect, a pause of the machine can outlast the lease, and no
//! store can prevent that.
//!
//! A write also has to follow the last one that its handle knows of, and has a random number. If a
//! connection is lost, the statement is sent again, and the database recognises one that it has
//! executed: the answer says what happened, and a statement that arrives late changes nothing. If
//! the server stays away longer than [`DatabaseOptions::outage_limit`], the operation fails with an
//! error, and the next write of the handle is refused if the lost one has arrived after all.
//! Nothing is acknowledged meanwhile.
//!
//! # What each operation costs
//!
//! | operation | round trips |
//! |---|---|
//! | a commit | 1; the first one of a handle 2. While half of the connections write, the commits of all shards that wait go together in one statement, up to 64 |
//! | a commit with contents of more than 4 MiB | 1, and 1 for each 4 MiB of a content |
//! | an empty batch | 1 |
//! | reading records of a stream, the last record, a kind | 1, by the primary key |
//! | opening a content; listing contents | 1 |
//! | reading a range of a content | 1 for each 4 MiB; the server reads the pieces of 2 kB that hold the range |
//! | a claim | 2 |
//! | renewing all leases of a node; releasing them | 1 |
//! | opening a shard | 0 |
//!
//! A connection needs one more for each kind of statement, to prepare it, and sets its options when
//! it begins: a pooler between the program and the server has to keep sessions. The server limits
//! the records of a batch to 1 GB. `.ci/postgres cargo bench` compares commits a second with those
//! of `pgbench`.
//!
//! # How durable a commit is
//!
//! Every commit waits for its statement. The level of a batch chooses `synchronous_commit` for its
//! transaction, and nothing else:
//!
//! | [`SyncLevel`](dormouse_actors::ports::SyncLevel) | `synchronous_commit` | survives |
//! |---|---|---|
//! | `Written` | `off` | the end of the program and of its machine. If the *server* crashes, the commits of up to three `wal_writer_delay` (0.6 s by default) are lost, always the last ones |
//! | `Synced` | what the server is set to; `on` if that is `off` | a crash and a power loss of the server. With synchronous standbys (`synchronous_standby_names`), also the loss of the server |
//!
//! **Asynchronous replication can lose acknowledged commits.** A standby that is promoted has not
//! received the last ones. The owner notices: its next write does not follow the last write of that
//! database, and is refused with an error that says so. The kernel then continues from what is left
//! once it is opened again, and effects that were made after lost commits are not remembered.
//! Epochs are microseconds of the database's clock where that is higher than the last epoch, so
//! that the promoted server does not give out a token again that the lost one gave. Who cannot
//! accept the loss uses synchronous standbys.
//!
//! # Large contents
//!
//! Contents are stored in chunks of 256 KiB. [`PostgresLog::large_contents`] puts those from a
//! length on into an object store instead ([`LargeContents`]; with the feature `objects`, that of
//! the crate `dormouse-objects`). [`Database::collect_objects`] deletes the objects that no shard
//! refers to.
//!
//! # Security
//!
//! * [`DatabaseOptions`] says what `sslmode` protects against. A server on another machine is
//!   verified unless the address says otherwise. TLS is rustls on ring.
//! * The password is in no message, no `Debug` form and no log.
//!   [`DatabaseOptions::without_password`] refuses one in an address that others can read.
//! * The role needs `SELECT`, `INSERT`, `UPDATE` and `DELETE` on the tables of the schema; whoever
//!   creates or updates the tables, also the right to create them. The functions run with the
//!   rights of their caller.
//! * Whoever can write to the tables can forge records.
//!   [`RecordStore::key`](dormouse_records::RecordStore::key) encrypts records and contents before
//!   they leave the program: then the database sees kinds, numbers, times and lengths. A shard has
//!   the key of its first commit: use one key for all.
//! * Nodes trust each other: each can claim every shard by force.

mod batch;
mod claim;
mod connections;
mod content;
mod database;
mod error;
mod group;
mod log;
mod migrate;
mod number;
mod objects;
mod options;
mod password;
#[cfg(dormouse_planted)]
mod planted;
mod shard;
mod tls;
mod write;

pub use claim::{Claim, ClaimMode};
pub use connections::Parameters;
pub use database::Database;
pub use error::DatabaseError;
pub use log::PostgresLog;
pub use objects::{LargeContent, LargeContents, ObjectCollection};
pub use options::DatabaseOptions;
pub use password::PASSWORD_FILE_VARIABLE;
pub use shard::{ShardId, ShardStatus};
/// The client's types of rows and parameters, for crates with tables of their own in the schema.
pub use tokio_postgres::{Row, types::ToSql};
