//! Parents and children: births by call, ends reported, abandonment.

use dormouse_kernel::process::{Child, Input};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::model::Usage;
use dormouse_proto::process::{Exit, ExitStatus, Origin, ProcessRow};

use super::table::{Run, place};
use super::{Newborn, Supervisor};
use crate::checkpoint::CommitError;
use crate::event::Event;
use crate::temp_files::TempFilesMessage;

impl Supervisor {
    /// A child that exists already, by parent and origin, is not made again: one that sleeps is woken, the end of one
    /// that has ended is reported once more. So a parent that comes back from its journal finds its children.
    pub(super) fn start_children(&mut self, parent: Pid, children: Vec<Child>) {
        let mut newborns: Vec<Newborn> = Vec::new();
        for Child { origin, program, image } in children {
            match self.table.child(parent, &origin).map(|entry| entry.row.clone()) {
                None => newborns.push(self.newborn(Some(parent), program, Box::new(image), origin)),
                Some(row) => self.found(&row),
            }
        }
        if !newborns.is_empty() {
            self.bear(newborns, None);
        }
    }

    /// A child of a call that its parent does not know what became of.
    pub(super) fn find_child(&mut self, parent: Pid, call: CallId, index: u32) {
        match self.table.child_at(parent, call, index).map(|entry| entry.row.clone()) {
            Some(row) => self.found(&row),
            None => self.tell_parent(parent, Input::NoChild { call, index }),
        }
    }

    /// A child that exists: its parent is told what it was told before, since it may not have heard it.
    fn found(&mut self, row: &ProcessRow) {
        self.report_start(row);
        if row.exit.is_some() {
            self.report_to_parent(row);
        } else {
            self.wake(row.pid);
        }
    }

    /// Tells the parent of a spawned child that it exists. Its end is told later.
    pub(super) fn report_start(&mut self, row: &ProcessRow) {
        if let (Some(parent), Origin::Spawned { call }) = (row.parent, &row.origin) {
            self.tell_parent(parent, Input::ChildStarted { call: *call, child: row.known_as() });
        }
    }

    /// A child that could not be made durable never was: its parent gets that as the child's end.
    pub(super) fn stillborn(&mut self, born: &Newborn, error: &CommitError) {
        self.table.remove(&born.row);
        let exit = Exit::new(ExitStatus::Faulted, error.to_string()).after(Usage::default());
        self.report_to_parent(&ProcessRow { exit: Some(exit), ..born.row.clone() });
    }

    pub(super) fn ended(&mut self, pid: Pid, exit: Exit) {
        let Some(row) = self.table.end(pid, &exit) else { return };
        self.world.report(Event::Exited { pid, exit });
        self.report_to_parent(&row);
        self.kill_children(pid, |_| true);
        if row.parent.is_none() {
            // Where the files are gone there is nothing to be forgotten.
            let _ = self.world.temp_files.cast(TempFilesMessage::TreeEnded { root: pid });
        }
    }

    pub(super) fn report_to_parent(&mut self, row: &ProcessRow) {
        let (Some(parent), Some((call, index)), Some(exit)) = (row.parent, place(&row.origin), row.exit.clone()) else {
            return;
        };
        self.tell_parent(parent, Input::ChildEnded { call, index, child: row.known_as(), exit });
    }

    /// A parent that sleeps asks for its children when it wakes.
    fn tell_parent(&mut self, parent: Pid, input: Input) {
        if self.table.get(parent).is_some_and(|entry| matches!(entry.run, Run::Running(_) | Run::Loading)) {
            self.tell(parent, input);
        }
    }

    pub(super) fn abandon(&mut self, parent: Pid, calls: &[CallId]) {
        self.kill_children(parent, |call| calls.contains(&call));
    }

    pub(super) fn keep_children(&mut self, parent: Pid, calls: &[CallId]) {
        self.kill_children(parent, |call| !calls.contains(&call));
    }

    fn kill_children(&mut self, parent: Pid, of: impl Fn(CallId) -> bool) {
        for (child, call) in self.table.living_children(parent) {
            if of(call) {
                self.tell(child, Input::Killed);
            }
        }
    }
}
