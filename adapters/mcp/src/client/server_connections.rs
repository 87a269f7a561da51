//! The connections to one server: one that all trees of processes share, or one for each tree. And
//! the downstream clients of the trees: the MCP clients that the kernel itself serves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dormouse_actors::ports::ServerClient;
use dormouse_proto::id::Pid;

use super::connection::Connection;

/// Which calls of a server use one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// All calls.
    Kernel,
    /// The calls of one tree of processes.
    Tree,
}

/// The downstream clients, by the roots of the trees. Cloning costs a pointer.
#[derive(Clone, Default)]
pub(super) struct DownstreamClients(Arc<Mutex<HashMap<Pid, Weak<dyn ServerClient>>>>);

impl DownstreamClients {
    pub(super) fn of_tree(&self, root: Pid) -> Option<Weak<dyn ServerClient>> {
        self.by_root().get(&root).cloned()
    }

    pub(super) fn all(&self) -> Vec<Weak<dyn ServerClient>> {
        self.by_root().values().cloned().collect()
    }

    pub(super) fn insert(&self, root: Pid, client: Weak<dyn ServerClient>) {
        self.by_root().insert(root, client);
    }

    pub(super) fn remove(&self, root: Pid) {
        self.by_root().remove(&root);
    }

    fn by_root(&self) -> MutexGuard<'_, HashMap<Pid, Weak<dyn ServerClient>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connections to one server.
#[derive(Default)]
pub(super) struct ServerConnections {
    /// A connection that no tree owns. Lists are read through it. With [`Sharing::Tree`], the next
    /// tree without a downstream client that calls the server takes it: so far it was used for lists only, which show nothing
    /// of any tree.
    unowned: Option<Arc<Connection>>,
    by_root: HashMap<Pid, Arc<Connection>>,
    /// Connections for trees that are about to be created, by the downstream client that each of
    /// them serves.
    by_client: Vec<(Weak<dyn ServerClient>, Arc<Connection>)>,
}

impl ServerConnections {
    /// The connection for reading lists.
    pub(super) fn for_lists(&mut self, create: impl FnOnce() -> Connection) -> Arc<Connection> {
        self.unowned
            .get_or_insert_with(|| Arc::new(create()))
            .clone()
    }

    /// The connection for a tree that is about to be created and serves the downstream `client`.
    pub(super) fn for_client(
        &mut self,
        client: &Weak<dyn ServerClient>,
        create: impl FnOnce() -> Connection,
    ) -> Arc<Connection> {
        // The tree of a client that has left was never created.
        self.by_client.retain(|(other, _)| other.strong_count() > 0);
        let begun = self
            .by_client
            .iter()
            .find(|(other, _)| other.ptr_eq(client));
        if let Some((_, connection)) = begun {
            return connection.clone();
        }
        let connection = Arc::new(create());
        self.by_client.push((client.clone(), connection.clone()));
        connection
    }

    /// Gives the connection that serves `client` to the tree with the root `root`.
    pub(super) fn adopt(&mut self, root: Pid, client: &Weak<dyn ServerClient>) {
        let position = self
            .by_client
            .iter()
            .position(|(other, _)| other.ptr_eq(client));
        if let Some(position) = position {
            let (_, connection) = self.by_client.swap_remove(position);
            self.by_root.insert(root, connection);
        }
    }

    /// The connection of a tree, if it has one of its own.
    pub(super) fn of_tree(&self, root: Pid) -> Option<&Arc<Connection>> {
        self.by_root.get(&root)
    }

    /// The connection of a tree that serves no downstream client.
    pub(super) fn for_tree(
        &mut self,
        root: Pid,
        create: impl FnOnce() -> Connection,
    ) -> Arc<Connection> {
        let unowned = &mut self.unowned;
        let take_or_create = || unowned.take().unwrap_or_else(|| Arc::new(create()));
        self.by_root
            .entry(root)
            .or_insert_with(take_or_create)
            .clone()
    }

    /// The connection of a tree that serves a downstream client. The unowned one serves none.
    pub(super) fn for_tree_with_client(
        &mut self,
        root: Pid,
        create: impl FnOnce() -> Connection,
    ) -> Arc<Connection> {
        self.by_root
            .entry(root)
            .or_insert_with(|| Arc::new(create()))
            .clone()
    }

    /// Removes the connection of a tree.
    pub(super) fn remove_tree(&mut self, root: Pid) -> Option<Arc<Connection>> {
        self.by_root.remove(&root)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// All connections.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Connection>> {
        let begun = self.by_client.iter().map(|(_, connection)| connection);
        self.unowned
            .iter()
            .chain(self.by_root.values())
            .chain(begun)
    }
}
