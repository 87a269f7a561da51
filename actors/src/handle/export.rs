//! Exports: a process, or a tree, as one file.

use std::fmt;
use std::io::Write;

use dormouse_kernel::export::Redact;
use dormouse_proto::checkpoint::{Checkpoint, Scope};
use dormouse_proto::id::{CommitNumber, FactNumber, Pid};

use super::branch::Point;
use super::kernel::Kernel;
use super::temporary_checkpoint::TemporaryCheckpoint;
use crate::consistent_cut::ConsistentCut;
use crate::context::KernelContext;
use crate::error::{KernelError, NotFound, StoreFailure};
use crate::export::{self, ExportRequest, Exported};
use crate::ports::{Store, StoreError, Written};
use crate::supervisor::ProcessTree;

/// An export about to be made: [`write`](Export::write) makes it.
#[must_use = "an export is made when it is written"]
pub struct Export {
    kernel: Kernel,
    of: Pid,
    scope: Scope,
    at: Point,
    redact: Option<Box<dyn Redact>>,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            of,
            scope,
            at,
            redact,
            ..
        } = self;
        let is_redacted = redact.is_some();
        f.debug_struct("Export")
            .field("of", of)
            .field("scope", scope)
            .field("at", at)
            .field("redacted", &is_redacted)
            .finish()
    }
}

impl Kernel {
    /// Begins to export a process, or it and all below it, as it stands: image, contents, temporary
    /// files of its tree, programs, and its facts, for reading. The process does not notice. What
    /// is in flight goes with a tree, so that it goes on elsewhere as after a restart; a process
    /// alone goes on as [`copy`](Self::copy) does, without its children. Checkpoints stay.
    ///
    /// An export is in the clear, also of an encrypted store. Secrets of the environment are in no
    /// state and so in no export; what a tool or a model was told of them is.
    pub fn export(&self, of: Pid, scope: Scope) -> Export {
        Export {
            kernel: self.clone(),
            of,
            scope,
            at: Point::Now,
            redact: None,
        }
    }
}

impl Export {
    /// As it stood at this point. Of a checkpoint of one process it is that process alone.
    pub fn at(mut self, at: impl Into<Point>) -> Self {
        self.at = at.into();
        self
    }

    /// Masks what `redact` finds, in every text that leaves: messages, arguments and answers,
    /// prompts, names and labels, programs, contents and temporary files. See [`Redact`] for what a
    /// mask keeps. Everything is read twice for it.
    pub fn redact(mut self, redact: impl Redact + 'static) -> Self {
        self.redact = Some(Box::new(redact));
        self
    }

    /// Writes it, and gives back what it was written to, flushed. Costs the journals of its
    /// processes, and a pass over its contents; holds one image, one history and a part of a
    /// content at a time. Where the store takes commits, the present is marked by a checkpoint,
    /// which is given up again; of a store that is only read the present is its last commit.
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`NotFound::Process`](crate::NotFound::Process),
    /// [`NotFound::InCheckpoint`](crate::NotFound::InCheckpoint);
    /// [`StoreFailure::Store`](crate::StoreFailure::Store) for an unknown fact or checkpoint, and
    /// for damage; [`StoreFailure::Load`](crate::StoreFailure::Load) for a journal or a content
    /// that cannot be read; [`ExportFailure::File`](crate::ExportFailure::File) where `to` fails.
    /// What was written by then is no export.
    pub async fn write<W: Write + Send + 'static>(
        self,
        to: W,
    ) -> Result<(W, Exported), KernelError> {
        let Self {
            kernel,
            of,
            mut scope,
            at,
            redact,
        } = self;
        if !kernel.context.has_store {
            return Err(StoreFailure::NoStore.into());
        }
        let mut guard = None;
        let export_cut = match at {
            Point::Fact(fact) => ExportCut::Behind(fact),
            Point::Checkpoint(id) => {
                let checkpoint = kernel.checkpoint(id).await?;
                checkpoint.standing(of).ok_or(NotFound::InCheckpoint {
                    pid: of,
                    checkpoint: id,
                })?;
                if checkpoint.scope == Scope::Process {
                    scope = Scope::Process;
                }
                ExportCut::Checkpoint(checkpoint)
            }
            Point::Now if kernel.context.is_read_only() => ExportCut::End,
            Point::Now => {
                let (checkpoint, new_guard) =
                    kernel.make_checkpoint(of, scope, "export".into()).await?;
                guard = Some(new_guard);
                ExportCut::Checkpoint(checkpoint)
            }
        };
        let temporary = TemporaryCheckpoint::of(&kernel, guard);
        let mut process_tree = kernel.process_tree(of).await?;
        if scope == Scope::Process {
            process_tree.rows.retain(|row| row.pid == of);
        }
        let write = move |store: &dyn Store, context: &KernelContext| {
            let cut = match &export_cut {
                ExportCut::Checkpoint(checkpoint) => ConsistentCut::of(checkpoint),
                ExportCut::Behind(fact) => ConsistentCut::behind(store, of, *fact, &process_tree)?,
                ExportCut::End => cut_at_end(store, &process_tree)?,
            };
            let ProcessTree { root, rows, last } = process_tree;
            export::write(
                store,
                context,
                &ExportRequest {
                    scope,
                    rows,
                    root,
                    last,
                    cut,
                    redact,
                },
                to,
            )
        };
        let written = kernel.context.query_store(write).await;
        if let Some(guard) = temporary.hand_over() {
            let dropped = kernel.drop_checkpoint(guard.id).await;
            return written.and_then(|written| dropped.map(|()| written));
        }
        written
    }
}

/// Which cut is exported.
enum ExportCut {
    Checkpoint(Checkpoint),
    Behind(FactNumber),
    /// All that a store holds that is only read: it shows one moment.
    End,
}

/// All that the store holds of a process tree.
fn cut_at_end(store: &dyn Store, process_tree: &ProcessTree) -> Result<ConsistentCut, StoreError> {
    let mut cut = ConsistentCut {
        commit: CommitNumber(u64::MAX),
        at_ms: 0,
        members: Default::default(),
    };
    for row in &process_tree.rows {
        if let Some(written) = store.history(row.pid)?.readable()?.last() {
            cut.at_ms = cut.at_ms.max(written.at_ms);
            cut.members.insert(row.pid, Written::last(written));
        }
    }
    Ok(cut)
}
