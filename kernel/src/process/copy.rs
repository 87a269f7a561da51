//! A copy of a process, restored from a journal or forked by the host: a process of its own, the root of a tree.

use dormouse_proto::record::{Control, Phase};

use super::Image;
use crate::budget::Account;

/// The image that a copy starts from at `now_ms`. One that had ended waits for input; one that lives, or was stopped, goes on
/// where it was. It has the limits and what was used, and no children. Its epoch is a new one: the calls that were in flight
/// are those of the other, which makes them itself.
#[must_use]
pub fn copied(image: Image, now_ms: u64) -> Image {
    let phase = match image.phase {
        Phase::Ended { .. } => Phase::Idle,
        living => living,
    };
    let budget = Account::as_root(image.budget, now_ms);
    Image { control: Control::Running, epoch: image.epoch + 1, budget, phase, ..image }
}
