//! The process machine of Dormouse: what a process does next, as data.
//!
//! The crate never performs I/O, never waits, never reads a clock and uses no randomness. Time
//! arrives as an argument, the outcome of I/O as an input, and everything that has to be done
//! leaves as an effect, so that a journal can be replayed and a simulation can run thousands of
//! processes without threads.
//!
//! It knows what a tool is and none of the tools: which ones a kernel has is told to it, as a
//! [`ToolSet`](tool::ToolSet) in the [`HostContext`](process::HostContext). `dormouse-kernel` holds
//! the tools and re-exports the modules of this crate.
//!
//! * [`process`]: the process machine, a decider in the sense of event sourcing (`decide`,
//!   `evolve`).
//! * [`tool`]: the interface of a tool: its definition, its calls and their outcomes.
//! * [`table`]: the descriptor table of a process.
//! * [`budget`], [`permits`], [`memory`], [`temp_files`]: accounts, the queue for model calls,
//!   cache eviction, and the files that a tree of processes shares.
//! * [`journal`], [`retention`], [`inventory`]: what a store and its readers need to know of
//!   records.
//!
//! # Example
//!
//! A process without tools begins its turn: it asks to call its model.
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use bytes::Bytes;
//! use dormouse_machine::process::{
//!     Birth, Effect, HostContext, Input, Preloads, Signal, State, Work, decide, initial_image,
//! };
//! use dormouse_machine::tool::ToolSet;
//! use dormouse_proto::id::Pid;
//! use dormouse_proto::process::Priority;
//! use dormouse_proto::record::Lifetime;
//! use dormouse_proto::tool::Access;
//!
//! static NO_TOOLS: ToolSet = ToolSet {
//!     tools: &[],
//!     expand_handles: |_| Ok(None),
//!     instructions: |_, _, _| String::new(),
//! };
//!
//! let text = "[model]\nname = \"m\"\nprovider = \"scripted\"\n[prompt]\nsystem = \"You audit.\"\n";
//! let mut files = |_: &Path| Ok(Bytes::from(text));
//! let program = dormouse_program::compile(Path::new("auditor.toml"), &mut files, &[], &[])?.program;
//! let host = HostContext::new(&NO_TOOLS);
//! let birth = Birth {
//!     access: Access::Read,
//!     depth: 0,
//!     lifetime: Lifetime::Task,
//!     priority: Priority::Normal,
//!     preloads: &Preloads::default(),
//!     input: Some(&"Audit this.".into()),
//! };
//! let image = initial_image(&program, &host, birth, 0);
//! let state = State::from_image(Pid(1), program, Arc::new(host), image)?;
//!
//! let decision = decide(&state, Input::Signal(Signal::Resume), 0);
//! let is_model_call = |effect: &Effect| matches!(effect, Effect::Begin { work: Work::Model { .. }, .. });
//! assert!(decision.effects.iter().any(is_model_call));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod budget;
pub mod inventory;
pub mod journal;
pub mod memory;
pub mod permits;
pub mod process;
pub mod references;
pub mod retention;
pub mod table;
pub mod temp_files;
pub mod tool;
