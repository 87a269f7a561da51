//! MCP tool servers, as a program file configures them.
//!
//! This module never connects to a server. A [`ServerValue`] may be a secret, so its `Debug` output
//! is an ellipsis.

use std::sync::Arc;

use crate::command::CommandLimits;
use crate::tool::ToolPolicy;

pub use crate::server_value::{ServerValue, VariableError, client_header, input_variable};

/// Default connection timeout, in milliseconds.
pub const DEFAULT_CONNECT_MS: u64 = 30_000;

/// Default of the longest duration of a tool call, in milliseconds.
pub const DEFAULT_MAX_DURATION_MS: u64 = 3_600_000;

/// A server and its transport. Processes with equal configurations share a connection, unless
/// each tree of processes has its own ([`shared`](Self::shared)).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// Name within the program.
    pub name: Arc<str>,
    /// How to connect.
    pub transport: Transport,
    /// Whether processes start without its tools if it is unreachable.
    pub optional: bool,
    /// Timeout in milliseconds for connecting and for listing tools.
    pub connect_ms: u64,
    /// Milliseconds after which a tool call is abandoned if the server has neither answered nor
    /// reported progress.
    pub deadline_ms: u64,
    /// Milliseconds after which a tool call is abandoned even if its server reports progress.
    pub max_duration_ms: u64,
    /// Whether all trees of processes share one connection to it; `None` for the default of the
    /// client of tool servers.
    pub shared: Option<bool>,
}

/// The transport of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A program of the host, over standard input and output.
    Stdio(ServerCommand),
    /// A remote server, over HTTP.
    Http {
        /// URL of the server.
        url: String,
        /// Headers of every request, in the order written.
        headers: Vec<(String, ServerValue)>,
        /// The authorities that may have issued the server's certificate, in addition to those that
        /// every client trusts.
        ca_file: Option<CaFile>,
    },
}

/// A file with certificates of authorities, in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CaFile {
    /// The path as written.
    pub path: String,
    /// The text of the file. Empty until the program is compiled, since only a compilation reads
    /// files.
    pub pem: Arc<str>,
}

impl CaFile {
    /// A file that has not been read.
    #[must_use]
    pub fn unread(path: String) -> Self {
        let pem = Arc::default();
        Self { path, pem }
    }
}

/// The command that starts a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerCommand {
    /// Program, as in a command tool.
    pub program: String,
    /// Arguments, of [`ServerValue::argument`].
    pub args: Vec<ServerValue>,
    /// Environment variables in addition to those that every command gets, in the order written.
    pub env: Vec<(String, ServerValue)>,
    /// File with further environment variables, `NAME=value` in each line. `env` takes precedence.
    pub env_file: Option<String>,
    /// Working directory; `None` for the kernel's.
    pub cwd: Option<String>,
    /// Resource limits.
    pub limits: CommandLimits,
}

/// A tool that a server offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedTool {
    /// Name of the server within the program.
    pub server: Arc<str>,
    /// Name of the tool at the server: any text.
    pub name: Arc<str>,
    /// Description for the model.
    pub description: Arc<str>,
    /// JSON schema of the arguments, an object, as JSON text.
    pub schema: Arc<str>,
    /// Access, idempotence and limits of its calls.
    pub policy: ToolPolicy,
}
