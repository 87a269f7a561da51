//! Background children: their call is answered with their pid, and their end arrives as a message.
//!
//! The fact that queues the message ([`ChildFact::Reported`]) is also the receipt: from then on the
//! child is no longer waited for, so that an end that is reported again after a restart is not
//! delivered twice.

use dormouse_proto::record::ChildFact;
use std::sync::Arc;

use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::message::Message;
use dormouse_proto::process::Exit;
use dormouse_proto::xml::Element;

use super::decide::Draft;

impl Draft {
    /// Queues the end of a child in the mailbox of its parent.
    pub(super) fn report_end(&mut self, call: CallId, child: Pid, exit: &Exit) {
        let message = self.message_of_child(child, exit, "spawn");
        self.queue_report(
            call,
            message.in_element(child_ended(child, exit.status.word())),
        );
    }

    /// Queues a report that the child does not exist: this process was restored from the journal of
    /// the process that made the child.
    pub(super) fn report_lost(&mut self, call: CallId, child: Pid) {
        let text = "It is no child of this process: you were restored from an earlier state under \
             a new pid. Its result does not come here. Spawn it again if you need it.";
        self.queue_report(call, child_ended(child, "lost").text(text));
    }

    fn queue_report(&mut self, call: CallId, element: Element) {
        self.emit(ChildFact::Reported {
            call,
            message: Arc::new(Message::user(element.to_xml())),
        });
        self.handle_new_mail();
    }
}

/// The element that reports the end of a background child.
fn child_ended(child: Pid, status: &str) -> Element {
    Element::new("child_ended")
        .attribute("pid", child)
        .attribute("status", status)
}
