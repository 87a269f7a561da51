//! REOPEN-1: an ended process records nothing and runs only after exactly one fact that opened it
//! again, and its parent hears of each of its ends once, after it has ended.

use std::collections::BTreeMap;

use dormouse_kernel::process::{Fact, State};
use dormouse_proto::id::CallId;
use dormouse_proto::record::ChildFact;

use super::{Held, ensure};
use crate::world::World;

/// The ends and reopenings of a process, beside its machine.
#[derive(Default)]
pub(super) struct Lives {
    /// The facts by which it ended.
    ended: Vec<u64>,
    /// The facts by which it was opened again.
    opened: Vec<u64>,
    /// The later ends of its children that it heard, and the fact that says so.
    heard: BTreeMap<(CallId, u32, u32), u64>,
}

impl Lives {
    /// A life begins after fact `last`.
    pub(super) fn begin(&mut self, last: u64) {
        self.ended.retain(|at| *at <= last);
        self.opened.retain(|at| *at <= last);
        self.heard.retain(|_, at| *at <= last);
    }
}

impl World {
    /// `fact` is one of a step that was decided on `before`.
    pub(super) fn reopen_1(&mut self, before: &State, number: u64, fact: &Fact) -> Held {
        let pid = before.pid();
        let Some(ledger) = self.ledgers.get_mut(&pid) else {
            return Ok(());
        };
        let Lives {
            ended,
            opened,
            heard,
        } = &mut ledger.lives;
        let has_ended = ended.len() > opened.len();
        let is_reopening = matches!(fact, Fact::Reopened { .. });
        ensure(has_ended == is_reopening, "REOPEN-1", || {
            format!(
                "{pid} records {} at {number}; it ended at {ended:?}, and was opened at {opened:?}",
                fact.name()
            )
        })?;
        match fact {
            Fact::Exited { .. } => ended.push(number),
            Fact::Reopened { .. } => opened.push(number),
            Fact::Child(ChildFact::ReportedAgain { call, index, .. }) => {
                let child = before
                    .reopened_children()
                    .find(|child| (child.call, child.index) == (*call, *index));
                let Some(child) = child else {
                    return ensure(false, "REOPEN-1", || {
                        format!("{pid} hears of child {index} of {call}, which it did not open")
                    });
                };
                let key = (*call, *index, child.reopenings);
                let again = heard.insert(key, number);
                ensure(again.is_none(), "REOPEN-1", || {
                    format!("{pid} hears {key:?} at {number}, and did at {again:?}")
                })?;
                let row = self.store.disk.journals.get(&child.child);
                let row = row.map(|journal| &journal.row);
                let has_ended = row.is_some_and(|row| {
                    row.reopenings > child.reopenings
                        || (row.reopenings == child.reopenings && row.exit.is_some())
                });
                let is_lost = row.is_none_or(|row| row.parent != Some(pid));
                ensure(has_ended || is_lost, "REOPEN-1", || {
                    format!("{pid} hears of an end of {} that is none", child.child)
                })?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A process was read from its journal to run: it was opened as often as it has ended.
    pub(crate) fn check_lives(&self, state: &State) -> Held {
        let pid = state.pid();
        let Some(ledger) = self.ledgers.get(&pid).filter(|_| state.exit().is_none()) else {
            return Ok(());
        };
        let Lives { ended, opened, .. } = &ledger.lives;
        ensure(ended.len() == opened.len(), "REOPEN-1", || {
            format!("{pid} runs; it ended at {ended:?}, and was opened at {opened:?}")
        })
    }
}
