//! DUR-1 and DUR-2: what was acknowledged is there after a crash, and a journal gives the state
//! that wrote it. DUR-3 is asserted where contents are read (`store.rs`).

use dormouse_kernel::process::{Effect, State};
use dormouse_proto::id::Pid;

use super::{Held, ensure};
use crate::store::From;
use crate::world::World;

impl World {
    /// Facts up to `up_to` count as durable from here on, and `effects` are performed.
    pub(crate) fn check_acknowledged(&self, pid: Pid, up_to: u64, effects: &[Effect]) -> Held {
        let last = self.store.disk.last(pid);
        ensure(last >= up_to, "DUR-1", || {
            format!(
                "{pid} is to perform {} effects of fact {up_to}, and {last} are durable",
                effects.len()
            )
        })
    }

    /// After a crash: no journal ends before what was acknowledged.
    pub(crate) fn check_survivors(&self) -> Held {
        for (pid, ledger) in &self.ledgers {
            let Some((at, _)) = &ledger.witness else {
                continue;
            };
            let last = self.store.disk.last(*pid);
            let is_there = self.store.disk.journals.contains_key(pid) && last >= *at;
            ensure(is_there, "DUR-1", || {
                format!("fact {at} of {pid} was acknowledged, and the last is {last}")
            })?;
        }
        Ok(())
    }

    /// A process as it comes back: what was acknowledged is in it, as it was.
    pub(crate) fn check_recovered(&mut self, state: &State, last: u64) -> Held {
        let pid = state.pid();
        if let Some((at, witness)) = self
            .ledgers
            .get(&pid)
            .and_then(|ledger| ledger.witness.as_ref())
        {
            ensure(last >= *at, "DUR-1", || {
                format!("fact {at} of {pid} was acknowledged, and the last is {last}")
            })?;
            if last > *at {
                return self.check_replay(pid);
            }
            ensure(state == witness, "DUR-2", || {
                format!("{pid} after fact {at} is not as it was:\n{state:?}\n{witness:?}")
            })?;
        }
        self.check_replay_at_times(pid)
    }

    /// Replaying costs what a journal holds: it is done of some that come up for it.
    pub(crate) fn check_replay_at_times(&mut self, pid: Pid) -> Held {
        if self.random.percent(12) {
            self.check_replay(pid)
        } else {
            Ok(())
        }
    }

    /// The journal of a process, read from its birth or from its last snapshot, gives the state
    /// that was acknowledged.
    pub(crate) fn check_replay(&mut self, pid: Pid) -> Held {
        let Some((at, witness)) = self
            .ledgers
            .get(&pid)
            .and_then(|ledger| ledger.witness.as_ref())
        else {
            return Ok(());
        };
        let from = if self.random.percent(50) {
            From::Birth
        } else {
            From::Snapshot
        };
        let (state, _) = self
            .store
            .disk
            .read(&self.programs, pid, Some(*at), from, self.defect)?;
        ensure(state == *witness, "DUR-2", || {
            format!(
                "{pid} after fact {at}, read from its {from:?}, is not as it \
                 was:\n{state:?}\n{witness:?}"
            )
        })?;
        self.tally.count("journals replayed and compared");
        Ok(())
    }
}
