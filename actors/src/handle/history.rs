//! The history of a process: a list of its facts, and the differences between two positions.

use dormouse_kernel::process::{Diff, Image, diff, summary_line};
use dormouse_proto::export::Facts;
use dormouse_proto::id::{CommitNumber, FactNumber, Pid};

use super::branch::Position;
use super::kernel::Kernel;
use crate::consistent_cut;
use crate::context::KernelContext;
use crate::error::{KernelError, NotFound};
use crate::ports::{CommittedFacts, Store, StoreError};
use crate::recovery::{self, LoadError, LoadPurpose, decode_fact};

/// A fact in a list of facts. A branch can begin after each fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The number of the fact; 0 for the birth of the process.
    pub number: FactNumber,
    /// The commit of the fact. A branch from a fact includes all further facts of the same commit.
    pub commit: CommitNumber,
    /// The time of the commit: milliseconds since the epoch, UTC.
    pub at_ms: u64,
    /// The name of the fact; `born` for the birth.
    pub name: &'static str,
    /// A one-line summary.
    pub summary: String,
}

impl Kernel {
    /// The retained facts of a process, beginning with its birth if that is retained. Costs its
    /// whole journal, and a read for each commit.
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`StoreFailure::Store`](crate::StoreFailure::Store),
    /// [`StoreFailure::Load`](crate::StoreFailure::Load) for a fact that does not decode.
    pub async fn log(&self, pid: Pid) -> Result<Vec<LogLine>, KernelError> {
        match self.readable_log(pid).await? {
            (lines, None) => Ok(lines),
            (_, Some(lost)) => Err(lost),
        }
    }

    /// The facts of a process up to the first one that is lost, and the error for that one; `None`
    /// if all can be read. Costs as [`Kernel::log`].
    ///
    /// # Errors
    /// As [`Kernel::log`], except for facts that are lost.
    pub async fn readable_log(
        &self,
        pid: Pid,
    ) -> Result<(Vec<LogLine>, Option<KernelError>), KernelError> {
        self.context
            .query_store(move |store, _| readable_log(store, pid))
            .await
    }

    /// The differences between two positions of the same process or of two processes: a fact
    /// (exactly), a checkpoint, or the last durable fact. Costs both journals since their latest
    /// snapshots.
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`StoreFailure::Store`](crate::StoreFailure::Store),
    /// [`NotFound::InCheckpoint`](crate::NotFound::InCheckpoint),
    /// [`StoreFailure::Load`](crate::StoreFailure::Load).
    pub async fn diff(
        &self,
        left: (Pid, Position),
        right: (Pid, Position),
    ) -> Result<Diff, KernelError> {
        let query = move |store: &dyn Store, context: &KernelContext| {
            Ok(diff(
                &image_at(store, context, left)?,
                &image_at(store, context, right)?,
            ))
        };
        self.context.query_store(query).await
    }
}

fn readable_log(
    store: &dyn Store,
    pid: Pid,
) -> Result<(Vec<LogLine>, Option<KernelError>), KernelError> {
    let history = store.history(pid)?;
    let (commits, lost) = history.up_to_loss();
    let Some(from) = commits.first().map(|committed| committed.first) else {
        return Ok((Vec::new(), None));
    };
    let last = commits.last().map(CommittedFacts::last).unwrap_or_default();
    let mut lost = lost.map(KernelError::from);
    let encoded_facts = match store.facts(pid, from, last) {
        Err(StoreError::Damaged { .. } | StoreError::Lost { .. }) => {
            let (facts, error) = facts_up_to_loss(store, pid, commits)?;
            lost = error.map(KernelError::from).or(lost);
            facts
        }
        read => read?,
    };
    let mut facts = encoded_facts.into_iter();
    let mut lines = Vec::new();
    for committed in commits {
        let CommittedFacts {
            commit,
            at_ms,
            first,
            ..
        } = *committed;
        for number in (first.0..=committed.last().0).map(FactNumber) {
            let (name, summary) = match number {
                FactNumber(0) => ("born", program_name(store, pid)?),
                _ => match facts.next() {
                    Some(fact) => summarize(pid, &fact)?,
                    None => return Ok((lines, lost)),
                },
            };
            lines.push(LogLine {
                number,
                commit,
                at_ms,
                name,
                summary,
            });
        }
    }
    Ok((lines, lost))
}

/// The name of the program; empty if the first snapshot is lost.
pub(super) fn program_name(store: &dyn Store, pid: Pid) -> Result<String, StoreError> {
    match store.journal(pid, Some(FactNumber(0))) {
        Err(StoreError::Damaged { .. } | StoreError::Lost { .. }) => Ok(String::new()),
        journal => Ok(journal?.row.program.to_string()),
    }
}

/// The facts up to the first that cannot be read, and the error for that fact.
fn facts_up_to_loss(
    store: &dyn Store,
    pid: Pid,
    commits: &[CommittedFacts],
) -> Result<(Vec<Vec<u8>>, Option<StoreError>), StoreError> {
    let mut facts = Vec::new();
    for committed in commits {
        match store.facts(pid, committed.first, committed.last()) {
            Err(error @ (StoreError::Damaged { .. } | StoreError::Lost { .. })) => {
                return Ok((facts, Some(error)));
            }
            read => facts.extend(read?),
        }
    }
    Ok((facts, None))
}

/// Summarizes each fact of a commit in an export.
///
/// # Errors
/// An item is [`StoreFailure::Load`](crate::StoreFailure::Load) if its fact does not decode.
pub fn log_lines(commit_facts: &Facts) -> impl Iterator<Item = Result<LogLine, KernelError>> {
    let Facts {
        pid,
        commit,
        at_ms,
        first,
        ref facts,
    } = *commit_facts;
    (first.0..).zip(facts).map(move |(number, fact)| {
        let (name, summary) = summarize(pid, fact)?;
        Ok(LogLine {
            number: FactNumber(number),
            commit,
            at_ms,
            name,
            summary,
        })
    })
}

pub(super) fn summarize(pid: Pid, fact: &[u8]) -> Result<(&'static str, String), LoadError> {
    let fact = decode_fact(pid, fact)?;
    Ok((fact.name(), summary_line(&fact)))
}

pub(super) fn image_at(
    store: &dyn Store,
    context: &KernelContext,
    (pid, at): (Pid, Position),
) -> Result<Image, KernelError> {
    let up_to = image_position(store, (pid, at))?;
    Ok(
        recovery::load_process(store, context, pid, up_to, LoadPurpose::Inspect)?
            .state
            .image(),
    )
}

/// The fact that a position names; `None` for the last one.
pub(super) fn image_position(
    store: &dyn Store,
    (pid, at): (Pid, Position),
) -> Result<Option<FactNumber>, KernelError> {
    Ok(match at {
        Position::Now => None,
        Position::Fact(fact) => Some(fact),
        Position::Checkpoint(id) => {
            let fact = consistent_cut::find_checkpoint(store, id)?.position_of(pid);
            Some(fact.ok_or(NotFound::InCheckpoint {
                pid,
                checkpoint: id,
            })?)
        }
    })
}
