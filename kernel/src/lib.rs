//! The deterministic core of Dormouse: what a process does next, as data.
//!
//! The machine is a crate of its own, `dormouse-machine`, which knows no tool. This crate holds the
//! tools, and re-exports the machine's modules.
//!
//! Neither crate performs I/O, waits, reads a clock or uses randomness. Time arrives as an
//! argument, the outcome of I/O as an input, and everything that has to be done leaves as an
//! effect, so that a journal can be replayed and a simulation can run thousands of processes
//! without threads.
//!
//! * [`process`]: the process machine, a decider in the sense of event sourcing (`decide`,
//!   `evolve`).
//! * [`table`], [`syscall`]: the descriptor table of a process and the tools that work on it.
//! * [`budget`], [`labels`], [`permits`], [`memory`], [`temp_files`]: accounts, the queue for model calls,
//!   cache eviction, and the files that a tree of processes shares.
//! * [`schedule`]: times of alarms. [`race`]: which of several branches wins.
//! * [`journal`], [`retention`], [`inventory`], [`export`]: what a store and its readers need to
//!   know of records.
//!
//! # Example
//!
//! Output that is too large for a context becomes a descriptor, and the model reads it page by
//! page:
//!
//! ```
//! use dormouse_kernel::syscall::{Call, Outcome, read_fd};
//! use dormouse_kernel::table::Table;
//! use dormouse_kernel::table::placement::{Placement, Placer};
//! use dormouse_proto::descriptor::DescriptorSettings;
//! use dormouse_proto::tool::ToolOutput;
//!
//! let settings = DescriptorSettings::default();
//! let mut table = Table::new();
//! let output = ToolOutput::ok("a line of a log\n".repeat(1000));
//! let Placement::Descriptor(new) = Placer::unlimited(Some(&settings), 0).output(output, "tool:log").placement else {
//!     panic!("16,000 characters are more than the threshold");
//! };
//! table.insert(table.next_id(), new.entry);
//!
//! let Outcome::Answer(answer) = read_fd(&Call::unlimited(&table, r#"{"fd": "fd:1", "page": 2}"#, &settings, 0)) else {
//!     panic!("reading opens nothing");
//! };
//! assert!(answer.text.starts_with(r#"<fd_content fd="fd:1" page="2" pages="4""#));
//! ```

pub use dormouse_machine::{
    budget, inventory, journal, labels, memory, permits, process, race, references, retention,
    schedule, table, temp_files,
};

pub mod export;
pub mod program;
pub mod syscall;
