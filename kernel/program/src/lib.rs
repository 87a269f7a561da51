//! Compiles programs from TOML files.
//!
//! [`compile`] reads a program file and everything that it names, linked programs included, and
//! returns an immutable [`Program`]. It reads files only through a function that the caller passes.
//! A [`Bundle`] holds all files that were read, so that the same program can be compiled again
//! later or on another machine without these files.
//!
//! * All mistakes of all files are reported at once, each with its location, what is valid and what
//!   to try.
//! * Programs may link each other in cycles; each file is compiled once.
//! * This crate knows no tool, process or content; the caller passes the tools of the kernel.
//! * A compiled program is immutable and fully checked; no later step checks it again.
//!
//! ```
//! use std::path::Path;
//! use bytes::Bytes;
//! use dormouse_program::{KernelTool, compile};
//!
//! let read_fd = KernelTool {
//!     name: "read_fd",
//!     is_for_descriptors: true,
//!     parameters: vec!["fd"],
//! };
//! let text = "
//! [model]
//! provider = 'scripted'
//! [prompt]
//! system = 'You audit.'
//! [tools]
//! enabled = ['read_fd']
//! ";
//! let entry = Path::new("demo/auditor.toml");
//! let compiled = compile(entry, &mut |_| Ok(Bytes::from(text)), &[read_fd], &[])?;
//! assert_eq!(compiled.program.name(), "auditor");
//! assert!(compiled.program.descriptors().is_some());
//! # Ok::<(), dormouse_program::ProgramErrors>(())
//! ```

mod ask;
mod bundle;
mod ca_file;
mod check;
mod command;
mod compile;
mod descriptors;
mod effects;
mod finding;

mod kernel_tool;
mod library;
mod model_choice;
mod parameters;
mod path;
mod preload;
mod prices;
mod requirement;
mod result;
mod server_tools;
mod servers;
mod tool_limits;
mod tools;
mod value_schema;

pub use dormouse_proto::program::{
    CacheTtl, ContextSection, Demo, EnvCommand, EnvVar, EnvironmentChoice, ForkRelease, Limits,
    LineRange, Named, ParseAmountError, ProgramBuilder, Provider, ServersFileError, SummaryMethod,
    UnsupportedServer, Variable, parse_bytes, parse_duration_ms, parse_money, parse_servers,
    schema,
};

pub use self::ask::{AskRule, AskedCall};
pub use self::bundle::{
    Bundle, BundleError, MAX_BUNDLE_BYTES, MAX_BUNDLE_FILES, MAX_PROGRAM_BYTES,
};
pub use self::compile::{Compiled, KnownProviders, Registered, compile};
pub use self::finding::{Finding, ProgramErrors};
pub use self::kernel_tool::KernelTool;
pub use self::library::Program;
pub use self::model_choice::{ModelChoice, Script};
pub use self::path::relative_to_file as bundle_name;
pub use self::preload::{Preload, PreloadPart};
pub use self::prices::{MissingPrice, read_prices};
pub use self::requirement::{FileUse, NeededBy, Requirement, Resource};
pub use self::result::ResultChoice;
pub use self::servers::{EnabledServer, ServedTools};
pub use self::tools::EnabledTool;
pub use self::tools::{is_tool_name, replace_invalid_chars};
pub use self::value_schema::{MAX_SCHEMA_BYTES, SchemaError, VALUE, ValueSchema, Violation};
