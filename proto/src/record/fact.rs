//! Facts, by what they are about.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Caller, Entry, Image, Note};
use crate::budget::Change;
use crate::id::{CallId, CheckpointId, FdId, Pid};
use crate::mail::Sender;
use crate::message::{Block, Message};
use crate::model::{StopReason, Usage};
use crate::process::{Exit, ExitStatus};
use crate::tool::Answer;

/// One change of a process's state. In the past tense: it has happened, replaying it cannot fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "C: Clone + Deserialize<'de>"))]
pub enum Fact<C: Clone> {
    /// What came into the mailbox, and what left it.
    Mail(MailFact),
    /// How far a turn came, and where the conversation goes on.
    Turn(TurnFact),
    /// Calls of the model and of tools.
    Call(CallFact),
    /// Children that its calls made.
    Child(ChildFact),
    /// The descriptor table.
    Descriptor(DescriptorFact<C>),
    /// Its budget changed: a share was reserved or returned, a warning was given.
    Budget(Change),
    /// Whether it goes on by itself.
    Control(ControlFact),
    /// The process went back to a checkpoint. Its conversation, its descriptors and its phase are
    /// those of then; the numbers of descriptors and calls go on, and what it used, whom it has
    /// heard and what waits for it stay; what waited then and was heard since waits again. Calls in
    /// flight are stale from here on, and children that it made since are no longer its.
    Restored {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The process as it stood there.
        image: Box<Image<C>>,
        /// What follows the last message of then: the answers to calls that were open there, and a
        /// word that says what happened.
        message: Arc<Message>,
        /// Who took it back: its model, within the turn, or the host.
        by: Caller,
    },
    /// The process ended.
    Exited {
        /// How.
        exit: Exit,
    },
}

/// What came into the mailbox, and what left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MailFact {
    /// Something was said and waits in the mailbox.
    Queued {
        /// Who said it.
        from: Sender,
        /// The message, large content already replaced by descriptors.
        message: Arc<Message>,
    },
    /// Another process's message came in and waits in the mailbox. It is not taken a second time.
    Received {
        /// The sender.
        from: Pid,
        /// The call of the sender.
        call: CallId,
        /// The sender waits for no call below this number.
        settled: u32,
        /// The message, large content already replaced by descriptors.
        message: Arc<Message>,
    },
    /// Messages left the mailbox, since a tool shows them.
    Taken {
        /// Where they stood in it, counted from 0, ascending.
        at: Vec<u32>,
    },
}

/// How far a turn came, and where the conversation goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TurnFact {
    /// A turn began: the mailbox moved into the conversation.
    Began,
    /// The turn ended and the process waits for input.
    Ended {
        /// How the turn ended.
        status: ExitStatus,
        /// Why, where it is not what the model said last that tells.
        reason: Option<Arc<str>>,
    },
    /// Calls in flight were abandoned; each open tool use was answered by this text.
    Interrupted {
        /// What the model reads in place of each missing answer.
        answer: Answer,
    },
    /// The conversation went back: what came after a message is gone from it, and another message
    /// stands there instead. Calls in flight are stale from here on. Descriptors stay, but for what
    /// was noted of messages that are gone.
    WentTo {
        /// The message that it went back to, counted from 1: the last that is kept.
        to: u32,
        /// What follows it.
        message: Arc<Message>,
        /// Who sent it back: its model, within the turn, or the host, which begins a turn with it.
        by: Caller,
    },
}

/// Calls of the model and of tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallFact {
    /// The model is about to be asked. It is asked again, by the same call, after a restart in
    /// between.
    ModelCalled {
        /// The call.
        call: CallId,
    },
    /// The model replied.
    ModelReplied {
        /// The call.
        call: CallId,
        /// The blocks, in the provider's order.
        blocks: Vec<Block>,
        /// Why it stopped.
        stop: StopReason,
        /// What it cost.
        usage: Usage,
    },
    /// The model that was asked failed, and another of the program is asked from here on.
    ModelSwitched {
        /// Which, from 0.
        to: u32,
        /// How the one before failed.
        reason: Arc<str>,
    },
    /// The host asked for a tool, outside of the conversation.
    HostCalled {
        /// The host's name of its call; the answer carries it.
        ticket: Arc<str>,
        /// The tool's name.
        tool: Arc<str>,
        /// The arguments: JSON text.
        args: Arc<str>,
    },
    /// A tool is about to run: what it does to the world may be done from here on. It stands here
    /// once more where the call is made again after a restart.
    ToolCalled {
        /// The call.
        call: CallId,
    },
    /// A tool call was answered.
    ToolReturned {
        /// The call.
        call: CallId,
        /// What the caller reads.
        answer: Answer,
        /// How many characters the tool produced, whatever entered the context.
        produced_chars: u64,
    },
}

/// Children that its calls made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildFact {
    /// A child began to run that its call does not wait for.
    Started {
        /// The call that made it.
        call: CallId,
        /// The child.
        child: Pid,
    },
    /// A child of a fork or spawn ended.
    Ended {
        /// The call that made it.
        call: CallId,
        /// Which of the call's children, from 0.
        index: u32,
        /// The child.
        child: Pid,
        /// How it ended.
        exit: Exit,
    },
    /// The end of a child that no call waits for came in and waits in the mailbox. It is not taken
    /// a second time.
    Reported {
        /// The call that made the child.
        call: CallId,
        /// How it ended, as a message; large content already replaced by descriptors.
        message: Arc<Message>,
    },
}

/// The descriptor table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DescriptorFact<C> {
    /// A descriptor came into the table.
    Opened {
        /// Its name.
        id: FdId,
        /// What it holds.
        entry: Entry<C>,
    },
    /// A name, a section or a summary of a descriptor was noted.
    Noted {
        /// The descriptor.
        id: FdId,
        /// What was noted.
        note: Note,
    },
}

/// Whether it goes on by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlFact {
    /// The process was stopped: it begins nothing until it is continued.
    Stopped,
    /// It came back from its journal while it was stopped: what had been in flight is lost, and is
    /// not taken up before it is continued.
    Frozen,
    /// It goes on.
    Continued,
}

impl<C: Clone> Fact<C> {
    /// The word for it, in event streams and listings.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mail(fact) => fact.name(),
            Self::Turn(fact) => fact.name(),
            Self::Call(fact) => fact.name(),
            Self::Child(fact) => fact.name(),
            Self::Descriptor(DescriptorFact::Opened { .. }) => "descriptor_opened",
            Self::Descriptor(DescriptorFact::Noted { .. }) => "descriptor_noted",
            Self::Budget(change) => change.name(),
            Self::Control(fact) => fact.name(),
            Self::Restored { .. } => "restored",
            Self::Exited { .. } => "exited",
        }
    }

    /// The same fact with its content held in another way.
    ///
    /// # Errors
    /// What `convert` fails with.
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
            Self::Descriptor(DescriptorFact::Noted { id, note }) => {
                Fact::Descriptor(DescriptorFact::Noted { id, note })
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
        })
    }
}

/// Each group becomes the fact that holds it.
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
    Control(ControlFact)
);

impl MailFact {
    fn name(&self) -> &'static str {
        match self {
            Self::Queued { .. } => "message_queued",
            Self::Received { .. } => "message_received",
            Self::Taken { .. } => "mail_taken",
        }
    }
}

impl TurnFact {
    fn name(&self) -> &'static str {
        match self {
            Self::Began => "turn_began",
            Self::Ended { .. } => "turn_ended",
            Self::Interrupted { .. } => "interrupted",
            Self::WentTo { .. } => "went_to",
        }
    }
}

impl CallFact {
    fn name(&self) -> &'static str {
        match self {
            Self::ModelCalled { .. } => "model_called",
            Self::ModelReplied { .. } => "model_replied",
            Self::ModelSwitched { .. } => "model_switched",
            Self::HostCalled { .. } => "host_called",
            Self::ToolCalled { .. } => "tool_called",
            Self::ToolReturned { .. } => "tool_returned",
        }
    }
}

impl ChildFact {
    fn name(&self) -> &'static str {
        match self {
            Self::Started { .. } => "child_started",
            Self::Ended { .. } => "child_ended",
            Self::Reported { .. } => "child_reported",
        }
    }
}

impl ControlFact {
    fn name(&self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Frozen => "frozen",
            Self::Continued => "continued",
        }
    }
}
