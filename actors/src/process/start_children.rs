//! Creates children, after their start context was collected.

use dormouse_kernel::process::{Child, ChildEvent, Input};
use dormouse_proto::id::CallId;
use dormouse_proto::process::Origin;

use super::{Delivery, ProcessMessage, RunningProcess};
use crate::environment::{self, StartContextError};
use crate::supervisor::BirthMessage;

impl RunningProcess {
    /// Creates children. If they need a start context (what they are told of their environment, and
    /// the tools of their servers), it is collected in a task first. Abandoning the call cancels
    /// the collection, and no child is created.
    pub(super) fn start_children(&mut self, children: Vec<Child>, may_exist: bool) {
        let parent = self.pid();
        let myself = self.myself.clone();
        let (context, root) = (self.context.clone(), self.root);
        let Some(Origin::Spawned { call } | Origin::Judge { call, .. }) = children
            .iter()
            .find(|child| environment::needs_start_context(child))
            .map(|child| &child.origin)
        else {
            return self.cast_to_supervisor(BirthMessage::StartChildren {
                parent,
                children,
                may_exist,
            });
        };
        let call = *call;
        let task = tokio::spawn(async move {
            let children = environment::prepare_children(&context, root, children).await;
            // The result goes through the process, which knows whether the call was abandoned in
            // the meantime. If the process has stopped, so has the call.
            let _ = myself.cast(ProcessMessage::ChildrenPrepared { call, children });
        });
        if let Some(previous) = self.call_tasks.insert(call, task) {
            previous.abort();
        }
    }

    /// Creates the children, unless their call was abandoned. If one cannot be created, the call is
    /// answered with the reason.
    pub(super) fn start_prepared_children(
        &mut self,
        call: CallId,
        children: Result<Vec<Child>, StartContextError>,
    ) {
        if self.call_tasks.remove(&call).is_none() {
            return;
        }
        match children {
            Ok(children) => {
                // Only spawned children need a start context, and what spawns looks for an existing
                // child before it collects one. A call spawns one child at a time.
                let parent = self.pid();
                let may_exist = false;
                self.cast_to_supervisor(BirthMessage::StartChildren {
                    parent,
                    children,
                    may_exist,
                });
            }
            Err(why) => {
                let why = format!("No child was made: {why}");
                self.handle_input(Delivery::internal(Input::Child {
                    call,
                    event: ChildEvent::CreationFailed { why },
                }));
            }
        }
    }
}
