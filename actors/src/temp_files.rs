//! The temporary files actor: the files of every tree of processes, each tree by itself.
//!
//! What is asked of a tree waits in one queue. All that waits is decided in its order and made
//! durable together, and only then answered: a reader never sees what a crash could take back
//! (DUR-1). While one commit is on its way, requests collect; one that does not find its tree in
//! memory waits until that was read from the store, beside the actor.
//!
//! A tree never sees the files of another: requests carry the process that their tree begins with,
//! and a copied process begins a tree of its own, without files. A branch has those of the tree
//! that it was made from, up to the cut.

mod held;
mod tree;

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_content::{Content, Unreadable};
use dormouse_kernel::temp_files::{Pieces, TempFiles};
use dormouse_proto::id::Pid;
use dormouse_proto::temp_file::{TempFileError, TempFileOp, TempFileOrigin, TempFileReply, TempId};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use self::tree::{Answered, Tree};
use crate::checkpoint::{self, CheckpointMessage, CommitError, LogRecord};
use crate::content_cache::ContentCache;
use crate::store_handle::StoreHandle;

/// What a process asks of its tree's files.
pub(crate) struct Request {
    /// The process that the tree begins with.
    pub(crate) root: Pid,
    pub(crate) origin: TempFileOrigin,
    pub(crate) op: TempFileOp<Content>,
    /// The most bytes that a file may hold.
    pub(crate) max_bytes: u64,
    pub(crate) reply: Reply,
}

/// Where an answer goes. Who no longer waits has dropped its side.
pub(crate) type Reply = oneshot::Sender<Result<TempFileReply<Content>, TempFileError>>;

pub(crate) enum TempFilesMessage {
    Request(Request),
    /// The files of a tree were read.
    Loaded {
        root: Pid,
        result: Result<TempFiles<Content>, String>,
    },
    /// Changes of a tree's files are durable, or cannot be made so.
    Committed {
        root: Pid,
        result: Result<(), CommitError>,
    },
    /// A tree is over: its files stay in the store and leave the memory.
    TreeEnded {
        root: Pid,
    },
}

pub(crate) struct TempFilesActor;

pub(crate) struct TempFileTrees {
    myself: ActorRef<TempFilesMessage>,
    checkpoint: ActorRef<CheckpointMessage>,
    /// None for a kernel without one, and after the end.
    store: Option<StoreHandle>,
    content_cache: Arc<ContentCache>,
    trees: BTreeMap<Pid, Tree>,
    /// What reads the store.
    reading: JoinSet<()>,
}

impl Actor for TempFilesActor {
    type Msg = TempFilesMessage;
    type State = TempFileTrees;
    type Arguments = (
        ActorRef<CheckpointMessage>,
        Option<StoreHandle>,
        Arc<ContentCache>,
    );

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (checkpoint, store, content_cache): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(TempFileTrees {
            myself,
            checkpoint,
            store,
            content_cache,
            trees: BTreeMap::new(),
            reading: JoinSet::new(),
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        forest: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        while forest.reading.try_join_next().is_some() {}
        match message {
            TempFilesMessage::Request(request) => forest.take(request),
            TempFilesMessage::Loaded { root, result } => forest.loaded(root, result),
            TempFilesMessage::Committed { root, result } => forest.committed(root, result),
            TempFilesMessage::TreeEnded { root } => forest.tree_ended(root),
        }
        Ok(())
    }

    /// Awaits what reads, so that nothing holds the store when the kernel has shut down.
    async fn post_stop(
        &self,
        _myself: ActorRef<Self::Msg>,
        forest: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        while forest.reading.join_next().await.is_some() {}
        forest.store = None;
        Ok(())
    }
}

impl TempFileTrees {
    fn take(&mut self, request: Request) {
        let root = request.root;
        if !self.trees.contains_key(&root) {
            let tree = self.plant(root);
            self.trees.insert(root, tree);
        }
        if let Some(tree) = self.trees.get_mut(&root) {
            tree.wait(request);
        }
        self.go_on(root);
    }

    /// A tree as it begins in memory: empty where there is no store, else once its files were read.
    fn plant(&mut self, root: Pid) -> Tree {
        let Some(store) = self.store.clone() else {
            return Tree::new(Some(TempFiles::default()));
        };
        let (myself, content_cache) = (self.myself.clone(), self.content_cache.clone());
        self.reading.spawn_blocking(move || {
            let result = held::load(&*store, &content_cache, root);
            drop(store);
            // Where the actor is gone, nobody waits.
            let _ = myself.cast(TempFilesMessage::Loaded { root, result });
        });
        Tree::new(None)
    }

    fn loaded(&mut self, root: Pid, result: Result<TempFiles<Content>, String>) {
        match result {
            Ok(files) => {
                if let Some(tree) = self.trees.get_mut(&root) {
                    tree.loaded(files);
                }
                self.go_on(root);
            }
            // The next request tries again.
            Err(reason) => self
                .trees
                .remove(&root)
                .into_iter()
                .for_each(|tree| tree.refuse(&reason)),
        }
    }

    /// Decides what waits, and sends the changes on their way; where nothing changes it is answered
    /// at once.
    fn go_on(&mut self, root: Pid) {
        let Some(tree) = self.trees.get_mut(&root).filter(|tree| tree.is_ready()) else {
            return;
        };
        let records = tree.decide();
        if records.is_empty() {
            return self.committed(root, Ok(()));
        }
        let entries = records
            .into_iter()
            .map(|record| LogRecord::TempFile { root, record })
            .collect();
        let myself = self.myself.clone();
        let acknowledge = Box::new(move |result: Result<_, _>| {
            // Where the actor is gone, the kernel is.
            let _ = myself.cast(TempFilesMessage::Committed {
                root,
                result: result.map(drop),
            });
        });
        checkpoint::append(&self.checkpoint, entries, acknowledge);
    }

    fn committed(&mut self, root: Pid, result: Result<(), CommitError>) {
        let Some(tree) = self.trees.get_mut(&root) else {
            return;
        };
        let answers = tree.settle(result.map_err(|error| error.to_string()));
        answers.into_iter().for_each(|answer| self.answer(answer));
        self.go_on(root);
        self.fell(root);
    }

    fn answer(&mut self, Answered { reply, result }: Answered) {
        match result {
            Ok(TempFileReply::Changed {
                id,
                version,
                total_bytes,
            }) => {
                let _ = reply.send(Ok(TempFileReply::Changed {
                    id,
                    version,
                    total_bytes,
                }));
            }
            Ok(TempFileReply::Contents {
                id,
                version,
                content,
            }) => self.read((id, version), content, reply),
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    /// Answers with a whole file. What has to be read or joined for that is, beside the actor.
    fn read(&mut self, (id, version): Version, pieces: Pieces<Content>, reply: Reply) {
        let answer = move |content: Result<Content, Unreadable>| {
            let content = content.map_err(|lost| TempFileError::Unavailable {
                reason: unreadable((id, version), &lost),
            });
            let _ = reply.send(content.map(|content| TempFileReply::Contents {
                id,
                version,
                content,
            }));
        };
        if let Some(content) = held::at_hand(&pieces) {
            return answer(Ok(content));
        }
        self.reading
            .spawn_blocking(move || answer(held::join(&pieces)));
    }

    fn tree_ended(&mut self, root: Pid) {
        if let Some(tree) = self.trees.get_mut(&root) {
            tree.end();
        }
        self.fell(root);
    }

    /// Lets go of a tree that is over, once nothing is asked of it any more.
    fn fell(&mut self, root: Pid) {
        if self.trees.get(&root).is_some_and(Tree::is_done) {
            self.trees.remove(&root);
        }
    }
}

/// A file and its version.
type Version = (TempId, u64);

fn unreadable((id, version): Version, reason: &Unreadable) -> String {
    format!("Version {version} of {id} cannot be read: {reason}")
}
