//! The client: one connection for each server that programs name, shared by all processes of a
//! kernel.

mod connection;
mod fault;
mod http;
mod inbound;
mod lines;
mod listing;
mod manners;
mod noise;
mod output;
mod resources;
mod session;
mod stderr;
mod trust;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_actors::ports::{Host, OutputSink, ToolError, ToolServers};
use dormouse_proto::server::{Offer, Server};
use futures_util::future::{BoxFuture, FutureExt, join_all};

use self::connection::Connection;

/// The longest message that a server may send, in bytes: text is repeated and escaped in it, so
/// that an output of 64 MiB fits.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Reaches tool servers by the Model Context Protocol: programs of the host by standard input and
/// output, machines by HTTP.
///
/// A connection begins when it is first needed and ends with the kernel. A server that ended, or
/// that nothing more can be expected of, is begun again with the next call, after a pause that
/// grows. A call is made once: one that was in flight when its server ended is answered with
/// "effect unknown".
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
    /// The longest message that a server may send, in bytes; 64 MiB, until said otherwise. A longer
    /// one is an error of the call that it answers. Over HTTP 16 MiB is the bound of an answer that
    /// is no stream, whatever is said here.
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
        let made = || Arc::new(Connection::new(server.clone(), self.max_message_bytes));
        connections
            .entry(server.clone())
            .or_insert_with(made)
            .clone()
    }
}

impl ToolServers for McpClient {
    fn offers(
        &self,
        host: &Arc<dyn Host>,
        server: &Arc<Server>,
    ) -> BoxFuture<'static, Result<Vec<Offer>, ToolError>> {
        let (connection, host) = (self.connection(server), host.clone());
        async move { Ok(listing::offers(&connection, &host).await?) }.boxed()
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
            let called = match resources::Reading::of(&tool) {
                Some(reading) if !session.has_own(&tool).await => {
                    reading.run(&session, &args, &out).await
                }
                _ => output::call(&session, &tool, &args, &out).await,
            };
            Ok(called?)
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
