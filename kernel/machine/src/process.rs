//! The process machine: the state of a process, and what the process does next.
//!
//! [`decide`] takes a [`State`] and an [`Input`] and returns facts and effects; [`evolve`] applies
//! one fact to the state, both live and on replay. The *shell* (`dormouse-actors`) makes the facts
//! durable, then performs the effects, and feeds their outcomes back as inputs. Both functions are
//! pure and deterministic. The *host* is the application that embeds the kernel.
//!
//! A *process tool* ([`ProcessHandler`](crate::tool::ProcessHandler)) acts on the process itself,
//! such as `fork` or `wait`. Its handler only parses the arguments of a call; this module executes
//! the call.
//!
//! This module never performs I/O, never waits and never reads a clock: the time arrives with the
//! input.
//!
//! Invariants kept here:
//! * HIST-1: the bytes sent to a model are only appended to, except after a `goto`, a restore or a
//!   compaction.
//! * COMPACT-1: every message that leaves the conversation by a compaction can still be read.
//! * FORK-1, FORK-2: a fork starts from a value that later changes do not touch, and its history
//!   begins with the bytes of its parent.
//! * DUR-2: replaying the facts yields the state that wrote them.
//! * CALL-1: a completion is applied at most once.
//! * CALL-2: a tool that is not idempotent never runs twice for one call.
//! * MAIL-1: a message is delivered once.
//! * HELD-1: no held call begins unanswered, and an answer applies to one call of one process.
//! * FENCE-1: no effect beyond a point that a process went back to is done again, unless a policy or
//!   a person said so.
//! * SPEC-1: no call of a model acts outside of a process that is speculative.
//! * ALARM-1: a time of an alarm is reported once.
//! * REOPEN-1: an ended process runs only after one fact that opened it again, and its parent hears
//!   of each of its ends once.
//! * PAUSE-1: nothing begins in a process that is paused at a limit, or below it, before it is raised.
//! * TREE-1: the usage of a tree stays within the budget of its root.

mod alarms;
mod arrival;
mod auto_summary;
mod background;
mod birth;
mod budget;
mod call_limits;
mod canonical;
mod checkpoint;
mod checkpoint_op;
mod children;
mod compaction;
mod control;
mod copy;
mod decide;
mod diff;
mod effect;
mod effect_log;
mod envelope;
mod environment;
mod evolve;
mod exploring;
mod fact_summary;
mod fallback;
mod fence;
mod goto;
mod held;
mod hibernation;
mod inline_reads;
mod input;
mod mail;
mod mcp_tools;
mod model_request;
mod offered_tool;
mod open_descriptor;
mod pausing;
mod pending_reads;
mod pending_spawn;
mod preload;
mod process_list;
mod program_cache;
mod read;
mod reopening;
mod reply;
mod result;
mod resume;
mod server_output;
mod spawn;
mod speculation;
mod state;
mod stored_state;
mod toolbox;
mod tools;
mod turn;
mod turn_end;
mod verdict;
mod waiting;

pub use alarms::AlarmRequest;
pub use arrival::PlacedArrival;
pub use birth::{Birth, initial_image};
pub use checkpoint_op::{
    CheckpointError, CheckpointImage, CheckpointInfo, CheckpointOp, CheckpointReply,
};
pub use children::PlacedExit;
pub use compaction::CompactionDraft;
pub use copy::{StartMode, image_of_branch, image_of_copy, with_start_mode};
pub use decide::{Decision, Recorded, decide, record_verdict};
pub use diff::{DescriptorDifference, DescriptorSummary, Diff, MessageSummary, Pair, diff};
pub use effect::{Child, Effect, Report, Work};
pub use effect_log::{with_effect_policy, with_effects_of};
pub use envelope::{
    Envelope, PendingMessage, PlacedDescriptor, PlacedEnvelope, TransferredDescriptor,
};
pub use environment::{GatheredEnvironment, add_environment};
pub use evolve::evolve;
pub use exploring::Judge;
pub use fact_summary::summary_line;
pub use goto::{GotoArguments, GotoError, GotoRead, check_goto_message};
pub use hibernation::{BusyReason, waiting_of_image};
pub use input::{ChildEvent, Completion, HostRequest, Input, Signal};
pub use mcp_tools::{MissingMcpTool, ProcessTools, add_mcp_tools, tools_of_new_process};
pub use pausing::{RaiseError, check_raise, record_raise, record_share};
pub use pending_spawn::{FetchError, Fetched, PendingSpawn, Preloads};
pub use preload::{FetchedFile, MAX_PRELOAD_BYTES, ShownPreload, check_preload_size};
pub use process_list::MAX_SHOWN_PROCESSES;
pub use read::{Read, ReadResult};
pub use reopening::{EndedChild, EndedProcess, Reopening, ReopeningError, check_exit};
pub use reply::PlacedReply;
pub use spawn::NewChild;
pub use speculation::with_speculation;
pub use state::State;
pub use stored_state::StateError;
pub use toolbox::{Attendance, HostContext, HostTool, Tools};
pub use turn_end::{InputProgress, TurnEnd, TurnSearch};
pub use verdict::{AnswerError, Question, Verdict, VerdictError};
pub use waiting::WaitArguments;

use dormouse_content::Content;

/// A journal entry whose contents are held as values, not as references into the store.
pub type Fact = dormouse_proto::record::Fact<Content>;
/// A stored process state whose contents are held as values, not as references into the store.
pub type Image = dormouse_proto::record::Image<Content>;
