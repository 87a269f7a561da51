//! The temporary files actor: the files of each process tree, independent of all other trees.
//!
//! Requests to a tree wait in one queue. All waiting requests are decided in order and made durable
//! in one commit, and only then answered: a reader never sees a change that a crash could undo
//! (DUR-1). While a commit is running, further requests collect. A tree that is not in memory is
//! loaded from the store on a blocking thread first.
//!
//! A tree never sees the files of another: requests carry the root of their tree. A copied process
//! is the root of a new tree without files; a branch has the files of the original tree up to the
//! cut.

mod parts;
mod tree;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use dormouse_content::{Content, Unreadable};
use dormouse_kernel::temp_files::{FileParts, TempFiles};
use dormouse_proto::id::Pid;
use dormouse_proto::temp_file::{TempFileError, TempFileOp, TempFileOrigin, TempFileReply, TempId};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use self::parts::LoadFilesError;
use self::tree::{PreparedReply, TreeFiles};
use crate::checkpoint::{self, CheckpointMessage, CommitError, LogRecord};
use crate::content_cache::ContentCache;
use crate::process::tool_call::panic_text;
use crate::store_handle::StoreHandle;

/// An operation on the files of a tree.
pub(crate) struct TempFileRequest {
    /// The root process of the tree.
    pub(crate) root: Pid,
    pub(crate) origin: TempFileOrigin,
    pub(crate) op: TempFileOp<Content>,
    /// The largest size of a file.
    pub(crate) max_bytes: u64,
    pub(crate) reply: TempFileReplySender,
}

/// Receives the result of an operation. A requester that no longer waits has dropped the receiver.
pub(crate) type TempFileReplySender =
    oneshot::Sender<Result<TempFileReply<Content>, TempFileError>>;

/// The messages of the temporary files actor.
pub(crate) enum TempFilesMessage {
    /// Execute an operation on a file.
    Request(TempFileRequest),
    /// The files of a tree were read, or could not be read.
    Loaded {
        root: Pid,
        result: Result<TempFiles<Content>, LoadFilesError>,
    },
    /// Changes of a tree are durable, or could not be made durable.
    Committed {
        root: Pid,
        result: Result<(), CommitError>,
    },
    /// The root of a tree has ended, and all processes below it are being ended; or one of these has
    /// ended. The files of the tree leave memory and stay in the store.
    TreeEnded { root: Pid },
}

pub(crate) struct TempFilesActor;

/// The state of the temporary files actor.
pub(crate) struct TempFileTrees {
    myself: ActorRef<TempFilesMessage>,
    checkpoint: ActorRef<CheckpointMessage>,
    /// `None` for a kernel without a store, and after the actor has stopped.
    store: Option<StoreHandle>,
    content_cache: Arc<ContentCache>,
    trees: BTreeMap<Pid, TreeFiles>,
    /// Tasks that read the store.
    readers: JoinSet<()>,
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
            readers: JoinSet::new(),
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        trees: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        while trees.readers.try_join_next().is_some() {}
        match message {
            TempFilesMessage::Request(request) => trees.on_request(request),
            TempFilesMessage::Loaded { root, result } => trees.on_loaded(root, result),
            TempFilesMessage::Committed { root, result } => trees.on_committed(root, result),
            TempFilesMessage::TreeEnded { root } => trees.on_tree_ended(root),
        }
        Ok(())
    }

    /// Waits for the readers, so that none of them holds the store after the shutdown.
    async fn post_stop(
        &self,
        _myself: ActorRef<Self::Msg>,
        trees: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        while trees.readers.join_next().await.is_some() {}
        trees.store = None;
        Ok(())
    }
}

impl TempFileTrees {
    fn on_request(&mut self, request: TempFileRequest) {
        let root = request.root;
        if !self.trees.contains_key(&root) {
            let tree = self.load_tree(root);
            self.trees.insert(root, tree);
        }
        if let Some(tree) = self.trees.get_mut(&root) {
            tree.push(request);
        }
        self.commit_waiting(root);
    }

    /// A new tree: empty if there is no store, otherwise loaded in a task.
    fn load_tree(&mut self, root: Pid) -> TreeFiles {
        let Some(store) = self.store.clone() else {
            return TreeFiles::new(Some(TempFiles::default()));
        };
        let myself = self.myself.clone();
        let content_cache = self.content_cache.clone();
        self.readers.spawn_blocking(move || {
            let loading = AssertUnwindSafe(|| parts::load_files(&*store, &content_cache, root));
            // Requests wait for the answer.
            let result = catch_unwind(loading)
                .unwrap_or_else(|panic| Err(LoadFilesError::Panicked(panic_text(&*panic))));
            drop(store);
            // If the actor has stopped, no request waits for the result.
            let _ = myself.cast(TempFilesMessage::Loaded { root, result });
        });
        TreeFiles::new(None)
    }

    fn on_loaded(&mut self, root: Pid, result: Result<TempFiles<Content>, LoadFilesError>) {
        match result {
            Ok(files) => {
                if let Some(tree) = self.trees.get_mut(&root) {
                    tree.set_files(files);
                }
                self.commit_waiting(root);
            }
            // The next request loads the tree again.
            Err(error) => {
                if let Some(tree) = self.trees.remove(&root) {
                    tree.fail_waiting(&error);
                }
            }
        }
    }

    /// Decides the waiting requests and appends their changes. Requests that change nothing are
    /// answered at once.
    fn commit_waiting(&mut self, root: Pid) {
        let tree = self.trees.get_mut(&root);
        let Some(records) = tree.and_then(TreeFiles::decide_waiting) else {
            return;
        };
        if records.is_empty() {
            return self.on_committed(root, Ok(()));
        }
        let records = records
            .into_iter()
            .map(|record| LogRecord::TempFile { root, record })
            .collect();
        let myself = self.myself.clone();
        let acknowledge = Box::new(move |result: Result<_, _>| {
            // If the actor has stopped, the kernel is shutting down.
            let _ = myself.cast(TempFilesMessage::Committed {
                root,
                result: result.map(drop),
            });
        });
        checkpoint::append_records(&self.checkpoint, records, acknowledge);
    }

    fn on_committed(&mut self, root: Pid, result: Result<(), CommitError>) {
        let Some(tree) = self.trees.get_mut(&root) else {
            return;
        };
        let replies = tree.finish_batch(result);
        replies.into_iter().for_each(|reply| self.send_reply(reply));
        self.commit_waiting(root);
        self.evict_if_done(root);
    }

    fn send_reply(&mut self, PreparedReply { reply, result }: PreparedReply) {
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
            }) => self.reply_with_content((id, version), content, reply),
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    /// Replies with a whole file. Contents that must be read or joined are processed on a blocking
    /// thread.
    fn reply_with_content(
        &mut self,
        (id, version): FileVersion,
        parts: FileParts<Content>,
        reply: TempFileReplySender,
    ) {
        let send_content = move |content: Result<Content, Unreadable>| {
            let content = content.map_err(|lost| TempFileError::Unavailable {
                reason: format_unreadable((id, version), &lost),
            });
            let _ = reply.send(content.map(|content| TempFileReply::Contents {
                id,
                version,
                content,
            }));
        };
        if let Some(content) = parts::single_part(&parts) {
            return send_content(Ok(content));
        }
        self.readers
            .spawn_blocking(move || send_content(parts::join_parts(&parts)));
    }

    fn on_tree_ended(&mut self, root: Pid) {
        if let Some(tree) = self.trees.get_mut(&root) {
            tree.mark_ended();
        }
        self.evict_if_done(root);
    }

    /// Removes a tree that has ended once no request is pending.
    fn evict_if_done(&mut self, root: Pid) {
        if self.trees.get(&root).is_some_and(TreeFiles::is_done) {
            self.trees.remove(&root);
        }
    }
}

/// A file and its version.
type FileVersion = (TempId, u64);

fn format_unreadable((id, version): FileVersion, reason: &Unreadable) -> String {
    format!("Version {version} of {id} cannot be read: {reason}")
}
