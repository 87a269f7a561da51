//! Processes of the kernel as servers of the Model Context Protocol: any client of that protocol,
//! an editor or a coding agent, calls the tools of a process as its model would, and what is too
//! large for a context comes back as a descriptor.
//!
//! * Behind each session stands a process that waits and whose model is never asked
//!   ([`McpServer`]).
//! * What a client is told and answered is what a model would be: names, descriptions, schemas, and
//!   previews of descriptors.
//! * Sessions are bounded, calls are bounded, bodies and lines are bounded, and what a client waits
//!   for has an end.
//!
//! The protocol itself is that of the crate `rmcp`, and nothing of it is in what this crate shows.
//! It opens no port and no file of its own: who composes a program hands it a listener, or the ends
//! of a pipe. It connects to no other server; the tools that it shows are those that a kernel was
//! given.

mod answer;
mod connections;
mod gate;
mod handler;
mod http;
mod line;
mod program;
mod progress;
mod resources;
mod seat;
mod server;
mod stdio;

pub use self::gate::{Hosts, HttpSettings, Token};
pub use self::program::{Files, ProxySettings, Upstream, proxy_program};
pub use self::seat::Keeping;
pub use self::server::{McpServer, ServeError};
