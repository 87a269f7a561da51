//! Shards that fail at this node, and how long each is left alone before it is opened again.
//!
//! What made a shard fail may do so each time: a full disk, an object store that is away, a commit
//! that the database never takes. Its processes go on each time it is opened, and fail again. So
//! the waits double, up to a minute, until the shard stays open for two.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dormouse_postgres::ShardId;

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A shard that has been open for so long has recovered: longer than a commit waits for a database
/// that is away.
const RECOVERED_AFTER: Duration = Duration::from_secs(120);

/// The failures of all shards.
#[derive(Default)]
pub(crate) struct Failures(Mutex<BTreeMap<ShardId, Failure>>);

/// The last failure of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// How often it has failed, one time after the other.
    pub(crate) times: u32,
    /// Why it failed last.
    pub(crate) why: String,
    /// When it may be opened again.
    pub(crate) retry_at: Instant,
    /// When it was opened since then.
    opened_at: Option<Instant>,
}

impl Failures {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ShardId, Failure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a shard has failed. Returns how long it is left alone.
    pub(crate) fn add(&self, shard: ShardId, why: String, now: Instant) -> Duration {
        let mut failures = self.lock();
        failures.retain(|_, failure| failure.counts(now));
        let times = failures.get(&shard).map_or(1, |last| last.times + 1);
        let wait = wait_after(times);
        let retry_at = now + wait;
        let failure = Failure {
            times,
            why,
            retry_at,
            opened_at: None,
        };
        failures.insert(shard, failure);
        wait
    }

    /// Notes that a shard is open.
    pub(crate) fn opened(&self, shard: ShardId, now: Instant) {
        if let Some(failure) = self.lock().get_mut(&shard) {
            failure.opened_at = Some(now);
        }
    }

    /// Whether a shard may be opened.
    pub(crate) fn may_open(&self, shard: ShardId, now: Instant) -> bool {
        self.lock()
            .get(&shard)
            .is_none_or(|failure| failure.retry_at <= now)
    }

    /// Forgets a shard that is another node's now.
    pub(crate) fn forget(&self, shard: ShardId) {
        self.lock().remove(&shard);
    }

    /// The failures that count, by shard.
    pub(crate) fn all(&self, now: Instant) -> Vec<(ShardId, Failure)> {
        let failures = self.lock();
        let counting = failures.iter().filter(|(_, failure)| failure.counts(now));
        counting
            .map(|(shard, failure)| (*shard, failure.clone()))
            .collect()
    }
}

impl Failure {
    fn counts(&self, now: Instant) -> bool {
        self.opened_at
            .is_none_or(|opened| now < opened + RECOVERED_AFTER)
    }
}

fn wait_after(times: u32) -> Duration {
    let doublings = times.saturating_sub(1).min(16);
    (FIRST_WAIT * 2_u32.pow(doublings)).min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: ShardId = ShardId(3);

    #[test]
    fn each_wait_is_twice_the_last_one_up_to_a_minute() {
        let failures = Failures::default();
        let mut now = Instant::now();
        for wait_s in [1, 2, 4, 8, 16, 32, 60, 60] {
            failures.add(SHARD, "the disk is full".to_owned(), now);
            let wait = Duration::from_secs(wait_s);
            assert!(!failures.may_open(SHARD, now + wait - Duration::from_millis(1)));
            assert!(failures.may_open(SHARD, now + wait), "{wait:?}");
            assert!(failures.may_open(ShardId(4), now));
            // It opens, and fails some seconds later.
            failures.opened(SHARD, now + wait);
            now += wait + Duration::from_secs(9);
        }
        let (shard, failure) = failures.all(now).remove(0);
        assert_eq!(
            (shard, failure.times, &*failure.why),
            (SHARD, 8, "the disk is full")
        );
    }

    #[test]
    fn a_shard_that_stayed_open_or_went_elsewhere_begins_anew() {
        let failures = Failures::default();
        let fail = |now| failures.add(SHARD, String::new(), now);
        let mut now = Instant::now();
        let second = Duration::from_secs(1);
        fail(now);
        fail(now);
        now += 2 * second;
        failures.opened(SHARD, now);
        now += RECOVERED_AFTER;
        assert!(failures.all(now).is_empty());
        fail(now);
        assert!(failures.may_open(SHARD, now + second));
        // Not opened for long is not recovered.
        now += 10 * RECOVERED_AFTER;
        fail(now);
        assert!(!failures.may_open(SHARD, now + second));
        failures.forget(SHARD);
        assert!(failures.may_open(SHARD, now));
    }
}
