//! Cache eviction: selects the least recently read contents until the others fit the limit.
//!
//! The selection is a pure function. Its input lists only durable contents, since the others cannot
//! be read again from disk. Each eviction also frees an eighth of the limit, so that the next
//! content does not cause another eviction.

/// A content in memory that can be read again from disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident<K> {
    /// Key of the content in the cache.
    pub key: K,
    /// Bytes that its eviction frees.
    pub bytes: u64,
    /// Number of its last read: the reads of all contents are numbered in order.
    pub last_read: u64,
}

/// Selects the contents to evict, least recently read first. Selects none if all of them fit the
/// limit; otherwise, the remaining ones take at most seven eighths of the limit. O(n log n) if
/// something is evicted, otherwise O(n).
#[must_use]
pub fn select_evictions<K: Clone>(residents: &[Resident<K>], limit_bytes: u64) -> Vec<K> {
    let mut bytes_in_memory: u64 = residents.iter().map(|resident| resident.bytes).sum();
    if bytes_in_memory <= limit_bytes {
        return Vec::new();
    }
    let mut least_recent_first: Vec<_> = residents
        .iter()
        .filter(|resident| resident.bytes > 0)
        .collect();
    least_recent_first.sort_by_key(|resident| resident.last_read);
    let goal_bytes = limit_bytes - limit_bytes / 8;
    let mut evicted = Vec::new();
    for resident in least_recent_first {
        if bytes_in_memory <= goal_bytes {
            break;
        }
        bytes_in_memory -= resident.bytes;
        evicted.push(resident.key.clone());
    }
    evicted
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
    fn the_least_recently_read_contents_are_evicted_until_an_eighth_is_free() {
        let held = residents(&[(30, 3), (30, 1), (30, 2), (0, 0), (30, 4)]);
        for (limit, evicted) in [
            (120, vec![]),
            (119, vec![1]),
            (80, vec![1, 2]),
            (0, vec![1, 2, 0, 4]),
        ] {
            assert_eq!(select_evictions(&held, limit), evicted, "{limit}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn remaining_contents_fit_the_limit_and_were_read_later(
            parts in prop::collection::vec((0_u64..100, 0_u64..20), 0..40),
            limit in 0_u64..1_000,
        ) {
            let held = residents(&parts);
            let evicted = select_evictions(&held, limit);
            let (removed, remaining): (Vec<Resident<usize>>, Vec<_>) = held.iter().copied().partition(|resident| evicted.contains(&resident.key));
            let remaining_bytes: u64 = remaining.iter().map(|resident| resident.bytes).sum();
            prop_assert!(remaining_bytes <= limit);
            let newest_evicted = removed.iter().map(|resident| resident.last_read).max().unwrap_or(0);
            prop_assert!(remaining.iter().all(|resident| resident.bytes == 0 || resident.last_read >= newest_evicted));
            let total: u64 = held.iter().map(|resident| resident.bytes).sum();
            prop_assert!(evicted.is_empty() == (total <= limit));
        }
    }
}
