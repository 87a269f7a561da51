//! A map keyed by pid. Pids are assigned consecutively and never reused, so values are stored in
//! rows of adjacent slots: an entry stores its value only, neither a key nor a pointer. Sparse
//! pids are valid keys and cost more memory.

use std::collections::BTreeMap;

use crate::id::Pid;

/// The number of slots in a row.
const ROW_SLOTS: u64 = 64;

/// Values by pid, in ascending order. Lookup is O(log n).
#[derive(Clone, Debug)]
pub struct PidMap<T> {
    rows: BTreeMap<u64, Box<[Option<T>]>>,
    len: usize,
}

impl<T> Default for PidMap<T> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            len: 0,
        }
    }
}

impl<T> PidMap<T> {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a process.
    #[must_use]
    pub fn get(&self, pid: Pid) -> Option<&T> {
        self.rows.get(&(pid.0 / ROW_SLOTS))?[slot_index(pid)].as_ref()
    }

    /// The mutable value of a process.
    pub fn get_mut(&mut self, pid: Pid) -> Option<&mut T> {
        self.rows.get_mut(&(pid.0 / ROW_SLOTS))?[slot_index(pid)].as_mut()
    }

    /// Sets the value of a process. Returns the previous one.
    pub fn insert(&mut self, pid: Pid, value: T) -> Option<T> {
        let row = self
            .rows
            .entry(pid.0 / ROW_SLOTS)
            .or_insert_with(|| (0..ROW_SLOTS).map(|_| None).collect());
        let old = row[slot_index(pid)].replace(value);
        self.len += usize::from(old.is_none());
        old
    }

    /// Removes the value of a process.
    pub fn remove(&mut self, pid: Pid) -> Option<T> {
        let row = self.rows.get_mut(&(pid.0 / ROW_SLOTS))?;
        let old = row[slot_index(pid)].take()?;
        self.len -= 1;
        if row.iter().all(Option::is_none) {
            self.rows.remove(&(pid.0 / ROW_SLOTS));
        }
        Some(old)
    }

    /// All entries, in ascending order of pids.
    pub fn iter(&self) -> impl Iterator<Item = (Pid, &T)> {
        self.after(None)
    }

    /// Entries after a pid (`None`: all), in ascending order of pids.
    pub fn after(&self, pid: Option<Pid>) -> impl Iterator<Item = (Pid, &T)> {
        let first = pid.map_or(0, |pid| pid.0 / ROW_SLOTS);
        let values = self.rows.range(first..).flat_map(|(row, values)| {
            let pids = (0..ROW_SLOTS).map(move |slot| Pid(row * ROW_SLOTS + slot));
            pids.zip(values.iter())
        });
        let values = values.filter_map(|(pid, value)| Some((pid, value.as_ref()?)));
        values.skip_while(move |(found, _)| pid.is_some_and(|pid| *found <= pid))
    }
}

fn slot_index(pid: Pid) -> usize {
    (pid.0 % ROW_SLOTS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map_ordered_by_pid() {
        let mut map = PidMap::default();
        let pids = [1, 63, 64, 65, 700, u64::MAX];
        for pid in pids.iter().rev() {
            assert_eq!(map.insert(Pid(*pid), *pid), None);
        }
        assert_eq!(map.insert(Pid(64), 64), Some(64));
        assert_eq!(map.len(), 6);
        let of = |pids: &[u64]| pids.iter().map(|pid| (Pid(*pid), *pid)).collect::<Vec<_>>();
        let found = |map: &PidMap<u64>, after| {
            map.after(after)
                .map(|(pid, value)| (pid, *value))
                .collect::<Vec<_>>()
        };
        assert_eq!(found(&map, None), of(&pids));
        assert_eq!(found(&map, Some(Pid(63))), of(&pids[2..]));
        assert_eq!(found(&map, Some(Pid(66))), of(&pids[4..]));
        assert_eq!(found(&map, Some(Pid(u64::MAX))), []);
        assert_eq!(
            (map.get(Pid(65)), map.get(Pid(66)), map.get(Pid(9999))),
            (Some(&65), None, None)
        );
        assert_eq!(
            (map.remove(Pid(700)), map.remove(Pid(700)), map.len()),
            (Some(700), None, 5)
        );
        assert_eq!(found(&map, Some(Pid(65))), of(&[u64::MAX]));
        *map.get_mut(Pid(1)).unwrap() = 7;
        assert_eq!(map.get(Pid(1)), Some(&7));
    }
}
