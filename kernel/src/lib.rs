//! Pure decisions: no runtime, no clock, no files, no randomness.
//!
//! A tool produced more than a context should hold: it becomes a descriptor, and the model reads it
//! in pages.
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
//! let Outcome::Answer(answer) = read_fd(&Call::unbounded(&table, r#"{"fd": "fd:1", "page": 2}"#, &settings, 0)) else {
//!     panic!("reading opens nothing");
//! };
//! assert!(answer.text.starts_with(r#"<fd_content fd="fd:1" page="2" pages="4""#));
//! ```

pub mod budget;
pub mod export;
pub mod inventory;
pub mod journal;
pub mod memory;
pub mod permits;
pub mod process;
pub mod program;
pub mod references;
pub mod retention;
pub mod syscall;
pub mod table;
pub mod temp_files;
