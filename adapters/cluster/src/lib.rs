//! Many machines: nodes that share a database, and handles on processes that are valid everywhere.
//!
//! A *shard* is one log in PostgreSQL with one owner, and a tree of processes lives in one shard as
//! long as it is not [moved](Cluster::move_tree). A *node* is a program that claims shards and runs
//! a kernel for each, with one set of models, permits and tools. [`Cluster::join`] makes a program
//! a node; [`Cluster::connect`] lets a program use the processes without running any.
//!
//! ```no_run
//! use dormouse::Kernel;
//! use dormouse::process::Exit;
//! use dormouse_cluster::{Cluster, ClusterError, ClusterOptions};
//! use dormouse_postgres::DatabaseOptions;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let database = DatabaseOptions::new("postgres://dormouse@db.example.com/agents")?;
//! let options = ClusterOptions::new(database, "node-1").labels(["gpu"]);
//! let cluster = Cluster::join(options, |_shard| Kernel::builder()).await?;
//! let process = cluster.start("[model]\nname = 'm'\nprovider = 'scripted'").input("Hello").await?;
//! let exit = process.wait().await?; // wherever it runs, and wherever it moves meanwhile
//! cluster.drain().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Who owns a shard
//!
//! Each node computes it from the list of live nodes, by rendezvous hashing ([`placement`]):
//! nothing moves that does not have to. A node renews its leases every third of their length. If it
//! is silent for as long as a lease, others take over within the lease and half a second, by the
//! clock of the database. A node that was only paused finds that its leases are lost before it
//! begins an effect, and the database refuses its commits. What it had in flight is unknown to its
//! successor, as after a crash.
//!
//! Programs can need labels of nodes (`[placement] needs`). The first start with some needs creates
//! four shards for exactly these needs, and only nodes with all of these labels own them. If there
//! is no such node, these shards have no owner, and their trees wait.
//!
//! # What is done once
//!
//! | call | if the node is lost in the middle |
//! |---|---|
//! | start | made again, once: the id of the request is a label of the tree, in the commit of its birth |
//! | input | made again, once: the table of requests names a commit before the input, and the journal shows whether it followed. If others were begun at about the same time, and the journal does not have all of them, the error says that the outcome is unknown |
//! | wait, events, listing | asked again at the new owner; events may be missing, which an event says |
//! | stop, continue, kill | made again: a second one changes nothing |
//! | interrupt, checkpoint, branch, raise, verdict | the error says that the outcome is unknown |
//! | move of a tree | the next owner of its shard goes on with it; the tree runs in one shard only |
//! | message between processes | sent until it is answered, and kept once |
//!
//! # Security
//!
//! Nodes speak HTTP with a token, which is in the database: who can read the database can speak to
//! nodes, and nobody else. What travels is not encrypted. So a node listens on this machine only,
//! unless it is told otherwise ([`ClusterOptions::listen`]), and other addresses are for networks
//! that only nodes and their clients can read. `/healthz`, `/readyz` and `/metrics` need no token.
//! Permissions, secrets and tools are each node's own.
//!
//! # Tables
//!
//! The tables are in the schema of the store, and have migrations with numbers of their own.
//!
//! What counts in one kernel counts in one shard: names of processes, lists of checkpoints, and ids
//! of checkpoints. Budgets of labels count in the whole cluster ([`Cluster::set_label_budget`]).

mod call;
mod caller;
mod cluster;
mod collections;
mod copies;
mod database;
mod error;
mod events;
mod execute;
mod failures;
mod garbage;
mod health;
mod held;
mod inbox;
mod label_sharing;
mod label_slices;
mod label_tables;
mod labels;
mod move_tables;
mod moving;
mod node;
mod options;
mod peers;
mod permit_sharing;
mod permit_tables;
pub mod placement;
mod process;
mod random;
mod server;
mod shard;
mod shards;
mod start;
mod stores;
mod tables;

pub use call::{ClusterFact, ClusterPosition, ClusterProcessInfo, ClusterProcessView, Signal};
pub use cluster::{Cluster, NodeInfo};
pub use error::{ClusterError, Refusal};
pub use events::ClusterEvent;
pub use garbage::{ClusterCollection, OBJECT_GRACE, ShardCollection};
pub use labels::{ClusterLabel, LabelAmount};
pub use options::ClusterOptions;
pub use process::{ClusterProcess, Runs};
pub use shard::{MAX_SHARDS, pids_of, shard_of};
pub use shards::Shard;
pub use start::{ClusterStart, ProgramFiles};
pub use stores::{ImportedStore, MoveError};

/// The chapter of the book, whose code is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/cluster.md")]
mod chapter {}
