//! Performs reads at once and decides on their results, instead of handing them to the shell.

use dormouse_proto::record::CallFact;

use super::decide::{Decision, decide};
use super::read::Read;
use super::{Fact, Input};
use dormouse_content::ReadQuota;

impl Decision {
    /// Performs each read that needs at most `bytes` bytes, all of them in memory, and decides on
    /// its result. Other reads stay in the decision. An arrival stays as well if an earlier arrival
    /// is still being read.
    pub fn read_inline(self, bytes: u64, now_ms: u64) -> Self {
        let is_only_arrival = self.state.pending_reads.arrivals() <= 1;
        self.perform_reads(now_ms, |read| {
            if read.call().is_none() && !is_only_arrival {
                return None;
            }
            read.perform(&ReadQuota::inline(bytes))
        })
    }

    /// Performs all reads at once, including reads from disk. For callers without actors, such as
    /// tests: an actor must not block on a read.
    pub fn read_all(self, now_ms: u64) -> Self {
        self.perform_reads(now_ms, |read| read.perform(ReadQuota::unlimited()))
    }

    fn perform_reads(mut self, now_ms: u64, perform: impl Fn(&Read) -> Option<Input>) -> Self {
        let mut remaining = Vec::new();
        while !self.reads.is_empty() {
            for read in std::mem::take(&mut self.reads) {
                match perform(&read) {
                    Some(input) => self.decide_next(input, now_ms),
                    None => remaining.push(read),
                }
            }
        }
        self.reads = remaining;
        self
    }

    /// Decides on one more input and appends the result to this decision.
    fn decide_next(&mut self, input: Input, now_ms: u64) {
        let Self {
            facts,
            state,
            reads,
            effects,
            reopening,
        } = decide(&self.state, input, now_ms);
        self.reopening = self.reopening.take().or(reopening);
        // Nothing starts for a call that is answered before the facts of this decision are durable.
        let answered = facts.iter().filter_map(|fact| match fact {
            Fact::Call(CallFact::ToolReturned { call, .. }) => Some(*call),
            _ => None,
        });
        for call in answered {
            self.effects.retain(|effect| !effect.is_work_of(call));
        }
        self.state = state;
        self.facts.extend(facts);
        self.reads.extend(reads);
        self.effects.extend(effects);
    }
}
