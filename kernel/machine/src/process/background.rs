//! Background children: a `spawn` call that does not wait is answered with the pid of the child,
//! and the end of the child arrives as a message.
//!
//! The fact that queues this message ([`ChildFact::Reported`]) also removes the child from the list
//! of background children. If the end is reported again after a restart, it is ignored. A child that
//! was opened again (`reopening.rs`) runs in the background, whichever call made it, and its end is
//! reported in the same way ([`ChildFact::ReportedAgain`]).

use std::sync::Arc;

use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::message::Message;
use dormouse_proto::record::ChildFact;
use dormouse_proto::xml::Element;

use super::PlacedExit;
use super::decide::Draft;

impl Draft {
    /// Queues the end of a child in the mailbox of its parent. Does nothing if the same end was
    /// reported while this report was being read, even if the child was opened again since.
    pub(super) fn report_child_end(&mut self, call: CallId, ended: PlacedExit) {
        let PlacedExit {
            index,
            child,
            status,
            reopenings,
            placement,
            ..
        } = ended;
        if self.state.runs_in_background_at(call, index)
            && !self.state.has_reopened_since((call, index), reopenings)
        {
            let element = child_ended_element(child, status.word());
            let element = self.fill_element(element, placement);
            self.queue_report((call, index), element);
        }
    }

    /// Tells the model that it has no such child: it is a copy, and the child belongs to the
    /// original.
    pub(super) fn report_child_of_original(&mut self, (call, index): (CallId, u32), child: Pid) {
        let text = "It is no child of this process: you were restored from an earlier state under \
             a new pid. Its result does not come here. Spawn it again if you need it.";
        self.queue_report((call, index), child_ended_element(child, "lost").text(text));
    }

    fn queue_report(&mut self, (call, index): (CallId, u32), element: Element) {
        let message = Arc::new(Message::user(element.to_xml()));
        self.emit(
            if self.state.reopened_children.contains_key(&(call, index)) {
                ChildFact::ReportedAgain {
                    call,
                    index,
                    message,
                }
            } else {
                ChildFact::Reported { call, message }
            },
        );
        self.handle_new_mail();
    }
}

/// The element that reports the end of a background child.
fn child_ended_element(child: Pid, status: &str) -> Element {
    Element::new("child_ended")
        .attribute("pid", child)
        .attribute("status", status)
}
