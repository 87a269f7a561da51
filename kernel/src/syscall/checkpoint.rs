//! What the tools that work on checkpoints have in common: what is asked of the store's
//! checkpoints, what comes of it, and how that is shown.

use std::sync::Arc;

use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CheckpointId, FactNumber};
use dormouse_proto::process::Exit;
use dormouse_proto::record::Image;
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;

use dormouse_content::Content;

/// What a process asks of the checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointOp {
    /// Make one of the process as it stands.
    Make {
        /// What it is called; may be empty.
        label: Arc<str>,
    },
    /// Tell which ones it can go back to.
    List,
    /// Read the process as it stood at one.
    Read {
        /// Which.
        id: CheckpointId,
    },
}

/// What comes of that.
#[derive(Clone, Debug)]
pub enum CheckpointReply {
    /// It is made, durably.
    Made(Kept),
    /// These are there, by rising number.
    Listed(Vec<Kept>),
    /// The process stood like this.
    Read(Box<Standing>),
}

/// A checkpoint as a process that is in it is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its number.
    pub id: CheckpointId,
    /// What whoever made it calls it.
    pub label: Arc<str>,
    /// The last fact of the process then.
    pub at: FactNumber,
    /// What it covers.
    pub scope: Scope,
}

/// A process as it stood at a checkpoint.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The checkpoint.
    pub kept: Kept,
    /// The process.
    pub image: Image<Content>,
}

/// Why nothing came of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// Other arguments than the tool takes.
    #[error("{0}")]
    Arguments(String),
    /// There is none of this number that the process is in.
    #[error("There is no checkpoint {0} of this process. list_checkpoints shows those there are.")]
    Unknown(CheckpointId),
    /// The process had not yet begun, or had ended, as it never has while it lives.
    #[error("At checkpoint {id} the process had ended as {}: there is nothing to go back to.", .exit.status.word())]
    Ended {
        /// The checkpoint.
        id: CheckpointId,
        /// How.
        exit: Exit,
    },
    /// The process went back as often as its program permits.
    #[error(
        "This process has gone back to checkpoints {restores} times, and its program permits no \
         more (limits.max_restores). Go on from here."
    )]
    TooOften {
        /// How often.
        restores: u32,
    },
    /// Other tools are called beside it.
    #[error(
        "restore_process must be the only call of a reply: what the others bring would be gone. \
         Call it again, alone."
    )]
    Beside,
    /// The store cannot be asked.
    #[error("The checkpoints cannot be used: {0}")]
    Unavailable(String),
}

impl CheckpointError {
    /// The word for it.
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

    /// What the caller reads.
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

impl Kept {
    /// The element that shows it.
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
