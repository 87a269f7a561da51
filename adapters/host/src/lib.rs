//! Access to the machine that the kernel runs on, restricted by the user's permissions: files and
//! command tools.
//!
//! Nothing is permitted unless the user names it, as in Deno: folders to read, folders to write,
//! programs to run. An access without permission is refused when it happens, and the error names
//! the flag that would permit it.
//!
//! * `permissions`: what the user permits, and the flags for it.
//! * `files`: a path is text until it is opened by handle below a permitted root. Nothing is
//!   checked by name and then opened by name.
//! * `command`: arguments are checked and put into an argument list. A program runs in a process
//!   group of its own, which is killed when the call ends, whatever ends it.
//! * `export_file`: the file that an export is written to. The user names it, so it needs no
//!   permission.
//! * `pending_file`: a file that has no name until it is complete.
//!
//! This crate never starts a shell, never follows a symbolic link, and decides nothing about
//! processes of the kernel.
//!
//! Invariants: CONFINE-1 no byte is read or written outside the permitted roots. WHOLE-1 a file is
//! either unchanged or completely replaced. GROUP-1 no member of a command's process group outlives
//! its call, unless this program is killed by force (`kill -9`) and has no guards: then a command
//! keeps running, and nobody reads its output.
//!
//! ```
//! use dormouse_actors::ports::Host;
//! use dormouse_host::{LocalHost, Permissions};
//!
//! let permissions = Permissions::none().allow_run("cargo").allow_read(".");
//! let host = LocalHost::new(permissions, ".")?;
//! assert!(host.read("Cargo.toml".as_ref()).is_ok());
//! assert!(host.read("/etc/passwd".as_ref()).is_err());
//! # Ok::<(), std::io::Error>(())
//! ```

mod command;
mod export_file;
mod files;
mod local;
mod pending_file;
mod permissions;
mod sealed;

pub use command::{guard, hide_this_process, parse_env_file};
pub use export_file::ExportFile;
pub use local::LocalHost;
pub use permissions::{Permissions, PermissionsError, ServerEnvironment};
