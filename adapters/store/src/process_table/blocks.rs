//! The encoded entries of the process table, in blocks: one value, in memory and in the index,
//! holds the entries of 16 processes with consecutive pids.
//!
//! An entry has some forty bytes. As a value of its own it would cost more than that: a pointer and
//! an allocation in memory, and a key in sled, which each opening of the store reads. A change of
//! one entry writes its whole block, so blocks are small, and an entry of more than 254 bytes is
//! stored by itself.
//!
//! A block is the lengths of its entries (16 bytes), then these entries. A length is 0 if there is
//! no such process, and 255 if the entry is stored by itself.

use std::collections::BTreeMap;

use dormouse_proto::id::Pid;

use crate::location_index::{block_key, process_key};

/// The number of processes of a block.
const BLOCK_PIDS: usize = 16;
/// The length that stands for an entry that is stored by itself.
const LARGE: u8 = u8::MAX;

/// Encoded entries, by pid.
#[derive(Debug, Default)]
pub(super) struct EntryBlocks {
    /// By pid divided by [`BLOCK_PIDS`].
    blocks: BTreeMap<u64, Box<[u8]>>,
    /// The entries that are stored by themselves.
    large: BTreeMap<Pid, Box<[u8]>>,
}

/// Receives each value of the index that is set or removed: key, old and new value.
pub(super) type OnChange<'a> = &'a mut dyn FnMut([u8; 9], Option<&[u8]>, Option<&[u8]>);

impl EntryBlocks {
    /// The entry of a process.
    pub(super) fn get(&self, pid: Pid) -> Option<&[u8]> {
        let block = self.blocks.get(&block_number(pid))?;
        self.resolve(pid, slots(block).nth(slot_index(pid))??)
    }

    /// All entries, by ascending pid.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Pid, &[u8])> {
        let entries = self.blocks.iter().flat_map(|(number, block)| {
            let pids =
                (0..BLOCK_PIDS as u64).map(move |slot| Pid(number * BLOCK_PIDS as u64 + slot));
            pids.zip(slots(block))
        });
        entries.filter_map(|(pid, slot)| Some((pid, self.resolve(pid, slot?)?)))
    }

    fn resolve<'e>(&'e self, pid: Pid, slot: Slot<'e>) -> Option<&'e [u8]> {
        match slot {
            Slot::Small(entry) => Some(entry),
            Slot::Large => self.large.get(&pid).map(|entry| &**entry),
        }
    }

    /// Sets entries, sorted by pid.
    pub(super) fn set(&mut self, entries: &[(Pid, Vec<u8>)], on_change: OnChange<'_>) {
        let is_same_block =
            |one: &(Pid, _), next: &(Pid, _)| block_number(one.0) == block_number(next.0);
        for changed in entries.chunk_by(is_same_block) {
            let number = block_number(changed[0].0);
            let old = self.blocks.get(&number).map(|block| &**block);
            let mut new_slots = [None; BLOCK_PIDS];
            for (new, old) in new_slots.iter_mut().zip(old.into_iter().flat_map(slots)) {
                *new = old;
            }
            for (pid, entry) in changed {
                new_slots[slot_index(*pid)] = Some(Slot::of(entry));
            }
            let new = encode_block(&new_slots);
            on_change(block_key(number), old, Some(&new));
            self.blocks.insert(number, new);
            for (pid, entry) in changed {
                self.set_large(*pid, entry, on_change);
            }
        }
    }

    /// Sets or removes the large entry of a process.
    fn set_large(&mut self, pid: Pid, entry: &[u8], on_change: OnChange<'_>) {
        let new = matches!(Slot::of(entry), Slot::Large).then_some(entry);
        let old = match new {
            Some(new) => self.large.insert(pid, new.into()),
            None => self.large.remove(&pid),
        };
        if old.is_some() || new.is_some() {
            on_change(process_key(pid), old.as_deref(), new);
        }
    }

    /// All values of the index, and their keys.
    pub(super) fn values(&self) -> impl Iterator<Item = ([u8; 9], &[u8])> {
        let blocks = self.blocks.iter();
        let blocks = blocks.map(|(number, block)| (block_key(*number), &**block));
        let large = self.large.iter();
        blocks.chain(large.map(|(pid, entry)| (process_key(*pid), &**entry)))
    }

    /// Adds a block of the index, as it is.
    pub(super) fn load_block(&mut self, number: u64, block: &[u8]) {
        self.blocks.insert(number, block.into());
    }

    /// Adds an entry that the index stores by itself, as it is.
    pub(super) fn load_large(&mut self, pid: Pid, entry: &[u8]) {
        self.large.insert(pid, entry.into());
    }
}

/// What a block holds of one process.
#[derive(Clone, Copy)]
enum Slot<'e> {
    /// Its entry.
    Small(&'e [u8]),
    /// That the entry is stored by itself.
    Large,
}

impl<'e> Slot<'e> {
    fn of(entry: &'e [u8]) -> Self {
        match entry.len() < LARGE.into() {
            true => Self::Small(entry),
            false => Self::Large,
        }
    }
}

fn block_number(pid: Pid) -> u64 {
    pid.0 / BLOCK_PIDS as u64
}

fn slot_index(pid: Pid) -> usize {
    (pid.0 % BLOCK_PIDS as u64) as usize
}

/// The slots of a block, in the order of pids. The bytes of a block are verified by the digest of
/// the table, so that its lengths are right.
fn slots(block: &[u8]) -> impl Iterator<Item = Option<Slot<'_>>> {
    let (lengths, mut entries) = block.split_at(block.len().min(BLOCK_PIDS));
    lengths.iter().map(move |length| match *length {
        0 => None,
        LARGE => Some(Slot::Large),
        length => {
            let (entry, rest) = entries.split_at_checked(length.into())?;
            entries = rest;
            Some(Slot::Small(entry))
        }
    })
}

fn encode_block(slots: &[Option<Slot<'_>>; BLOCK_PIDS]) -> Box<[u8]> {
    let lengths = slots.iter().map(|slot| match slot {
        None => 0,
        Some(Slot::Small(entry)) => entry.len() as u8,
        Some(Slot::Large) => LARGE,
    });
    let mut block: Vec<u8> = lengths.collect();
    for slot in slots {
        if let Some(Slot::Small(entry)) = slot {
            block.extend_from_slice(entry);
        }
    }
    block.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The entry of a process whose length is `length`.
    fn entry(pid: u64, length: usize) -> (Pid, Vec<u8>) {
        (Pid(pid), vec![pid as u8; length])
    }

    #[test]
    fn it_is_a_map_whose_changes_lead_to_the_values_of_the_index() {
        let mut blocks = EntryBlocks::default();
        let mut expected: BTreeMap<Pid, Vec<u8>> = BTreeMap::new();
        let mut index: BTreeMap<[u8; 9], Vec<u8>> = BTreeMap::new();
        let last = u64::MAX;
        let steps = [
            vec![entry(1, 40), entry(15, 254), entry(16, 2), entry(last, 9)],
            vec![entry(0, 3), entry(1, 41), entry(14, 255), entry(700, 5000)],
            vec![entry(14, 256), entry(15, 255), entry(700, 1)],
            vec![entry(14, 254)],
        ];
        for step in steps {
            blocks.set(&step, &mut |index_key, old, new| {
                assert_eq!(index.get(&index_key).map(|value| &**value), old);
                match new {
                    Some(new) => drop(index.insert(index_key, new.to_vec())),
                    None => drop(index.remove(&index_key)),
                }
            });
            expected.extend(step);
            let found = blocks.iter().map(|(pid, entry)| (pid, entry.to_vec()));
            assert_eq!(found.collect::<BTreeMap<_, _>>(), expected);
            assert!(blocks.iter().is_sorted_by_key(|(pid, _)| pid));
            for pid in [0, 1, 2, 14, 15, 16, 17, 700, 701, last].map(Pid) {
                let found = blocks.get(pid).map(<[u8]>::to_vec);
                assert_eq!(found.as_ref(), expected.get(&pid), "{pid}");
            }
            let values = blocks.values().map(|(key, value)| (key, value.to_vec()));
            assert_eq!(values.collect::<BTreeMap<_, _>>(), index);
        }
        assert_eq!(index.keys().filter(|key| key[0] == b'p').count(), 1);
    }
}
