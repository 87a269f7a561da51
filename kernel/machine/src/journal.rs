//! Decides when a journal gets a new image (snapshot), so that loading stays fast and images stay
//! few.
//!
//! The decision is a pure function of sizes. An image replaces the facts before it. If the facts
//! only add to the state, as in a growing conversation, the image is as long as they are and does
//! not make loading faster. An image is therefore worth writing if it is at most a quarter of what
//! would be read without it. All images of a journal together then take at most a third of the cost
//! of its facts, however long it grows; for a process that is hibernated and woken repeatedly,
//! about as much as its facts.
//!
//! The length of an image is known only once it is built. One is built when the facts after the
//! latest image have doubled.

/// Required ratio of bytes read without the image to bytes read with it.
const TIMES_AN_IMAGE: u64 = 4;
/// Facts up to this cost never need an image: they replay in milliseconds.
const AT_LEAST_BYTES: u64 = 1 << 20;
/// Cost of a fact in addition to its bytes: its header on disk, lookup and replay.
const BYTES_A_FACT: u64 = 512;

/// The part of a journal after its latest image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalTail {
    image_bytes: u64,
    since_image: FactSpan,
    /// Position of the image that is being built, if one is.
    pending_image: Option<FactSpan>,
    /// Cost at which the next image is built.
    next_image_cost: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FactSpan {
    facts: u64,
    bytes: u64,
}

impl FactSpan {
    fn cost(self) -> u64 {
        self.bytes + BYTES_A_FACT * self.facts
    }
}

impl JournalTail {
    /// The empty tail after an image of this size.
    #[must_use]
    pub fn of(image_bytes: u64) -> Self {
        let next_image_cost = AT_LEAST_BYTES.max((TIMES_AN_IMAGE - 1) * image_bytes);
        Self {
            image_bytes,
            since_image: FactSpan::default(),
            pending_image: None,
            next_image_cost,
        }
    }

    /// Adds facts.
    #[must_use]
    pub fn with_facts(self, facts: u64, bytes: u64) -> Self {
        let since_image = FactSpan {
            facts: self.since_image.facts + facts,
            bytes: self.since_image.bytes + bytes,
        };
        Self {
            since_image,
            ..self
        }
    }

    /// Number of facts after the latest image. An image that is being built counts as the latest.
    #[must_use]
    pub fn facts(&self) -> u64 {
        self.since_image.facts - self.pending_image.unwrap_or_default().facts
    }

    /// Whether an image should be built.
    #[must_use]
    pub fn is_image_due(&self) -> bool {
        self.pending_image.is_none() && self.since_image.cost() >= self.next_image_cost
    }

    /// Marks that an image of the current end is being built.
    #[must_use]
    pub fn with_pending_image(self) -> Self {
        Self {
            pending_image: Some(self.since_image),
            ..self
        }
    }

    /// Maximum size of an image that is worth writing before the process is hibernated. It is read
    /// at the next wake-up, so it may be as long as the facts after the latest image. `None` if
    /// that image is longer.
    #[must_use]
    pub fn max_image_bytes_before_sleep(&self) -> Option<u64> {
        let cost = self.since_image.cost();
        (cost > 0 && cost >= self.image_bytes).then_some(cost)
    }

    /// Maximum size of an image that is worth writing.
    #[must_use]
    pub fn max_image_bytes(&self) -> u64 {
        (self.image_bytes + self.since_image.cost()) / TIMES_AN_IMAGE
    }

    /// Marks that the image was written, with its size.
    #[must_use]
    pub fn after_image(self, image_bytes: u64) -> Self {
        let included = self.pending_image.unwrap_or(self.since_image);
        Self::of(image_bytes).with_facts(
            self.since_image.facts - included.facts,
            self.since_image.bytes - included.bytes,
        )
    }

    /// Marks that the image was not worth writing.
    #[must_use]
    pub fn without_pending_image(self) -> Self {
        Self {
            pending_image: None,
            next_image_cost: 2 * self.next_image_cost.max(self.since_image.cost()),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Total bytes of all images of a journal with `facts` facts of `bytes` bytes each, and the
    /// number of attempts. `state` returns the size of the state after that many facts.
    fn images(facts: u64, bytes: u64, state: impl Fn(u64) -> u64) -> (u64, u64) {
        let (mut tail, mut images, mut looks) = (JournalTail::of(0), 0, 0);
        for fact in 1..=facts {
            tail = tail.with_facts(1, bytes);
            if tail.is_image_due() {
                let (image, worth) = (state(fact), tail.max_image_bytes());
                (tail, looks) = (tail.with_pending_image(), looks + 1);
                (tail, images) = if image <= worth {
                    (tail.after_image(image), images + image)
                } else {
                    (tail.without_pending_image(), images)
                };
            }
            assert!(
                3 * images <= fact * (bytes + BYTES_A_FACT),
                "after {fact} facts of {bytes}: {images}"
            );
        }
        (images, looks)
    }

    #[test]
    fn a_conversation_that_only_grows_is_not_written_again() {
        for (facts, bytes) in [(2_500, 300), (100_000, 400), (3_000, 100_000)] {
            let (images, looks) = images(facts, bytes, |fact| fact * bytes);
            assert!(
                images == 0 && looks < 10,
                "{facts} of {bytes}: {images}, {looks}"
            );
        }
    }

    #[test]
    fn what_does_not_grow_is_imaged_about_once_a_mebibyte() {
        let (facts, bytes) = (200_000, 40);
        let (images, _) = images(facts, bytes, |_| 5_000);
        let times = facts * (bytes + BYTES_A_FACT) / AT_LEAST_BYTES;
        assert!(images >= (times - 1) * 5_000, "{images}");
    }

    #[test]
    fn one_that_sleeps_after_each_turn_writes_no_more_images_than_facts() {
        let (mut tail, mut images, mut facts, turn) = (JournalTail::of(0), 0, 0, 2_000);
        for _ in 0..2_000 {
            (tail, facts) = (tail.with_facts(1, turn), facts + turn + BYTES_A_FACT);
            let state = facts;
            if tail
                .max_image_bytes_before_sleep()
                .is_some_and(|worth| state <= worth)
            {
                (tail, images) = (tail.after_image(state), images + state);
            }
            assert!(
                images <= 2 * facts,
                "{images} bytes of images, {facts} of facts"
            );
        }
        assert!(images > 0 && tail.facts() > 0);
    }

    #[test]
    fn what_came_while_an_image_was_looked_at_follows_it() {
        let tail = JournalTail::of(0)
            .with_facts(3, 2 << 20)
            .with_pending_image()
            .with_facts(2, 70);
        assert_eq!((tail.facts(), tail.is_image_due()), (2, false));
        assert_eq!(tail.after_image(9), JournalTail::of(9).with_facts(2, 70));
        assert_eq!(tail.without_pending_image().facts(), 5);
    }
}
