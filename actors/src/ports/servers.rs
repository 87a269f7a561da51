//! The port for tool servers that programs name. An adapter implements it with the protocol of
//! these servers (MCP).

use std::sync::{Arc, Weak};

use dormouse_proto::id::Pid;
use dormouse_proto::server::{OfferedTool, Server};
use futures_util::future::{BoxFuture, FutureExt};
use serde_json::Value;

use super::host::Host;
use super::server_protocol::{ServerAnswer, ServerClient, ServerRequestError};
use super::tool::{OutputSink, ToolError};

/// The process tree for which the tools of a server are listed. A tree may act for a downstream
/// client, an MCP client that the kernel serves. A server may list other tools if that client
/// supports sampling, elicitation or roots. The client makes no difference for a connection that all
/// trees share.
#[derive(Clone)]
pub enum OffersTo {
    /// A tree that is about to be created, and acts for no client.
    AnyTree,
    /// A tree that is about to be created, and acts for this client.
    NewTree(Weak<dyn ServerClient>),
    /// The tree with this root: also for a child that is about to be created in it.
    Tree(Pid),
}

/// Connects to tool servers, under the permissions of the host. The implementation decides which
/// trees of processes share a connection; a connection of one tree ends with the tree
/// ([`end_tree`](Self::end_tree)), every other one with the kernel ([`close`](Self::close)). Every
/// wait is bounded: a server that does not answer in time is an error.
pub trait ToolServers: Send + Sync + 'static {
    /// The tools that a server offers now to the tree `to`. Called before a process is created, which
    /// then keeps these tools.
    ///
    /// # Errors
    /// A text for the model and the user: why the server cannot be reached, and what to try. It
    /// holds no secret.
    fn offers(
        &self,
        host: &Arc<dyn Host>,
        server: &Arc<Server>,
        to: OffersTo,
    ) -> BoxFuture<'static, Result<Vec<OfferedTool>, ToolError>>;

    /// Forgets the last answer of [`offers`](Self::offers), because it lacks a tool that a program
    /// names. Returns whether that answer came from an earlier run of the server, so that calling
    /// `offers` again can give another list.
    fn forget_offers(&self, server: &Arc<Server>, to: OffersTo) -> bool {
        let _ = (server, to);
        false
    }

    /// Calls a tool once, by the name that the server uses, for a process of the tree with the root
    /// `root`. `args` is JSON text as the model wrote it; the output goes into `out`. Dropping the
    /// future abandons the call, and the server is notified.
    ///
    /// # Errors
    /// A text for the model: what went wrong and what to try; if the call may have been
    /// executed anyway, the text says so.
    fn call(
        &self,
        host: &Arc<dyn Host>,
        server: &Arc<Server>,
        root: Pid,
        tool: &str,
        args: String,
        out: OutputSink,
    ) -> BoxFuture<'static, Result<(), ToolError>>;

    /// What the server says of itself: the result of its handshake, with `capabilities`,
    /// `serverInfo` and `instructions`. `root` is the root of the tree that asks.
    ///
    /// # Errors
    /// As [`offers`](Self::offers).
    fn introduction(
        &self,
        host: &Arc<dyn Host>,
        server: &Arc<Server>,
        root: Pid,
    ) -> BoxFuture<'static, Result<Value, ToolError>> {
        let _ = (host, server, root);
        std::future::ready(Ok(Value::Null)).boxed()
    }

    /// Sends a request of the protocol, for the tree with the root `root`. Dropping the future
    /// abandons the request, and the server is notified.
    ///
    /// # Errors
    /// [`ServerRequestError`].
    fn request(
        &self,
        host: &Arc<dyn Host>,
        server: &Arc<Server>,
        root: Pid,
        method: &str,
        params: Value,
    ) -> BoxFuture<'static, ServerAnswer> {
        let _ = (host, server, root, params);
        std::future::ready(Err(ServerRequestError::unknown_method(method))).boxed()
    }

    /// Sends a notification to the servers that are connected for the tree with the root `root`.
    fn notify(&self, root: Pid, method: &str, params: Value) -> BoxFuture<'static, ()> {
        let _ = (root, method, params);
        std::future::ready(()).boxed()
    }

    /// The tree with the root `root` serves this client from now on. It takes over the connections
    /// that [`offers`](Self::offers) opened for this client.
    fn serve_client(&self, root: Pid, client: Weak<dyn ServerClient>) {
        let _ = (root, client);
    }

    /// Connections that begin from now on serve this client, if their tree has no client of its own.
    fn serve_by_default(&self, client: Weak<dyn ServerClient>) {
        let _ = client;
    }

    /// Disconnects from the servers that only the tree with the root `root` used: the root has
    /// ended. Called again when a process of the tree ends after its root. Takes seconds at most.
    fn end_tree(&self, root: Pid) -> BoxFuture<'static, ()>;

    /// Disconnects from every server, and ends the servers that the host started. Takes seconds at
    /// most.
    fn close(&self) -> BoxFuture<'static, ()>;
}
