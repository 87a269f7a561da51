//! The port for tool servers that programs name. An adapter implements it with the protocol of
//! these servers (MCP).

use std::sync::Arc;

use dormouse_proto::server::{OfferedTool, Server};
use futures_util::future::BoxFuture;

use super::host::Host;
use super::tool::{OutputSink, ToolError};

/// Connects to tool servers, under the permissions of the host. A connection is shared by all
/// processes that use the server, until [`close`](Self::close). Every wait is bounded: a server
/// that does not answer in time is an error.
pub trait ToolServers: Send + Sync + 'static {
    /// The tools that a server offers now. Called before a process is created, which then keeps
    /// these tools.
    ///
    /// # Errors
    /// A text for the model and the user: why the server cannot be reached, and what to try. It
    /// holds no secret.
    fn offers(
        &self,
        host: &Arc<dyn Host>,
        server: &Arc<Server>,
    ) -> BoxFuture<'static, Result<Vec<OfferedTool>, ToolError>>;

    /// Calls a tool once, by the name that the server uses. `args` is JSON text as the model wrote
    /// it; the output goes into `out`. Dropping the future abandons the call, and the server is
    /// notified.
    ///
    /// # Errors
    /// A text for the model: what went wrong and what to try; if the call may have been
    /// executed anyway, the text says so.
    fn call(
        &self,
        host: &Arc<dyn Host>,
        server: &Arc<Server>,
        tool: &str,
        args: String,
        out: OutputSink,
    ) -> BoxFuture<'static, Result<(), ToolError>>;

    /// Disconnects from every server, and ends the servers that the host started. Takes seconds at
    /// most.
    fn close(&self) -> BoxFuture<'static, ()>;
}
