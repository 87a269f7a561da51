//! When the facts of a process were written, and which of them are lost: what a point in its past means.

use dormouse_proto::id::{CommitNumber, FactNumber, Pid};

use super::store::StoreError;

/// When the facts of a process were written, as far as that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The process.
    pub pid: Pid,
    /// By rising numbers. A gap between two of them is a record that is lost.
    pub written: Vec<Written>,
    /// What may be lost after the last of them.
    pub lost: Option<LostHistory>,
}

/// Facts of a process that may be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostHistory {
    /// None of them was written before this commit.
    pub since: CommitNumber,
    /// What is lost, and what follows from it.
    pub what: String,
}

impl History {
    /// Of a process of which nothing is lost.
    #[must_use]
    pub fn whole(pid: Pid, written: Vec<Written>) -> Self {
        Self { pid, written, lost: None }
    }

    /// The last fact that is known.
    #[must_use]
    pub fn last(&self) -> FactNumber {
        self.written.last().map(Written::last).unwrap_or_default()
    }

    /// What was written up to the first gap, and why there is no more; none where all is known.
    #[must_use]
    pub fn up_to_loss(&self) -> (&[Written], Option<StoreError>) {
        let gap = self.written.windows(2).position(|pair| pair[0].last().plus(1) < pair[1].first);
        match gap {
            Some(gap) => (&self.written[..=gap], Some(self.gap(self.written[gap].last().plus(1)))),
            None => (&self.written, self.end()),
        }
    }

    /// All that was written.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where something of it is lost.
    pub fn readable(&self) -> Result<&[Written], StoreError> {
        match self.up_to_loss() {
            (written, None) => Ok(written),
            (_, Some(error)) => Err(error),
        }
    }

    /// The commit that holds a fact.
    ///
    /// # Errors
    /// [`StoreError::UnknownFact`], [`StoreError::ForgottenFact`], [`StoreError::Damaged`].
    pub fn at(&self, fact: FactNumber) -> Result<Written, StoreError> {
        let (pid, asked) = (self.pid, fact);
        if let Some(kept) = self.written.first().filter(|kept| fact < kept.first) {
            return Err(StoreError::ForgottenFact { pid, asked, since: kept.first });
        }
        match self.written.iter().find(|written| fact <= written.last()) {
            Some(written) if written.first <= fact => Ok(*written),
            Some(_) => Err(self.gap(fact)),
            None => Err(self.end().unwrap_or(StoreError::UnknownFact { pid, asked, last: self.last() })),
        }
    }

    /// The last fact that was written by a commit; none where the process was not born by then.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where that is not known.
    pub fn by(&self, commit: CommitNumber) -> Result<Option<FactNumber>, StoreError> {
        let known = self.written.iter().take_while(|written| written.commit <= commit).count();
        let last = self.written[..known].last().map(Written::last);
        match self.written.get(known) {
            // What is lost between the two may be of either side of the commit.
            Some(next) if last.is_some_and(|last| last.plus(1) < next.first) => {
                Err(self.gap(last.unwrap_or_default().plus(1)))
            }
            Some(_) => Ok(last),
            None if self.lost.as_ref().is_some_and(|lost| lost.since <= commit) => {
                Err(self.end().unwrap_or_else(|| self.gap(self.last())))
            }
            None => Ok(last),
        }
    }

    fn gap(&self, fact: FactNumber) -> StoreError {
        StoreError::Damaged { what: format!("fact {fact} of process {} is lost", self.pid) }
    }

    fn end(&self) -> Option<StoreError> {
        self.lost.as_ref().map(|lost| StoreError::Damaged { what: lost.what.clone() })
    }
}

/// Facts that were written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The commit.
    pub commit: CommitNumber,
    /// When: milliseconds since the epoch, UTC.
    pub at_ms: u64,
    /// The first fact; 0 for the birth.
    pub first: FactNumber,
    /// How many.
    pub count: u64,
}

impl Written {
    /// The last of the facts.
    #[must_use]
    pub fn last(&self) -> FactNumber {
        FactNumber((self.first.0 + self.count).saturating_sub(1))
    }
}
