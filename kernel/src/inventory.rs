//! What a store holds and who needs it, remembered between two collections of garbage.
//!
//! Pure: a store that goes through its log shows each record once, and says what a piece of a
//! journal refers to. From that follows which contents something refers to, and how many bytes of
//! each part of the log are live. What is given up takes its references and its bytes along. So a
//! collection costs what came to the log since the last one and what was given up, and not what is
//! kept.
//!
//! * References are kept for each process as a set, so that a record that is seen twice counts
//!   once. A content is live while a process in the inventory refers to it. To show a record too
//!   often keeps garbage, and never loses what is live.
//! * Contents go by eight bytes of their name. Two that share them are live while either is.
//! * Bytes of parts are an estimate: they say which parts are worth a look, and the look decides.
//!
//! Memory: some 50 bytes for each content in the log, 16 for each process that refers to it, some
//! 300 for each process, and 50 for each of its images and each part of the log that it is in. Ten
//! thousand processes with a million contents take some 70 MB.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dormouse_proto::id::{CheckpointId, FactNumber, Pid};

use crate::retention::Forgotten;

mod owner;

pub use owner::Need;
use owner::Owner;

/// The first bytes of the name that a store has for a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortName(pub u64);

impl ShortName {
    /// Of a name.
    #[must_use]
    pub fn of(name: &[u8; 32]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = *name;
        Self(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }
}

/// How far a store was gone through. It belongs to the store; nothing here looks into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// The part of the log.
    pub part: u32,
    /// The first byte in it that was not looked at.
    pub offset: u64,
    /// All records that were first written up to this commit have been shown; 0 before the first
    /// pass is complete.
    pub commit: u64,
}

/// What a store holds. An empty one is filled by the first collection.
#[derive(Debug, Default)]
pub struct Inventory {
    /// The opened store that it is of.
    of: u64,
    reached: Reached,
    contents: HashMap<ShortName, Held>,
    live_contents: u64,
    owners: HashMap<Pid, Owner>,
    checkpoints: HashMap<CheckpointId, (u32, u64)>,
    parts: BTreeMap<u32, Stock>,
    /// Processes of which something is not counted yet.
    touched: BTreeSet<Pid>,
    /// Processes that something was shown of since [`Inventory::settle`].
    shown: BTreeSet<Pid>,
    unreadable: Vec<(Option<Pid>, String)>,
}

/// A content: how many processes refer to it, and where it stands.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    owners: u32,
    part: u32,
    bytes: u64,
}

/// What a part of the log holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stock {
    /// Bytes that were looked at.
    pub bytes: u64,
    /// Those that are live.
    pub live: u64,
    /// Whether only a look can say how many are live.
    pub is_doubtful: bool,
    /// Whether it is not known where in the part they are, so that each loss makes them doubtful.
    is_vague: bool,
}

/// What would be lost with what is to be given up.
#[derive(Debug, Default)]
pub struct Losses {
    /// How many of the processes that refer to a content are given up.
    owners: HashMap<ShortName, u32>,
    parts: BTreeMap<u32, u64>,
    doubtful: BTreeSet<u32>,
}

impl Stock {
    /// What a look has shown.
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
    /// Begins anew where it is of another opened store than the one of this number.
    pub fn belong_to(&mut self, of: u64) {
        if self.of != of {
            *self = Self {
                of,
                ..Self::default()
            };
        }
    }

    /// How far the store was gone through.
    #[must_use]
    pub fn reached(&self) -> Reached {
        self.reached
    }

    /// The store was gone through up to there.
    pub fn reach(&mut self, reached: Reached) {
        self.reached = reached;
    }

    /// So many bytes in a part were looked at.
    pub fn passed(&mut self, part: u32, bytes: u64) {
        self.parts.entry(part).or_default().bytes += bytes;
    }

    /// A record that stays for ever.
    pub fn fixed(&mut self, part: u32, bytes: u64) {
        self.parts.entry(part).or_default().live += bytes;
    }

    /// The record of a checkpoint that is kept.
    pub fn checkpoint(&mut self, id: CheckpointId, part: u32, bytes: u64) {
        self.fixed(part, bytes);
        self.checkpoints.insert(id, (part, bytes));
    }

    /// A checkpoint was given up.
    pub fn drop_checkpoint(&mut self, id: CheckpointId) {
        if let Some((part, bytes)) = self.checkpoints.remove(&id) {
            self.die(part, bytes);
        }
    }

    /// A content stands in a part. Where it is known to stand elsewhere, it no longer counts there.
    pub fn content(&mut self, name: ShortName, part: u32, bytes: u64) {
        let held = self.contents.entry(name).or_default();
        let before = std::mem::replace(
            held,
            Held {
                part,
                bytes,
                ..*held
            },
        );
        if before.owners > 0 {
            self.die(before.part, before.bytes);
            self.fixed(part, bytes);
        }
    }

    /// A content was dropped with the part that it stood in.
    pub fn dropped(&mut self, name: ShortName, part: u32) {
        if self
            .contents
            .get(&name)
            .is_some_and(|held| held.owners == 0 && held.part == part)
        {
            self.contents.remove(&name);
        }
    }

    /// A record of a process that is kept, needed for as long as `need` says.
    pub fn record(&mut self, pid: Pid, need: Need, part: u32, bytes: u64) {
        self.fixed(part, bytes);
        self.owner(pid).record(need, part, bytes);
    }

    /// Facts of a process were shown.
    pub fn facts(&mut self, pid: Pid, first: FactNumber, count: u64) {
        self.owner(pid).facts(first, count);
    }

    /// A process ended at a time, in milliseconds since the epoch.
    pub fn ended(&mut self, pid: Pid, at_ms: u64) {
        self.owner(pid).ended(at_ms);
    }

    /// An image of a process was shown.
    pub fn image(&mut self, pid: Pid, at: FactNumber) {
        self.owner(pid).image(at);
    }

    /// An image of a process is no longer there.
    pub fn no_image(&mut self, pid: Pid, at: FactNumber) {
        self.owner(pid).no_image(at);
    }

    /// A change of temporary files was shown.
    pub fn temp_file(&mut self, root: Pid, number: u64) {
        self.owner(root).temp_file(number);
    }

    /// A process refers to contents, for as long as `need` says.
    pub fn refers(&mut self, pid: Pid, need: Need, names: impl Iterator<Item = ShortName>) {
        self.owner(pid).refers(need, names);
    }

    /// Something that may refer to any content cannot be read: of a process, if that is known.
    pub fn note_unreadable(&mut self, pid: Option<Pid>, what: String) {
        self.unreadable.push((pid, what));
    }

    /// What cannot be read.
    #[must_use]
    pub fn unreadable(&self) -> Vec<String> {
        let told = |(pid, what): &(Option<Pid>, String)| match pid {
            Some(pid) => format!("process {pid}: {what}"),
            None => what.clone(),
        };
        self.unreadable.iter().map(told).collect()
    }

    fn owner(&mut self, pid: Pid) -> &mut Owner {
        self.touched.insert(pid);
        self.owners.entry(pid).or_default()
    }

    /// Counts what was shown since the last time. Answers with the processes that it was about.
    pub fn settle(&mut self) -> BTreeSet<Pid> {
        self.count();
        std::mem::take(&mut self.shown)
    }

    fn count(&mut self) {
        for pid in std::mem::take(&mut self.touched) {
            let Some(mut owner) = self.owners.remove(&pid) else {
                continue;
            };
            for name in owner.settle(|part| self.parts.contains_key(&part)) {
                self.gain(name);
            }
            self.owners.insert(pid, owner);
            self.shown.insert(pid);
        }
    }

    /// A process was given up.
    pub fn forget(&mut self, pid: Pid) {
        self.count();
        self.lose(&Forgotten {
            processes: [pid].into(),
            ..Forgotten::default()
        });
        self.owners.remove(&pid);
    }

    /// The history of a process before a fact was given up.
    pub fn shorten(&mut self, pid: Pid, since: FactNumber) {
        self.count();
        self.lose(&Forgotten {
            histories: [(pid, since)].into(),
            ..Forgotten::default()
        });
        self.owners.entry(pid).or_default().shorten(since);
    }

    fn lose(&mut self, forgotten: &Forgotten) {
        let Losses {
            owners,
            parts,
            doubtful,
        } = self.losses(forgotten);
        for (name, lost) in owners {
            let held = self.contents.entry(name).or_default();
            let was_live = held.owners > 0;
            held.owners = held.owners.saturating_sub(lost);
            self.live_contents -= u64::from(was_live && held.owners == 0);
        }
        parts
            .into_iter()
            .for_each(|(part, bytes)| self.die(part, bytes));
        for part in doubtful {
            self.doubt(part);
        }
    }

    /// What would be lost with these. Costs what they hold.
    #[must_use]
    pub fn losses(&self, forgotten: &Forgotten) -> Losses {
        let mut losses = Losses::default();
        for pid in &forgotten.processes {
            if let Some(owner) = self.owners.get(pid) {
                owner.losses(None, &mut losses);
            }
        }
        for (pid, since) in &forgotten.histories {
            if let Some(owner) = self
                .owners
                .get(pid)
                .filter(|_| !forgotten.processes.contains(pid))
            {
                owner.losses(Some(*since), &mut losses);
            }
        }
        for (part, bytes) in forgotten
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

    fn gain(&mut self, name: ShortName) {
        let held = self.contents.entry(name).or_default();
        held.owners += 1;
        if held.owners == 1 {
            let (part, bytes) = (held.part, held.bytes);
            self.live_contents += 1;
            if let Some(stock) = self.parts.get_mut(&part) {
                stock.live += bytes;
            }
        }
    }

    fn die(&mut self, part: u32, bytes: u64) {
        if let Some(stock) = self.parts.get_mut(&part) {
            stock.live = stock.live.saturating_sub(bytes);
            stock.is_doubtful |= stock.is_vague;
        }
    }

    /// Whether a process refers to a content that stays when these are lost.
    #[must_use]
    pub fn is_referred_to(&self, name: ShortName, losses: &Losses) -> bool {
        let lost = losses.owners.get(&name).copied().unwrap_or_default();
        self.contents
            .get(&name)
            .is_some_and(|held| held.owners > lost)
    }

    /// How many contents something refers to when these are lost.
    #[must_use]
    pub fn live_contents(&self, losses: &Losses) -> u64 {
        let dead = losses
            .owners
            .iter()
            .filter(|(name, _)| !self.is_referred_to(**name, losses))
            .count();
        self.live_contents.saturating_sub(dead as u64)
    }

    /// What a part holds when these are lost; none where nothing of it was looked at.
    #[must_use]
    pub fn stock(&self, part: u32, losses: &Losses) -> Option<Stock> {
        let stock = self.parts.get(&part)?;
        let lost = losses.parts.get(&part).copied().unwrap_or_default();
        let is_doubtful =
            stock.is_doubtful || losses.doubtful.contains(&part) || (stock.is_vague && lost > 0);
        Some(Stock {
            live: stock.live.saturating_sub(lost),
            is_doubtful,
            ..*stock
        })
    }

    /// A look at a part has shown what is live in it.
    pub fn correct(&mut self, part: u32, live: u64) {
        if let Some(stock) = self.parts.get_mut(&part) {
            (stock.live, stock.is_doubtful) = (live, false);
        }
    }

    /// Only a look can say what is live in a part.
    pub fn doubt(&mut self, part: u32) {
        if let Some(stock) = self.parts.get_mut(&part) {
            (stock.is_doubtful, stock.is_vague) = (true, true);
        }
    }

    /// A part is no more. What was live in it was moved, and is shown where it stands now.
    pub fn drop_part(&mut self, part: u32) {
        self.parts.remove(&part);
    }

    /// Whether a process is known from its image at fact `since` to fact `last`; where not, up to
    /// which fact it is, if from there.
    ///
    /// # Errors
    /// The last fact up to which there is no gap; none where the image is missing.
    pub fn covers(
        &self,
        pid: Pid,
        since: FactNumber,
        last: FactNumber,
    ) -> Result<(), Option<FactNumber>> {
        self.owners.get(&pid).ok_or(None)?.covers(since, last)
    }

    /// The number up to which the changes of the temporary files of a tree are known without a gap.
    #[must_use]
    pub fn temp_files(&self, root: Pid) -> u64 {
        self.owners.get(&root).map_or(0, Owner::temp_files)
    }

    /// When a process ended: milliseconds since the epoch. None for one of which something cannot
    /// be read.
    #[must_use]
    pub fn ended_ms(&self, pid: Pid) -> Option<u64> {
        let is_whole = self.unreadable.iter().all(|(of, _)| *of != Some(pid));
        self.owners.get(&pid).filter(|_| is_whole)?.ended_ms()
    }

    /// Where the history of a process can begin that must reach back to `floor`: at the image
    /// before the one that `floor` is read from, so that damage to one leaves another. None where
    /// that gives nothing up.
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
