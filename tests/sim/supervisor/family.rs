//! Parents and children: births by call, ends reported, abandonment.

use dormouse_kernel::process::{Child, ChildEvent, Input, Signal};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::process::{Exit, Origin, ProcessRow};

use super::table::{Run, place};
use crate::event::{Event, FilesMessage, SupervisorMessage};
use crate::invariants::{Held, ensure};
use crate::schedule::{FILES, SUPERVISOR};
use crate::world::World;

impl World {
    /// A child that exists already, by parent and origin, is not made again.
    pub(super) fn start_children(&mut self, parent: Pid, children: Vec<Child>) -> Held {
        let mut new_processes = Vec::new();
        for Child {
            origin,
            program,
            image,
        } in children
        {
            match self.supervisor.table.child(parent, &origin) {
                None => {
                    self.tally.count(match origin {
                        Origin::Forked { .. } => "forks",
                        Origin::Judge { .. } => "judges",
                        _ => "spawns",
                    });
                    new_processes.push(self.new_process(
                        Some(parent),
                        program,
                        Box::new(image),
                        origin,
                    ));
                }
                Some(row) => {
                    self.tally.count("children found again");
                    self.found(&row);
                }
            }
        }
        if new_processes.is_empty() {
            Ok(())
        } else {
            self.create(new_processes)
        }
    }

    pub(super) fn find_child(
        &mut self,
        parent: Pid,
        call: CallId,
        index: u32,
        reopenings: u32,
    ) -> Held {
        match self.supervisor.table.child_at(parent, call, index) {
            Some(row) => {
                ensure(row.reopenings >= reopenings, "REOPEN-1", || {
                    format!(
                        "{parent} has opened {} {reopenings} times: {row:?}",
                        row.pid
                    )
                })?;
                self.found(&row)
            }
            None => {
                self.tally.count("children looked for in vain");
                self.tell_parent(
                    parent,
                    Input::Child {
                        call,
                        event: ChildEvent::Absent { index },
                    },
                );
            }
        }
        Ok(())
    }

    fn found(&mut self, row: &ProcessRow) {
        self.report_start(row);
        if row.exit.is_some() {
            self.report_to_parent(row);
        } else if self.supervisor.table.run_of(row.pid) == Some(Run::Held) {
            self.wake(row.pid);
        }
    }

    pub(super) fn report_start(&mut self, row: &ProcessRow) {
        if let (Some(parent), Origin::Spawned { call }) = (row.parent, &row.origin) {
            self.tell_parent(
                parent,
                Input::Child {
                    call: *call,
                    event: ChildEvent::Started { child: row.pid },
                },
            );
        }
    }

    pub(super) fn ended(&mut self, pid: Pid, exit: &Exit) -> Held {
        let Some(row) = self.supervisor.table.end(pid, exit) else {
            return Ok(());
        };
        self.tally
            .count(&format!("ended as {}", exit.status.word()));
        self.return_posts(pid, None);
        self.return_openings(pid, None);
        self.report_to_parent(&row);
        self.kill_children(pid, |_| true);
        if row.parent.is_none() {
            let delay = self.delay();
            self.schedule.send(
                SUPERVISOR,
                FILES,
                delay,
                Event::Files(FilesMessage::TreeEnded { root: pid }),
            );
        }
        self.check_replay_at_times(pid)
    }

    fn report_to_parent(&mut self, row: &ProcessRow) {
        if let (Some(parent), Some((call, index)), Some(exit)) =
            (row.parent, place(&row.origin), row.exit.clone())
        {
            let input = Input::Child {
                call,
                event: ChildEvent::Ended {
                    index,
                    child: row.pid,
                    exit,
                },
            };
            if self.random.percent(8) {
                self.tally.count("ends told again");
                let (later, input) = (self.random.below(600), Box::new(input.clone()));
                self.schedule.after(
                    later,
                    Event::Supervisor(SupervisorMessage::Deliver { pid: parent, input }),
                );
            }
            self.tell_parent(parent, input);
        }
    }

    /// A parent that hibernates wakes for it. One that is held asks for its children when it is
    /// run.
    fn tell_parent(&mut self, parent: Pid, input: Input) {
        if self.supervisor.table.hears(parent) {
            self.deliver(parent, input);
        }
    }

    pub(super) fn kill_children(&mut self, parent: Pid, of: impl Fn(CallId) -> bool) {
        for (child, call) in self.supervisor.table.living_children(parent) {
            if of(call) {
                self.tally.count("children killed by their parent's fate");
                self.deliver(child, Input::Signal(Signal::Kill));
            }
        }
    }
}
