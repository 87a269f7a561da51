//! Ended processes that a message opens again, as `actors/src/supervisor/reopening.rs` does it: the
//! journal is read, the parent is asked for a share, and the facts of both are one append.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_kernel::process::{EndedChild, EndedProcess, Fact, Input, Reopening, evolve};
use dormouse_proto::budget::Budget;
use dormouse_proto::id::{FactNumber, Pid};
use dormouse_proto::process::Origin;
use dormouse_proto::tool::Answer;

use super::table::{Run, place};
use crate::defect::Defect;
use crate::event::Ack;
use crate::invariants::{Held, Violation};
use crate::process::Running;
use crate::store::{Entry, From, encode_fact};
use crate::world::World;

/// A process that is being opened.
pub(crate) struct Opening {
    input: Input,
    /// What came for it meanwhile.
    waiting: Vec<Input>,
    request_id: Option<Arc<str>>,
    /// The parent that was asked, and the life of it that has the request.
    asked: Option<(Pid, Option<u64>)>,
    is_committing: bool,
}

/// By the process.
pub(crate) type Openings = BTreeMap<Pid, Opening>;

impl World {
    /// Hands over an input. A message for a process that has ended opens it.
    pub(crate) fn deliver_or_reopen(&mut self, pid: Pid, input: Input) {
        let is_mail = matches!(input, Input::UserInput { .. } | Input::Message { .. });
        if !is_mail || self.supervisor.table.run_of(pid) != Some(Run::Ended) {
            return self.deliver(pid, input);
        }
        if let Some(opening) = self.supervisor.openings.get_mut(&pid) {
            return opening.waiting.push(input);
        }
        if let Some(why) = self.find_refusal(pid) {
            self.tally.count("messages that open nothing");
            return self.answer_mail(&input, Answer::failed(why));
        }
        let opening = Opening {
            input,
            waiting: Vec::new(),
            request_id: None,
            asked: None,
            is_committing: false,
        };
        self.supervisor.openings.insert(pid, opening);
        self.append(Vec::new(), Ack::ReadEnded { pid });
    }

    fn find_refusal(&self, pid: Pid) -> Option<String> {
        let table = &self.supervisor.table;
        let row = table.row(pid)?;
        let exit = row.exit.as_ref()?;
        if let Err(error) = dormouse_kernel::process::check_exit(pid, exit) {
            return Some(error.to_string());
        }
        let name = row.name.as_deref();
        let is_taken = name.is_some_and(|name| table.named(name).is_some());
        let is_orphan = row.parent.is_some_and(|parent| !table.lives(parent));
        (is_taken || is_orphan).then(|| format!("Process {pid} has ended."))
    }

    fn answer_mail(&mut self, input: &Input, answer: Answer) {
        if let Input::Message { request_id, .. } = input {
            self.receipt_given(request_id, answer);
        }
    }

    /// The journal of a process that is being opened can be read.
    pub(crate) fn ended_read(&mut self, pid: Pid) -> Held {
        let Some(opening) = self.supervisor.openings.get(&pid) else {
            return Ok(());
        };
        let input = opening.input.clone();
        let disk = &self.store.disk;
        let (state, last) = disk.read(&self.programs, pid, None, From::Snapshot, self.defect)?;
        self.begin_ledger(&state, last);
        let receipt = match &input {
            Input::Message { from, call, .. } => state.receipt(*from, *call),
            _ => None,
        };
        let refusal = state.check_reopening().err();
        let refusal = refusal.map(|error| Answer::failed(error.to_string()));
        if let Some(answer) = receipt.or(refusal) {
            self.close_opening(pid, answer);
            return Ok(());
        }
        self.check_input(pid, &input)?;
        let Some(mail) = state.place_mail(input, self.time_ms()) else {
            self.close_opening(pid, Answer::failed("Nothing was said."));
            return Ok(());
        };
        let process = EndedProcess {
            pid,
            state: Box::new(state),
            last_fact: FactNumber(last),
            mail,
        };
        let row = self.supervisor.table.row(pid).cloned();
        let row = row.expect("its row was looked at when it began to be opened");
        let request_id: Arc<str> = format!("reopen:{pid}:{last}:{}", self.lives).into();
        let Some((parent, (call, index))) = row.parent.zip(place(&row.origin)) else {
            return match process.reopen_root(request_id, self.time_ms()) {
                Err(answer) => {
                    self.close_opening(pid, answer);
                    Ok(())
                }
                Ok(reopening) => {
                    let mut entries = Vec::new();
                    let reopened = self.open_entries(reopening, &mut entries)?;
                    self.append(entries, Ack::Reopened { reopened });
                    Ok(())
                }
            };
        };
        let requested_budget = match row.origin {
            Origin::Spawned { .. } | Origin::Judge { .. } => process.state.program().budget(),
            _ => Budget::default(),
        };
        if let Some(opening) = self.supervisor.openings.get_mut(&pid) {
            opening.request_id = Some(request_id.clone());
            opening.asked = Some((parent, None));
        }
        let child = Box::new(EndedChild {
            call,
            index,
            child: pid,
            requested_budget,
            process,
        });
        self.deliver(parent, Input::ReopenChild { request_id, child });
        Ok(())
    }

    /// The entries that open a process. Its facts are those of a step that nobody runs.
    pub(crate) fn open_entries(
        &mut self,
        reopening: Reopening,
        entries: &mut Vec<Entry>,
    ) -> Result<(Pid, Answer), Violation> {
        let Reopening {
            pid,
            reopenings,
            first,
            mut facts,
            answer,
            ..
        } = reopening;
        if self.defect == Some(Defect::OpensWithoutAFact) {
            facts.retain(|fact| !matches!(fact, Fact::Reopened { .. }));
        }
        let disk = &self.store.disk;
        let (before, last) = disk.read(&self.programs, pid, None, From::Snapshot, self.defect)?;
        let mut after = before.clone();
        facts.iter().for_each(|fact| evolve(&mut after, fact));
        let root = self.supervisor.table.root(pid);
        let running = Running::new(0, after, root, last, last, Vec::new());
        self.check_step(&running, &before, &facts, &[])?;
        let facts = facts
            .iter()
            .map(|fact| encode_fact(fact, entries))
            .collect();
        entries.push(Entry::Reopened { pid, reopenings });
        entries.push(Entry::Facts {
            pid,
            first: first.0,
            facts,
        });
        if let Some(opening) = self.supervisor.openings.get_mut(&pid) {
            opening.is_committing = true;
        }
        Ok((pid, answer))
    }

    /// The facts that open a process are durable: it runs.
    pub(crate) fn reopened(&mut self, pid: Pid, answer: Answer) {
        if self.supervisor.table.reopen(pid) {
            self.tally.count("processes opened again");
            self.wake(pid);
        }
        self.close_opening(pid, answer);
    }

    /// A life of a parent has the request to open its child.
    pub(crate) fn note_opening(&mut self, parent: Pid, life: u64, input: &Input) {
        if let Input::ReopenChild { child, .. } = input
            && let Some(opening) = self.supervisor.openings.get_mut(&child.child)
        {
            opening.asked = Some((parent, Some(life)));
        }
    }

    /// A parent does not open its child.
    pub(crate) fn opening_refused(&mut self, request_id: &str, answer: Answer) {
        let mut openings = self.supervisor.openings.iter();
        let refused =
            openings.find(|(_, opening)| opening.request_id.as_deref() == Some(request_id));
        if let Some(pid) = refused.map(|(pid, _)| *pid) {
            self.tally.count("reopenings refused by a parent");
            self.close_opening(pid, answer);
        }
    }

    fn close_opening(&mut self, pid: Pid, answer: Answer) {
        if let Some(opening) = self.supervisor.openings.remove(&pid) {
            self.answer_mail(&opening.input, answer);
            for input in opening.waiting {
                self.deliver_or_reopen(pid, input);
            }
        }
    }

    /// A parent has stopped (in this life, or in any) before it answered: messages are sent again,
    /// and the host hears that its words were lost.
    pub(crate) fn return_openings(&mut self, parent: Pid, life: Option<u64>) {
        let is_lost = |opening: &Opening| match opening.asked {
            Some((asked, in_life)) => {
                asked == parent && !opening.is_committing && (life.is_none() || in_life == life)
            }
            None => false,
        };
        let lost = self.supervisor.openings.iter();
        let lost: Vec<Pid> = lost
            .filter(|(_, opening)| is_lost(opening))
            .map(|(pid, _)| *pid)
            .collect();
        for pid in lost {
            self.tally.count("reopenings given up");
            self.supervisor.openings.remove(&pid);
            self.return_posts(pid, None);
        }
    }
}
