//! Which contents leave memory: the least recently read, until the others are within a limit.
//!
//! A pure decision over what a ledger knows. Contents that are not durable yet are nobody's to
//! offload, and are not among the residents. What is pushed out is some eighth more than it takes,
//! so that the next content does not ask again.

/// A content in memory that could be read from disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident<K> {
    /// What it goes by.
    pub key: K,
    /// What letting go of it frees, in bytes.
    pub bytes: u64,
    /// When it was last read, as a place in the order of reads.
    pub last_read: u64,
}

/// Which of them go, the least recently read first: none where all of them together are within the
/// limit; else as many as it takes to come down to seven eighths of it. O(n log n) where something
/// goes, O(n) else.
#[must_use]
pub fn to_offload<K: Clone>(residents: &[Resident<K>], limit_bytes: u64) -> Vec<K> {
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
            assert_eq!(to_offload(&held, limit), gone, "{limit}");
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
            let gone = to_offload(&held, limit);
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
