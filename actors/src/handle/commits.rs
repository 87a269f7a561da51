//! Follows the log of a kernel: the commits as they are made, those of the past, and pages of the
//! journal of one process.

use std::sync::Arc;

use dormouse_proto::id::{CommitNumber, FactNumber, Pid};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::branch::Position;
use super::history::{LogLine, image_position, program_name, summarize};
use super::kernel::Kernel;
use crate::commit_feed::PublishedCommit;
use crate::context::KernelContext;
use crate::error::KernelError;
use crate::event::ProcessView;
use crate::ports::{Batch, CommittedFacts, OwnerToken, Store, StoreError, SyncLevel};
use crate::recovery::{self, LoadPurpose};

/// A durable commit of a kernel.
#[derive(Clone, Debug)]
pub struct Commit(Arc<PublishedCommit>);

impl Commit {
    /// The number of the commit. Each is greater than the one before.
    #[must_use]
    pub fn number(&self) -> CommitNumber {
        self.0.number
    }

    /// The facts of the commit, sorted by process and number; empty for a commit of other records.
    /// Costs a summary of each.
    #[must_use]
    pub fn lines(&self) -> Vec<(Pid, LogLine)> {
        self.0.lines()
    }
}

/// The subscriber was too slow, and commits were dropped. [`Kernel::commits_after`] has their facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} commits were dropped, since the subscriber was too slow")]
pub struct MissedCommits(pub u64);

/// The commits of a kernel, in the order of the log, each once it is durable. The buffer is bounded.
#[derive(Debug)]
pub struct Commits {
    receiver: broadcast::Receiver<Arc<PublishedCommit>>,
    after: CommitNumber,
}

impl Commits {
    /// The last commit before the first one that this returns; 0 if the store has none.
    #[must_use]
    pub fn after(&self) -> CommitNumber {
        self.after
    }

    /// The next commit; `None` once the kernel is shut down.
    ///
    /// # Errors
    /// [`MissedCommits`] in place of commits that were dropped. The next call goes on behind them.
    pub async fn next(&mut self) -> Option<Result<Commit, MissedCommits>> {
        loop {
            match self.receiver.recv().await {
                Ok(commit) if commit.number <= self.after => {}
                Ok(commit) => {
                    self.after = commit.number;
                    return Some(Ok(Commit(commit)));
                }
                Err(RecvError::Lagged(missed)) => return Some(Err(MissedCommits(missed))),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// The facts that were committed in a part of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSlice {
    /// The facts, sorted by commit, process and number. [`Kernel::read_lines`] reads them.
    pub commits: Vec<(Pid, CommittedFacts)>,
    /// Processes that may have had facts in this part which were collected as garbage, with the
    /// first fact that is retained.
    pub collected: Vec<(Pid, FactNumber)>,
    /// Processes with facts that cannot be read, and why.
    pub unreadable: Vec<(Pid, String)>,
}

/// A part of the journal of a process.
#[derive(Debug)]
pub struct LogPage {
    /// The facts, the oldest first.
    pub lines: Vec<LogLine>,
    /// The first and the last fact of the process that are retained; `None` if there is none.
    pub retained: Option<(FactNumber, FactNumber)>,
    /// The error for the first fact that is lost, if the page ends before it.
    pub lost: Option<KernelError>,
}

impl Kernel {
    /// The commits of this kernel from now on. A kernel without a store, and one whose store is open
    /// for reading only, have none. Before the first commit of the kernel, the store is asked for
    /// the last one.
    ///
    /// # Errors
    /// [`StoreFailure::Store`](crate::StoreFailure::Store), [`KernelError::Closed`].
    pub async fn commits(&self) -> Result<Commits, KernelError> {
        // Subscribed before the last commit is looked at, so that none is missed in between.
        let receiver = self.context.commit_feed.subscribe();
        let after = match self.context.commit_feed.last() {
            Some(last) => last,
            None if self.has_store() && !self.is_read_only() => self.last_stored_commit().await?,
            None => CommitNumber(0),
        };
        Ok(Commits { receiver, after })
    }

    /// The last commit of the store.
    async fn last_stored_commit(&self) -> Result<CommitNumber, KernelError> {
        let owner = OwnerToken(self.context.owner_token);
        let nothing = move |store: &dyn Store, _: &KernelContext| {
            let batch = Batch {
                ops: &[],
                at_ms: 0,
                sync_level: SyncLevel::Written,
            };
            Ok(store.commit(owner, batch)?)
        };
        self.context.query_store(nothing).await
    }

    /// The commits after `after`, up to and including `up_to`, of all processes. Costs a look at the
    /// journal of every process, and a read for each commit of the result.
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore), and
    /// [`StoreFailure::Store`](crate::StoreFailure::Store) if the table of processes cannot be read.
    pub async fn commits_after(
        &self,
        after: CommitNumber,
        up_to: CommitNumber,
    ) -> Result<LogSlice, KernelError> {
        self.context
            .query_store(move |store, _| Ok(read_slice(store, after, up_to)?))
            .await
    }

    /// Reads the facts of commits, in the order that is given. Those that cannot be read are left
    /// out, and returned with the reason.
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore).
    pub async fn read_lines(
        &self,
        commits: Vec<(Pid, CommittedFacts)>,
    ) -> Result<(Vec<(Pid, LogLine)>, Vec<(Pid, String)>), KernelError> {
        let read = move |store: &dyn Store, _: &KernelContext| {
            let (mut lines, mut unreadable) = (Vec::new(), Vec::new());
            for (pid, committed) in commits {
                match commit_lines(store, pid, committed) {
                    Ok(read) => lines.extend(read.into_iter().map(|line| (pid, line))),
                    Err(error) => unreadable.push((pid, error.to_string())),
                }
            }
            Ok((lines, unreadable))
        };
        self.context.query_store(read).await
    }

    /// Up to `limit` facts of a process from `from` on. Costs a read for each commit of its journal,
    /// and the facts of the page.
    ///
    /// # Errors
    /// As [`Kernel::readable_log`].
    pub async fn log_page(
        &self,
        pid: Pid,
        from: FactNumber,
        limit: usize,
    ) -> Result<LogPage, KernelError> {
        self.wait_for_queued_writes().await;
        self.context
            .query_store(move |store, _| read_page(store, pid, from, limit))
            .await
    }

    /// Reads the state of a process at a position, with its descriptors, as
    /// [`inspect`](Self::inspect) reads the present one.
    ///
    /// # Errors
    /// As [`Kernel::inspect`]; [`NotFound::InCheckpoint`](crate::NotFound::InCheckpoint).
    pub async fn inspect_at(&self, pid: Pid, at: Position) -> Result<ProcessView, KernelError> {
        if at == Position::Now {
            return self.inspect(pid).await;
        }
        let read = move |store: &dyn Store, context: &KernelContext| {
            let up_to = image_position(store, (pid, at))?;
            let loaded = recovery::load_process(store, context, pid, up_to, LoadPurpose::Inspect)?;
            Ok(ProcessView::with_table(&loaded.state, loaded.last_fact))
        };
        self.context.query_store(read).await
    }
}

fn read_slice(
    store: &dyn Store,
    after: CommitNumber,
    up_to: CommitNumber,
) -> Result<LogSlice, StoreError> {
    let mut slice = LogSlice::default();
    for row in store.processes()?.rows {
        let pid = row.pid;
        let history = match store.history_after(pid, after) {
            Ok(history) => history,
            // The process was deleted meanwhile.
            Err(StoreError::UnknownProcess(_)) => continue,
            Err(error) => {
                slice.unreadable.push((pid, error.to_string()));
                continue;
            }
        };
        if let Some(first) = history.commits.first().map(|committed| committed.first)
            && is_deleted_before(store, pid, first)
        {
            slice.collected.push((pid, first));
        }
        if let (_, Some(error)) = history.up_to_loss() {
            slice.unreadable.push((pid, error.to_string()));
        }
        let commits = history.commits.into_iter();
        let commits = commits.filter(|committed| committed.commit <= up_to);
        slice.commits.extend(commits.map(|commit| (pid, commit)));
    }
    let commits = &mut slice.commits;
    commits.sort_by_key(|(pid, committed)| (committed.commit, *pid, committed.first));
    Ok(slice)
}

/// Whether the fact before `first` was deleted.
fn is_deleted_before(store: &dyn Store, pid: Pid, first: FactNumber) -> bool {
    let Some(before) = first.0.checked_sub(1).filter(|before| *before > 0) else {
        return false;
    };
    let before = FactNumber(before);
    matches!(
        store.facts(pid, before, before),
        Err(StoreError::DeletedFact { .. })
    )
}

fn read_page(
    store: &dyn Store,
    pid: Pid,
    from: FactNumber,
    limit: usize,
) -> Result<LogPage, KernelError> {
    let history = store.history(pid)?;
    let (commits, lost) = history.up_to_loss();
    let mut page = LogPage {
        lines: Vec::new(),
        retained: commits
            .first()
            .zip(commits.last())
            .map(|(first, last)| (first.first, last.last())),
        lost: lost.map(KernelError::from),
    };
    for committed in commits {
        if committed.last() < from {
            continue;
        }
        if page.lines.len() >= limit {
            page.lost = None;
            break;
        }
        match commit_lines(store, pid, *committed) {
            Ok(lines) => page.lines.extend(lines),
            Err(error) => {
                page.lost = Some(error);
                break;
            }
        }
    }
    page.lines.retain(|line| line.number >= from);
    if page.lines.len() > limit {
        page.lines.truncate(limit);
        page.lost = None;
    }
    Ok(page)
}

/// The facts that one commit wrote in the journal of a process.
fn commit_lines(
    store: &dyn Store,
    pid: Pid,
    committed: CommittedFacts,
) -> Result<Vec<LogLine>, KernelError> {
    let line = |number, name, summary| LogLine {
        number,
        commit: committed.commit,
        at_ms: committed.at_ms,
        name,
        summary,
    };
    let mut lines = Vec::new();
    if committed.first == FactNumber(0) {
        lines.push(line(FactNumber(0), "born", program_name(store, pid)?));
    }
    let first = committed.first.max(FactNumber(1));
    if first <= committed.last() {
        let facts = store.facts(pid, first, committed.last())?;
        for (number, fact) in (first.0..).zip(facts) {
            let (name, summary) = summarize(pid, &fact)?;
            lines.push(line(FactNumber(number), name, summary));
        }
    }
    Ok(lines)
}
