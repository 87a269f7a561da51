//! A sliding window over the tokens of calls: how many of the last minute count against a limit.
//!
//! A call counts with its estimated tokens while it runs, and with those that it used for a minute
//! after its end. So the tokens of any minute stay within a limit, except for what calls use beyond
//! their estimates. A call that needs more than a limit alone begins once nothing else counts.

use std::collections::{BTreeMap, VecDeque};

use super::PermitTicket;

/// How long the tokens of a call count after its end, in milliseconds.
const WINDOW_MS: u64 = 60_000;

/// What a call needs of the tokens of a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenDemand {
    /// Its tokens, as estimated.
    pub tokens: u64,
    /// The limit that it has to keep: tokens of all calls in a minute.
    pub per_minute: u64,
}

/// What one of several queues for the same server may use of the tokens of a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenShare {
    /// The most tokens that may count here.
    pub tokens: u64,
    /// The most tokens that may count in all queues together. A call that needs more begins once
    /// nothing else counts anywhere: when this queue has all of them.
    pub of: u64,
}

/// The tokens that count now.
#[derive(Debug, Default)]
pub(super) struct TokenWindow {
    running: BTreeMap<PermitTicket, u64>,
    /// Until when each call that has ended counts, and its tokens; sorted by time.
    ended: VecDeque<(u64, u64)>,
}

impl TokenWindow {
    /// Whether a call may begin.
    pub(super) fn has_room(
        &self,
        demand: TokenDemand,
        share: Option<TokenShare>,
        now_ms: u64,
    ) -> bool {
        is_enough(self.counted(now_ms), demand, share)
    }

    /// When a call may begin, if only calls that have ended keep it from that; `None` if one of those
    /// that run has to end first.
    pub(super) fn room_at(
        &self,
        demand: TokenDemand,
        share: Option<TokenShare>,
        now_ms: u64,
    ) -> Option<u64> {
        let mut counted = self.counted(now_ms);
        let mut ended = self.ended.iter().filter(|(until_ms, _)| *until_ms > now_ms);
        ended.find_map(|(until_ms, tokens)| {
            counted = counted.saturating_sub(*tokens);
            is_enough(counted, demand, share).then_some(*until_ms)
        })
    }

    /// The tokens that count.
    pub(super) fn counted(&self, now_ms: u64) -> u64 {
        let ended = self.ended.iter().filter(|(until_ms, _)| *until_ms > now_ms);
        let ended = ended.map(|(_, tokens)| tokens);
        self.running
            .values()
            .chain(ended)
            .fold(0, |sum, tokens| sum.saturating_add(*tokens))
    }

    pub(super) fn begin(&mut self, ticket: PermitTicket, demand: TokenDemand) {
        self.running.insert(ticket, demand.tokens);
    }

    /// A call has ended. `used` are the tokens that it used, if that is known.
    pub(super) fn end(&mut self, ticket: PermitTicket, used: Option<u64>, now_ms: u64) {
        let estimated = self.running.remove(&ticket);
        while self
            .ended
            .front()
            .is_some_and(|(until_ms, _)| *until_ms <= now_ms)
        {
            self.ended.pop_front();
        }
        let tokens = used.or(estimated).filter(|tokens| *tokens > 0);
        let entry = tokens.map(|tokens| (now_ms.saturating_add(WINDOW_MS), tokens));
        self.ended.extend(entry);
    }
}

fn is_enough(counted: u64, demand: TokenDemand, share: Option<TokenShare>) -> bool {
    let is_in_limit = counted == 0 || counted.saturating_add(demand.tokens) <= demand.per_minute;
    let is_in_share = share.is_none_or(|share| {
        let needed = demand.tokens.min(demand.per_minute).min(share.of);
        counted.saturating_add(needed) <= share.tokens
    });
    is_in_limit && is_in_share
}
