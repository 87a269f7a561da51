//! The records of one process in the log, and its references.

use dormouse_proto::id::FactNumber;

use super::{Losses, ShortName};

/// How long a record or reference of a process is needed.
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

    /// Whether it is needed by a history that starts with the image after fact `since`.
    #[must_use]
    pub fn lasts(self, since: FactNumber) -> bool {
        self.0 > since.0 << 1
    }
}

/// The records of a process in one part of the log, from one of its images to the next. A history
/// starts at an image, so these are deleted together.
#[derive(Clone, Copy, Debug)]
struct Share {
    part: u32,
    bytes: u64,
    /// The last fact before the image.
    from: FactNumber,
    /// The shortest and the longest need among the records.
    first: Need,
    last: Need,
}

/// The inventory of one process.
#[derive(Debug, Default)]
pub(super) struct Owner {
    /// Referenced contents with their longest need, sorted by name.
    references: Vec<(ShortName, Need)>,
    /// References that are not merged yet.
    unmerged: Vec<(ShortName, Need)>,
    shares: Vec<Share>,
    /// Positions of the images, ascending.
    images: Vec<FactNumber>,
    /// Known ranges of facts (first, end); a single one if there is no gap.
    facts: Vec<(u64, u64)>,
    temp_files: Vec<(u64, u64)>,
    ended_ms: Option<u64>,
}

impl Owner {
    pub(super) fn record(&mut self, need: Need, part: u32, bytes: u64) {
        let from = self.begins(need);
        match self
            .shares
            .iter_mut()
            .rev()
            .find(|share| share.part == part && share.from == from)
        {
            Some(share) => {
                share.bytes += bytes;
                (share.first, share.last) = (share.first.min(need), share.last.max(need));
            }
            None => self.shares.push(Share {
                part,
                bytes,
                from,
                first: need,
                last: need,
            }),
        }
    }

    /// The image that a record follows, or is.
    fn begins(&self, need: Need) -> FactNumber {
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

    pub(super) fn facts(&mut self, first: FactNumber, count: u64) {
        add_range(&mut self.facts, first.0, first.0 + count);
    }

    pub(super) fn ended(&mut self, at_ms: u64) {
        self.ended_ms = Some(at_ms);
    }

    pub(super) fn image(&mut self, at: FactNumber) {
        if let Err(place) = self.images.binary_search(&at) {
            self.images.insert(place, at);
        }
    }

    pub(super) fn no_image(&mut self, at: FactNumber) {
        self.images.retain(|image| *image != at);
    }

    pub(super) fn temp_file(&mut self, number: u64) {
        add_range(&mut self.temp_files, number, number + 1);
    }

    pub(super) fn refers(&mut self, need: Need, names: impl Iterator<Item = ShortName>) {
        self.unmerged.extend(names.map(|name| (name, need)));
    }

    /// Merges new references. Returns the contents that the process did not refer to before.
    pub(super) fn merge_references(&mut self, is_there: impl Fn(u32) -> bool) -> Vec<ShortName> {
        self.shares.retain(|share| is_there(share.part));
        if self.unmerged.is_empty() {
            return Vec::new();
        }
        let mut unmerged = std::mem::take(&mut self.unmerged);
        let mut gained = Vec::new();
        unmerged.sort_unstable_by(|one, other| (one.0, other.1).cmp(&(other.0, one.1)));
        // The longest need of a name comes first.
        unmerged.dedup_by_key(|(name, _)| *name);
        unmerged.retain(|(name, need)| {
            match self
                .references
                .binary_search_by_key(name, |(name, _)| *name)
            {
                Ok(known) => {
                    self.references[known].1 = self.references[known].1.max(*need);
                    false
                }
                Err(_) => {
                    gained.push(*name);
                    true
                }
            }
        });
        self.references.reserve_exact(unmerged.len());
        self.references.extend(unmerged);
        self.references.sort_unstable_by_key(|(name, _)| *name);
        gained
    }

    /// Adds what a deletion of the process, or of its history before a fact, would free.
    pub(super) fn losses(&self, since: Option<FactNumber>, losses: &mut Losses) {
        let lasts = |need: Need| since.is_some_and(|since| need.lasts(since));
        for (name, _) in self.references.iter().filter(|(_, need)| !lasts(*need)) {
            *losses.owners.entry(*name).or_default() += 1;
        }
        for share in &self.shares {
            if !lasts(share.last) {
                *losses.parts.entry(share.part).or_default() += share.bytes;
            } else if !lasts(share.first) {
                losses.doubtful.insert(share.part);
            }
        }
    }

    pub(super) fn shorten(&mut self, since: FactNumber) {
        self.references.retain(|(_, need)| need.lasts(since));
        self.shares.retain(|share| share.last.lasts(since));
        self.images.retain(|image| *image >= since);
    }

    pub(super) fn covers(
        &self,
        since: FactNumber,
        last: FactNumber,
    ) -> Result<(), Option<FactNumber>> {
        if self.images.binary_search(&since).is_err() {
            return Err(None);
        }
        let upto = contiguous_end(&self.facts, since.0 + 1);
        if upto >= last.0 {
            Ok(())
        } else {
            Err(Some(FactNumber(upto)))
        }
    }

    pub(super) fn temp_files(&self) -> u64 {
        contiguous_end(&self.temp_files, 1)
    }

    pub(super) fn ended_ms(&self) -> Option<u64> {
        self.ended_ms
    }

    /// The latest image at or before a fact.
    pub(super) fn image_at(&self, upto: FactNumber) -> Option<FactNumber> {
        self.images[..self.images.partition_point(|image| *image <= upto)]
            .last()
            .copied()
    }
}

/// Adds a range of numbers and joins adjacent ranges.
fn add_range(ranges: &mut Vec<(u64, u64)>, first: u64, end: u64) {
    let from = ranges.partition_point(|(_, known_end)| *known_end < first);
    let upto = ranges.partition_point(|(start, _)| *start <= end);
    let joined = &ranges[from..upto.max(from)];
    let first = joined.first().map_or(first, |(start, _)| first.min(*start));
    let end = joined
        .last()
        .map_or(end, |(_, known_end)| end.max(*known_end));
    ranges.splice(from..upto.max(from), [(first, end)]);
}

/// The last number of the range that contains `first`; `first - 1` if there is none.
fn contiguous_end(ranges: &[(u64, u64)], first: u64) -> u64 {
    let covering = ranges
        .iter()
        .find(|(start, end)| *start <= first && first < *end);
    covering.map_or(first, |(_, end)| *end) - 1
}
