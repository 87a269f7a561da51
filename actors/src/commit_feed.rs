//! The commits of this kernel, for those who follow its log.
//!
//! The checkpoint actor publishes each commit that holds facts before it acknowledges the commit, so
//! a subscriber sees commits in the order of the log, and sees a commit before any event that
//! follows from it. The facts are those of the append, not copies: they cost a reference each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use dormouse_kernel::process::{Fact, summary_line};
use dormouse_proto::id::{CommitNumber, FactNumber, Pid};
use tokio::sync::broadcast;

use crate::handle::LogLine;

/// The number of commits that a slow subscriber may be behind.
const CAPACITY: usize = 4096;

/// A durable commit, with the facts that it holds.
#[derive(Debug)]
pub(crate) struct PublishedCommit {
    pub(crate) number: CommitNumber,
    pub(crate) at_ms: u64,
    pub(crate) facts: Vec<AppendedFacts>,
}

/// What an append added to the journal of a process.
#[derive(Clone, Debug)]
pub(crate) enum AppendedFacts {
    /// The birth, which is fact 0, with the name of the program.
    Birth { pid: Pid, program: Arc<str> },
    Facts {
        pid: Pid,
        first: FactNumber,
        facts: Arc<[Fact]>,
    },
}

impl AppendedFacts {
    fn pid(&self) -> Pid {
        match self {
            Self::Birth { pid, .. } | Self::Facts { pid, .. } => *pid,
        }
    }

    fn lines(&self, commit: CommitNumber, at_ms: u64) -> Vec<LogLine> {
        match self {
            Self::Birth { program, .. } => vec![LogLine {
                number: FactNumber(0),
                commit,
                at_ms,
                name: "born",
                summary: program.to_string(),
            }],
            Self::Facts { first, facts, .. } => (first.0..)
                .zip(&**facts)
                .map(|(number, fact)| LogLine {
                    number: FactNumber(number),
                    commit,
                    at_ms,
                    name: fact.name(),
                    summary: summary_line(fact),
                })
                .collect(),
        }
    }
}

impl PublishedCommit {
    /// The facts as lines of a log, sorted by process and number.
    pub(crate) fn lines(&self) -> Vec<(Pid, LogLine)> {
        let mut facts: Vec<_> = self.facts.iter().collect();
        // Stable: facts of one process were appended in their order.
        facts.sort_by_key(|facts| facts.pid());
        let lines = facts.into_iter().flat_map(|facts| {
            let pid = facts.pid();
            let lines = facts.lines(self.number, self.at_ms).into_iter();
            lines.map(move |line| (pid, line))
        });
        lines.collect()
    }
}

/// Publishes commits.
#[derive(Debug)]
pub(crate) struct CommitFeed {
    last: AtomicU64,
    /// `None` after the store was closed, so that every subscription ends.
    sender: RwLock<Option<broadcast::Sender<Arc<PublishedCommit>>>>,
}

impl CommitFeed {
    /// Nothing is committed yet.
    pub(crate) fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
            sender: RwLock::new(Some(broadcast::Sender::new(CAPACITY))),
        }
    }

    /// Publishes commits, in the order of their numbers.
    pub(crate) fn publish(&self, commits: Vec<PublishedCommit>) {
        let sender = self.sender.read().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = &*sender else { return };
        for commit in commits {
            // Raised first: whoever subscribes and then reads the number gets every commit after
            // that number, and may get the commit itself.
            self.last.fetch_max(commit.number.0, Ordering::SeqCst);
            // Without a subscriber, nothing is published.
            let _ = sender.send(Arc::new(commit));
        }
    }

    /// The commits from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<PublishedCommit>> {
        let sender = self.sender.read().unwrap_or_else(PoisonError::into_inner);
        sender.as_ref().map_or_else(
            || broadcast::Sender::new(1).subscribe(),
            broadcast::Sender::subscribe,
        )
    }

    /// The last commit of this kernel; `None` if it has made none. Whoever subscribes before asking
    /// gets every later commit.
    pub(crate) fn last(&self) -> Option<CommitNumber> {
        let last = self.last.load(Ordering::SeqCst);
        (last > 0).then_some(CommitNumber(last))
    }

    /// Ends every subscription.
    pub(crate) fn close(&self) {
        let mut sender = self.sender.write().unwrap_or_else(PoisonError::into_inner);
        drop(sender.take());
    }
}
