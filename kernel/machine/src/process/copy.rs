//! Images for processes that are made from other processes: copies and branches.
//!
//! A copy is made by the host from one process and is the root of a tree of its own. A process of a
//! branch takes the place of its original in a new tree, and continues as after a restart.

use dormouse_proto::record::{Control, Phase};

use super::Image;
use crate::budget::Account;

/// How a process that is made from another one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartMode {
    /// It runs, even if the original was stopped.
    Running,
    /// It is stopped, and starts nothing until it is continued.
    Stopped,
}

/// The image of a copy at `now_ms`. A copy of an ended process is idle; any other copy continues in
/// its phase, even if the original was stopped. Limits and usage are kept, children are not. The
/// epoch rises, since the calls in flight belong to the original.
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

/// The image of a branched process at `now_ms`, from the image at `cut_ms`. Calls in flight,
/// children and shares are kept, and the process has as much wall time left as it had at the cut.
#[must_use]
pub fn branched(mut image: Image, cut_ms: u64, now_ms: u64, beginning: StartMode) -> Image {
    image.budget.began_ms = image
        .budget
        .began_ms
        .saturating_add(now_ms.saturating_sub(cut_ms));
    with_start_mode(image, beginning)
}

/// The image with another start mode. Nothing is in flight, so a stopped image waits as one that
/// was stopped before a restart.
#[must_use]
pub fn with_start_mode(image: Image, beginning: StartMode) -> Image {
    let control = match beginning {
        StartMode::Running => Control::Running,
        StartMode::Stopped => Control::Frozen,
    };
    Image { control, ..image }
}
