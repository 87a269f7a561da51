//! Types that the checkpoint tools share: operations on the store's checkpoints, their results, and
//! errors.

use std::sync::Arc;

use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CheckpointId, FactNumber};
use dormouse_proto::process::Exit;
use dormouse_proto::record::Image;
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;

use dormouse_content::Content;

/// A checkpoint operation of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointOp {
    /// Make a checkpoint of the current state.
    Make {
        /// Label of the checkpoint; may be empty.
        label: Arc<str>,
    },
    /// List the checkpoints of the process.
    List,
    /// Read the image of the process at a checkpoint.
    Read {
        /// Id of the checkpoint.
        id: CheckpointId,
    },
}

/// The result of a checkpoint operation.
#[derive(Clone, Debug)]
pub enum CheckpointReply {
    /// The new checkpoint; it is durable.
    Made(CheckpointInfo),
    /// The checkpoints, in ascending order of their numbers.
    Listed(Vec<CheckpointInfo>),
    /// The image at the checkpoint.
    Read(Box<CheckpointImage>),
}

/// A checkpoint, as a process that it covers sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointInfo {
    /// Id of the checkpoint.
    pub id: CheckpointId,
    /// Label given by its creator; may be empty.
    pub label: Arc<str>,
    /// Last fact of the process that the checkpoint includes.
    pub at: FactNumber,
    /// Whether it covers the process or its tree.
    pub scope: Scope,
}

/// The image of a process at a checkpoint.
#[derive(Clone, Debug)]
pub struct CheckpointImage {
    /// The checkpoint.
    pub checkpoint: CheckpointInfo,
    /// Image of the process.
    pub image: Image<Content>,
}

/// Why a checkpoint operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// Invalid arguments.
    #[error("{0}")]
    Arguments(String),
    /// No checkpoint of this number covers the process.
    #[error("There is no checkpoint {0} of this process. list_checkpoints shows those there are.")]
    Unknown(CheckpointId),
    /// The process had ended at the checkpoint, or did not exist yet.
    #[error("At checkpoint {id} the process had ended as {}: there is nothing to go back to.", .exit.status.word())]
    Ended {
        /// The checkpoint.
        id: CheckpointId,
        /// How the process had ended.
        exit: Exit,
    },
    /// The program permits no further restore.
    #[error(
        "This process has gone back to checkpoints {restores} times, and its program permits no \
         more (limits.max_restores). Go on from here."
    )]
    TooOften {
        /// Restores so far.
        restores: u32,
    },
    /// The reply calls other tools as well.
    #[error(
        "restore_process must be the only call of a reply: what the others bring would be gone. \
         Call it again, alone."
    )]
    Beside,
    /// The store is unavailable.
    #[error("The checkpoints cannot be used: {0}")]
    Unavailable(String),
}

impl CheckpointError {
    /// The error type, as answers state it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Arguments(_) => "invalid_parameter",
            Self::Unknown(_) => "unknown_checkpoint",
            Self::Ended { .. } => "ended",
            Self::TooOften { .. } => "too_often",
            Self::Beside => "not_alone",
            Self::Unavailable(_) => "unavailable",
        }
    }

    /// The error as an answer.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let message = Element::new("message").text(self.to_string());
        Answer::failed(
            Element::new("checkpoint_error")
                .attribute("type", self.word())
                .child(message),
        )
    }
}

impl CheckpointInfo {
    /// The element that describes the checkpoint.
    #[must_use]
    pub fn element(&self) -> Element {
        let label = (!self.label.is_empty()).then_some(&self.label);
        let of = match self.scope {
            Scope::Process => "process",
            Scope::Tree => "tree",
        };
        Element::new("checkpoint")
            .attribute("checkpoint_id", self.id)
            .attribute("fact", self.at)
            .attribute("of", of)
            .attribute_if("label", label)
    }
}
