//! The process machine of Dormouse: pure functions that decide the next steps of a process.
//!
//! The crate never performs I/O, never waits, never reads a clock and uses no randomness. Time
//! arrives as an argument, the outcome of I/O as an input, and everything that has to be done
//! leaves as an effect, so that a journal can be replayed and a simulation can run thousands of
//! processes without threads.
//!
//! The crate defines the interface of a tool, but no tool. The caller passes the tools of its
//! kernel as a [`ToolSet`](tool::ToolSet) in the [`HostContext`](process::HostContext).
//! `dormouse-kernel` holds the tools and re-exports the modules of this crate.
//!
//! * [`process`]: the process machine, a decider in the sense of event sourcing (`decide`,
//!   `evolve`).
//! * [`tool`]: the interface of a tool: its definition, its calls and their outcomes.
//! * [`table`]: the descriptor table of a process.
//! * [`references`]: the parts of a reply that a model marked for later use.
//! * [`budget`]: the budget accounts of processes.
//! * [`permits`]: the queue for model calls.
//! * [`memory`]: the eviction of cached contents.
//! * [`temp_files`]: the files that a tree of processes shares.
//! * [`journal`]: when a journal gets a new image (the stored state of a process).
//! * [`retention`]: which processes, histories and checkpoints are deleted.
//! * [`schedule`]: times, time zones and cron expressions of alarms.
//! * [`inventory`]: which stored contents and log segments are still needed.
//!
//! # Example
//!
//! A process without tools starts its turn. Its first effect is a model call.
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
//! let is_model_call = |effect: &Effect| matches!(effect, Effect::StartWork { work: Work::Model { .. }, .. });
//! assert!(decision.effects.iter().any(is_model_call));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod budget;
pub mod inventory;
pub mod journal;
pub mod labels;
pub mod memory;
pub mod permits;
pub mod process;
pub mod race;
pub mod references;
pub mod retention;
pub mod schedule;
pub mod table;
pub mod temp_files;
pub mod tool;
