//! The budget at work: what a process asks of its account before it goes on, what it sets aside for
//! its children, and how it ends when a limit is reached.
//!
//! * Before children are made, their shares are reserved; with each that is no more its share is
//!   returned. Both are facts, by the call that made the child and its place in it, so that they
//!   hold whatever becomes of the call.
//! * Before a model is asked, every limit is looked at. At a limit the process ends cleanly. Where
//!   all that is left is reserved for children, it waits until some of that comes back. Near a
//!   limit its model is warned, at the end of the message that is about to be sent, which no model
//!   has seen yet (HIST-1).
//! * What a call used is known only when it is over: one call may overshoot, and nothing begins
//!   after it.

use dormouse_proto::budget::{Amount, Budget, Change};
use dormouse_proto::id::CallId;
use dormouse_proto::message::Role;
use dormouse_proto::model::{ModelError, Reply, Usage};
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::Phase;
use dormouse_proto::tool::Access;
use dormouse_proto::xml::Element;

use super::decide::Draft;
use super::{Effect, State};
use crate::budget::{Asked, Multiply, Reached};
use crate::program::Program;
use crate::syscall::{fork, spawn};

const ABANDONED: &str =
    "Interrupted: the budget was used up before this call was done. Its effect is unknown.";

impl Draft {
    fn change(&mut self, change: Change) {
        self.emit(change);
    }

    /// Whether the budget lets a model be asked. At a limit the process ends here.
    pub(super) fn may_spend(&mut self) -> bool {
        !self.ends_at_limit() && !self.state.budget.waits_for_shares()
    }

    /// Ends the process if its budget has reached a limit. True if it ended.
    pub(super) fn ends_at_limit(&mut self) -> bool {
        let Some(reached) = self.state.budget.reached(self.now_ms) else {
            return false;
        };
        self.exhaust(reached);
        true
    }

    /// Why no model may be asked beside the conversation, if it may not.
    pub(super) fn refusal_to_spend(&self) -> Option<String> {
        let account = &self.state.budget;
        if let Some(reached) = account.reached(self.now_ms) {
            return Some(format!("No model is asked: {}.", exhausted(reached)));
        }
        account.waits_for_shares().then(|| {
            "No model is asked: what is left of this process's budget is reserved for its \
             children. Wait until some have ended."
                .to_owned()
        })
    }

    /// Warns the model of limits that are near, once of each, in the message that is about to be
    /// sent. Where that is the model's own, of a turn that paused, the warning waits for the next.
    pub(super) fn warn_of_limits(&mut self) {
        if self
            .state
            .messages
            .last()
            .is_some_and(|last| last.role == Role::Assistant)
        {
            return;
        }
        for reached in self.state.budget.near(self.now_ms) {
            let Reached { amount, limit, .. } = reached;
            self.change(Change::Warned {
                amount,
                limit,
                text: warning(reached).into(),
            });
        }
    }

    /// Ends the process, and with it all below it: what is in flight is given up with a valid
    /// history.
    fn exhaust(&mut self, reached: Reached) {
        if let Phase::Thinking { .. } | Phase::Acting { .. } = self.state.phase {
            self.abandon(ABANDONED);
        }
        self.end(Exit::new(ExitStatus::BudgetExhausted, exhausted(reached)));
    }

    /// Has the process woken when its wall time is over; ends it where it is. False where it ended.
    pub(super) fn keep_time(&mut self) -> bool {
        let Some(at_ms) = self.state.budget.deadline_ms() else {
            return true;
        };
        if self.now_ms >= at_ms {
            self.time_up(at_ms);
            return false;
        }
        self.perform(Effect::WakeAt { at_ms });
        true
    }

    /// The time that it was to be woken at has come, whatever a clock shows that was set since.
    pub(super) fn time_up(&mut self, at_ms: u64) {
        let (Some(deadline), Some(limit)) = (
            self.state.budget.deadline_ms(),
            self.state.budget.limits().wall_time_ms,
        ) else {
            return;
        };
        if deadline <= at_ms {
            self.exhaust(Reached {
                amount: Amount::WallTime,
                used: limit,
                limit,
            });
        }
    }

    /// Sets aside a share for each of these children of a call; those that have one keep it.
    pub(super) fn reserve(
        &mut self,
        call: CallId,
        indices: &[u32],
        (program, wants): (&Program, Budget),
        access: Access,
    ) -> Result<(), String> {
        let account = &self.state.budget;
        let without = |index: &u32| account.share(call, *index).is_none();
        let indices: Vec<_> = indices.iter().copied().filter(without).collect();
        if indices.is_empty() {
            return Ok(());
        }
        let multiply = if can_multiply(program, access, self.state.depth + 1) {
            Multiply::Yes
        } else {
            Multiply::No
        };
        let (children, beside, later) = (
            indices.len() as u64,
            self.children_to_come(call),
            self.children_later(call),
        );
        let asked = Asked {
            children,
            beside,
            later,
            wants,
            multiply,
        };
        let share = account
            .cut(&asked, self.now_ms)
            .map_err(|shortage| shortage.to_string())?;
        self.change(Change::Reserved {
            call,
            shares: indices.into_iter().map(|index| (index, share)).collect(),
        });
        Ok(())
    }

    /// How many children the other calls of the turn are going to make.
    fn children_to_come(&self, call: CallId) -> u64 {
        let others = self
            .state
            .slots()
            .iter()
            .filter(|slot| slot.call != call && !slot.called && slot.answer.is_none());
        let counts = others.map(|slot| match self.kind_of(slot) {
            Some(kind) if kind.makes_children() => self.expected_children(slot) as u64,
            _ => 0,
        });
        counts.sum()
    }

    /// How many children may follow the one of this call while it runs, where nobody waits for it.
    fn children_later(&self, call: CallId) -> u64 {
        if !self.is_call_of(call, &spawn::TOOL) || spawn::waits(&self.slot(call).args) {
            return 0;
        }
        let most = self.state.program.limits().max_children as usize;
        most.saturating_sub(self.children_beside(call) + 1) as u64
    }

    /// A child is no more, or never was: what it left of its share comes back, once (CALL-1).
    pub(super) fn give_back(&mut self, call: CallId, index: u32, spent: Option<Usage>) {
        if self.state.budget.share(call, index).is_some() {
            self.change(Change::Returned { call, index, spent });
        }
    }

    /// Goes on where all that was left had been reserved, and some of it may have come back.
    pub(super) fn go_on_with_shares(&mut self) {
        match self.state.phase {
            Phase::Ready { stopped: None } => self.ask_model(),
            Phase::Ready {
                stopped: Some(stop),
            } => self.follow(stop),
            Phase::Idle | Phase::Thinking { .. } | Phase::Acting { .. } | Phase::Ended { .. } => {}
        }
    }

    /// Asks what became of children whose calls are over, though their shares are still reserved:
    /// they ended unheard, are about to, or were never born.
    pub(super) fn ask_after_lost(&mut self) {
        let is_waited_for = |call: CallId| {
            self.state.background.contains_key(&call)
                || self
                    .state
                    .slots()
                    .iter()
                    .any(|slot| slot.call == call && slot.answer.is_none())
        };
        let places = self.state.budget.shares().map(|(place, _)| place);
        let lost: Vec<_> = places.filter(|(call, _)| !is_waited_for(*call)).collect();
        for (call, index) in lost {
            self.perform(Effect::FindChild { call, index });
        }
    }

    /// A model answered for a call that nothing came of but its cost. What was given up is counted
    /// once.
    pub(super) fn count_late(
        &mut self,
        call: CallId,
        model: &str,
        result: &Result<Reply, ModelError>,
    ) {
        if let Ok(reply) = result
            && self.state.budget.is_owed(call)
        {
            self.count(call, self.state.priced(model, reply.usage));
        }
    }

    pub(super) fn count(&mut self, call: CallId, usage: Usage) {
        if usage != Usage::default() {
            self.change(Change::Used { call, usage });
        }
    }
}

impl State {
    /// The same tokens with what they cost. It stands in the fact, so that another price table
    /// changes nothing that was (DUR-2).
    pub(super) fn priced(&self, model: &str, usage: Usage) -> Usage {
        let price = self.program.price(model, &self.around.prices);
        Usage {
            cost_nanos: price.map_or(0, |price| price.cost_nanos(&usage)),
            ..usage
        }
    }
}

/// Whether a process of this program may make processes.
fn can_multiply(program: &Program, access: Access, depth: u32) -> bool {
    let mut makers = program
        .tools()
        .iter()
        .filter(|tool| [fork::TOOL.name, spawn::TOOL.name].contains(&tool.name.as_str()));
    depth < program.limits().max_depth
        && makers.any(|tool| tool.access.unwrap_or(Access::Admin) <= access)
}

fn exhausted(
    Reached {
        amount,
        used,
        limit,
    }: Reached,
) -> String {
    let word = amount.word();
    let (used, limit) = (amount.show(used), amount.show(limit));
    format!(
        "the budget of {word} is used up: {used} of {limit} by this process and all below it \
         (budget.{word})"
    )
}

fn warning(
    Reached {
        amount,
        used,
        limit,
    }: Reached,
) -> String {
    let word = amount.word();
    let message = format!(
        "Your budget of {word} is nearly used up, by you and the processes below you. When it is, \
         you are ended, and so are they. Finish soon: say what you have found."
    );
    let element = Element::new("budget_warning").attribute("amount", word);
    let element = element
        .attribute("used", amount.show(used))
        .attribute("limit", amount.show(limit));
    element
        .child(Element::new("message").text(message))
        .to_xml()
}
