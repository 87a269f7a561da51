//! The inventory of one process: its records in the log, and its references to contents.

use dormouse_proto::id::FactNumber;

use super::{Removals, ShortName};

/// How long a record or reference of a process is needed. A longer need compares as greater.
///
/// The value is twice the number of a fact, plus one for the image after that fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need(u64);

impl Need {
    /// As long as the process exists.
    pub const ALWAYS: Self = Self(u64::MAX);

    /// As long as this fact is part of the history.
    #[must_use]
    pub fn fact(fact: FactNumber) -> Self {
        Self(fact.0 << 1)
    }

    /// As long as the history starts at the image after this fact or earlier.
    #[must_use]
    pub fn image(after: FactNumber) -> Self {
        Self((after.0 << 1) | 1)
    }

    /// Whether a history that starts with the image after fact `history_start` needs the record.
    #[must_use]
    pub fn is_in_history(self, history_start: FactNumber) -> bool {
        self.0 > history_start.0 << 1
    }
}

/// The records of a process in one segment of the log, from one of its images to the next. A
/// history starts at an image, so these records are deleted together.
#[derive(Clone, Copy, Debug)]
struct RecordGroup {
    segment: u32,
    bytes: u64,
    /// The last fact before the image.
    image: FactNumber,
    shortest_need: Need,
    longest_need: Need,
}

/// The inventory of one process.
#[derive(Debug, Default)]
pub(super) struct ProcessInventory {
    /// Referenced contents with their longest need, sorted by name.
    references: Vec<(ShortName, Need)>,
    /// References that are not merged yet.
    unmerged: Vec<(ShortName, Need)>,
    groups: Vec<RecordGroup>,
    /// Positions of the images, ascending.
    images: Vec<FactNumber>,
    /// Reported ranges of facts (first, end); a single range if there is no gap.
    facts: Vec<(u64, u64)>,
    /// Reported ranges of changes to temporary files (first, end).
    temp_files: Vec<(u64, u64)>,
    ended_ms: Option<u64>,
}

impl ProcessInventory {
    pub(super) fn add_record(&mut self, need: Need, segment: u32, bytes: u64) {
        let image = self.image_before(need);
        match self
            .groups
            .iter_mut()
            .rev()
            .find(|group| group.segment == segment && group.image == image)
        {
            Some(group) => {
                group.bytes += bytes;
                group.shortest_need = group.shortest_need.min(need);
                group.longest_need = group.longest_need.max(need);
            }
            None => self.groups.push(RecordGroup {
                segment,
                bytes,
                image,
                shortest_need: need,
                longest_need: need,
            }),
        }
    }

    /// The latest image before a record, or the record itself if it is an image. `u64::MAX` for a
    /// record that is needed as long as the process exists.
    fn image_before(&self, need: Need) -> FactNumber {
        let fact = FactNumber(need.0 >> 1);
        match need {
            Need::ALWAYS => FactNumber(u64::MAX),
            need if need == Need::image(fact) => fact,
            _ => fact
                .0
                .checked_sub(1)
                .and_then(|before| self.image_at(FactNumber(before)))
                .unwrap_or_default(),
        }
    }

    pub(super) fn add_facts(&mut self, first: FactNumber, count: u64) {
        add_range(&mut self.facts, first.0, first.0 + count);
    }

    pub(super) fn set_ended(&mut self, at_ms: Option<u64>) {
        self.ended_ms = at_ms;
    }

    pub(super) fn add_image(&mut self, at: FactNumber) {
        if let Err(index) = self.images.binary_search(&at) {
            self.images.insert(index, at);
        }
    }

    pub(super) fn remove_image(&mut self, at: FactNumber) {
        self.images.retain(|image| *image != at);
    }

    pub(super) fn add_temp_file(&mut self, number: u64) {
        add_range(&mut self.temp_files, number, number + 1);
    }

    pub(super) fn add_references(&mut self, need: Need, names: impl Iterator<Item = ShortName>) {
        self.unmerged.extend(names.map(|name| (name, need)));
    }

    /// Merges new references. Returns the contents that the process did not refer to before. Drops
    /// the records of log segments that no longer exist, according to `has_segment`.
    pub(super) fn merge_references(&mut self, has_segment: impl Fn(u32) -> bool) -> Vec<ShortName> {
        self.groups.retain(|group| has_segment(group.segment));
        if self.unmerged.is_empty() {
            return Vec::new();
        }
        let mut unmerged = std::mem::take(&mut self.unmerged);
        let mut new_contents = Vec::new();
        unmerged.sort_unstable_by(|one, other| (one.0, other.1).cmp(&(other.0, one.1)));
        // The sort puts the longest need of a name first, and only that one is kept.
        unmerged.dedup_by_key(|(name, _)| *name);
        unmerged.retain(|(name, need)| {
            match self
                .references
                .binary_search_by_key(name, |(name, _)| *name)
            {
                Ok(index) => {
                    self.references[index].1 = self.references[index].1.max(*need);
                    false
                }
                Err(_) => {
                    new_contents.push(*name);
                    true
                }
            }
        });
        self.references.reserve_exact(unmerged.len());
        self.references.extend(unmerged);
        self.references.sort_unstable_by_key(|(name, _)| *name);
        new_contents
    }

    /// Adds the references and bytes that a deletion would remove: a deletion of the history before
    /// fact `history_start`, or of the whole process if `history_start` is `None`.
    pub(super) fn add_removals(&self, history_start: Option<FactNumber>, removals: &mut Removals) {
        let is_kept = |need: Need| {
            history_start.is_some_and(|history_start| need.is_in_history(history_start))
        };
        for (name, _) in self.references.iter().filter(|(_, need)| !is_kept(*need)) {
            *removals.references.entry(*name).or_default() += 1;
        }
        for group in &self.groups {
            if !is_kept(group.longest_need) {
                *removals.segments.entry(group.segment).or_default() += group.bytes;
            } else if !is_kept(group.shortest_need) {
                // Only some records of the group are deleted, and their bytes are unknown.
                removals.doubtful.insert(group.segment);
            }
        }
    }

    pub(super) fn truncate_history(&mut self, history_start: FactNumber) {
        self.references
            .retain(|(_, need)| need.is_in_history(history_start));
        self.groups
            .retain(|group| group.longest_need.is_in_history(history_start));
        self.images.retain(|image| *image >= history_start);
    }

    pub(super) fn check_coverage(
        &self,
        history_start: FactNumber,
        last: FactNumber,
    ) -> Result<(), Option<FactNumber>> {
        if self.images.binary_search(&history_start).is_err() {
            return Err(None);
        }
        let up_to = contiguous_end(&self.facts, history_start.0 + 1);
        if up_to >= last.0 {
            Ok(())
        } else {
            Err(Some(FactNumber(up_to)))
        }
    }

    pub(super) fn temp_files(&self) -> u64 {
        contiguous_end(&self.temp_files, 1)
    }

    pub(super) fn ended_ms(&self) -> Option<u64> {
        self.ended_ms
    }

    /// The latest image at or before a fact.
    pub(super) fn image_at(&self, up_to: FactNumber) -> Option<FactNumber> {
        self.images[..self.images.partition_point(|image| *image <= up_to)]
            .last()
            .copied()
    }
}

/// Adds the numbers from `first` to before `end`, and joins adjacent ranges.
fn add_range(ranges: &mut Vec<(u64, u64)>, first: u64, end: u64) {
    let from = ranges.partition_point(|(_, known_end)| *known_end < first);
    let up_to = ranges.partition_point(|(start, _)| *start <= end);
    let joined = &ranges[from..up_to.max(from)];
    let first = joined.first().map_or(first, |(start, _)| first.min(*start));
    let end = joined
        .last()
        .map_or(end, |(_, known_end)| end.max(*known_end));
    ranges.splice(from..up_to.max(from), [(first, end)]);
}

/// The last number of the range that contains `first`; `first - 1` if there is none.
fn contiguous_end(ranges: &[(u64, u64)], first: u64) -> u64 {
    let covering = ranges
        .iter()
        .find(|(start, end)| *start <= first && first < *end);
    covering.map_or(first, |(_, end)| *end) - 1
}
