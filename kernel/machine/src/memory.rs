//! Cache eviction: selects the least recently read contents until the rest is within the limit.
//!
//! A pure decision on data of the content cache. Contents that are not durable cannot be evicted
//! and are not passed in. An eighth more than necessary is evicted, so that the next content does
//! not trigger another eviction.

/// A resident content that can be read from disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident<K> {
    /// Key of the content in the cache.
    pub key: K,
    /// Bytes that its eviction frees.
    pub bytes: u64,
    /// Position of its last read on the access clock.
    pub last_read: u64,
}

/// The contents to evict, least recently read first: none if all are within the limit; otherwise
/// enough to get down to seven eighths of it. O(n log n) if something is evicted, otherwise O(n).
#[must_use]
pub fn select_evictions<K: Clone>(residents: &[Resident<K>], limit_bytes: u64) -> Vec<K> {
    let mut held: u64 = residents.iter().map(|resident| resident.bytes).sum();
    if held <= limit_bytes {
        return Vec::new();
    }
    let mut oldest: Vec<_> = residents
        .iter()
        .filter(|resident| resident.bytes > 0)
        .collect();
    oldest.sort_by_key(|resident| resident.last_read);
    let goal = limit_bytes - limit_bytes / 8;
    let going = oldest.into_iter().take_while(|resident| {
        let goes = held > goal;
        held = if goes { held - resident.bytes } else { held };
        goes
    });
    going.map(|resident| resident.key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn residents(parts: &[(u64, u64)]) -> Vec<Resident<usize>> {
        let resident = |(key, (bytes, last_read)): (usize, &(u64, u64))| Resident {
            key,
            bytes: *bytes,
            last_read: *last_read,
        };
        parts.iter().enumerate().map(resident).collect()
    }

    #[test]
    fn the_least_recently_read_go_until_an_eighth_is_free() {
        let held = residents(&[(30, 3), (30, 1), (30, 2), (0, 0), (30, 4)]);
        for (limit, gone) in [
            (120, vec![]),
            (119, vec![1]),
            (80, vec![1, 2]),
            (0, vec![1, 2, 0, 4]),
        ] {
            assert_eq!(select_evictions(&held, limit), gone, "{limit}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_stays_is_within_the_limit_and_was_read_later(
            parts in prop::collection::vec((0_u64..100, 0_u64..20), 0..40),
            limit in 0_u64..1_000,
        ) {
            let held = residents(&parts);
            let gone = select_evictions(&held, limit);
            let (left, right): (Vec<Resident<usize>>, Vec<_>) = held.iter().copied().partition(|resident| gone.contains(&resident.key));
            let stays: u64 = right.iter().map(|resident| resident.bytes).sum();
            prop_assert!(stays <= limit);
            let newest_gone = left.iter().map(|resident| resident.last_read).max().unwrap_or(0);
            prop_assert!(right.iter().all(|resident| resident.bytes == 0 || resident.last_read >= newest_gone));
            let total: u64 = held.iter().map(|resident| resident.bytes).sum();
            prop_assert!(gone.is_empty() == (total <= limit));
        }
    }
}
