//! Parents and children: births by call, ends reported, abandonment.

use dormouse_kernel::process::{Child, ChildEvent, Input, Signal};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::model::Usage;
use dormouse_proto::process::{Exit, ExitStatus, Origin, ProcessRow};

use super::entry::{Run, child_slot};
use super::table::FinalState;
use super::{PendingProcess, Supervisor};
use crate::checkpoint::CommitError;
use crate::event::Event;
use crate::temp_files::TempFilesMessage;

impl Supervisor {
    /// A child that exists already, by parent and origin, is not made again: one that is held is
    /// run, the end of one that has ended is reported once more. So a parent that comes back from
    /// its journal finds its children. One that hibernates has nothing to do, and sleeps on.
    pub(super) fn start_children(&mut self, parent: Pid, children: Vec<Child>, may_exist: bool) {
        let is_missing = |child: &Child| self.table.child(parent, &child.origin).is_none();
        if may_exist && self.context.lost_records().is_some() && children.iter().any(is_missing) {
            return self.stop_for_lost_records(parent);
        }
        let mut pending: Vec<PendingProcess> = Vec::new();
        for Child {
            origin,
            program,
            image,
        } in children
        {
            match self.table.child(parent, &origin) {
                None => pending.push(self.pending_process(
                    Some(parent),
                    program,
                    Box::new(image),
                    origin,
                )),
                Some(row) => self.report_existing_child(&row),
            }
        }
        if !pending.is_empty() {
            self.create(pending, None);
        }
    }

    /// A child of a call that its parent does not know what became of.
    pub(super) fn find_child(&mut self, parent: Pid, call: CallId, index: u32) {
        match self.table.child_at(parent, call, index) {
            Some(row) => self.report_existing_child(&row),
            None if self.context.lost_records().is_none() => self.notify_parent(
                parent,
                Input::Child {
                    call,
                    event: ChildEvent::Absent { index },
                },
            ),
            None => self.stop_for_lost_records(parent),
        }
    }

    /// If records are lost, a child that is not in the table may have been made all the same. Made
    /// again, it would repeat its calls, so its parent stops, and with it all that wait for the
    /// parent.
    fn stop_for_lost_records(&mut self, parent: Pid) {
        let lost = self.context.lost_records().unwrap_or_default();
        self.stop_with_ancestors(
            parent,
            &format!("it may have made a child of which the store has lost the record: {lost}"),
        );
    }

    /// A child that exists: its parent is told what it was told before, since it may not have heard
    /// it.
    fn report_existing_child(&mut self, row: &ProcessRow) {
        self.report_start(row);
        if row.exit.is_some() {
            self.report_to_parent(row);
        } else if self.table.run_of(row.pid) == Some(Run::Held) {
            self.wake(row.pid);
        }
    }

    /// Tells the parent of a spawned child that it exists. Its end is told later.
    pub(super) fn report_start(&mut self, row: &ProcessRow) {
        if let (Some(parent), Origin::Spawned { call }) = (row.parent, &row.origin) {
            self.notify_parent(
                parent,
                Input::Child {
                    call: *call,
                    event: ChildEvent::Started {
                        child: row.known_as(),
                    },
                },
            );
        }
    }

    /// A child that cannot be written: its parent gets that as the child's end.
    pub(super) fn report_creation_failed(&mut self, born: &PendingProcess, error: &CommitError) {
        let exit = Exit::new(ExitStatus::Faulted, error.to_string()).after(Usage::default());
        self.report_to_parent(&ProcessRow {
            exit: Some(exit),
            ..born.row.clone()
        });
    }

    pub(super) fn on_process_ended(&mut self, pid: Pid, exit: Exit) {
        let final_state = if self.context.has_store {
            FinalState::Journal
        } else {
            FinalState::Nothing
        };
        let Some(row) = self.table.end(pid, &exit, final_state) else {
            return;
        };
        self.context.publish(Event::Exited { pid, exit });
        self.report_to_parent(&row);
        self.kill_children(pid, |_| true);
        if row.parent.is_none() {
            // Where the files are gone there is nothing to be forgotten.
            let _ = self
                .context
                .temp_files
                .cast(TempFilesMessage::TreeEnded { root: pid });
        }
    }

    pub(super) fn report_to_parent(&mut self, row: &ProcessRow) {
        let (Some(parent), Some((call, index)), Some(exit)) =
            (row.parent, child_slot(&row.origin), row.exit.clone())
        else {
            return;
        };
        self.notify_parent(
            parent,
            Input::Child {
                call,
                event: ChildEvent::Ended {
                    index,
                    child: row.known_as(),
                    exit,
                },
            },
        );
    }

    /// A parent that hibernates wakes for it. One that is held asks for its children when it is
    /// run.
    fn notify_parent(&mut self, parent: Pid, input: Input) {
        if !matches!(
            self.table.run_of(parent),
            None | Some(Run::Held | Run::Ended)
        ) {
            self.deliver_internal(parent, input);
        }
    }

    pub(super) fn kill_children_of(&mut self, parent: Pid, calls: &[CallId]) {
        self.kill_children(parent, |call| calls.contains(&call));
    }

    pub(super) fn kill_children_except(&mut self, parent: Pid, calls: &[CallId]) {
        self.kill_children(parent, |call| !calls.contains(&call));
    }

    fn kill_children(&mut self, parent: Pid, of: impl Fn(CallId) -> bool) {
        for (child, call) in self.table.living_children(parent) {
            if of(call) {
                self.deliver_internal(child, Input::Signal(Signal::Kill));
            }
        }
    }
}
