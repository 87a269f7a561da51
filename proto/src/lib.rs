//! The shared vocabulary of Dormouse, and every format that leaves the program.
//!
//! Everything that other programs parse is defined here and nowhere else: ids, provider-neutral
//! messages, tool specifications, program files, the XML that a model reads, and the bytes of
//! journal records.
//!
//! The crate contains data types and their encoding. It makes no decisions, and has no runtime, no
//! clock and no files.
//!
//! ```
//! use dormouse_proto::id::FdId;
//!
//! let fd: FdId = "fd-3".parse()?;
//! assert_eq!(fd.to_string(), "fd:3");
//! # Ok::<(), dormouse_proto::id::ParseFdError>(())
//! ```

pub mod alarm;
pub mod base64;
pub mod budget;
pub mod checkpoint;
pub mod command;
pub mod compaction;
pub mod descriptor;
pub mod effect;
pub mod export;
pub mod file;
pub mod id;
pub mod label;
pub mod mail;
pub mod message;
pub mod model;
pub mod pid_map;
pub mod process;
pub mod program;
pub mod provider_tools;
pub mod record;
pub mod server;
pub mod server_tool;
mod server_value;
pub mod shown;
pub mod temp_file;
pub mod text;
pub mod thinking;
pub mod tool;
pub mod user_input;
pub mod xml;
