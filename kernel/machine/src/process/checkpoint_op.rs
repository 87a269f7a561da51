//! Checkpoint operations of a process as data: requests to the store, results, errors, and the
//! answers that show them to the model.

use std::cmp::Reverse;
use std::sync::Arc;

use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CheckpointId, FactNumber};
use dormouse_proto::process::Exit;
use dormouse_proto::record::Image;
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;

use dormouse_content::Content;

/// Maximum number of checkpoints in one answer.
const MAX_SHOWN: usize = 100;

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

/// A checkpoint, from the point of view of one process that it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointInfo {
    /// Id of the checkpoint.
    pub id: CheckpointId,
    /// Label given by its creator; may be empty.
    pub label: Arc<str>,
    /// Last fact of the process that the checkpoint includes.
    pub at: FactNumber,
    /// Whether the checkpoint covers one process or its whole tree.
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
    /// The process has reached the maximum number of restores.
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
    NotAlone,
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
            Self::NotAlone => "not_alone",
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
        let scope = match self.scope {
            Scope::Process => "process",
            Scope::Tree => "tree",
        };
        Element::new("checkpoint")
            .attribute("checkpoint_id", self.id)
            .attribute("fact", self.at)
            .attribute("of", scope)
            .attribute_if("label", label)
    }
}

/// The answer that lists checkpoints, the newest first.
pub(super) fn list_answer(mut checkpoints: Vec<CheckpointInfo>) -> Answer {
    checkpoints.sort_by_key(|checkpoint| Reverse(checkpoint.id));
    let hidden = checkpoints.len().saturating_sub(MAX_SHOWN);
    checkpoints.truncate(MAX_SHOWN);
    let list = Element::new("checkpoint_list")
        .attribute("count", checkpoints.len())
        .attribute_if("not_shown", (hidden > 0).then_some(hidden));
    Answer::shown(
        checkpoints
            .iter()
            .fold(list, |list, checkpoint| list.child(checkpoint.element())),
    )
}

/// The element that tells the model that it was restored, and how often so far.
pub(super) fn restored_notice(
    checkpoint: &CheckpointInfo,
    restores: u32,
    max_restores: u32,
) -> Element {
    let label = (!checkpoint.label.is_empty()).then_some(&checkpoint.label);
    let message = "You were restored to this checkpoint: what you did after it is gone from this \
         conversation, and so are the descriptors of then. What was done outside stays. Choose \
         another way than before.";
    Element::new("process_restored")
        .attribute("checkpoint_id", checkpoint.id)
        .attribute_if("label", label)
        .attribute("fact", checkpoint.at)
        .attribute("restores", restores)
        .attribute("max_restores", max_restores)
        .child(Element::new("message").text(message))
}

#[cfg(test)]
mod tests {
    use dormouse_proto::checkpoint::Scope;
    use dormouse_proto::id::{CheckpointId, FactNumber};

    use super::*;

    #[test]
    fn the_list_starts_with_the_newest_and_counts_omitted_checkpoints() {
        let checkpoints = (1..=120).map(|id| CheckpointInfo {
            id: CheckpointId(id),
            label: "".into(),
            at: FactNumber(id),
            scope: Scope::Tree,
        });
        let text = list_answer(checkpoints.collect()).text;
        assert!(
            text.starts_with(r#"<checkpoint_list count="100" not_shown="20">"#),
            "{text}"
        );
        assert!(
            text.find("cp:120\"") < text.find("cp:21\"") && !text.contains("cp:20\""),
            "{text}"
        );
        assert_eq!(
            &*list_answer(Vec::new()).text,
            r#"<checkpoint_list count="0"/>"#
        );
    }

    #[test]
    fn the_answer_names_the_checkpoint_and_the_fact() {
        let checkpoint = CheckpointInfo {
            id: CheckpointId(3),
            label: "a<b".into(),
            at: FactNumber(12),
            scope: Scope::Process,
        };
        let expected =
            r#"<checkpoint checkpoint_id="cp:3" fact="12" of="process" label="a&lt;b"/>"#;
        assert_eq!(&*Answer::shown(checkpoint.element()).text, expected);
    }
}
