//! The process machine: what a process is, and what it does next.
//!
//! Pure and deterministic. [`decide`] looks at a [`State`] and an [`Input`] and says which facts
//! follow and what is to be done; [`evolve`] applies a fact, live and on replay alike. The shell
//! around it persists the facts, then performs the effects, and feeds what comes of them back as
//! inputs.
//!
//! What never happens here: I/O, waiting, looking at a clock. Time arrives with the input.
//!
//! Invariants kept here: HIST-1 (what was sent to a model only grows, unless it went back, in its
//! conversation or to a checkpoint), FORK-1 and FORK-2 (a child starts from a value, and with its
//! parent's bytes), DUR-2 (replaying facts gives the state that wrote them), CALL-1 (a completion
//! is applied at most once), CALL-2 (a tool that is not idempotent never runs twice for one call),
//! MAIL-1 (a message is heard once), TREE-1 (what a tree uses stays within its root's budget).

mod arrival;
mod background;
mod birth;
mod budget;
mod checkpoint;
mod children;
mod common;
mod control;
mod copy;
mod decide;
mod diff;
mod effect;
mod environment;
mod evolve;
mod fallback;
mod gist;
mod goto;
mod input;
mod mail;
mod offered;
mod read;
mod reading;
mod rest;
mod resume;
mod served;
mod spawn;
mod state;
mod toolbox;
mod tools;
mod turn;
mod waiting;

pub use arrival::Placed;
pub use birth::{Birth, born};
pub use copy::{Beginning, begins, branched, copied};
pub(crate) use decide::Draft;
pub use decide::{Decision, decide};
pub use diff::{Diff, Difference, Held, Line, Pair, diff};
pub use effect::{Child, Effect, Report, Work};
pub use environment::{Gathered, tell_environment};
pub use evolve::evolve;
pub use gist::gist;
pub use input::{ChildEvent, Completion, HostRequest, Input, Signal};
pub use read::{Found, Read};
pub use rest::Unrest;
pub use served::{NotOffered, give_tools};
pub use state::{State, StateError};
pub use toolbox::{HostContext, HostTool, Tools};

pub use crate::syscall::checkpoint::{
    CheckpointError, CheckpointOp, CheckpointReply, Kept, Standing,
};
pub use crate::syscall::spawn::{
    FetchError, Fetched, MAX_PRELOAD_BYTES, PendingSpawn, Preloads, ShownPreload,
};
use dormouse_content::Content;

/// A fact with its content at hand.
pub type Fact = dormouse_proto::record::Fact<Content>;
/// An image with its contents at hand.
pub type Image = dormouse_proto::record::Image<Content>;
