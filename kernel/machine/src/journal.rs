//! Decides when a new image (the stored state of a process) is written to its journal, so that a
//! process loads fast and few images are written.
//!
//! The decision depends only on sizes. When a process is loaded, its latest image replaces the
//! facts before it. If the facts only add to the state, as in a growing conversation, the image is
//! as long as the facts and does not make loading faster. An image is therefore worth writing if it
//! has at most a quarter of the bytes that would be read without it. Then all images of a journal
//! together cost at most a third as much as its facts, or about as much as its facts if the process
//! hibernates (leaves memory) and wakes repeatedly.
//!
//! The length of an image is known only after it was built. If an image is not worth writing, the
//! next one is built when the cost of the facts has doubled.

/// Minimum ratio of the bytes read without an image to the bytes of the image.
const MIN_SAVING_RATIO: u64 = 4;
/// Facts below this cost never need an image, since they replay in milliseconds.
const MIN_COST_BYTES: u64 = 1 << 20;
/// Cost of a fact in addition to its bytes: its header on disk, lookup and replay.
const FACT_OVERHEAD_BYTES: u64 = 512;

/// The part of a journal after its latest image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalTail {
    image_bytes: u64,
    since_image: FactSpan,
    /// The facts that the image under construction will replace. `None` if no image is being built.
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
        self.bytes + FACT_OVERHEAD_BYTES * self.facts
    }
}

impl JournalTail {
    /// Creates the empty tail after an image of this size. The size is 0 if there is no image.
    #[must_use]
    pub fn new(image_bytes: u64) -> Self {
        let next_image_cost = MIN_COST_BYTES.max((MIN_SAVING_RATIO - 1) * image_bytes);
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

    /// Marks that an image of all facts so far is being built.
    #[must_use]
    pub fn with_pending_image(self) -> Self {
        Self {
            pending_image: Some(self.since_image),
            ..self
        }
    }

    /// Maximum size of an image that is worth writing before the process hibernates. The image is
    /// certain to be read when the process wakes, so it may be as long as the facts after the
    /// latest image. `None` if the latest image is longer than these facts.
    #[must_use]
    pub fn max_image_bytes_before_hibernation(&self) -> Option<u64> {
        let cost = self.since_image.cost();
        (cost > 0 && cost >= self.image_bytes).then_some(cost)
    }

    /// Maximum size of an image that is worth writing.
    #[must_use]
    pub fn max_image_bytes(&self) -> u64 {
        (self.image_bytes + self.since_image.cost()) / MIN_SAVING_RATIO
    }

    /// Marks that the image was written, with its size.
    #[must_use]
    pub fn after_image(self, image_bytes: u64) -> Self {
        let replaced = self.pending_image.unwrap_or(self.since_image);
        Self::new(image_bytes).with_facts(
            self.since_image.facts - replaced.facts,
            self.since_image.bytes - replaced.bytes,
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
        let (mut tail, mut images, mut attempts) = (JournalTail::new(0), 0, 0);
        for fact in 1..=facts {
            tail = tail.with_facts(1, bytes);
            if tail.is_image_due() {
                let (image, max_bytes) = (state(fact), tail.max_image_bytes());
                (tail, attempts) = (tail.with_pending_image(), attempts + 1);
                (tail, images) = if image <= max_bytes {
                    (tail.after_image(image), images + image)
                } else {
                    (tail.without_pending_image(), images)
                };
            }
            assert!(
                3 * images <= fact * (bytes + FACT_OVERHEAD_BYTES),
                "after {fact} facts of {bytes}: {images}"
            );
        }
        (images, attempts)
    }

    #[test]
    fn a_state_that_only_grows_gets_no_images() {
        for (facts, bytes) in [(2_500, 300), (100_000, 400), (3_000, 100_000)] {
            let (images, attempts) = images(facts, bytes, |fact| fact * bytes);
            assert!(
                images == 0 && attempts < 10,
                "{facts} of {bytes}: {images}, {attempts}"
            );
        }
    }

    #[test]
    fn a_state_of_constant_size_gets_an_image_about_every_mebibyte() {
        let (facts, bytes) = (200_000, 40);
        let (images, _) = images(facts, bytes, |_| 5_000);
        let times = facts * (bytes + FACT_OVERHEAD_BYTES) / MIN_COST_BYTES;
        assert!(images >= (times - 1) * 5_000, "{images}");
    }

    #[test]
    fn images_of_a_process_that_hibernates_often_cost_at_most_twice_its_facts() {
        let (mut tail, mut images, mut facts, turn) = (JournalTail::new(0), 0, 0, 2_000);
        for _ in 0..2_000 {
            (tail, facts) = (tail.with_facts(1, turn), facts + turn + FACT_OVERHEAD_BYTES);
            let state = facts;
            if tail
                .max_image_bytes_before_hibernation()
                .is_some_and(|max_bytes| state <= max_bytes)
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
    fn facts_that_arrive_while_an_image_is_built_follow_it() {
        let tail = JournalTail::new(0)
            .with_facts(3, 2 << 20)
            .with_pending_image()
            .with_facts(2, 70);
        assert_eq!((tail.facts(), tail.is_image_due()), (2, false));
        assert_eq!(tail.after_image(9), JournalTail::new(9).with_facts(2, 70));
        assert_eq!(tail.without_pending_image().facts(), 5);
    }
}
