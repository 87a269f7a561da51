//! FD-1 and FD-2: numbers are given once, and what a descriptor holds never changes.

use dormouse_content::Content;
use dormouse_kernel::process::Fact;
use dormouse_proto::id::{FdId, Pid};
use dormouse_proto::record::DescriptorFact;

use super::{Held, Violation, ensure};
use crate::process::Running;
use crate::world::World;

impl World {
    /// FD-1: a new number is greater than every one before.
    pub(super) fn fd_1(&mut self, pid: Pid, number: u64, fact: &Fact) -> Held {
        let Some(ledger) = self.ledgers.get_mut(&pid) else {
            return Ok(());
        };
        if let Fact::Restored { image, .. } = fact {
            // Messages are no descriptors of their own, whatever is noted of them.
            let own = image
                .table
                .iter()
                .filter(|(id, _)| !matches!(id, FdId::Message { .. }));
            ledger.contents = own
                .map(|(id, entry)| (id.clone(), entry.content.hash()))
                .collect();
        }
        if let Fact::Compacted {
            compacted, entry, ..
        } = fact
        {
            let history = compacted.history;
            let highest = ledger.histories.last().map_or(0, |(highest, _)| *highest);
            ensure(history > highest, "FD-1", || {
                format!("{pid} opens history:{history}, and {highest} was given out before")
            })?;
            ledger.histories.push((history, number));
            let hash = entry.content.hash();
            ledger.contents.insert(FdId::History(history), hash);
        }
        let Fact::Descriptor(DescriptorFact::Opened { id, entry }) = fact else {
            return Ok(());
        };
        if let FdId::Fd(fd) = id {
            let highest = ledger.numbers.last().map_or(0, |(highest, _)| *highest);
            ensure(*fd > highest, "FD-1", || {
                format!("{pid} opens {id}, and fd:{highest} was given out before")
            })?;
            ledger.numbers.push((*fd, number));
        }
        ledger.contents.insert(id.clone(), entry.content.hash());
        Ok(())
    }

    /// FD-2: every descriptor is there and holds what it held.
    pub(super) fn fd_2(&self, running: &Running) -> Held {
        self.hold_the_same(running, "FD-2")
    }

    /// Of large tables a part is looked at in each step.
    pub(super) fn hold_the_same(&self, running: &Running, invariant: &'static str) -> Held {
        let pid = running.pid();
        let (table, Some(ledger)) = (running.state.table(), self.ledgers.get(&pid)) else {
            return Ok(());
        };
        let every = 1 + ledger.contents.len() / 4;
        for (at, (id, hash)) in ledger.contents.iter().enumerate() {
            if !(at as u64 + self.steps).is_multiple_of(every as u64) {
                continue;
            }
            let gone = || Violation::of(invariant, format!("{id} of {pid} is gone"));
            let content = &table.get(id).ok_or_else(gone)?.content;
            ensure(content.hash() == *hash, invariant, || {
                format!("{id} of {pid} holds something else")
            })?;
            // What a content says of itself is asked of its bytes at times.
            let is_true = !self.steps.is_multiple_of(16)
                || Content::new(
                    content
                        .unlimited_reader()
                        .bytes()
                        .expect("it is in memory")
                        .clone(),
                )
                .hash()
                    == *hash;
            ensure(is_true, invariant, || {
                format!("the bytes of {id} of {pid} changed")
            })?;
        }
        Ok(())
    }
}
