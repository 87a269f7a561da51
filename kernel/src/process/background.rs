//! Children that run in the background: their call was answered with their pid, and their end comes
//! as a message.
//!
//! The message is the receipt: with the fact that queues it the child is no longer waited for, so
//! that an end that is reported again after a restart is not heard twice.

use dormouse_proto::record::ChildFact;
use std::sync::Arc;

use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::message::Message;
use dormouse_proto::process::Exit;
use dormouse_proto::xml::Element;

use super::decide::Draft;

impl Draft {
    /// A child ended: its parent hears it at the end of its turn, or begins one.
    pub(super) fn report(&mut self, call: CallId, child: Pid, exit: &Exit) {
        let said = self.message_of_child(child, exit, "spawn");
        self.hear_of(call, said.shown_in(child_ended(child, exit.status.word())));
    }

    /// A child is not there: this process was restored from the journal of the one that made it.
    pub(super) fn report_lost(&mut self, call: CallId, child: Pid) {
        let text = "It is no child of this process: you were restored from an earlier state under \
             a new pid. Its result does not come here. Spawn it again if you need it.";
        self.hear_of(call, child_ended(child, "lost").text(text));
    }

    fn hear_of(&mut self, call: CallId, element: Element) {
        self.emit(ChildFact::Reported {
            call,
            message: Arc::new(Message::user(element.to_xml())),
        });
        self.notice();
    }
}

/// The end of a child that its parent does not wait for, as the parent hears it.
fn child_ended(child: Pid, status: &str) -> Element {
    Element::new("child_ended")
        .attribute("pid", child)
        .attribute("status", status)
}
