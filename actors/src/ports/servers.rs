//! Servers of tools that a program names: an adapter speaks their protocol.

use std::sync::Arc;

use dormouse_proto::server::{Offer, Server};
use futures_util::future::BoxFuture;

use super::host::Host;
use super::tool::{OutputSink, ToolError};

/// Who reaches tool servers, under the permissions of the kernel's host. One that is reached is
/// kept for all processes that use it, until [`close`](Self::close). Every wait has an end: what a
/// server does not do in time is an error.
pub trait ToolServers: Send + Sync + 'static {
    /// What a server offers now. It is asked before a process is born, which then keeps what it was
    /// given.
    ///
    /// # Errors
    /// A text for the model and the user: why the server cannot be reached, and what to try. It
    /// holds no secret.
    fn offers(
        &self,
        host: &Arc<dyn Host>,
        server: &Arc<Server>,
    ) -> BoxFuture<'static, Result<Vec<Offer>, ToolError>>;

    /// Calls a tool once, by the name that the server calls it by. `args` is JSON text as the model
    /// wrote it; what comes goes into `out`. Dropping the future abandons the call, and the server
    /// is told so.
    ///
    /// # Errors
    /// A text for the model: what went wrong and what to try; where it may have been done all the
    /// same, it says so.
    fn call(
        &self,
        host: &Arc<dyn Host>,
        server: &Arc<Server>,
        tool: &str,
        args: String,
        out: OutputSink,
    ) -> BoxFuture<'static, Result<(), ToolError>>;

    /// Leaves every server, and ends those that were started. Takes seconds at most.
    fn close(&self) -> BoxFuture<'static, ()>;
}
