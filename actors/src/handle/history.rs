//! Looking back: the facts of a process, one by one, and what differs between two points.

use dormouse_kernel::process::{Diff, Image, diff, gist};
use dormouse_proto::export::Facts;
use dormouse_proto::id::{CommitNumber, FactNumber, Pid};
use dormouse_proto::record::codec;
use dormouse_proto::record::{ContentRef, Fact};

use super::branch::Point;
use super::kernel::Kernel;
use crate::error::KernelError;
use crate::points;
use crate::ports::{Store, Written};
use crate::recovery::{self, LoadError, Purpose};
use crate::world::World;

/// A fact as it is listed: each is a point that a branch can begin at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Its number; 0 for the birth.
    pub number: FactNumber,
    /// The commit that it was written in: what follows belongs to a point as well, as far as it has the same.
    pub commit: CommitNumber,
    /// When that was: milliseconds since the epoch, UTC.
    pub at_ms: u64,
    /// The word for it; `born` for the birth.
    pub name: &'static str,
    /// What it says, in one line.
    pub gist: String,
}

impl Kernel {
    /// The facts of a process that are kept, its birth first where that is. Costs its whole journal, and a read for each commit.
    ///
    /// # Errors
    /// [`KernelError::NoStore`], [`KernelError::Store`], [`KernelError::Load`] for a fact that has no meaning.
    pub async fn log(&self, pid: Pid) -> Result<Vec<LogLine>, KernelError> {
        points::reading(&self.world, move |store, _| log(store, pid)).await
    }

    /// What differs between a point of one process and one of the same or another: a fact (exactly), a checkpoint, or its last
    /// durable fact. Costs both journals since their latest snapshots.
    ///
    /// # Errors
    /// [`KernelError::NoStore`], [`KernelError::Store`], [`KernelError::NotInCheckpoint`], [`KernelError::Load`].
    pub async fn diff(&self, left: (Pid, Point), right: (Pid, Point)) -> Result<Diff, KernelError> {
        let read =
            move |store: &dyn Store, world: &World| Ok(diff(&image(store, world, left)?, &image(store, world, right)?));
        points::reading(&self.world, read).await
    }
}

fn log(store: &dyn Store, pid: Pid) -> Result<Vec<LogLine>, KernelError> {
    let history = store.history(pid)?;
    let Some(from) = history.first().map(|written| written.first) else { return Ok(Vec::new()) };
    let last = history.last().map(Written::last).unwrap_or_default();
    let mut facts = store.facts(pid, from, last)?.into_iter();
    let mut lines = Vec::new();
    for written in &history {
        let Written { commit, at_ms, first, .. } = *written;
        for number in (first.0..=written.last().0).map(FactNumber) {
            let (name, gist) = match number {
                FactNumber(0) => ("born", store.journal(pid, Some(number))?.row.program.to_string()),
                _ => named(pid, &facts.next().unwrap_or_default())?,
            };
            lines.push(LogLine { number, commit, at_ms, name, gist });
        }
    }
    Ok(lines)
}

/// The facts of an export, one by one.
///
/// # Errors
/// Each may be [`KernelError::Load`], for a fact that has no meaning.
pub fn log_lines(told: &Facts) -> impl Iterator<Item = Result<LogLine, KernelError>> {
    let Facts { pid, commit, at_ms, first, ref facts } = *told;
    (first.0..).zip(facts).map(move |(number, fact)| {
        let (name, gist) = named(pid, fact)?;
        Ok(LogLine { number: FactNumber(number), commit, at_ms, name, gist })
    })
}

fn named(pid: Pid, fact: &[u8]) -> Result<(&'static str, String), LoadError> {
    let fact: Fact<ContentRef> = codec::decode(fact).map_err(|source| LoadError::Record { pid, source })?;
    Ok((fact.name(), gist(&fact)))
}

fn image(store: &dyn Store, world: &World, (pid, at): (Pid, Point)) -> Result<Image, KernelError> {
    let upto = match at {
        Point::Now => None,
        Point::Fact(fact) => Some(fact),
        Point::Checkpoint(id) => {
            let standing = points::checkpoint(store, id)?.standing(pid);
            Some(standing.ok_or(KernelError::NotInCheckpoint { pid, checkpoint: id })?)
        }
    };
    Ok(recovery::load(store, world, pid, upto, Purpose::Look)?.state.image())
}
