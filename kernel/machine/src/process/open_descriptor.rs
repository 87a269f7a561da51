//! Opens descriptors, and returns what shows them: an answer, or an element of one.

use std::sync::Arc;

use dormouse_proto::id::FdId;
use dormouse_proto::record::{DescriptorFact, Entry};
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;

use super::Effect;
use super::decide::Draft;
use crate::table::placement::Placement;
use crate::table::{NewDescriptor, unreadable_answer};
use dormouse_content::{Content, Unreadable};

impl Draft {
    /// Returns the answer that shows a placement. Opens the descriptor if the placement is one.
    pub(super) fn open_placement(&mut self, placement: Placement) -> Answer {
        match placement {
            Placement::Context { answer, .. } => answer,
            Placement::Descriptor(new_descriptor) => self.open_descriptor(*new_descriptor),
        }
    }

    /// Opens a descriptor under the next free number. Returns the answer that shows it.
    pub(super) fn open_descriptor(&mut self, new_descriptor: NewDescriptor) -> Answer {
        let id = self.state.table.next_id();
        let answer = new_descriptor.answer(&id);
        self.open_under_id(id, new_descriptor.entry);
        answer
    }

    /// Puts a placement into `element`: as text, or as the element that shows its descriptor.
    pub(super) fn fill_element(&mut self, element: Element, placement: Placement) -> Element {
        match placement {
            Placement::Context { text, .. } => element.text(&*text),
            placement @ Placement::Descriptor(_) => {
                element.rendered(&*self.open_placement(placement).text)
            }
        }
    }

    /// Opens a descriptor under a given id, such as the id of a part that the model marked in a
    /// reply.
    pub(super) fn open_under_id(&mut self, id: FdId, entry: Entry<Content>) {
        self.emit(DescriptorFact::Opened {
            id: id.clone(),
            entry,
        });
        self.request_auto_summary(&id);
    }

    /// Opens a content of the host as a descriptor and answers the request.
    pub(super) fn open_for_host(
        &mut self,
        request_id: Arc<str>,
        new_descriptor: Result<Box<NewDescriptor>, Unreadable>,
    ) {
        let answer = match new_descriptor {
            Ok(new_descriptor) => self.open_descriptor(*new_descriptor),
            Err(error) => unreadable_answer(None, &error),
        };
        self.schedule(Effect::AnswerHost { request_id, answer });
    }
}
