//! Parents and children: the children of a call are created or found again, ends are reported to
//! parents, and abandoned children are killed.

use dormouse_kernel::process::{Child, ChildEvent, Input, Signal};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::model::Usage;
use dormouse_proto::process::{Exit, ExitStatus, Origin, ProcessRow};

use super::entry::{RunState, child_slot};
use super::table::FinalState;
use super::{PendingProcess, Supervisor};
use crate::checkpoint::CommitError;
use crate::event::Event;
use crate::temp_files::TempFilesMessage;

impl Supervisor {
    /// Creates the children that do not exist yet. A child that exists, by parent and origin, is
    /// found again after a restart of the parent: if the child is held, it runs; if it has ended,
    /// its end is reported once more; if it hibernates, it stays hibernated.
    pub(super) fn start_children(&mut self, parent: Pid, children: Vec<Child>, may_exist: bool) {
        let is_missing = |child: &Child| self.table.child(parent, &child.origin).is_none();
        if may_exist && self.context.describe_losses().is_some() && children.iter().any(is_missing)
        {
            return self.stop_for_lost_records(parent);
        }
        let mut pending: Vec<PendingProcess> = Vec::new();
        for Child {
            origin,
            program,
            image,
        } in children
        {
            if let Some(row) = self.table.child(parent, &origin) {
                self.report_existing_child(&row);
                continue;
            }
            match self.pending_process(Some(parent), program, Box::new(image), origin) {
                Ok(process) => pending.push(process),
                // The parent creates its children when it is resumed, as after a full disk.
                Err(error) => return self.stop_with_ancestors(parent, &error.to_string()),
            }
        }
        if !pending.is_empty() {
            self.commit_births(pending, None);
        }
    }

    /// Reports to a parent, which may have restarted, whether a child exists and whether it has
    /// ended.
    pub(super) fn find_child(&mut self, parent: Pid, call: CallId, index: u32, reopenings: u32) {
        match self.table.child_at(parent, call, index) {
            // The record by which it was opened again is lost.
            Some(row) if row.reopenings < reopenings => self.stop_for_lost_records(parent),
            Some(row) => self.report_existing_child(&row),
            None if self.context.describe_losses().is_none() => self.notify_parent(
                parent,
                Input::Child {
                    call,
                    event: ChildEvent::Absent { index },
                },
            ),
            None => self.stop_for_lost_records(parent),
        }
    }

    /// LOST-1: if the store has lost records, a child that is not in the table may exist. Creating
    /// it again would repeat its calls, so the parent stops, together with all of its ancestors.
    fn stop_for_lost_records(&mut self, parent: Pid) {
        let lost = self.context.describe_losses().unwrap_or_default();
        self.stop_with_ancestors(
            parent,
            &format!("it may have made a child whose record the store has lost: {lost}"),
        );
    }

    /// Reports an existing child to its parent again, since the parent may not have received the
    /// first report.
    fn report_existing_child(&mut self, row: &ProcessRow) {
        self.report_start(row);
        if row.exit.is_some() {
            self.report_to_parent(row);
        } else if self.table.run_state(row.pid) == Some(RunState::Held) {
            self.wake(row.pid);
        }
    }

    /// Reports a spawned child to its parent as started. The end of the child is reported
    /// separately.
    pub(super) fn report_start(&mut self, row: &ProcessRow) {
        if let (Some(parent), Origin::Spawned { call }) = (row.parent, &row.origin) {
            self.notify_parent(
                parent,
                Input::Child {
                    call: *call,
                    event: ChildEvent::Started {
                        child: row.local_id(),
                    },
                },
            );
        }
    }

    /// Reports a child that could not be created to its parent, as a child that has ended.
    pub(super) fn report_creation_failed(&mut self, process: &PendingProcess, error: &CommitError) {
        let exit = Exit::new(ExitStatus::Faulted, error.to_string()).with_usage(Usage::default());
        self.report_to_parent(&ProcessRow {
            exit: Some(exit),
            ..process.row.clone()
        });
    }

    pub(super) fn on_process_ended(&mut self, pid: Pid, exit: Exit) {
        let final_state = if self.context.has_store {
            FinalState::InJournal
        } else {
            FinalState::LastView
        };
        let Some(row) = self.table.record_end(pid, &exit, final_state) else {
            return;
        };
        self.context.publish(Event::Exited { pid, exit });
        self.wake_due_processes();
        self.report_to_parent(&row);
        self.kill_children(pid, |_| true);
        let root = self.table.root(pid);
        if self.table.run_state(root) == Some(RunState::Ended) {
            self.release_tree_resources(root);
        }
    }

    /// Unloads the temporary files of a tree whose root has ended, and ends its connections to tool
    /// servers. Repeated at the end of each process that ends after its root, since such a process
    /// may have begun a call before it was killed.
    fn release_tree_resources(&self, root: Pid) {
        // If the temporary files actor has stopped, there is nothing to unload.
        let _ = self
            .context
            .temp_files
            .cast(TempFilesMessage::TreeEnded { root });
        if let Some(servers) = &self.context.servers {
            tokio::spawn(servers.end_tree(root));
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
                    child: row.local_id(),
                    exit,
                },
            },
        );
    }

    /// Delivers an input to a parent that is loaded or hibernates; a hibernated parent wakes. A
    /// held parent asks for its children when it is resumed.
    fn notify_parent(&mut self, parent: Pid, input: Input) {
        if !matches!(
            self.table.run_state(parent),
            None | Some(RunState::Held | RunState::Ended)
        ) {
            self.deliver_internal(parent, input);
        }
    }

    pub(super) fn kill_children_of_calls(&mut self, parent: Pid, calls: &[CallId]) {
        self.kill_children(parent, |call| calls.contains(&call));
    }

    pub(super) fn kill_children_of_other_calls(&mut self, parent: Pid, calls: &[CallId]) {
        self.kill_children(parent, |call| !calls.contains(&call));
    }

    fn kill_children(&mut self, parent: Pid, is_selected: impl Fn(CallId) -> bool) {
        for (child, call) in self.table.living_children(parent) {
            if is_selected(call) {
                self.deliver_internal(child, Input::Signal(Signal::Kill));
            }
        }
    }
}
