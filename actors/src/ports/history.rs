//! The history of a process: which commit wrote which facts, and which facts are lost.

use dormouse_proto::id::{CommitNumber, FactNumber, Pid};

use super::store::StoreError;

/// The commits of the facts of a process, as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The process.
    pub pid: Pid,
    /// The commits, sorted by fact number. A gap between two of them is a lost record.
    pub commits: Vec<CommittedFacts>,
    /// Facts that may be lost after the last known commit.
    pub lost: Option<LostHistory>,
}

/// Facts of a process that may be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostHistory {
    /// No lost fact was written before this commit.
    pub first_commit: CommitNumber,
    /// Describes the loss and its consequences.
    pub what: String,
}

impl History {
    /// Builds a history without losses.
    #[must_use]
    pub fn complete(pid: Pid, commits: Vec<CommittedFacts>) -> Self {
        Self {
            pid,
            commits,
            lost: None,
        }
    }

    /// The last known fact.
    #[must_use]
    pub fn last(&self) -> FactNumber {
        self.commits
            .last()
            .map(CommittedFacts::last)
            .unwrap_or_default()
    }

    /// The commits up to the first gap, and the error for the gap; `None` if nothing is lost.
    #[must_use]
    pub fn up_to_loss(&self) -> (&[CommittedFacts], Option<StoreError>) {
        let gap = self
            .commits
            .windows(2)
            .position(|pair| pair[0].last().plus(1) < pair[1].first);
        match gap {
            Some(gap) => (
                &self.commits[..=gap],
                Some(self.gap_error(self.commits[gap].last().plus(1))),
            ),
            None => (&self.commits, self.end_error()),
        }
    }

    /// All commits.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if a part of the history is lost.
    pub fn readable(&self) -> Result<&[CommittedFacts], StoreError> {
        match self.up_to_loss() {
            (commits, None) => Ok(commits),
            (_, Some(error)) => Err(error),
        }
    }

    /// The commit that wrote a fact, with all facts of that commit.
    ///
    /// # Errors
    /// [`StoreError::UnknownFact`], [`StoreError::DeletedFact`], [`StoreError::Damaged`].
    pub fn commit_of(&self, fact: FactNumber) -> Result<CommittedFacts, StoreError> {
        let pid = self.pid;
        let requested = fact;
        if let Some(retained) = self.commits.first().filter(|facts| fact < facts.first) {
            return Err(StoreError::DeletedFact {
                pid,
                requested,
                first_kept: retained.first,
            });
        }
        match self
            .commits
            .iter()
            .find(|committed| fact <= committed.last())
        {
            Some(committed) if committed.first <= fact => Ok(*committed),
            Some(_) => Err(self.gap_error(fact)),
            None => Err(self.end_error().unwrap_or(StoreError::UnknownFact {
                pid,
                requested,
                last: self.last(),
            })),
        }
    }

    /// The last fact that was written up to and including a commit; `None` if the process did not
    /// exist then.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if facts around that commit may be lost.
    pub fn last_fact_by(&self, commit: CommitNumber) -> Result<Option<FactNumber>, StoreError> {
        let count = self
            .commits
            .iter()
            .take_while(|committed| committed.commit <= commit)
            .count();
        let last = self.commits[..count].last().map(CommittedFacts::last);
        match self.commits.get(count) {
            // The lost facts may have been written before or after the commit.
            Some(next) if last.is_some_and(|last| last.plus(1) < next.first) => {
                Err(self.gap_error(last.unwrap_or_default().plus(1)))
            }
            Some(_) => Ok(last),
            None if self
                .lost
                .as_ref()
                .is_some_and(|lost| lost.first_commit <= commit) =>
            {
                Err(self
                    .end_error()
                    .unwrap_or_else(|| self.gap_error(self.last())))
            }
            None => Ok(last),
        }
    }

    /// The error for a lost fact between two known commits.
    fn gap_error(&self, fact: FactNumber) -> StoreError {
        StoreError::Damaged {
            what: format!("fact {fact} of process {} is lost", self.pid),
        }
    }

    /// The error for facts that may be lost after the last known commit.
    fn end_error(&self) -> Option<StoreError> {
        self.lost.as_ref().map(|lost| StoreError::Damaged {
            what: lost.what.clone(),
        })
    }
}

/// The facts of a process that one commit wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommittedFacts {
    /// The commit.
    pub commit: CommitNumber,
    /// The time of the commit: milliseconds since the epoch, UTC.
    pub at_ms: u64,
    /// The first fact; 0 for the birth.
    pub first: FactNumber,
    /// The number of facts.
    pub count: u64,
}

impl CommittedFacts {
    /// The last fact of the commit.
    #[must_use]
    pub fn last(&self) -> FactNumber {
        FactNumber((self.first.0 + self.count).saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Facts 0 to 2 of commit 1, 3 and 4 of commit 3, 7 of commit 6: facts 5 and 6 are lost.
    fn history(lost: Option<u64>) -> History {
        let written =
            [(1, 0, 3), (3, 3, 2), (6, 7, 1)].map(|(commit, first, count)| CommittedFacts {
                commit: CommitNumber(commit),
                at_ms: commit,
                first: FactNumber(first),
                count,
            });
        let lost = lost.map(|first_commit| LostHistory {
            first_commit: CommitNumber(first_commit),
            what: "its end".to_owned(),
        });
        History {
            pid: Pid(1),
            commits: written.to_vec(),
            lost,
        }
    }

    /// Maps the error of a damaged history to `()`; fails on any other error.
    fn or_damaged<T>(answer: Result<T, StoreError>) -> Result<T, ()> {
        answer.map_err(|error| assert!(matches!(error, StoreError::Damaged { .. }), "{error}"))
    }

    #[test]
    fn a_fact_is_in_the_commit_that_wrote_it() {
        let history = history(None);
        let commits =
            [0, 2, 3, 4, 7].map(|fact| history.commit_of(FactNumber(fact)).unwrap().commit.0);
        assert_eq!(commits, [1, 1, 3, 3, 6]);
        assert_eq!(
            [5, 6].map(|fact| or_damaged(history.commit_of(FactNumber(fact))).is_err()),
            [true, true]
        );
        assert!(matches!(
            history.commit_of(FactNumber(8)),
            Err(StoreError::UnknownFact {
                last: FactNumber(7),
                ..
            })
        ));
        let mut truncated = history;
        truncated.commits.remove(0);
        assert!(matches!(
            truncated.commit_of(FactNumber(2)),
            Err(StoreError::DeletedFact {
                first_kept: FactNumber(3),
                ..
            })
        ));
    }

    #[test]
    fn the_last_fact_by_a_commit_is_known_unless_facts_before_it_may_be_lost() {
        let by = |history: &History, commit| {
            or_damaged(history.last_fact_by(CommitNumber(commit)))
                .map(|last| last.map(|last| last.0))
        };
        let whole = history(None);
        let expected = [
            (0, Ok(None)),
            (1, Ok(Some(2))),
            (2, Ok(Some(2))),
            (3, Err(())),
            (5, Err(())),
            (6, Ok(Some(7))),
        ];
        for (commit, expected) in expected {
            assert_eq!(by(&whole, commit), expected, "commit {commit}");
        }
        assert_eq!(
            (
                by(&whole, 9),
                by(&history(Some(8)), 7),
                by(&history(Some(8)), 8)
            ),
            (Ok(Some(7)), Ok(Some(7)), Err(()))
        );
    }

    #[test]
    fn a_history_can_be_read_up_to_the_first_loss() {
        let lost = history(None);
        let (written, error) = lost.up_to_loss();
        assert_eq!(
            (
                written.len(),
                error.map(|error| error.to_string().contains("fact 5 ")),
                lost.last().0
            ),
            (2, Some(true), 7)
        );
        assert!(lost.readable().is_err());
        for (end, is_readable) in [(None, true), (Some(4), false)] {
            let mut history = history(end);
            history.commits.truncate(2);
            assert_eq!(
                (history.up_to_loss().0.len(), history.readable().is_ok()),
                (2, is_readable)
            );
        }
        assert_eq!(History::complete(Pid(1), Vec::new()).last(), FactNumber(0));
    }
}
