//! Images that another process starts from: a copy of one process, and what a branch of a tree is
//! made of.
//!
//! A copy, made by the host, is a process of its own and the root of a tree. A process of a branch
//! takes the place of the other in a new tree, and goes on as after a restart.

use dormouse_proto::record::{Control, Phase};

use super::Image;
use crate::budget::Account;

/// How new processes begin that are made from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// They go on, even if the others were stopped.
    Running,
    /// They begin nothing before they are continued.
    Stopped,
}

/// The image that a copy starts from at `now_ms`. One that had ended waits for input; one that
/// lives, or was stopped, goes on where it was. It has the limits and what was used, and no
/// children. Its epoch is a new one: the calls that were in flight are those of the other, which
/// makes them itself.
#[must_use]
pub fn copied(image: Image, now_ms: u64) -> Image {
    let phase = match image.phase {
        Phase::Ended { .. } => Phase::Idle,
        living => living,
    };
    let budget = Account::as_root(image.budget, now_ms);
    Image {
        control: Control::Running,
        epoch: image.epoch + 1,
        budget,
        phase,
        ..image
    }
}

/// The image that a process of a branch starts from at `now_ms`, of one that stood so at `cut_ms`.
/// It is the same image, calls in flight, children and shares included, and as much of its wall
/// time is left as was left then.
#[must_use]
pub fn branched(mut image: Image, cut_ms: u64, now_ms: u64, beginning: Beginning) -> Image {
    image.budget.began_ms = image
        .budget
        .began_ms
        .saturating_add(now_ms.saturating_sub(cut_ms));
    begins(image, beginning)
}

/// The same image, to begin like this. Nothing of it is in flight: it waits as one that was stopped
/// in an earlier life.
#[must_use]
pub fn begins(image: Image, beginning: Beginning) -> Image {
    let control = match beginning {
        Beginning::Running => Control::Running,
        Beginning::Stopped => Control::Frozen,
    };
    Image { control, ..image }
}
