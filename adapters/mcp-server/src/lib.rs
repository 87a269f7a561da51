//! Serves processes of the kernel to clients of the Model Context Protocol (MCP): an editor or a
//! coding agent calls the tools of a process as its model would. A result that is too large for a
//! context becomes a descriptor, which the client reads page by page.
//!
//! * Each session has a process whose model is never called ([`McpServer`]).
//! * A client gets what a model would get: names, descriptions, schemas, and previews of
//!   descriptors. It also gets everything else that the servers of the tools say: hints, structured
//!   content, prompts, resources, questions to its user.
//! * Sessions, calls, bodies and lines are bounded, and every wait has a limit.
//!
//! The messages of the protocol are those of the crate `rmcp`, none of whose types are part of the
//! public interface. This crate opens no port: its caller passes a listener, or the ends of a pipe.
//! The only files that it opens are kept outputs ([`KeptOutputs`]), in a folder that its caller
//! names. It opens no connection to other servers itself: the kernel calls their tools.

mod admission;
mod bounded_lines;
mod call_result;
mod capabilities;
mod handler;
mod http;
mod kept_outputs;
mod lean_tools;
mod notifications;
mod progress;
mod prompts;
mod proxy_program;
mod resources;
mod server;
mod server_resources;
mod session_client;
mod session_outputs;
mod session_process;
mod session_tools;
mod stdio;
mod tool_descriptions;
mod upstream;

pub use self::admission::{Hosts, HttpSettings, Token};
pub use self::kept_outputs::{KeepLimits, KeptOutputs};
pub use self::lean_tools::DescriptorTools;
pub use self::proxy_program::{FileExport, ProxiedTools, ProxySettings, proxy_program};
pub use self::server::{McpServer, ServeError};
pub use self::session_process::ProcessLifetime;
