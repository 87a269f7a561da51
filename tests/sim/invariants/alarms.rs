//! ALARM-1: a time of an alarm is reported once at most, never before it has come, and the table of
//! the store says when the next one of a process that rests is due.

use std::collections::BTreeMap;

use dormouse_kernel::process::{Fact, State};
use dormouse_proto::alarm::AlarmId;
use dormouse_proto::id::Pid;
use dormouse_proto::process::Waiting;
use dormouse_proto::record::AlarmFact;

use super::{Held, ensure};
use crate::world::World;

/// The alarms of a process, beside its machine.
#[derive(Default)]
pub(super) struct Alarms {
    /// When each open one is due.
    open: BTreeMap<AlarmId, u64>,
    /// What was reported, and the fact that says so.
    fired: BTreeMap<(AlarmId, u64), u64>,
}

impl Alarms {
    /// A life begins after fact `last`.
    pub(super) fn begin(&mut self, state: &State, last: u64) {
        self.fired.retain(|_, at| *at <= last);
        self.open = open_in(state);
    }
}

fn open_in(state: &State) -> BTreeMap<AlarmId, u64> {
    let alarms = state.alarms().map(|alarm| (alarm.id, alarm.due_ms));
    alarms.collect()
}

impl World {
    /// `facts` are those of a step that led to `after`, numbered from `first`.
    pub(super) fn alarm_1(&mut self, after: &State, first: u64, facts: &[Fact]) -> Held {
        let (pid, now) = (after.pid(), self.time_ms());
        let Some(ledger) = self.ledgers.get_mut(&pid) else {
            return Ok(());
        };
        let Alarms { open, fired } = &mut ledger.alarms;
        for (number, fact) in (first..).zip(facts) {
            match fact {
                Fact::Alarm(AlarmFact::Set { alarm }) => {
                    open.insert(alarm.id, alarm.due_ms);
                }
                Fact::Alarm(AlarmFact::Cancelled { id }) => {
                    open.remove(id);
                }
                Fact::Alarm(AlarmFact::Fired { id, next_ms, .. }) => {
                    let due = open.remove(id);
                    ensure(due.is_some_and(|due| due <= now), "ALARM-1", || {
                        format!("{id} of {pid}, due {due:?}, fires at {now}")
                    })?;
                    let before = fired.insert((*id, due.unwrap_or_default()), number);
                    ensure(before.is_none(), "ALARM-1", || {
                        format!("{id} of {pid} fires twice: facts {before:?} and {number}")
                    })?;
                    open.extend(next_ms.map(|next_ms| (*id, next_ms)));
                }
                // The alarms of the point that it went back to are open again.
                Fact::Restored { image, .. } => {
                    *open = image
                        .alarms
                        .iter()
                        .map(|alarm| (alarm.id, alarm.due_ms))
                        .collect();
                    fired.retain(|(id, due), _| open.get(id).is_none_or(|again| again > due));
                }
                Fact::Exited { .. } => open.clear(),
                _ => {}
            }
        }
        ensure(*open == open_in(after), "ALARM-1", || {
            format!("{pid} has the alarms {:?} of {open:?}", open_in(after))
        })
    }

    /// A process was read from its journal: its row says the same as its facts, or that the journal
    /// has to be read.
    pub(crate) fn check_row(&self, pid: Pid, state: &State) -> Held {
        let journal = self.store.disk.journals.get(&pid);
        let in_row = journal.map_or(Waiting::Unknown, |journal| journal.row.waiting);
        let waiting = state.waiting();
        let holds_calls = waiting.may_hold_calls();
        let is_right = in_row == waiting || (in_row == Waiting::Unknown && holds_calls);
        let invariant = if holds_calls { "HELD-1" } else { "ALARM-1" };
        ensure(is_right, invariant, || {
            format!("the row of {pid} says {in_row:?}, and its journal {waiting:?}")
        })
    }
}
