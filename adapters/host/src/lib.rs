//! The machine that Dormouse runs on, under the user's permissions: files and command tools.
//!
//! Nothing is permitted unless the user names it, as in Deno: folders to read, folders to write,
//! programs to run. What is not permitted is refused when it is used, with the flag that would
//! permit it.
//!
//! * `permissions`: what the user allows, and how flags spell it.
//! * `files`: a path is text until it is opened by handle below a permitted root; nothing is ever
//!   checked by name and then opened by name.
//! * `command`: arguments are checked and put into an argument list, a program runs in a process
//!   group of its own, and the group is killed when the call ends, however it ends.
//! * `export_file`: the file that the user wants an export in. It is the user who names it, so that
//!   no permission is request.
//! * `unplaced`: a file in the making, which has no name until it is whole.
//!
//! This crate never asks a shell, never follows a symbolic link, and decides nothing about
//! processes of the kernel.
//!
//! Invariants: CONFINE-1 no byte is read or written outside the permitted roots. WHOLE-1 a file is
//! as it was before, or as request, and never in between. GROUP-1 no member of a command's process
//! group outlives its call, unless this program is killed by force (`kill -9`): then a command runs
//! on, without anybody to read it.
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

pub use command::{guard, hide_this_process};
pub use export_file::ExportFile;
pub use local::LocalHost;
pub use permissions::{Permissions, PermissionsError, ServerEnvironment};
