//! The MCP client. It keeps one connection to each server that programs name; all processes of a
//! kernel share the connection.

mod client_info;
mod connection;
mod http;
mod listing;
mod liveness;
mod log_limit;
mod output;
mod request_error;
mod resources;
mod session;
mod stderr;
mod stdio;
mod unsolicited;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_actors::ports::{Host, OutputSink, ToolError, ToolServers};
use dormouse_proto::server::{OfferedTool, Server};
use futures_util::future::{BoxFuture, FutureExt, join_all};

use self::connection::Connection;

/// The longest message that a server may send, in bytes. It bounds the memory that one message
/// takes.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Connects to tool servers by the Model Context Protocol: to programs of the host over standard
/// input and output, to remote servers over HTTP.
///
/// A connection starts when it is first needed and ends with the kernel. If a server has ended, or
/// does not answer any more, the next call starts it again after a pause that grows. A call is made
/// once: a call that was in flight when its server ended fails with "effect unknown".
///
/// ```
/// # async fn run() -> Result<(), dormouse_actors::KernelError> {
/// use dormouse_actors::handle::Kernel;
/// use dormouse_mcp::McpClient;
///
/// let kernel = Kernel::builder().tool_servers(McpClient::default()).build().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct McpClient {
    connections: Mutex<HashMap<Arc<Server>, Arc<Connection>>>,
    max_message_bytes: usize,
}

impl Default for McpClient {
    fn default() -> Self {
        Self {
            connections: Mutex::default(),
            max_message_bytes: MAX_MESSAGE_BYTES,
        }
    }
}

impl McpClient {
    /// Sets the longest message that a server may send, in bytes; the default is 64 MiB. If the
    /// response to a request is longer, the request fails. Over HTTP, an answer that is not a
    /// stream is bounded by 16 MiB in any case.
    #[must_use]
    pub fn max_message_bytes(mut self, bytes: usize) -> Self {
        self.max_message_bytes = bytes.max(1 << 10);
        self
    }

    fn connection(&self, server: &Arc<Server>) -> Arc<Connection> {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let create = || Arc::new(Connection::new(server.clone(), self.max_message_bytes));
        connections
            .entry(server.clone())
            .or_insert_with(create)
            .clone()
    }
}

impl ToolServers for McpClient {
    fn offers(
        &self,
        host: &Arc<dyn Host>,
        server: &Arc<Server>,
    ) -> BoxFuture<'static, Result<Vec<OfferedTool>, ToolError>> {
        let (connection, host) = (self.connection(server), host.clone());
        async move { listing::offers(&connection, &host).await }.boxed()
    }

    fn call(
        &self,
        host: &Arc<dyn Host>,
        server: &Arc<Server>,
        tool: &str,
        args: String,
        out: OutputSink,
    ) -> BoxFuture<'static, Result<(), ToolError>> {
        let (connection, host, tool) = (self.connection(server), host.clone(), tool.to_owned());
        async move {
            let session = connection.session(&host).await.map_err(|why| {
                format!(
                    "The tool server `{}` cannot be reached: {why} The call was not made.",
                    connection.name()
                )
            })?;
            match resources::ResourceTool::by_name(&tool) {
                Some(resource_tool) if !session.has_own_tool(&tool).await => {
                    resource_tool.run(&session, &args, &out).await
                }
                _ => output::call(&session, &tool, &args, &out).await,
            }
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        let connections: Vec<_> = {
            let connections = self
                .connections
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            connections.values().cloned().collect()
        };
        async move { drop(join_all(connections.iter().map(|connection| connection.close())).await) }
            .boxed()
    }
}
