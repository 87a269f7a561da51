//! Follows a kernel for one client: facts by the commits of the log, all else by the events of the
//! kernel.
//!
//! Invariant: when an event with a position is returned, every fact up to that position was
//! returned. It holds since the kernel publishes commits in their order, and since a part of the log
//! that was missed is read from the journals before the commits behind it go on.

use std::collections::VecDeque;

use dormouse_actors::Event;
use dormouse_actors::handle::{Commits, Events, Kernel, LogLine};
use dormouse_actors::ports::CommittedFacts;
use dormouse_proto::id::{CommitNumber, Pid};
use futures_util::StreamExt;

use super::position::LogPosition;
use crate::error::ApiError;
use crate::view::{EventView, FactEventView};

/// How many commits are read from the journals at once.
const COMMITS_AT_ONCE: usize = 128;

/// The most commits of processes that a client may be behind: their places in the log take about 40
/// bytes each.
const MAX_COMMITS_BEHIND: usize = 1_000_000;

/// What a client wants to see.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Only this process.
    pub(super) pid: Option<u64>,
    /// Parts of texts as well.
    pub(super) texts: bool,
}

impl Wanted {
    fn wants_process(&self, pid: Pid) -> bool {
        self.pid.is_none_or(|wanted| wanted == pid.0)
    }

    fn wants(&self, event: &Event) -> bool {
        let is_text = matches!(event, Event::Text { .. } | Event::Thinking { .. });
        event.pid().is_none_or(|pid| self.wants_process(pid)) && (self.texts || !is_text)
    }
}

/// An event, with its position if it is a fact.
type Sent = (Option<LogPosition>, EventView);

pub(super) struct Follower {
    kernel: Kernel,
    wanted: Wanted,
    commits: Commits,
    events: Events,
    /// Every fact up to here was queued.
    position: LogPosition,
    /// The facts up to this commit are to be read from the journals.
    behind: Option<CommitNumber>,
    /// The places of these facts, in their order.
    to_read: VecDeque<(Pid, CommittedFacts)>,
    queue: VecDeque<Sent>,
}

impl Follower {
    /// Follows the kernel from a position on; without one, from now on.
    ///
    /// # Errors
    /// If the position is beyond the end of the log.
    pub(super) async fn open(
        kernel: Kernel,
        after: Option<LogPosition>,
        wanted: Wanted,
    ) -> Result<Self, ApiError> {
        // Subscribed before the end of the log is looked at, so that nothing is missed in between.
        let events = kernel.events();
        let commits = kernel.commits().await?;
        let is_read_only = kernel.is_read_only();
        // How far a store reaches that another program may write is known once it was read.
        let end = match is_read_only {
            true => CommitNumber(u64::MAX),
            false => commits.after(),
        };
        if let Some(beyond) = after.filter(|after| after.commit > end) {
            return Err(ApiError::invalid(format!(
                "the position {beyond} is beyond the end of the log, which is {}: it belongs to \
                 another store. Connect without a position",
                end.0
            )));
        }
        let position = after.unwrap_or_else(|| LogPosition::behind(end));
        let opened = EventView::Opened {
            running: !is_read_only,
            commit: (!is_read_only).then_some(end.0),
        };
        let id = (after.is_none() && !is_read_only).then_some(position);
        Ok(Self {
            kernel,
            wanted,
            commits,
            events,
            position,
            behind: after.map(|_| end),
            to_read: VecDeque::new(),
            queue: VecDeque::from([(id, opened)]),
        })
    }

    /// The next event; `None` once the kernel is shut down.
    pub(super) async fn next(&mut self) -> Option<Sent> {
        loop {
            if let Some(sent) = self.queue.pop_front() {
                return Some(sent);
            }
            if !self.to_read.is_empty() {
                self.read_chunk().await;
            } else if let Some(up_to) = self.behind.take() {
                self.find_missed(up_to).await?;
            } else {
                self.wait().await?;
            }
        }
    }

    /// Finds the facts after the position, up to a commit, in the journals.
    async fn find_missed(&mut self, up_to: CommitNumber) -> Option<()> {
        let after = self.position.whole_commits();
        if after >= up_to {
            return Some(());
        }
        let slice = match self.kernel.commits_after(after, up_to).await {
            Ok(slice) => slice,
            // The kernel is shut down, or has no store.
            Err(error) => {
                tracing::debug!("the log cannot be read for a stream of events: {error}");
                return None;
            }
        };
        let wanted = self.wanted;
        for (pid, first) in slice.collected {
            if wanted.wants_process(pid) {
                let (pid, first) = (pid.0, first.0);
                self.queue
                    .push_back((None, EventView::Collected { pid, first }));
            }
        }
        self.tell_unreadable(slice.unreadable);
        let is_wanted = |(pid, _): &(Pid, _)| wanted.wants_process(*pid);
        self.to_read = slice.commits.into_iter().filter(is_wanted).collect();
        if self.to_read.len() > MAX_COMMITS_BEHIND {
            // The client is told, and reads the journals in pages.
            let missed = self.to_read.len() as u64;
            self.to_read.clear();
            self.queue
                .push_back((None, EventView::TooFarBehind { commits: missed }));
        }
        if self.to_read.is_empty() && up_to < CommitNumber(u64::MAX) {
            self.position = LogPosition::behind(up_to);
        }
        Some(())
    }

    async fn read_chunk(&mut self) {
        let count = self.to_read.len().min(COMMITS_AT_ONCE);
        let chunk = self.to_read.drain(..count).collect();
        match self.kernel.read_lines(chunk).await {
            Ok((lines, unreadable)) => {
                self.tell_unreadable(unreadable);
                lines
                    .into_iter()
                    .for_each(|(pid, line)| self.push_line(pid, line));
            }
            Err(error) => {
                tracing::debug!("facts cannot be read for a stream of events: {error}");
                self.to_read.clear();
            }
        }
    }

    fn tell_unreadable(&mut self, unreadable: Vec<(Pid, String)>) {
        for (pid, reason) in unreadable {
            if self.wanted.wants_process(pid) {
                let pid = pid.0;
                self.queue
                    .push_back((None, EventView::Unreadable { pid, reason }));
            }
        }
    }

    /// Waits for a commit or an event. Commits come first: what a commit leads to is published after
    /// it.
    async fn wait(&mut self) -> Option<()> {
        tokio::select! {
            biased;
            commit = self.commits.next() => match commit? {
                Ok(commit) => {
                    for (pid, line) in commit.lines() {
                        if self.wanted.wants_process(pid) {
                            self.push_line(pid, line);
                        }
                    }
                    self.position = LogPosition::behind(commit.number());
                }
                Err(_) => {
                    // The commits from now on, and those in between from the journals.
                    self.commits = self.kernel.commits().await.ok()?;
                    self.behind = Some(self.commits.after());
                }
            },
            event = self.events.next() => {
                let event = event?;
                let is_told_by_its_commit =
                    matches!(event, Event::Fact { .. }) && self.has_commits();
                if self.wanted.wants(&event) && !is_told_by_its_commit {
                    self.queue.push_back((None, EventView::from(&event)));
                }
            }
        }
        Some(())
    }

    /// Whether facts are published in commits, which they are in a kernel with a store.
    fn has_commits(&self) -> bool {
        self.kernel.has_store()
    }

    fn push_line(&mut self, pid: Pid, line: LogLine) {
        if !self.position.is_before(line.commit, pid, line.number) {
            return;
        }
        self.position = LogPosition {
            commit: line.commit,
            fact: Some((pid, line.number)),
        };
        let fact = EventView::Fact(FactEventView::of_line(pid, line));
        self.queue.push_back((Some(self.position), fact));
    }
}
