//! Initial images of processes that are created from other processes: copies and branches.
//!
//! A *copy* is made by the host from one process and is the root of a new tree. A *branch* copies a
//! whole tree: each of its processes continues like its original after a restart.

use dormouse_proto::budget::Pausing;
use dormouse_proto::record::{Control, Phase};

use super::Image;
use super::effect_log::log_of_new_process;
use super::held::hold_anew;
use crate::budget::Account;

/// Whether a process that is created from another one runs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartMode {
    /// The process runs, even if the original was stopped.
    Running,
    /// The process is stopped, and starts nothing until it is continued.
    Stopped,
    /// The process is stopped if the original was.
    AsOriginal,
}

/// The image of a copy at `now_ms`. A copy of an ended process is idle; any other copy continues in
/// its phase, even if the original was stopped. Limits and usage are kept, children are not. The
/// epoch rises, since the calls in flight belong to the original. Calls that a person was asked about
/// are held anew. A copy of a process that is paused at a limit is paused too. For an image of the
/// past, [`with_effects_of`](super::with_effects_of) comes first.
#[must_use]
pub fn image_of_copy(image: Image, now_ms: u64) -> Image {
    let phase = match image.phase {
        Phase::Ended { .. } => Phase::Idle,
        ref phase => hold_anew(phase.clone(), now_ms),
    };
    let effects = log_of_new_process(&image);
    let budget = Account::as_root(image.budget, now_ms);
    Image {
        control: Control::Running,
        epoch: image.epoch + 1,
        budget,
        phase,
        effects,
        pausing: Pausing {
            // The copy has no parent.
            is_suspended: false,
            ..without_calls(image.pausing)
        },
        ..image
    }
}

/// How limits hold up a process that is created from another one: none of its calls is in flight.
fn without_calls(pausing: Pausing) -> Pausing {
    let has_lost_calls = pausing.paused.is_some() || pausing.is_suspended;
    Pausing {
        has_lost_calls,
        ..pausing
    }
}

/// The image of a process of a branch that is created at `now_ms`. Calls in flight, children and
/// shares of the budget are kept, and so is the wall time that is left. Calls that a person was
/// asked about are held anew.
#[must_use]
pub fn image_of_branch(mut image: Image, now_ms: u64, start_mode: StartMode) -> Image {
    image.effects = log_of_new_process(&image);
    image.phase = hold_anew(image.phase, now_ms);
    image.pausing = without_calls(image.pausing);
    with_start_mode(image, start_mode)
}

/// Sets the start mode of an image. No call of the new process is in flight, so a stopped process
/// is in the same situation as one that was stopped before a restart
/// ([`Control::StoppedWithoutCalls`]).
#[must_use]
pub fn with_start_mode(image: Image, start_mode: StartMode) -> Image {
    let control = match start_mode {
        StartMode::Running => Control::Running,
        StartMode::Stopped => Control::StoppedWithoutCalls,
        StartMode::AsOriginal => match image.control {
            Control::Running => Control::Running,
            Control::Stopped | Control::StoppedWithoutCalls => Control::StoppedWithoutCalls,
        },
    };
    Image { control, ..image }
}
