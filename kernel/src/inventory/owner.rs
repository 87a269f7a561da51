//! What a process has in the log, and what it refers to.

use dormouse_proto::id::FactNumber;

use super::{Losses, ShortName};

/// How long something of a process is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need(u64);

impl Need {
    /// As long as the process is kept.
    pub const ALWAYS: Self = Self(u64::MAX);

    /// As long as this fact can be asked for.
    #[must_use]
    pub fn fact(fact: FactNumber) -> Self {
        Self(fact.0 << 1)
    }

    /// As long as an image after this fact is of use: the history begins there or earlier.
    #[must_use]
    pub fn image(after: FactNumber) -> Self {
        Self((after.0 << 1) | 1)
    }

    /// Whether it is needed of a history that begins with the image after fact `since`.
    #[must_use]
    pub fn lasts(self, since: FactNumber) -> bool {
        self.0 > since.0 << 1
    }
}

/// The records of a process in a part of the log, from one of its images up to the next. A history
/// begins at an image, so these are given up together.
#[derive(Clone, Copy, Debug)]
struct Share {
    part: u32,
    bytes: u64,
    /// The fact that the image stands after.
    from: FactNumber,
    /// The record that is needed for the shortest time, and for the longest.
    first: Need,
    last: Need,
}

/// A process.
#[derive(Debug, Default)]
pub(super) struct Owner {
    /// Each content with the need that lasts longest, by rising name.
    references: Vec<(ShortName, Need)>,
    /// What came since it was settled.
    fresh: Vec<(ShortName, Need)>,
    shares: Vec<Share>,
    /// The facts that its images stand after, rising.
    images: Vec<FactNumber>,
    /// First fact and end of each stretch of facts; one, where there is no gap.
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

    /// The image that a record follows, or that it is.
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
        note(&mut self.facts, first.0, first.0 + count);
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
        note(&mut self.temp_files, number, number + 1);
    }

    pub(super) fn refers(&mut self, need: Need, names: impl Iterator<Item = ShortName>) {
        self.fresh.extend(names.map(|name| (name, need)));
    }

    /// Takes in what is fresh, and answers with the contents that it did not refer to before.
    pub(super) fn settle(&mut self, is_there: impl Fn(u32) -> bool) -> Vec<ShortName> {
        self.shares.retain(|share| is_there(share.part));
        if self.fresh.is_empty() {
            return Vec::new();
        }
        let mut fresh = std::mem::take(&mut self.fresh);
        let mut gained = Vec::new();
        fresh.sort_unstable_by(|one, other| (one.0, other.1).cmp(&(other.0, one.1)));
        // Of one name the need that lasts longest comes first.
        fresh.dedup_by_key(|(name, _)| *name);
        fresh.retain(|(name, need)| {
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
        self.references.reserve_exact(fresh.len());
        self.references.extend(fresh);
        self.references.sort_unstable_by_key(|(name, _)| *name);
        gained
    }

    /// What is lost with all of it, or with its history before a fact.
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
        let upto = reach(&self.facts, since.0 + 1);
        if upto >= last.0 {
            Ok(())
        } else {
            Err(Some(FactNumber(upto)))
        }
    }

    pub(super) fn temp_files(&self) -> u64 {
        reach(&self.temp_files, 1)
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

/// Adds a stretch of numbers to others, and joins those that touch.
fn note(stretches: &mut Vec<(u64, u64)>, first: u64, end: u64) {
    let from = stretches.partition_point(|(_, known_end)| *known_end < first);
    let upto = stretches.partition_point(|(start, _)| *start <= end);
    let joined = &stretches[from..upto.max(from)];
    let first = joined.first().map_or(first, |(start, _)| first.min(*start));
    let end = joined
        .last()
        .map_or(end, |(_, known_end)| end.max(*known_end));
    stretches.splice(from..upto.max(from), [(first, end)]);
}

/// The last number up to which there is no gap from `first` on; the one before it where it is
/// missing.
fn reach(stretches: &[(u64, u64)], first: u64) -> u64 {
    let covering = stretches
        .iter()
        .find(|(start, end)| *start <= first && first < *end);
    covering.map_or(first, |(_, end)| *end) - 1
}
