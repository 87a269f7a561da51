//! Serves processes of the kernel to clients of the Model Context Protocol (MCP): an editor or a
//! coding agent calls the tools of a process as its model would. A result that is too large for a
//! context becomes a descriptor, which the client reads page by page.
//!
//! * Each session has a process whose model is never called ([`McpServer`]).
//! * A client gets what a model would get: names, descriptions, schemas, and previews of
//!   descriptors.
//! * Sessions, calls, bodies and lines are bounded, and every wait has a limit.
//!
//! The messages of the protocol are those of the crate `rmcp`, none of whose types are part of the
//! public interface. This crate opens no port and no file: its caller passes a listener, or the
//! ends of a pipe. It connects to no other server: the tools that it serves are those of the
//! kernel.

mod admission;
mod bounded_lines;
mod call_result;
mod connections;
mod handler;
mod http;
mod progress;
mod proxy_program;
mod resources;
mod server;
mod session_process;
mod stdio;

pub use self::admission::{Hosts, HttpSettings, Token};
pub use self::proxy_program::{FileExport, ProxySettings, Upstream, proxy_program};
pub use self::server::{McpServer, ServeError};
pub use self::session_process::ProcessLifetime;
