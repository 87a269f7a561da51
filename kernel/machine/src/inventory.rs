//! An inventory of a store's log, kept in memory between garbage collections: which records exist,
//! and which process refers to which content.
//!
//! The inventory is pure data. The store scans its log and reports each record, with the contents
//! that the record refers to. The inventory computes which contents are live (still needed), and
//! how many bytes of each segment (file) of the log are live. Deleting a process or the beginning
//! of its history removes its references and bytes. The time of a collection is therefore
//! proportional to the records that were added since the last collection and to those that it
//! deletes, not to those that stay.
//!
//! * The references of a process are a set, so that a record which is reported twice counts once.
//!   A content is live while a process refers to it. Reporting too many references retains garbage,
//!   but never loses live data.
//! * Contents are identified by eight bytes of their hash. If the hashes of two contents have the
//!   same eight bytes, both contents are live while one of them is.
//! * The live bytes of a segment are an estimate. The store uses it to select the segments that are
//!   worth an exact scan.
//!
//! Memory: about 50 bytes for each content in the log, 16 for each reference of a process, 300 for
//! each process, and 50 for each of its images and each segment that it has records in. Ten
//! thousand processes with a million contents take about 70 MB.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dormouse_proto::id::{CheckpointId, FactNumber, Pid};

use crate::retention::Deletions;

mod process_inventory;

pub use process_inventory::Need;
use process_inventory::ProcessInventory;

/// The first eight bytes of a content's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortName(pub u64);

impl ShortName {
    /// The short form of a hash.
    #[must_use]
    pub fn of(name: &[u8; 32]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = *name;
        Self(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }
}

/// The position up to which a store was scanned. Only the store interprets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanPosition {
    /// The segment (file) of the log.
    pub segment: u32,
    /// First byte of that segment that was not scanned.
    pub offset: u64,
    /// All records that were first written up to this commit have been reported; 0 before the first
    /// scan is complete.
    pub commit: u64,
}

/// The inventory of a store. The first collection fills an empty one.
#[derive(Debug, Default)]
pub struct Inventory {
    /// Number of the opened store that the inventory belongs to.
    store: u64,
    scan_position: ScanPosition,
    contents: HashMap<ShortName, StoredContent>,
    live_contents: u64,
    /// The records and references of each process.
    processes: HashMap<Pid, ProcessInventory>,
    /// Segment and bytes of the record of each checkpoint.
    checkpoints: HashMap<CheckpointId, (u32, u64)>,
    segments: BTreeMap<u32, SegmentUsage>,
    /// Processes with reports that are not counted yet.
    uncounted: BTreeSet<Pid>,
    /// Processes with reports since the last [`Inventory::count_reports`].
    reported: BTreeSet<Pid>,
    /// Descriptions of the unreadable records, with their processes if known.
    unreadable: Vec<(Option<Pid>, String)>,
}

/// A content: the number of processes that refer to it, and its location.
#[derive(Clone, Copy, Debug, Default)]
struct StoredContent {
    process_count: u32,
    segment: u32,
    bytes: u64,
}

/// Size and live bytes of a segment of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentUsage {
    /// Scanned bytes.
    pub bytes: u64,
    /// Live bytes among them.
    pub live: u64,
    /// Whether `live` is unreliable, so that an exact scan is necessary.
    pub is_doubtful: bool,
    /// Whether it is unknown to which processes the live bytes belong, so that any deletion in this
    /// segment makes `live` unreliable.
    is_unattributed: bool,
}

/// The references and bytes that a deletion removes.
#[derive(Debug, Default)]
pub struct Removals {
    /// Number of deleted references to each content.
    references: HashMap<ShortName, u32>,
    /// Bytes of the deleted records in each segment.
    segments: BTreeMap<u32, u64>,
    /// Segments whose live bytes become unreliable.
    doubtful: BTreeSet<u32>,
}

impl SegmentUsage {
    /// Creates the usage that an exact scan has found.
    #[must_use]
    pub fn from_scan(bytes: u64, live: u64) -> Self {
        Self {
            bytes,
            live,
            ..Self::default()
        }
    }
}

impl Inventory {
    /// Resets the inventory if it belongs to another opened store.
    pub fn attach_to(&mut self, store: u64) {
        if self.store != store {
            *self = Self {
                store,
                ..Self::default()
            };
        }
    }

    /// The position up to which the store was scanned.
    #[must_use]
    pub fn scan_position(&self) -> ScanPosition {
        self.scan_position
    }

    /// Sets the scanned position.
    pub fn set_scan_position(&mut self, position: ScanPosition) {
        self.scan_position = position;
    }

    /// Adds scanned bytes of a segment.
    pub fn add_scanned_bytes(&mut self, segment: u32, bytes: u64) {
        self.segments.entry(segment).or_default().bytes += bytes;
    }

    /// Adds live bytes to a segment, such as those of a record that is always kept.
    pub fn add_live_bytes(&mut self, segment: u32, bytes: u64) {
        self.segments.entry(segment).or_default().live += bytes;
    }

    /// Adds the record of a checkpoint.
    pub fn add_checkpoint(&mut self, id: CheckpointId, segment: u32, bytes: u64) {
        self.add_live_bytes(segment, bytes);
        self.checkpoints.insert(id, (segment, bytes));
    }

    /// Removes a deleted checkpoint.
    pub fn drop_checkpoint(&mut self, id: CheckpointId) {
        if let Some((segment, bytes)) = self.checkpoints.remove(&id) {
            self.remove_live_bytes(segment, bytes);
        }
    }

    /// Adds a content at its newest location. The bytes at an earlier location no longer count as
    /// live.
    pub fn add_content(&mut self, name: ShortName, segment: u32, bytes: u64) {
        let stored = self.contents.entry(name).or_default();
        let before = std::mem::replace(
            stored,
            StoredContent {
                segment,
                bytes,
                ..*stored
            },
        );
        if before.process_count > 0 {
            self.remove_live_bytes(before.segment, before.bytes);
            self.add_live_bytes(segment, bytes);
        }
    }

    /// Removes a content that was dropped together with its segment. Has no effect if a process
    /// refers to the content, or if it is now in another segment.
    pub fn remove_content(&mut self, name: ShortName, segment: u32) {
        if self
            .contents
            .get(&name)
            .is_some_and(|stored| stored.process_count == 0 && stored.segment == segment)
        {
            self.contents.remove(&name);
        }
    }

    /// Adds a record of a process. `need` states how long the record is needed.
    pub fn add_record(&mut self, pid: Pid, need: Need, segment: u32, bytes: u64) {
        self.add_live_bytes(segment, bytes);
        self.process_to_update(pid).add_record(need, segment, bytes);
    }

    /// Reports facts of a process.
    pub fn add_facts(&mut self, pid: Pid, first: FactNumber, count: u64) {
        self.process_to_update(pid).add_facts(first, count);
    }

    /// Reports the end of a process, in milliseconds since the epoch.
    pub fn set_ended(&mut self, pid: Pid, at_ms: u64) {
        self.process_to_update(pid).set_ended(Some(at_ms));
    }

    /// Records that a process was opened again after it had ended.
    pub fn clear_ended(&mut self, pid: Pid) {
        self.process_to_update(pid).set_ended(None);
    }

    /// Reports an image of a process.
    pub fn add_image(&mut self, pid: Pid, at: FactNumber) {
        self.process_to_update(pid).add_image(at);
    }

    /// Removes an image of a process.
    pub fn remove_image(&mut self, pid: Pid, at: FactNumber) {
        self.process_to_update(pid).remove_image(at);
    }

    /// Reports a change of temporary files.
    pub fn add_temp_file(&mut self, root: Pid, number: u64) {
        self.process_to_update(root).add_temp_file(number);
    }

    /// Adds references of a process to contents. `need` states how long they are needed.
    pub fn add_references(&mut self, pid: Pid, need: Need, names: impl Iterator<Item = ShortName>) {
        self.process_to_update(pid).add_references(need, names);
    }

    /// Reports an unreadable record, which may refer to any content. `pid` is the process of the
    /// record, if known.
    pub fn note_unreadable(&mut self, pid: Option<Pid>, description: String) {
        self.unreadable.push((pid, description));
    }

    /// Descriptions of the unreadable records.
    #[must_use]
    pub fn unreadable(&self) -> Vec<String> {
        let describe = |(pid, description): &(Option<Pid>, String)| match pid {
            Some(pid) => format!("process {pid}: {description}"),
            None => description.clone(),
        };
        self.unreadable.iter().map(describe).collect()
    }

    /// The processes of the unreadable records, as far as they are known.
    #[must_use]
    pub fn unreadable_processes(&self) -> BTreeSet<Pid> {
        self.unreadable.iter().filter_map(|(pid, _)| *pid).collect()
    }

    fn process_to_update(&mut self, pid: Pid) -> &mut ProcessInventory {
        self.uncounted.insert(pid);
        self.processes.entry(pid).or_default()
    }

    /// Counts all reports since the last call. Returns the processes that they concern.
    pub fn count_reports(&mut self) -> BTreeSet<Pid> {
        self.merge_reports();
        std::mem::take(&mut self.reported)
    }

    /// Adds the new references of each process to the counts of live contents.
    fn merge_reports(&mut self) {
        for pid in std::mem::take(&mut self.uncounted) {
            let Some(mut process) = self.processes.remove(&pid) else {
                continue;
            };
            for name in process.merge_references(|segment| self.segments.contains_key(&segment)) {
                self.add_reference(name);
            }
            self.processes.insert(pid, process);
            self.reported.insert(pid);
        }
    }

    /// Removes a deleted process.
    pub fn delete_process(&mut self, pid: Pid) {
        self.merge_reports();
        self.apply_removals(&Deletions {
            processes: [pid].into(),
            ..Deletions::default()
        });
        self.processes.remove(&pid);
    }

    /// Removes the deleted history of a process before a fact.
    pub fn truncate_history(&mut self, pid: Pid, history_start: FactNumber) {
        self.merge_reports();
        self.apply_removals(&Deletions {
            histories: [(pid, history_start)].into(),
            ..Deletions::default()
        });
        self.processes
            .entry(pid)
            .or_default()
            .truncate_history(history_start);
    }

    fn apply_removals(&mut self, deletions: &Deletions) {
        let Removals {
            references,
            segments,
            doubtful,
        } = self.removals(deletions);
        for (name, removed) in references {
            let stored = self.contents.entry(name).or_default();
            let was_live = stored.process_count > 0;
            stored.process_count = stored.process_count.saturating_sub(removed);
            self.live_contents -= u64::from(was_live && stored.process_count == 0);
        }
        segments
            .into_iter()
            .for_each(|(segment, bytes)| self.remove_live_bytes(segment, bytes));
        for segment in doubtful {
            self.mark_doubtful(segment);
        }
    }

    /// Computes the references and bytes that a deletion would remove. O(n) in the records and
    /// references of the deleted processes.
    #[must_use]
    pub fn removals(&self, deletions: &Deletions) -> Removals {
        let mut removals = Removals::default();
        for pid in &deletions.processes {
            if let Some(process) = self.processes.get(pid) {
                process.add_removals(None, &mut removals);
            }
        }
        for (pid, history_start) in &deletions.histories {
            if let Some(process) = self
                .processes
                .get(pid)
                .filter(|_| !deletions.processes.contains(pid))
            {
                process.add_removals(Some(*history_start), &mut removals);
            }
        }
        for (segment, bytes) in deletions
            .checkpoints
            .iter()
            .filter_map(|id| self.checkpoints.get(id))
        {
            *removals.segments.entry(*segment).or_default() += bytes;
        }
        let Removals {
            references,
            segments,
            ..
        } = &mut removals;
        for (name, removed) in &*references {
            if let Some(stored) = self
                .contents
                .get(name)
                .filter(|stored| stored.process_count <= *removed)
            {
                *segments.entry(stored.segment).or_default() += stored.bytes;
            }
        }
        removals
    }

    /// Adds a referring process to a content, whose bytes are live from the first one on.
    fn add_reference(&mut self, name: ShortName) {
        let stored = self.contents.entry(name).or_default();
        stored.process_count += 1;
        if stored.process_count == 1 {
            let segment = stored.segment;
            let bytes = stored.bytes;
            self.live_contents += 1;
            if let Some(usage) = self.segments.get_mut(&segment) {
                usage.live += bytes;
            }
        }
    }

    fn remove_live_bytes(&mut self, segment: u32, bytes: u64) {
        if let Some(usage) = self.segments.get_mut(&segment) {
            usage.live = usage.live.saturating_sub(bytes);
            usage.is_doubtful |= usage.is_unattributed;
        }
    }

    /// Whether a process still refers to a content after this deletion.
    #[must_use]
    pub fn is_referred_to(&self, name: ShortName, removals: &Removals) -> bool {
        let removed = removals.references.get(&name).copied().unwrap_or_default();
        self.contents
            .get(&name)
            .is_some_and(|stored| stored.process_count > removed)
    }

    /// Number of live contents after this deletion.
    #[must_use]
    pub fn live_contents(&self, removals: &Removals) -> u64 {
        let dead = removals
            .references
            .iter()
            .filter(|(name, _)| !self.is_referred_to(**name, removals))
            .count();
        self.live_contents.saturating_sub(dead as u64)
    }

    /// Size and live bytes of a segment after this deletion. `None` if it was not scanned.
    #[must_use]
    pub fn usage(&self, segment: u32, removals: &Removals) -> Option<SegmentUsage> {
        let usage = self.segments.get(&segment)?;
        let removed = removals.segments.get(&segment).copied().unwrap_or_default();
        let is_doubtful = usage.is_doubtful
            || removals.doubtful.contains(&segment)
            || (usage.is_unattributed && removed > 0);
        Some(SegmentUsage {
            live: usage.live.saturating_sub(removed),
            is_doubtful,
            ..*usage
        })
    }

    /// Sets the live bytes of a segment from an exact scan.
    pub fn set_live(&mut self, segment: u32, live: u64) {
        if let Some(usage) = self.segments.get_mut(&segment) {
            (usage.live, usage.is_doubtful) = (live, false);
        }
    }

    /// Marks the live bytes of a segment as unreliable.
    pub fn mark_doubtful(&mut self, segment: u32) {
        if let Some(usage) = self.segments.get_mut(&segment) {
            (usage.is_doubtful, usage.is_unattributed) = (true, true);
        }
    }

    /// Removes a segment. The store has moved its live records and reports them at their new
    /// location.
    pub fn drop_segment(&mut self, segment: u32) {
        self.segments.remove(&segment);
    }

    /// Checks that all facts of a process after its image at fact `history_start`, up to fact
    /// `last`, were reported.
    ///
    /// # Errors
    /// The last fact before the gap; `None` if the image is missing.
    pub fn covers(
        &self,
        pid: Pid,
        history_start: FactNumber,
        last: FactNumber,
    ) -> Result<(), Option<FactNumber>> {
        self.processes
            .get(&pid)
            .ok_or(None)?
            .check_coverage(history_start, last)
    }

    /// Number of the last change of a tree's temporary files up to which all changes were reported.
    #[must_use]
    pub fn temp_files(&self, root: Pid) -> u64 {
        self.processes
            .get(&root)
            .map_or(0, ProcessInventory::temp_files)
    }

    /// End of a process: milliseconds since the epoch. `None` if some of its records are
    /// unreadable.
    #[must_use]
    pub fn ended_ms(&self, pid: Pid) -> Option<u64> {
        let is_readable = self
            .unreadable
            .iter()
            .all(|(process, _)| *process != Some(pid));
        self.processes.get(&pid).filter(|_| is_readable)?.ended_ms()
    }

    /// The start of a history that must include the fact `floor`. The history starts one image
    /// earlier than necessary, so that `floor` stays readable if an image is damaged. `None` if
    /// nothing could be deleted.
    #[must_use]
    pub fn history_start_for(&self, pid: Pid, floor: FactNumber) -> Option<FactNumber> {
        let process = self.processes.get(&pid)?;
        let before = |fact: FactNumber| fact.0.checked_sub(1).map(FactNumber);
        let latest = process.image_at(floor)?;
        let earlier = process.image_at(before(latest)?)?;
        process.image_at(before(earlier)?).map(|_| earlier)
    }
}

#[cfg(test)]
mod tests;
