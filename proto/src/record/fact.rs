//! Facts, grouped by subject. `kernel/machine/src/process/evolve.rs` applies each of them to the
//! state of a process.

mod names;

use std::sync::Arc;

use imbl::Vector;
use serde::{Deserialize, Serialize};

use super::{Annotation, Caller, CompactedMessages, Entry, Hold, Image, ReopenedChild};
use crate::alarm::{Alarm, AlarmId};
use crate::budget::{Change, Ledger};
use crate::effect::EffectPolicy;
use crate::id::{CallId, CheckpointId, FdId, Pid};
use crate::mail::Sender;
use crate::message::{Block, Message};
use crate::model::{StopReason, Usage};
use crate::process::{Exit, ExitStatus};
use crate::tool::{Answer, ExternalTool, ToolSpec};

/// One change of a process's state, in the past tense: it has happened, and replaying it cannot
/// fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "C: Clone + Deserialize<'de>"))]
pub enum Fact<C: Clone> {
    /// Changes of the mailbox.
    Mail(MailFact),
    /// Progress of a turn, and goto.
    Turn(TurnFact),
    /// Model and tool calls.
    Call(CallFact),
    /// Children.
    Child(ChildFact),
    /// Changes of the descriptor table.
    Descriptor(DescriptorFact<C>),
    /// A change of the budget account.
    Budget(Change),
    /// Stop and continue.
    Control(ControlFact),
    /// The process was restored to a checkpoint. Conversation, descriptors and phase are those of
    /// the image. Counters of descriptors and calls continue. Usage, receipts and waiting mail are
    /// kept, and mail that was waiting at the checkpoint and has been delivered since waits again.
    /// Calls in flight become stale, and children made since the checkpoint are ended.
    Restored {
        /// Id of the checkpoint.
        checkpoint: CheckpointId,
        /// Image at the checkpoint.
        image: Box<Image<C>>,
        /// Message after the restored history: answers to calls that were open there, and a notice
        /// of the restore.
        message: Arc<Message>,
        /// Whether the model restored the process, within its turn, or the host.
        by: Caller,
    },
    /// The process ended.
    Exited {
        /// How the process ended.
        exit: Exit,
    },
    /// The tools of the process were replaced, before anything was said to its model: those that
    /// its servers offer have changed.
    ToolsReplaced {
        /// All tools, in the order in which a model gets them.
        tools: Arc<[ToolSpec]>,
        /// Those of them that run outside of the machine.
        external: Arc<[ExternalTool]>,
    },
    /// The kernel added a notice to the last message, which has not been sent yet: descriptors of
    /// what the provider's tools returned.
    Noted {
        /// The notice, as the model reads it.
        text: Arc<str>,
    },
    /// The conversation filled the context of the model: its older messages became the descriptor
    /// `history:N`, and a summary takes their place. The epoch rises.
    Compacted {
        /// The messages that left the conversation.
        compacted: CompactedMessages<C>,
        /// The descriptor that shows their text.
        entry: Box<Entry<C>>,
        /// The message that takes their place.
        summary: Arc<Message>,
        /// How many messages follow the summary: the newest of the conversation.
        kept: u32,
        /// Usage of the model call that made the summary.
        usage: Usage,
    },
    /// The conversation went back to a message that had been compacted: it is again as it was
    /// before that compaction, up to this message, and another message was added. Calls in flight
    /// become stale. Descriptors stay, except for notes on removed messages.
    WentToCompacted {
        /// Number of the last message that is kept, counted from 1.
        to: u32,
        /// The conversation up to this message, as it was.
        messages: Vector<Arc<Message>>,
        /// Message counts at each fork that the conversation then had, oldest first.
        forked_at: Vec<u32>,
        /// Message that follows it.
        message: Arc<Message>,
        /// Whether the model went back, within its turn, or the host, which starts a turn.
        by: Caller,
    },
    /// Alarms.
    Alarm(AlarmFact),
    /// An ended process was opened again: it waits for input, with its conversation and its
    /// descriptors. The message that opened it follows.
    Reopened {
        /// The account of a child, with the share that it was given anew; `None` for a root, whose
        /// account continues.
        budget: Option<Box<Ledger>>,
    },
}

/// Changes of the mailbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MailFact {
    /// Input was queued in the mailbox.
    Queued {
        /// Sender of the input.
        from: Sender,
        /// The message; large content is already replaced by descriptors.
        message: Arc<Message>,
    },
    /// A message of another process was received and queued. This fact is its receipt: a repeated
    /// message is not queued again.
    Received {
        /// Pid of the sender.
        from: Pid,
        /// Call of the sender; identifies the message.
        call: CallId,
        /// The sender has an acknowledgement for every call below this sequence number.
        acked_below: u32,
        /// The message; large content is already replaced by descriptors.
        message: Arc<Message>,
    },
    /// Messages left the mailbox because a tool showed them.
    Taken {
        /// Their positions in the mailbox, from 0, ascending.
        at: Vec<u32>,
    },
}

/// Progress of a turn, and goto.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TurnFact {
    /// A turn began: the mailbox moved into the conversation.
    Began,
    /// The turn ended, and the process waits for input.
    Ended {
        /// Result of the turn.
        status: ExitStatus,
        /// The reason, if it is not the model's last reply.
        reason: Option<Arc<str>>,
    },
    /// Calls in flight were abandoned, and each open tool use was answered with this text.
    Interrupted {
        /// Answer to each open tool use.
        answer: Answer,
    },
    /// The conversation went back to a message: later messages were removed, and another message
    /// was added. Calls in flight become stale. Descriptors stay, except for notes on removed
    /// messages.
    WentTo {
        /// Number of the last message that is kept, counted from 1.
        to: u32,
        /// Message that follows it.
        message: Arc<Message>,
        /// Whether the model went back, within its turn, or the host, which starts a turn.
        by: Caller,
    },
    /// The model submitted a result that the result schema accepts. The turn ends with it once the
    /// other calls of the reply are answered.
    ResultSubmitted {
        /// The value, as JSON text.
        value: Arc<str>,
    },
    /// The model submitted a value that the result schema does not accept: an attempt failed.
    ResultRefused,
    /// The model ended its reply without a result, and was told that one is due: an attempt failed.
    ResultRequested {
        /// The message to the model.
        message: Arc<Message>,
    },
}

/// Model and tool calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallFact {
    /// The model is about to be called. Repeated with the same id if the kernel restarts before the
    /// reply.
    ModelCalled {
        /// Id of the call.
        call: CallId,
    },
    /// The model replied.
    ModelReplied {
        /// Id of the call.
        call: CallId,
        /// Blocks in the provider's order.
        blocks: Vec<Block>,
        /// Why the model stopped.
        stop: StopReason,
        /// Usage of the call.
        usage: Usage,
    },
    /// The model failed, and the process switched to another model of its program.
    ModelSwitched {
        /// Index of the next model, from 0.
        to: u32,
        /// Failure of the previous model.
        reason: Arc<str>,
    },
    /// The host called a tool, outside of the conversation.
    HostCalled {
        /// Id of the host's request; the answer carries it.
        request_id: Arc<str>,
        /// Name of the tool.
        tool: Arc<str>,
        /// Arguments as JSON text.
        args: Arc<str>,
    },
    /// A tool is about to run: its side effects may happen from here on. Repeated if the call is
    /// made again after a restart.
    ToolCalled {
        /// Id of the call.
        call: CallId,
    },
    /// A tool call was answered.
    ToolReturned {
        /// Id of the call.
        call: CallId,
        /// The answer to the caller.
        answer: Answer,
        /// Characters that the tool produced, independent of how many entered the context.
        produced_chars: u64,
    },
    /// A call waits until a person has answered. Nothing of it has begun.
    Held {
        /// Id of the call.
        call: CallId,
        /// Why and since when the call is held.
        hold: Hold,
    },
    /// A person approved a held call. It has not begun yet.
    Approved {
        /// Id of the call.
        call: CallId,
        /// The arguments that run in place of those of the model; `None` if they are unchanged.
        edited: Option<EditedArguments>,
    },
    /// A call repeats an effect beyond a point that the process went back to. It does not run, and
    /// its answer is the recorded one.
    Recalled {
        /// Id of the call.
        call: CallId,
        /// Number of the effect in the log of effects.
        effect: u32,
    },
    /// The policy for calls that repeat effects was named, for this process.
    EffectPolicySet {
        /// The policy; `None` if that of the program holds.
        policy: Option<EffectPolicy>,
    },
}

/// The arguments of a call as a person changed them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditedArguments {
    /// The arguments as JSON text.
    pub args: Arc<str>,
    /// The notice that stands before the answer of the call, as the model reads it.
    pub notice: Arc<str>,
}

/// Children.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildFact {
    /// A background child started.
    Started {
        /// Call that made the child.
        call: CallId,
        /// Pid of the child.
        child: Pid,
    },
    /// A child of a fork or spawn ended.
    Ended {
        /// Call that made the child.
        call: CallId,
        /// Index of the child within its call, from 0.
        index: u32,
        /// Pid of the child.
        child: Pid,
        /// Exit of the child.
        exit: Exit,
    },
    /// The end of a background child was queued in the mailbox. This fact is its receipt: a
    /// repeated report is not queued again.
    Reported {
        /// Call that made the child.
        call: CallId,
        /// Report of its end; large content is already replaced by descriptors.
        message: Arc<Message>,
    },
    /// A child that had ended was opened again, and runs in the background. The facts that open it
    /// are in the same commit.
    Reopened {
        /// The child.
        child: ReopenedChild,
    },
    /// The end of a child that was opened again was queued in the mailbox. This fact is its
    /// receipt: a repeated report is not queued again (REOPEN-1).
    ReportedAgain {
        /// Call that made the child.
        call: CallId,
        /// Index of the child within its call, from 0.
        index: u32,
        /// Report of its end; large content is already replaced by descriptors.
        message: Arc<Message>,
    },
}

/// Changes of the descriptor table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DescriptorFact<C> {
    /// A descriptor was opened.
    Opened {
        /// Id of the descriptor.
        id: FdId,
        /// Entry of the descriptor.
        entry: Entry<C>,
    },
    /// A descriptor got a name, a section or a summary, or lost one.
    Annotated {
        /// Id of the descriptor.
        id: FdId,
        /// The change of its notes.
        note: Annotation,
    },
}

/// Stop and continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlFact {
    /// The process was stopped: it starts nothing until it is continued.
    Stopped,
    /// A stopped process came back from its journal: calls in flight are lost and are resumed when
    /// it is continued.
    StoppedWithoutCalls,
    /// The process was continued.
    Continued,
    /// A process above this one is paused at a limit: this one begins nothing either.
    Suspended,
    /// No process above this one is paused any more.
    Released,
    /// A speculative process was chosen among its branches: it is speculative no more, and what was
    /// held for that reason is judged by the rules of its program.
    SpeculationEnded,
}

/// Alarms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AlarmFact {
    /// An alarm was set.
    Set {
        /// The alarm.
        alarm: Alarm,
    },
    /// An alarm was cancelled.
    Cancelled {
        /// Id of the alarm.
        id: AlarmId,
    },
    /// An alarm fired, and its message was queued in the mailbox. This fact is its receipt: a time
    /// for which it is in the journal is not reported again (ALARM-1).
    Fired {
        /// Id of the alarm.
        id: AlarmId,
        /// When it is due next: milliseconds since the epoch, UTC; `None` if it is over.
        next_ms: Option<u64>,
        /// The message; `None` if the time was missed and the policy of the alarm drops such times.
        message: Option<Arc<Message>>,
    },
}

impl<C: Clone> Fact<C> {
    /// Converts the representation of the contents.
    ///
    /// # Errors
    /// Errors of `convert`.
    pub fn try_map<D: Clone, E>(
        self,
        convert: &mut impl FnMut(C) -> Result<D, E>,
    ) -> Result<Fact<D>, E> {
        Ok(match self {
            Self::Mail(fact) => Fact::Mail(fact),
            Self::Turn(fact) => Fact::Turn(fact),
            Self::Call(fact) => Fact::Call(fact),
            Self::Child(fact) => Fact::Child(fact),
            Self::Descriptor(DescriptorFact::Opened { id, entry }) => {
                Fact::Descriptor(DescriptorFact::Opened {
                    id,
                    entry: entry.try_map(convert)?,
                })
            }
            Self::Descriptor(DescriptorFact::Annotated { id, note }) => {
                Fact::Descriptor(DescriptorFact::Annotated { id, note })
            }
            Self::Budget(change) => Fact::Budget(change),
            Self::Control(fact) => Fact::Control(fact),
            Self::Restored {
                checkpoint,
                image,
                message,
                by,
            } => Fact::Restored {
                checkpoint,
                image: Box::new(image.try_map(convert)?),
                message,
                by,
            },
            Self::Exited { exit } => Fact::Exited { exit },
            Self::ToolsReplaced { tools, external } => Fact::ToolsReplaced { tools, external },
            Self::Noted { text } => Fact::Noted { text },
            Self::Compacted {
                compacted,
                entry,
                summary,
                kept,
                usage,
            } => Fact::Compacted {
                compacted: compacted.try_map(convert)?,
                entry: Box::new(entry.try_map(convert)?),
                summary,
                kept,
                usage,
            },
            Self::WentToCompacted {
                to,
                messages,
                forked_at,
                message,
                by,
            } => Fact::WentToCompacted {
                to,
                messages,
                forked_at,
                message,
                by,
            },
            Self::Alarm(fact) => Fact::Alarm(fact),
            Self::Reopened { budget } => Fact::Reopened { budget },
        })
    }
}

/// Conversions from each group into `Fact`.
macro_rules! groups {
    ($($group:ident($fact:ty)),*) => {
        $(impl<C: Clone> From<$fact> for Fact<C> {
            fn from(fact: $fact) -> Self {
                Self::$group(fact)
            }
        })*
    };
}

groups!(
    Mail(MailFact),
    Turn(TurnFact),
    Call(CallFact),
    Child(ChildFact),
    Descriptor(DescriptorFact<C>),
    Budget(Change),
    Control(ControlFact),
    Alarm(AlarmFact)
);
