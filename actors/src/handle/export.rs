//! Exports: the request that writes a process or a process tree as one file.

use std::fmt;
use std::io::Write;

use dormouse_kernel::export::Redact;
use dormouse_proto::checkpoint::{Checkpoint, Scope};
use dormouse_proto::id::{CommitNumber, FactNumber, Pid};

use super::branch::Position;
use super::kernel::Kernel;
use super::temporary_checkpoint::TemporaryCheckpoint;
use crate::consistent_cut::ConsistentCut;
use crate::context::KernelContext;
use crate::error::{KernelError, NotFound, StoreFailure};
use crate::export::{self, ExportRequest, ExportSummary};
use crate::ports::{CommittedFacts, Store, StoreError};
use crate::supervisor::ProcessTree;

/// An export to be written: [`write`](Export::write) writes it.
#[must_use = "an export is made when it is written"]
pub struct Export {
    kernel: Kernel,
    pid: Pid,
    scope: Scope,
    at: Position,
    redact: Option<Box<dyn Redact>>,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pid,
            scope,
            at,
            redact,
            ..
        } = self;
        let is_redacted = redact.is_some();
        f.debug_struct("Export")
            .field("of", pid)
            .field("scope", scope)
            .field("at", at)
            .field("redacted", &is_redacted)
            .finish()
    }
}

impl Kernel {
    /// Begins to export a process, or a process and its descendants: state, contents, temporary
    /// files of the tree, programs, and the facts for reading. The processes are not affected. A
    /// tree is exported with its calls and messages in flight, so that it resumes elsewhere as
    /// after a restart; a single process resumes as [`copy`](Self::copy) does, without its
    /// children. Checkpoints are not exported.
    ///
    /// An export is not encrypted, even if the store is. Secrets of the environment are not part of
    /// any state and therefore not exported, unless a tool or a model was given them.
    pub fn export(&self, pid: Pid, scope: Scope) -> Export {
        Export {
            kernel: self.clone(),
            pid,
            scope,
            at: Position::Now,
            redact: None,
        }
    }
}

impl Export {
    /// Exports the state at this position. A checkpoint of one process exports that process alone.
    pub fn at(mut self, at: impl Into<Position>) -> Self {
        self.at = at.into();
        self
    }

    /// Masks the matches of `redact` in every exported text: messages, arguments and answers,
    /// prompts, names and labels, programs, contents and temporary files. See [`Redact`] for what a
    /// mask keeps. All data is read twice.
    pub fn redact(mut self, redact: impl Redact + 'static) -> Self {
        self.redact = Some(Box::new(redact));
        self
    }

    /// Writes the export and returns the flushed output. Costs the journals of its processes and a
    /// pass over its contents; holds one process state, one history and a chunk of a content at a
    /// time. To export the present state, this creates a temporary checkpoint and drops it
    /// afterwards; in a read-only store the present state is that of the last commit.
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`NotFound::Process`](crate::NotFound::Process),
    /// [`NotFound::InCheckpoint`](crate::NotFound::InCheckpoint);
    /// [`StoreFailure::Store`](crate::StoreFailure::Store) for an unknown fact or checkpoint, and
    /// for damage; [`StoreFailure::Load`](crate::StoreFailure::Load) for a journal or a content
    /// that cannot be read; [`ExportFailure::File`](crate::ExportFailure::File) if `to` fails.
    /// After an error, the output is not a valid export.
    pub async fn write<W: Write + Send + 'static>(
        self,
        to: W,
    ) -> Result<(W, ExportSummary), KernelError> {
        let Self {
            kernel,
            pid,
            mut scope,
            at,
            redact,
        } = self;
        if !kernel.context.has_store {
            return Err(StoreFailure::NoStore.into());
        }
        let mut guard = None;
        let export_cut = match at {
            Position::Fact(fact) => ExportCut::AfterFact(fact),
            Position::Checkpoint(id) => {
                let checkpoint = kernel.checkpoint(id).await?;
                checkpoint.position_of(pid).ok_or(NotFound::InCheckpoint {
                    pid,
                    checkpoint: id,
                })?;
                if checkpoint.scope == Scope::Process {
                    scope = Scope::Process;
                }
                ExportCut::Checkpoint(checkpoint)
            }
            Position::Now if kernel.context.is_read_only() => ExportCut::End,
            Position::Now => {
                let (checkpoint, new_guard) =
                    kernel.make_checkpoint(pid, scope, "export".into()).await?;
                guard = Some(new_guard);
                ExportCut::Checkpoint(checkpoint)
            }
        };
        let temporary = TemporaryCheckpoint::new(&kernel, guard);
        let mut process_tree = kernel.process_tree(pid).await?;
        if scope == Scope::Process {
            process_tree.rows.retain(|row| row.pid == pid);
        }
        let query = move |store: &dyn Store, context: &KernelContext| {
            let _history = context.in_use.guard_histories(process_tree.pids());
            let cut = match &export_cut {
                ExportCut::Checkpoint(checkpoint) => ConsistentCut::at_checkpoint(checkpoint),
                ExportCut::AfterFact(fact) => {
                    ConsistentCut::after_fact(store, pid, *fact, &process_tree)?
                }
                ExportCut::End => cut_at_end(store, &process_tree)?,
            };
            let ProcessTree {
                root,
                rows,
                last_pid,
            } = process_tree;
            export::write_export(
                store,
                context,
                &ExportRequest {
                    scope,
                    rows,
                    root,
                    last_pid,
                    cut,
                    redact,
                },
                to,
            )
        };
        let write_result = kernel.context.query_store(query).await;
        if let Some(guard) = temporary.into_guard() {
            let drop_result = kernel.drop_checkpoint(guard.id).await;
            return write_result.and_then(|written| drop_result.map(|()| written));
        }
        write_result
    }
}

/// The cut to export.
enum ExportCut {
    Checkpoint(Checkpoint),
    /// The state after the commit that holds this fact.
    AfterFact(FactNumber),
    /// Everything in a read-only store, which does not change.
    End,
}

/// The cut after the last commit of every history.
fn cut_at_end(store: &dyn Store, process_tree: &ProcessTree) -> Result<ConsistentCut, StoreError> {
    let mut cut = ConsistentCut {
        commit: CommitNumber(u64::MAX),
        at_ms: 0,
        members: Default::default(),
    };
    for row in &process_tree.rows {
        if let Some(written) = store.history(row.pid)?.readable()?.last() {
            cut.at_ms = cut.at_ms.max(written.at_ms);
            cut.members.insert(row.pid, CommittedFacts::last(written));
        }
    }
    Ok(cut)
}
