//! A shard, as the numbers of its processes show it.

use std::ops::RangeInclusive;

use dormouse::id::Pid;
use dormouse_postgres::ShardId;

/// The pids of a shard differ in their lowest bits only.
const PID_BITS: u32 = 40;

/// The most shards of a cluster: the highest pid is less than 2^53.
pub const MAX_SHARDS: u32 = 1 << (53 - PID_BITS);

/// The shard of a process.
#[must_use]
pub fn shard_of(pid: Pid) -> ShardId {
    // Never cut off: pids are less than 2^53.
    ShardId((pid.0 >> PID_BITS) as u32)
}

/// The pids of a shard.
#[must_use]
pub fn pids_of(shard: ShardId) -> RangeInclusive<Pid> {
    let first = u64::from(shard.0) << PID_BITS;
    Pid(first + 1)..=Pid(first + (1 << PID_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pids_of_a_shard_name_it() {
        for shard in [0, 1, 63, MAX_SHARDS - 1].map(ShardId) {
            let pids = pids_of(shard);
            assert_eq!(shard_of(*pids.start()), shard);
            assert_eq!(shard_of(*pids.end()), shard);
            assert!(*pids.end() <= Pid::MAX);
        }
        assert_eq!(pids_of(ShardId(0)).start(), &Pid(1));
    }
}
