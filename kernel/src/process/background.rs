//! Children that run in the background: their call was answered with their pid, and their end comes as a message.
//!
//! The message is the receipt: with the fact that queues it the child is no longer waited for, so that an end that is
//! reported again after a restart is not heard twice.

use std::sync::Arc;

use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::message::Message;
use dormouse_proto::process::Exit;
use dormouse_proto::record::Phase;

use super::Fact;
use super::decide::Draft;

impl Draft {
    /// A child ended: its parent hears it at the end of its turn, or begins one.
    pub(super) fn report(&mut self, call: CallId, child: Pid, exit: &Exit) {
        let said = self.admit_message_of(child, exit, "spawn");
        self.hear_of(
            call,
            format!("Message from process {child}: it ended as {}.\n\n{}", exit.status.word(), said.answer.text),
        );
    }

    /// A child is not there: this process was restored from the journal of the one that made it.
    pub(super) fn report_lost(&mut self, call: CallId, child: Pid) {
        let text = format!(
            "Process {child}, which you spawned, is no child of this process: you were restored from an earlier state under a \
             new pid. Its result does not come here. Spawn it again if you need it."
        );
        self.hear_of(call, text);
    }

    fn hear_of(&mut self, call: CallId, text: String) {
        self.emit(Fact::ChildReported { call, message: Arc::new(Message::user(text)) });
        if self.state.phase == Phase::Idle {
            self.begin_turn();
        }
    }
}
