//! An inventory of a store's log, kept in memory between garbage collections: which records exist,
//! and which process refers to which content.
//!
//! The inventory is pure data. The store scans its log and reports each record once, with the
//! contents that it refers to. From this follows which contents are live, and how many bytes of
//! each part (segment) of the log are live. Deleting a process or a part of its history removes its
//! references and bytes. A collection therefore costs the records that were added since the last
//! one and what is deleted, not what is kept.
//!
//! * References are kept per process as a set, so that a record which is reported twice counts
//!   once. A content is live while a process refers to it. Reporting a record too often retains
//!   garbage, but never loses live data.
//! * Contents are identified by eight bytes of their hash. Two contents that share them are live
//!   while either is.
//! * Live bytes of parts are an estimate: they tell which parts are worth an exact scan.
//!
//! Memory: about 50 bytes for each content in the log, 16 for each reference of a process, 300 for
//! each process, and 50 for each of its images and each part that it has records in. Ten thousand
//! processes with a million contents take about 70 MB.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dormouse_proto::id::{CheckpointId, FactNumber, Pid};

use crate::retention::Deletions;

mod owner;

pub use owner::Need;
use owner::Owner;

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
    /// Part of the log.
    pub part: u32,
    /// First byte of that part that was not scanned.
    pub offset: u64,
    /// All records that were first written up to this commit have been reported; 0 before the first
    /// scan is complete.
    pub commit: u64,
}

/// The inventory of a store. The first collection fills an empty one.
#[derive(Debug, Default)]
pub struct Inventory {
    /// Number of the opened store that the inventory belongs to.
    of: u64,
    reached: ScanPosition,
    contents: HashMap<ShortName, HeldContent>,
    live_contents: u64,
    owners: HashMap<Pid, Owner>,
    checkpoints: HashMap<CheckpointId, (u32, u64)>,
    parts: BTreeMap<u32, PartUsage>,
    /// Processes with reports that are not counted yet.
    touched: BTreeSet<Pid>,
    /// Processes with reports since the last [`Inventory::count_reports`].
    shown: BTreeSet<Pid>,
    unreadable: Vec<(Option<Pid>, String)>,
}

/// A content: the number of processes that refer to it, and its location.
#[derive(Clone, Copy, Debug, Default)]
struct HeldContent {
    owners: u32,
    part: u32,
    bytes: u64,
}

/// Size and live bytes of a part of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartUsage {
    /// Scanned bytes.
    pub bytes: u64,
    /// Live bytes among them.
    pub live: u64,
    /// Whether `live` is unreliable, so that only an exact scan can tell.
    pub is_doubtful: bool,
    /// Whether the live bytes cannot be attributed, so that any loss makes `live` unreliable.
    is_vague: bool,
}

/// What a deletion would free.
#[derive(Debug, Default)]
pub struct Losses {
    /// Number of deleted references to each content.
    owners: HashMap<ShortName, u32>,
    parts: BTreeMap<u32, u64>,
    doubtful: BTreeSet<u32>,
}

impl PartUsage {
    /// The result of an exact scan.
    #[must_use]
    pub fn seen(bytes: u64, live: u64) -> Self {
        Self {
            bytes,
            live,
            ..Self::default()
        }
    }
}

impl Inventory {
    /// Resets the inventory if it belongs to another opened store.
    pub fn attach_to(&mut self, of: u64) {
        if self.of != of {
            *self = Self {
                of,
                ..Self::default()
            };
        }
    }

    /// The position up to which the store was scanned.
    #[must_use]
    pub fn scan_position(&self) -> ScanPosition {
        self.reached
    }

    /// Sets the scanned position.
    pub fn set_scan_position(&mut self, reached: ScanPosition) {
        self.reached = reached;
    }

    /// Adds scanned bytes of a part.
    pub fn add_scanned_bytes(&mut self, part: u32, bytes: u64) {
        self.parts.entry(part).or_default().bytes += bytes;
    }

    /// Adds live bytes to a part, such as those of a record that is always kept.
    pub fn add_live_bytes(&mut self, part: u32, bytes: u64) {
        self.parts.entry(part).or_default().live += bytes;
    }

    /// Adds the record of a kept checkpoint.
    pub fn add_checkpoint(&mut self, id: CheckpointId, part: u32, bytes: u64) {
        self.add_live_bytes(part, bytes);
        self.checkpoints.insert(id, (part, bytes));
    }

    /// Removes a deleted checkpoint.
    pub fn drop_checkpoint(&mut self, id: CheckpointId) {
        if let Some((part, bytes)) = self.checkpoints.remove(&id) {
            self.remove_live(part, bytes);
        }
    }

    /// Adds a content. If it is known at another location, it no longer counts there.
    pub fn add_content(&mut self, name: ShortName, part: u32, bytes: u64) {
        let held = self.contents.entry(name).or_default();
        let before = std::mem::replace(
            held,
            HeldContent {
                part,
                bytes,
                ..*held
            },
        );
        if before.owners > 0 {
            self.remove_live(before.part, before.bytes);
            self.add_live_bytes(part, bytes);
        }
    }

    /// Removes a content that was dropped together with its part.
    pub fn remove_content(&mut self, name: ShortName, part: u32) {
        if self
            .contents
            .get(&name)
            .is_some_and(|held| held.owners == 0 && held.part == part)
        {
            self.contents.remove(&name);
        }
    }

    /// Adds a record of a process, which is needed as long as `need` says.
    pub fn add_record(&mut self, pid: Pid, need: Need, part: u32, bytes: u64) {
        self.add_live_bytes(part, bytes);
        self.owner(pid).record(need, part, bytes);
    }

    /// Reports facts of a process.
    pub fn add_facts(&mut self, pid: Pid, first: FactNumber, count: u64) {
        self.owner(pid).facts(first, count);
    }

    /// Reports the end of a process, in milliseconds since the epoch.
    pub fn set_ended(&mut self, pid: Pid, at_ms: u64) {
        self.owner(pid).ended(at_ms);
    }

    /// Reports an image of a process.
    pub fn add_image(&mut self, pid: Pid, at: FactNumber) {
        self.owner(pid).image(at);
    }

    /// Removes an image of a process.
    pub fn remove_image(&mut self, pid: Pid, at: FactNumber) {
        self.owner(pid).no_image(at);
    }

    /// Reports a change of temporary files.
    pub fn add_temp_file(&mut self, root: Pid, number: u64) {
        self.owner(root).temp_file(number);
    }

    /// Adds references of a process to contents, which last as long as `need` says.
    pub fn add_references(&mut self, pid: Pid, need: Need, names: impl Iterator<Item = ShortName>) {
        self.owner(pid).refers(need, names);
    }

    /// Reports an unreadable record, which may refer to any content; `pid` is its process, if
    /// known.
    pub fn note_unreadable(&mut self, pid: Option<Pid>, what: String) {
        self.unreadable.push((pid, what));
    }

    /// Descriptions of the unreadable records.
    #[must_use]
    pub fn unreadable(&self) -> Vec<String> {
        let describe = |(pid, what): &(Option<Pid>, String)| match pid {
            Some(pid) => format!("process {pid}: {what}"),
            None => what.clone(),
        };
        self.unreadable.iter().map(describe).collect()
    }

    fn owner(&mut self, pid: Pid) -> &mut Owner {
        self.touched.insert(pid);
        self.owners.entry(pid).or_default()
    }

    /// Counts all reports since the last call. Returns the processes that they concern.
    pub fn count_reports(&mut self) -> BTreeSet<Pid> {
        self.count();
        std::mem::take(&mut self.shown)
    }

    fn count(&mut self) {
        for pid in std::mem::take(&mut self.touched) {
            let Some(mut owner) = self.owners.remove(&pid) else {
                continue;
            };
            for name in owner.merge_references(|part| self.parts.contains_key(&part)) {
                self.add_live(name);
            }
            self.owners.insert(pid, owner);
            self.shown.insert(pid);
        }
    }

    /// Removes a deleted process.
    pub fn delete_process(&mut self, pid: Pid) {
        self.count();
        self.remove_losses(&Deletions {
            processes: [pid].into(),
            ..Deletions::default()
        });
        self.owners.remove(&pid);
    }

    /// Removes the deleted history of a process before a fact.
    pub fn truncate_history(&mut self, pid: Pid, since: FactNumber) {
        self.count();
        self.remove_losses(&Deletions {
            histories: [(pid, since)].into(),
            ..Deletions::default()
        });
        self.owners.entry(pid).or_default().shorten(since);
    }

    fn remove_losses(&mut self, deletions: &Deletions) {
        let Losses {
            owners,
            parts,
            doubtful,
        } = self.losses(deletions);
        for (name, lost) in owners {
            let held = self.contents.entry(name).or_default();
            let was_live = held.owners > 0;
            held.owners = held.owners.saturating_sub(lost);
            self.live_contents -= u64::from(was_live && held.owners == 0);
        }
        parts
            .into_iter()
            .for_each(|(part, bytes)| self.remove_live(part, bytes));
        for part in doubtful {
            self.mark_doubtful(part);
        }
    }

    /// Computes what a deletion would free. Costs what the deleted processes hold.
    #[must_use]
    pub fn losses(&self, deletions: &Deletions) -> Losses {
        let mut losses = Losses::default();
        for pid in &deletions.processes {
            if let Some(owner) = self.owners.get(pid) {
                owner.losses(None, &mut losses);
            }
        }
        for (pid, since) in &deletions.histories {
            if let Some(owner) = self
                .owners
                .get(pid)
                .filter(|_| !deletions.processes.contains(pid))
            {
                owner.losses(Some(*since), &mut losses);
            }
        }
        for (part, bytes) in deletions
            .checkpoints
            .iter()
            .filter_map(|id| self.checkpoints.get(id))
        {
            *losses.parts.entry(*part).or_default() += bytes;
        }
        let Losses { owners, parts, .. } = &mut losses;
        for (name, lost) in &*owners {
            if let Some(held) = self.contents.get(name).filter(|held| held.owners <= *lost) {
                *parts.entry(held.part).or_default() += held.bytes;
            }
        }
        losses
    }

    fn add_live(&mut self, name: ShortName) {
        let held = self.contents.entry(name).or_default();
        held.owners += 1;
        if held.owners == 1 {
            let part = held.part;
            let bytes = held.bytes;
            self.live_contents += 1;
            if let Some(usage) = self.parts.get_mut(&part) {
                usage.live += bytes;
            }
        }
    }

    fn remove_live(&mut self, part: u32, bytes: u64) {
        if let Some(usage) = self.parts.get_mut(&part) {
            usage.live = usage.live.saturating_sub(bytes);
            usage.is_doubtful |= usage.is_vague;
        }
    }

    /// Whether a process still refers to a content after these losses.
    #[must_use]
    pub fn is_referred_to(&self, name: ShortName, losses: &Losses) -> bool {
        let lost = losses.owners.get(&name).copied().unwrap_or_default();
        self.contents
            .get(&name)
            .is_some_and(|held| held.owners > lost)
    }

    /// Number of live contents after these losses.
    #[must_use]
    pub fn live_contents(&self, losses: &Losses) -> u64 {
        let dead = losses
            .owners
            .iter()
            .filter(|(name, _)| !self.is_referred_to(**name, losses))
            .count();
        self.live_contents.saturating_sub(dead as u64)
    }

    /// Size and live bytes of a part after these losses; `None` if it was not scanned.
    #[must_use]
    pub fn usage(&self, part: u32, losses: &Losses) -> Option<PartUsage> {
        let usage = self.parts.get(&part)?;
        let lost = losses.parts.get(&part).copied().unwrap_or_default();
        let is_doubtful =
            usage.is_doubtful || losses.doubtful.contains(&part) || (usage.is_vague && lost > 0);
        Some(PartUsage {
            live: usage.live.saturating_sub(lost),
            is_doubtful,
            ..*usage
        })
    }

    /// Sets the live bytes of a part from an exact scan.
    pub fn set_live(&mut self, part: u32, live: u64) {
        if let Some(usage) = self.parts.get_mut(&part) {
            (usage.live, usage.is_doubtful) = (live, false);
        }
    }

    /// Marks the live bytes of a part as unreliable.
    pub fn mark_doubtful(&mut self, part: u32) {
        if let Some(usage) = self.parts.get_mut(&part) {
            (usage.is_doubtful, usage.is_vague) = (true, true);
        }
    }

    /// Removes a part. Its live records were moved and are reported at their new location.
    pub fn drop_part(&mut self, part: u32) {
        self.parts.remove(&part);
    }

    /// Checks that the journal of a process is known without a gap from its image at fact `since`
    /// to fact `last`.
    ///
    /// # Errors
    /// The last fact before the gap; `None` if the image is missing.
    pub fn covers(
        &self,
        pid: Pid,
        since: FactNumber,
        last: FactNumber,
    ) -> Result<(), Option<FactNumber>> {
        self.owners.get(&pid).ok_or(None)?.covers(since, last)
    }

    /// The number up to which changes of a tree's temporary files are known without a gap.
    #[must_use]
    pub fn temp_files(&self, root: Pid) -> u64 {
        self.owners.get(&root).map_or(0, Owner::temp_files)
    }

    /// End of a process: milliseconds since the epoch. `None` if some of its records are
    /// unreadable.
    #[must_use]
    pub fn ended_ms(&self, pid: Pid) -> Option<u64> {
        let is_whole = self.unreadable.iter().all(|(of, _)| *of != Some(pid));
        self.owners.get(&pid).filter(|_| is_whole)?.ended_ms()
    }

    /// The start of the history that has to reach back to `floor`: the image before the one from
    /// which `floor` is read, so that damage to one image leaves another. `None` if nothing could
    /// be deleted.
    #[must_use]
    pub fn generation_before(&self, pid: Pid, floor: FactNumber) -> Option<FactNumber> {
        let owner = self.owners.get(&pid)?;
        let before = |fact: FactNumber| fact.0.checked_sub(1).map(FactNumber);
        let latest = owner.image_at(floor)?;
        let earlier = owner.image_at(before(latest)?)?;
        owner.image_at(before(earlier)?).map(|_| earlier)
    }
}

#[cfg(test)]
mod tests;
