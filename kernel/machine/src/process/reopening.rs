//! Opens an ended process again: a message to it begins its next turn.
//!
//! A root that has reached a limit is opened by a raise of that limit, with a message of the kernel
//! that says so ([`EndedProcess::raised`]).
//!
//! A root continues with its own account. A child needs a new share of its parent's budget, since
//! the rest of its share was returned when it ended. The facts of parent and child are therefore
//! committed together: a crash leaves either none of them or all, and the message is part of them.
//!
//! REOPEN-1: an ended process runs again only after one fact that opened it
//! ([`Fact::Reopened`]), and its parent hears of each of its ends once. Ends are numbered by the
//! reopenings before them ([`Exit::reopenings`](dormouse_proto::process::Exit::reopenings)): a
//! parent that has opened a child again ignores a report of an earlier end.
//!
//! A process that was killed, or that the kernel gave up after repeated faults, stays ended.

mod error;

use std::sync::Arc;

use dormouse_content::ReadQuota;
use dormouse_proto::budget::{Amount, Budget, Change, Clock, Ledger, RaiseSource};
use dormouse_proto::id::{CallId, FactNumber, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::{ChildFact, ControlFact, ReopenedChild};
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;

pub use self::error::ReopeningError;
use super::arrival::Arrival;
use super::budget::{can_create_children, exhausted_message};
use super::decide::Draft;
use super::{Effect, Fact, Input, PlacedArrival, State};
use crate::budget::{ChildCreation, ShareRequest};
use crate::table::placement::Placer;

/// An ended process, and the message that is to open it again.
#[derive(Clone, Debug)]
pub struct EndedProcess {
    /// Pid in the kernel. In a branch, the processes of the tree know it by another one.
    pub pid: Pid,
    /// State of the process, from its journal.
    pub state: Box<State>,
    /// Last fact of its journal.
    pub last_fact: FactNumber,
    /// The message. Its bytes have been read.
    pub mail: PlacedArrival,
}

/// What a process reads that ended at a limit, once the limit is raised.
const RAISED: &str = "The limit at which you ended was raised. Go on.";

/// What a process reads that was done when it had reached a limit, once the limit is raised.
const RAISED_WHEN_DONE: &str =
    "You were done, and had reached a limit, which was raised. Wait for what is asked next.";

/// An ended child that its parent is asked to open again.
#[derive(Clone, Debug)]
pub struct EndedChild {
    /// Call of the parent that made the child.
    pub call: CallId,
    /// Index of the child within that call, from 0.
    pub index: u32,
    /// Pid by which the parent knows the child.
    pub child: Pid,
    /// Budget that the program of the child requests.
    pub requested_budget: Budget,
    /// The child.
    pub process: EndedProcess,
}

/// The facts that open a process again, which are committed together with those of its parent.
#[derive(Clone, Debug)]
pub struct Reopening {
    /// Pid of the process in the kernel.
    pub pid: Pid,
    /// How often the process was opened again, this time included.
    pub reopenings: u32,
    /// Request that is answered once the facts are durable.
    pub request_id: Arc<str>,
    /// Number of the first fact.
    pub first: FactNumber,
    /// The facts, the last of which queues the message.
    pub facts: Vec<Fact>,
    /// The answer for the sender of the message.
    pub answer: Answer,
}

impl State {
    /// How often the process was opened again after it had ended.
    #[must_use]
    pub fn reopenings(&self) -> u32 {
        self.reopenings
    }

    /// The children that had ended, were opened again, and run in the background.
    pub fn reopened_children(&self) -> impl ExactSizeIterator<Item = &ReopenedChild> {
        self.reopened_children.values()
    }

    /// The background children: those that were never awaited, and those that were opened again.
    pub(super) fn background_pids(&self) -> impl Iterator<Item = Pid> {
        let reopened = self
            .reopened_children
            .values()
            .map(|reopened| reopened.child);
        self.background.values().copied().chain(reopened)
    }

    /// Whether a child of this call runs in the background.
    pub(super) fn runs_in_background(&self, call: CallId) -> bool {
        let mut reopened = self.reopened_children.range((call, 0)..=(call, u32::MAX));
        self.background.contains_key(&call) || reopened.next().is_some()
    }

    /// Whether the child at this index of a call runs in the background, as far as this process
    /// knows.
    pub(super) fn runs_in_background_at(&self, call: CallId, index: u32) -> bool {
        // A call that does not wait makes one child.
        (index == 0 && self.background.contains_key(&call))
            || self.reopened_children.contains_key(&(call, index))
    }

    /// Whether this process has opened a child again after the child's end of this number.
    pub(super) fn has_reopened_since(&self, child: (CallId, u32), reopenings: u32) -> bool {
        let reopened = self.reopened_children.get(&child);
        reopened.is_some_and(|reopened| reopenings < reopened.reopenings)
    }

    /// Checks that a message may open the process again.
    ///
    /// # Errors
    /// Why it may not, and what can be done.
    pub fn check_reopening(&self) -> Result<(), ReopeningError> {
        let pid = self.pid;
        let Some(exit) = self.exit() else {
            return Err(ReopeningError::NotEnded(pid));
        };
        check_exit(pid, exit)?;
        let limit = self.program.limits().max_reopenings;
        if self.reopenings >= limit {
            return Err(ReopeningError::TooOften {
                pid,
                reopenings: self.reopenings,
                limit,
            });
        }
        Ok(())
    }

    /// Reads the bytes of a message for an ended process: decides what of it becomes a descriptor.
    /// `None` for an input that opens no process. O(n) in the message.
    #[must_use]
    pub fn place_mail(&self, input: Input, now_ms: u64) -> Option<PlacedArrival> {
        let arrival = match input {
            Input::UserInput { user_input, .. } if user_input.parts.is_empty() => return None,
            Input::UserInput { from, user_input } => Arrival::UserInput { from, user_input },
            Input::Message {
                request_id,
                from,
                call,
                acked_below,
                envelope,
            } => Arrival::Message {
                request_id,
                from,
                call,
                acked_below,
                envelope,
            },
            _ => return None,
        };
        Some(arrival.place(&Placer {
            settings: self.settings(),
            now_ms,
            quota: ReadQuota::unlimited(),
        }))
    }
}

/// Checks that a process that ended in this way may be opened again.
///
/// # Errors
/// Why it may not, for the sender.
pub fn check_exit(pid: Pid, exit: &Exit) -> Result<(), ReopeningError> {
    if exit.status.can_be_reopened() {
        return Ok(());
    }
    Err(ReopeningError::StaysEnded {
        pid,
        status: exit.status.word(),
    })
}

fn is_at_limit(exit: &Exit) -> bool {
    exit.status == ExitStatus::BudgetExhausted
}

impl EndedProcess {
    /// A process that a raise of its limits is to open again.
    #[must_use]
    pub fn raised(pid: Pid, state: Box<State>, last_fact: FactNumber, now_ms: u64) -> Self {
        let ended_at_limit = state.exit().is_some_and(is_at_limit);
        let input = Input::UserInput {
            from: Sender::Host,
            user_input: if ended_at_limit {
                RAISED
            } else {
                RAISED_WHEN_DONE
            }
            .into(),
        };
        let mail = state.place_mail(input, now_ms);
        Self {
            pid,
            mail: mail.expect("an input with a text is mail"),
            state,
            last_fact,
        }
    }

    /// Opens a process without a parent again.
    ///
    /// # Errors
    /// The answer for the sender: why the process stays ended.
    pub fn reopen_root(&self, request_id: Arc<str>, now_ms: u64) -> Result<Reopening, Answer> {
        self.reopen(request_id, (None, None), now_ms)
            .map_err(|error| Answer::failed(error.to_string()))
    }

    /// Opens a process without a parent again, with limits that are raised by `by`. The process has
    /// a limit of each of these amounts ([`check_raise`](super::check_raise)).
    ///
    /// # Errors
    /// Why the process stays ended, such as a limit that is still reached.
    pub fn reopen_raised(
        &self,
        request_id: Arc<str>,
        by: Budget,
        now_ms: u64,
    ) -> Result<Reopening, ReopeningError> {
        self.reopen(request_id, (None, Some(by)), now_ms)
    }

    /// Opens a process again: with `budget` as its account, or with its own one, of which limits
    /// are raised by `raise`.
    fn reopen(
        &self,
        request_id: Arc<str>,
        (budget, raise): (Option<Ledger>, Option<Budget>),
        now_ms: u64,
    ) -> Result<Reopening, ReopeningError> {
        self.state.check_reopening()?;
        let mut draft = Draft::new(&self.state, now_ms);
        let pid = draft.state.pid;
        let is_root = budget.is_none();
        draft.emit(Fact::Reopened {
            budget: budget.map(Box::new),
        });
        if draft.state.is_stopped_by_signal() {
            draft.emit(ControlFact::Continued);
        }
        if is_root {
            draft.restart_clock(self.state.exit().map_or(0, |exit| exit.ran_ms));
        }
        if let Some(by) = raise {
            let exit = self.state.exit().filter(|exit| !is_at_limit(exit));
            if let Some(exit) = exit
                && draft.state.budget.reached_limit(now_ms).is_none()
            {
                let status = exit.status.word();
                return Err(ReopeningError::NotAtLimit { pid, status });
            }
            let source = RaiseSource::Person;
            draft.emit(Change::Raised { by, source });
        }
        if let Some(reached) = draft.state.budget.reached_limit(now_ms) {
            let reached = exhausted_message(reached);
            return Err(ReopeningError::BudgetExhausted { pid, reached });
        }
        match self.mail.clone() {
            PlacedArrival::UserInput { from, parts } => draft.record_input(from, parts),
            PlacedArrival::Message {
                from,
                call,
                acked_below,
                envelope,
                ..
            } => {
                if let Some(why) = draft.find_message_refusal(&envelope) {
                    return Err(ReopeningError::Mail(why));
                }
                draft.record_message((from, call), acked_below, envelope);
            }
            _ => return Err(ReopeningError::NoMessage(pid)),
        }
        let answer = Element::new("message_sent").attribute("to", pid);
        Ok(Reopening {
            pid: self.pid,
            reopenings: draft.state.reopenings,
            request_id,
            first: self.last_fact.plus(1),
            answer: Answer::shown(answer.attribute("reopened", draft.state.reopenings)),
            facts: draft.into_facts(),
        })
    }
}

impl Draft {
    /// Restarts the clock of an account that continues: the time since the end does not count, and
    /// `ran_ms` is what the process ran until then.
    fn restart_clock(&mut self, ran_ms: u64) {
        if self.state.budget.limits().wall_time_ms.is_some() {
            self.emit(Change::Clock {
                ran_ms,
                at_ms: self.now_ms,
                clock: Clock::Runs,
            });
        }
    }

    /// Opens an ended child again: reserves a share for it, and decides the facts of the child. If
    /// something forbids it, nothing is reserved, and the sender of the message gets the reason.
    pub(super) fn reopen_child(&mut self, request_id: Arc<str>, ended: &EndedChild) {
        // An end that is on its way is heard first. A later report of it is ignored.
        let is_unheard = self.state.budget.share(ended.call, ended.index).is_some();
        if let Some(exit) = ended.process.state.exit().filter(|_| is_unheard) {
            self.handle_child_ended(ended.call, ended.index, ended.child, exit.clone());
        }
        match self.decide_reopening(request_id.clone(), ended) {
            Ok((share, reopening)) => {
                self.emit(Change::Reserved {
                    call: ended.call,
                    shares: vec![(ended.index, share)],
                });
                self.emit(ChildFact::Reopened {
                    child: ReopenedChild {
                        call: ended.call,
                        index: ended.index,
                        child: ended.child,
                        reopenings: ended.process.state.reopenings + 1,
                    },
                });
                self.reopening = Some(reopening);
            }
            Err(error) => {
                let answer = Answer::failed(error.to_string());
                self.schedule(Effect::AnswerHost { request_id, answer });
            }
        }
    }

    /// The share and the facts of a child that is opened again.
    fn decide_reopening(
        &self,
        request_id: Arc<str>,
        ended: &EndedChild,
    ) -> Result<(Budget, Reopening), ReopeningError> {
        let child = &ended.process.state;
        child.check_reopening()?;
        self.check_parent_of_reopened(ended)?;
        let share = self.share_of_reopened(ended)?;
        let budget = Ledger {
            held_bytes: child.budget.used(Amount::ResidentBytes),
            ..self.state.budget.ledger_with_share(share, self.now_ms)
        };
        let reopening = ended
            .process
            .reopen(request_id, (Some(budget), None), self.now_ms)?;
        Ok((share, reopening))
    }

    /// Checks that this process may open a child again.
    fn check_parent_of_reopened(&self, ended: &EndedChild) -> Result<(), ReopeningError> {
        let (pid, parent) = (ended.child, self.state.pid);
        if self.state.is_stopped() {
            return Err(ReopeningError::ParentStopped { pid, parent });
        }
        if self.state.runs_in_background_at(ended.call, ended.index)
            || self.state.is_open(ended.call)
        {
            return Err(ReopeningError::ParentUnaware { pid, parent });
        }
        let running = self.state.budget.shares().len();
        let limit = self.state.program.limits().max_children as usize;
        if running >= limit {
            return Err(ReopeningError::TooManyChildren {
                pid,
                parent,
                running,
                limit,
            });
        }
        Ok(())
    }

    /// The share of a child that is opened again.
    fn share_of_reopened(&self, ended: &EndedChild) -> Result<Budget, ReopeningError> {
        let child = &ended.process.state;
        let kernel_tools = self.state.host.kernel_tools;
        let creates_children =
            can_create_children(&child.program, kernel_tools, child.access, child.depth);
        let running = self.state.budget.shares().len();
        let limit = self.state.program.limits().max_children as usize;
        let request = ShareRequest {
            children: 1,
            other_children: self.count_children_of_unstarted_calls(ended.call),
            later_children: limit.saturating_sub(running + 1) as u64,
            requested_budget: ended.requested_budget,
            child_creation: if creates_children {
                ChildCreation::Allowed
            } else {
                ChildCreation::Denied
            },
        };
        let share = self.state.budget.share_for(&request, self.now_ms);
        share.map_err(|insufficient| ReopeningError::NoShare {
            pid: ended.child,
            parent: self.state.pid,
            insufficient,
        })
    }
}
