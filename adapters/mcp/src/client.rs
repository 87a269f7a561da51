//! The MCP client. It keeps the connections to the servers that programs name: one that all
//! processes of a kernel share, or one for each tree of processes.
//!
//! A *connection* (`connection.rs`) is to one server and lives as long as it may be needed. It has
//! at most one *session* (`session.rs`) at a time, from a handshake with the server to an end. A
//! server that is a program runs for one session.
//!
//! A kernel may be an MCP server itself (`dormouse mcp`): the program that calls it, such as an
//! editor, is the *downstream client* of a tree of processes, which the port [`ServerClient`]
//! stands for. A tool server may send requests to that client (sampling, elicitation, roots), and
//! learns which of them the client supports. In the names of MCP messages, "client" is this crate.
//!
//! `server_connections.rs` decides which connection a tree uses; `list_source.rs` answers lists from
//! what a server last said.

mod call_deadline;
mod connection;
mod downstream_requests;
mod http;
mod known_lists;
mod list_source;
mod listing;
mod liveness;
mod log_limit;
mod output;
mod protocol;
mod protocol_handler;
mod request_error;
mod resources;
mod server_connections;
mod server_lists;
mod session;
mod stderr;
mod stdio;
mod unsolicited;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use dormouse_actors::ports::{
    Host, OffersTo, OutputSink, ServerAnswer, ServerClient, ToolError, ToolServers,
};
use dormouse_proto::id::Pid;
use dormouse_proto::server::{OfferedTool, Server};
use futures_util::future::{BoxFuture, FutureExt, join_all};
use serde_json::Value;

pub use self::known_lists::KnownLists;

use self::connection::Connection;
use self::downstream_requests::DownstreamClient;
use self::list_source::{ListSource, ShownLists};
use self::server_connections::{DownstreamClients, ServerConnections, Sharing};
use self::session::{Session, SessionSettings};
use crate::login::Logins;

/// The longest message that a server may send, in bytes. It bounds the memory that one message
/// takes.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Connects to tool servers by the Model Context Protocol: to programs of the host over standard
/// input and output, to remote servers over HTTP.
///
/// A connection starts when it is first needed and ends with the kernel, or with the one tree of
/// processes that uses it ([`connection_per_tree`](Self::connection_per_tree)). If a server has
/// ended, or does not answer any more, the next call starts it again after a pause that grows. A
/// call is made once: a call that was in flight when its server ended fails with "effect unknown".
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
pub struct McpClient {
    connections: Mutex<HashMap<Arc<Server>, ServerConnections>>,
    downstream: DownstreamClients,
    /// The client of connections that have no downstream client of their own.
    default_client: OnceLock<Weak<dyn ServerClient>>,
    max_message_bytes: usize,
    /// For servers whose declaration does not say it.
    default_sharing: Sharing,
    /// For servers that are started only when they are called.
    known_lists: Option<Arc<KnownLists>>,
    /// How long a downstream client waits for the lists of an optional server that has never run.
    max_start_wait: Duration,
    logins: Option<Logins>,
}

impl Default for McpClient {
    fn default() -> Self {
        Self {
            connections: Mutex::default(),
            downstream: DownstreamClients::default(),
            default_client: OnceLock::new(),
            max_message_bytes: MAX_MESSAGE_BYTES,
            default_sharing: Sharing::Kernel,
            known_lists: None,
            max_start_wait: Duration::ZERO,
            logins: None,
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

    /// Gives each tree of processes a connection of its own to each server, so that the state that
    /// a server keeps is seen by one tree alone. A server whose declaration says `shared` decides
    /// for itself. By default, all processes of a kernel share a connection.
    #[must_use]
    pub fn connection_per_tree(mut self) -> Self {
        self.default_sharing = Sharing::Tree;
        self
    }

    /// Starts a server only when one of its tools is called, or one of its prompts or resources is
    /// read. Until then its tools, prompts and resources are those that it had when it last ran.
    /// When it has started, they are kept in `known`, and downstream clients (the MCP clients that
    /// the kernel itself serves) are notified of those that have changed
    /// ([`ServerClient::notify`]).
    ///
    /// A server that is not in `known` is started for its lists. A downstream client waits at most
    /// `max_start_wait` for it if it is optional, and is notified when the server is ready.
    #[must_use]
    pub fn start_when_called(mut self, known: KnownLists, max_start_wait: Duration) -> Self {
        self.known_lists = Some(Arc::new(known));
        self.max_start_wait = max_start_wait;
        self
    }

    /// Uses these logins: a server over HTTP whose declaration has no header `Authorization` gets
    /// the token of the login for its URL, if there is one.
    #[must_use]
    pub fn logins(mut self, logins: Logins) -> Self {
        self.logins = Some(logins);
        self
    }

    fn sharing(&self, server: &Server) -> Sharing {
        match server.shared {
            Some(true) => Sharing::Kernel,
            Some(false) => Sharing::Tree,
            None => self.default_sharing,
        }
    }

    fn new_connection(&self, server: &Arc<Server>, client: DownstreamClient) -> Connection {
        let known_lists = self.known_lists.as_ref();
        let shown_lists = known_lists.map(|known| ShownLists::new(known.clone(), server, &client));
        let settings = SessionSettings {
            client,
            default_client: self.default_client.get().cloned(),
            max_message_bytes: self.max_message_bytes,
            logins: self.logins.clone(),
        };
        Connection::new(
            server.clone(),
            settings,
            self.downstream.clone(),
            shown_lists,
        )
    }

    /// How long to wait for the lists of a server that has never run; `None`: as long as its
    /// declaration says. That is so without a downstream client, which would be notified when the
    /// server is ready, and for a server that the program requires.
    fn max_start_wait(&self, server: &Server, client: DownstreamClient) -> Option<Duration> {
        client
            .filter(|_| server.optional)
            .map(|_| self.max_start_wait)
    }

    /// The connection to a server for the tree with the root `root`.
    fn tree_connection(&self, server: &Arc<Server>, root: Pid) -> Arc<Connection> {
        let sharing = self.sharing(server);
        let mut connections = self.connections();
        let client = self.downstream.of_tree(root);
        // A connection that all trees share serves no downstream client.
        let client = client.filter(|_| sharing == Sharing::Tree);
        let serves_client = client.is_some();
        let create = || self.new_connection(server, client);
        let connections = connections.entry(server.clone()).or_default();
        match sharing {
            Sharing::Kernel => connections.for_lists(create),
            Sharing::Tree if serves_client => connections.for_tree_with_client(root, create),
            Sharing::Tree => connections.for_tree(root, create),
        }
    }

    /// The connection by which the tools of a server are listed.
    fn listing_connection(&self, server: &Arc<Server>, to: OffersTo) -> Arc<Connection> {
        match to {
            OffersTo::Tree(root) => self.tree_connection(server, root),
            OffersTo::NewTree(client) if self.sharing(server) == Sharing::Tree => self
                .connections()
                .entry(server.clone())
                .or_default()
                .for_client(&client, || {
                    self.new_connection(server, Some(client.clone()))
                }),
            OffersTo::AnyTree | OffersTo::NewTree(_) => self
                .connections()
                .entry(server.clone())
                .or_default()
                .for_lists(|| self.new_connection(server, None)),
        }
    }

    /// The running sessions with the servers of a tree.
    fn sessions_of_tree(&self, root: Pid) -> Vec<Arc<Session>> {
        let connections = self.connections();
        let running = connections
            .values()
            .filter_map(|connections| connections.of_tree(root)?.running_session());
        running.collect()
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<Arc<Server>, ServerConnections>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl ToolServers for McpClient {
    fn offers(
        &self,
        host: &Arc<dyn Host>,
        server: &Arc<Server>,
        to: OffersTo,
    ) -> BoxFuture<'static, Result<Vec<OfferedTool>, ToolError>> {
        let client = match &to {
            OffersTo::AnyTree => None,
            OffersTo::NewTree(client) => Some(client.clone()),
            OffersTo::Tree(root) => self.downstream.of_tree(*root),
        };
        let max_start_wait = self.max_start_wait(server, client);
        let (connection, host) = (self.listing_connection(server, to), host.clone());
        async move { listing::offers(&connection, &host, max_start_wait).await }.boxed()
    }

    fn forget_offers(&self, server: &Arc<Server>, to: OffersTo) -> bool {
        self.listing_connection(server, to).forget_lists()
    }

    fn call(
        &self,
        host: &Arc<dyn Host>,
        server: &Arc<Server>,
        root: Pid,
        tool: &str,
        args: String,
        out: OutputSink,
    ) -> BoxFuture<'static, Result<(), ToolError>> {
        let connection = self.tree_connection(server, root);
        let (host, tool) = (host.clone(), tool.to_owned());
        async move {
            let session = connection.session(&host).await.map_err(|why| {
                format!(
                    "The tool server `{}` cannot be reached: {why} The call was not made. What the \
                     server last wrote is in the log of this program; a further call starts the \
                     server again.",
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

    fn introduction(
        &self,
        host: &Arc<dyn Host>,
        server: &Arc<Server>,
        root: Pid,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let max_start_wait = self.max_start_wait(server, self.downstream.of_tree(root));
        let (connection, host) = (self.tree_connection(server, root), host.clone());
        async move {
            Ok(match connection.list_source(&host, max_start_wait).await? {
                ListSource::Session(session) => session.introduction(),
                ListSource::Known(lists) => lists.introduction().clone(),
            })
        }
        .boxed()
    }

    fn request(
        &self,
        host: &Arc<dyn Host>,
        server: &Arc<Server>,
        root: Pid,
        method: &str,
        params: Value,
    ) -> BoxFuture<'static, ServerAnswer> {
        let max_start_wait = self.max_start_wait(server, self.downstream.of_tree(root));
        let (connection, host) = (self.tree_connection(server, root), host.clone());
        let method = method.to_owned();
        async move {
            // `logging/setLevel` is kept for a server that does not run yet.
            if let Some(answer) = connection.keep_log_level(&method, &params) {
                return answer;
            }
            let session = if server_lists::is_list(&method) {
                match connection.list_source(&host, max_start_wait).await? {
                    ListSource::Session(session) => session,
                    ListSource::Known(lists) => return Ok(lists.answer(&method)),
                }
            } else {
                connection.session(&host).await?
            };
            protocol::request(&session, &method, params).await
        }
        .boxed()
    }

    fn notify(&self, root: Pid, method: &str, params: Value) -> BoxFuture<'static, ()> {
        let sessions = self.sessions_of_tree(root);
        let method = method.to_owned();
        async move {
            let notified = sessions
                .iter()
                .map(|session| protocol::notify(session, &method, params.clone()));
            join_all(notified).await;
        }
        .boxed()
    }

    fn serve_client(&self, root: Pid, client: Weak<dyn ServerClient>) {
        // Under one lock: a call of the tree meanwhile finds both its connection and its client.
        let mut all = self.connections();
        for connections in all.values_mut() {
            connections.adopt(root, &client);
        }
        self.downstream.insert(root, client);
    }

    fn serve_by_default(&self, client: Weak<dyn ServerClient>) {
        // A client of tool servers belongs to one kernel, which says this once.
        let _ = self.default_client.set(client);
    }

    fn end_tree(&self, root: Pid) -> BoxFuture<'static, ()> {
        self.downstream.remove(root);
        let mut removed = Vec::new();
        self.connections().retain(|_, connections| {
            removed.extend(connections.remove_tree(root));
            !connections.is_empty()
        });
        close_all(removed)
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        let all = self.connections();
        let connections: Vec<_> = all
            .values()
            .flat_map(ServerConnections::iter)
            .cloned()
            .collect();
        close_all(connections)
    }
}

impl std::fmt::Debug for McpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpClient").finish_non_exhaustive()
    }
}

fn close_all(connections: Vec<Arc<Connection>>) -> BoxFuture<'static, ()> {
    async move { drop(join_all(connections.iter().map(|connection| connection.close())).await) }
        .boxed()
}
