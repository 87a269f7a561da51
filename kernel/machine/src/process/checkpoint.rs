//! Checkpoints: executes the tools that make, list and restore checkpoints, and restores a process
//! in place.
//!
//! `checkpoint_op.rs` holds the operations as data, and `evolve/earlier_point.rs` applies a restore to
//! the state.
//!
//! A checkpoint names a position in the journal. To restore it, the shell reads the image at that
//! position and feeds it back as an input. A restore is one fact at the end of the journal:
//! conversation, descriptors and phase become those of the image, and the epoch rises. Counters of
//! descriptors and calls continue (FD-1). Usage, receipts and waiting mail are kept; mail that was
//! waiting at the checkpoint and has been delivered since waits again.
//!
//! Calls may be open at a checkpoint; at a checkpoint that a model makes, at least one is. The
//! message that follows the restored history answers these calls, so that the history is valid for
//! providers. The same message notifies the model of the restore.
//!
//! A model restores at most `limits.max_restores` times. The counter of restores is never rolled
//! back, and the turn keeps counting its model calls. The host restores without limit.

use std::sync::Arc;

use dormouse_proto::id::{CallId, CheckpointId};
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::record::{Caller, Phase};
use dormouse_proto::tool::Answer;

use super::decide::Draft;
use super::evolve::tool_result_blocks;
use super::{
    CheckpointError, CheckpointImage, CheckpointOp, CheckpointReply, Effect, Fact, Work,
    checkpoint_op,
};

/// Answer to a call that a restore by the host abandons.
const ABANDONED: &str = "Interrupted: the process went back to a checkpoint before this call was \
done. Its effect is unknown.";
/// Answer to a call that was open at the checkpoint and had no answer there.
const OPEN_AT_CHECKPOINT: &str =
    "Not answered here: this call was open at the checkpoint that the process was restored to.";

impl Draft {
    pub(super) fn make_checkpoint(
        &mut self,
        call: CallId,
        parse_label: fn(&str) -> Result<Arc<str>, CheckpointError>,
    ) {
        let label = parse_label(&self.pending_call(call).args);
        self.request_checkpoint(call, label.map(|label| CheckpointOp::Make { label }));
    }

    pub(super) fn list_checkpoints(
        &mut self,
        call: CallId,
        check_args: fn(&str) -> Result<(), CheckpointError>,
    ) {
        let checked = check_args(&self.pending_call(call).args);
        self.request_checkpoint(call, checked.map(|()| CheckpointOp::List));
    }

    pub(super) fn restore_process(
        &mut self,
        call: CallId,
        parse_checkpoint_id: fn(&str) -> Result<CheckpointId, CheckpointError>,
    ) {
        let checked = self
            .check_may_restore()
            .and_then(|()| parse_checkpoint_id(&self.pending_call(call).args));
        self.request_checkpoint(call, checked.map(|id| CheckpointOp::Read { id }));
    }

    fn check_may_restore(&self) -> Result<(), CheckpointError> {
        self.check_alone()?;
        match (self.caller(), self.state.restores) {
            (Caller::Model, restores) if restores >= self.state.program.limits().max_restores => {
                Err(CheckpointError::TooOften { restores })
            }
            (Caller::Model | Caller::Host, _) => Ok(()),
        }
    }

    /// Checks that no other call is open, which a restore would leave without an answer.
    fn check_alone(&self) -> Result<(), CheckpointError> {
        match self.state.pending_calls().len() {
            0 | 1 => Ok(()),
            _ => Err(CheckpointError::NotAlone),
        }
    }

    fn request_checkpoint(&mut self, call: CallId, op: Result<CheckpointOp, CheckpointError>) {
        match op {
            Err(error) => self.answer_in_full(call, error.answer()),
            Ok(op) => {
                self.record_intent(call);
                self.schedule(Effect::StartWork {
                    call,
                    work: Work::Checkpoint(op),
                });
            }
        }
    }

    pub(super) fn handle_checkpoint_reply(
        &mut self,
        call: CallId,
        result: Result<CheckpointReply, CheckpointError>,
    ) {
        self.complete_call(call, |draft| match result {
            Err(error) => draft.answer_in_full(call, error.answer()),
            Ok(CheckpointReply::Made(checkpoint)) => {
                draft.answer_in_full(call, Answer::shown(checkpoint.element()))
            }
            Ok(CheckpointReply::Listed(checkpoints)) => {
                draft.answer_in_full(call, checkpoint_op::list_answer(checkpoints))
            }
            Ok(CheckpointReply::Read(restored)) => draft.restore_for_call(call, *restored),
        });
    }

    /// Restores for a call of `restore_process`. A host call is not part of the conversation, so
    /// the host gets its answer before the restore. Other host calls may have begun while the
    /// checkpoint was read.
    fn restore_for_call(&mut self, call: CallId, restored: CheckpointImage) {
        let checked = self.check_alone();
        if let Err(error) = checked.and_then(|()| self.check_restorable(&restored)) {
            return self.answer_in_full(call, error.answer());
        }
        match self.caller() {
            Caller::Model => self.record_restore(restored, Caller::Model),
            Caller::Host => {
                self.answer_in_full(call, self.restore_answer(&restored));
                self.record_restore(restored, Caller::Host);
                self.continue_after_restore();
            }
        }
    }

    /// Restores at the request of the host, within a turn or between two turns.
    pub(super) fn restore_for_host(&mut self, request_id: Arc<str>, restored: CheckpointImage) {
        if let Err(error) = self.check_restorable(&restored) {
            return self.schedule(Effect::AnswerHost {
                request_id,
                answer: error.answer(),
            });
        }
        self.abandon_calls(ABANDONED);
        let answer = self.restore_answer(&restored);
        self.schedule(Effect::AnswerHost { request_id, answer });
        self.record_restore(restored, Caller::Host);
        self.continue_after_restore();
        if self.state.exit().is_none() {
            self.find_children_of_answered_calls();
        }
    }

    fn check_restorable(
        &self,
        CheckpointImage { checkpoint, image }: &CheckpointImage,
    ) -> Result<(), CheckpointError> {
        match &image.phase {
            Phase::Ended { exit } => Err(CheckpointError::Ended {
                id: checkpoint.id,
                exit: exit.clone(),
            }),
            _ if *image.program != *self.state.program.key() => {
                Err(CheckpointError::Unknown(checkpoint.id))
            }
            _ => Ok(()),
        }
    }

    /// The answer that reports the restore.
    fn restore_answer(&self, CheckpointImage { checkpoint, .. }: &CheckpointImage) -> Answer {
        let max_restores = self.state.program.limits().max_restores;
        Answer::shown(checkpoint_op::restored_notice(
            checkpoint,
            self.state.restores + 1,
            max_restores,
        ))
    }

    /// Emits the fact of a restore, and abandons the background children that were started after
    /// the checkpoint.
    fn record_restore(&mut self, restored: CheckpointImage, by: Caller) {
        let mut blocks = Vec::new();
        if let Phase::Acting {
            caller: Caller::Model,
            pending_calls,
        } = &restored.image.phase
        {
            let unanswered = Answer::failed(OPEN_AT_CHECKPOINT);
            blocks.extend(pending_calls.iter().flat_map(|pending_call| {
                tool_result_blocks(
                    pending_call,
                    pending_call.answer.as_ref().unwrap_or(&unanswered),
                )
            }));
        }
        blocks.push(Block::text(self.restore_answer(&restored).text));
        let CheckpointImage { checkpoint, image } = restored;
        let reopened = self.state.reopened_children.keys().map(|(call, _)| *call);
        let background = self.state.background.keys().copied();
        let calls: Vec<_> = background
            .chain(reopened)
            .filter(|call| call.seq >= image.next_seq)
            .collect();
        let message = Arc::new(Message {
            role: Role::User,
            blocks,
        });
        self.emit(Fact::Restored {
            checkpoint: checkpoint.id,
            image: Box::new(image),
            message,
            by,
        });
        if !calls.is_empty() {
            self.schedule(Effect::Abandon { calls });
        }
    }

    /// Continues after a restore: calls the model, or starts a turn if mail is waiting.
    fn continue_after_restore(&mut self) {
        match self.state.phase {
            Phase::Ready { .. } => self.call_model(),
            Phase::Idle if !self.state.mailbox.is_empty() => self.begin_turn(),
            _ => {}
        }
    }
}
