//! Budget checks of a running process. [`crate::budget`] does the accounting; this module decides
//! when to reserve a share of the budget for a child, to warn the model, and to end the process.
//!
//! * A share is reserved before its child is created, and returned when the child has ended. Both
//!   are facts, keyed by the call and the child's index in it, so that a share is returned even if
//!   the call is abandoned.
//! * Limits are checked before each model call. At a limit the process ends with a valid history, or
//!   is paused (`pausing.rs`). If the rest of the budget is reserved for children, the process waits
//!   until a share is returned. Near a limit the model is warned, at the end of a message that has
//!   not been sent yet (HIST-1).
//! * The usage of a call is known only after the call, so one call may exceed the budget. No call
//!   starts after that.
//!
//! The *rule* of a program (`[budget.raise]`) raises a limit a few times, before the process ends
//! or is paused at it.

use dormouse_proto::budget::{Amount, AtLimit, Budget, Change, Clock};
use dormouse_proto::id::CallId;
use dormouse_proto::message::Role;
use dormouse_proto::model::{ModelError, Reply, Usage};
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::Phase;
use dormouse_proto::tool::Access;
use dormouse_proto::xml::Element;

use super::State;
use super::decide::Draft;
use crate::budget::{ChildCreation, ReachedLimit, ShareRequest};
use crate::tool::{ProcessHandler, Refusal, Tool, ToolSet};
use dormouse_program::Program;

/// Answer to a call that is abandoned because the budget is used up.
const ABANDONED: &str =
    "Interrupted: the budget was used up before this call was done. Its effect is unknown.";

impl Draft {
    /// Ends or pauses the process if its budget has reached a limit. Returns whether a model call is
    /// permitted. No call is permitted while the rest of the budget is reserved for children.
    pub(super) fn check_budget(&mut self) -> bool {
        !self.end_or_pause_at_limit() && !self.state.budget.waits_for_shares()
    }

    /// Ends or pauses the process if its budget has reached a limit that the rule of the program does
    /// not raise. Returns whether it ended or is paused.
    pub(super) fn end_or_pause_at_limit(&mut self) -> bool {
        while let Some(reached) = self.state.budget.reached_limit(self.now_ms) {
            if !self.raise_by_rule(reached.amount) {
                self.end_or_pause(reached);
                return true;
            }
        }
        false
    }

    /// Why the budget does not permit a summary; `None` if it does. Unlike
    /// [`check_budget`](Self::check_budget), this never ends the process.
    pub(super) fn find_summary_refusal(&self) -> Option<String> {
        let account = &self.state.budget;
        if let Some(reached) = account.reached_limit(self.now_ms) {
            return Some(format!(
                "No model is asked: {}.",
                exhausted_message(reached)
            ));
        }
        account.waits_for_shares().then(|| {
            "No model is asked: what is left of this process's budget is reserved for its \
             children. Wait until some have ended."
                .to_owned()
        })
    }

    /// Warns the model once of each limit that is near, in the message that is about to be sent. If
    /// the last message is the model's own (a paused reply), the warning is postponed.
    pub(super) fn warn_of_limits(&mut self) {
        if self
            .state
            .messages
            .last()
            .is_some_and(|last| last.role == Role::Assistant)
        {
            return;
        }
        let at_limit = self.state.program.budget_section().at_limit;
        for reached in self.state.budget.nearly_reached_limits(self.now_ms) {
            let ReachedLimit { amount, limit, .. } = reached;
            self.emit(Change::Warned {
                amount,
                limit,
                text: format_warning(reached, at_limit).into(),
            });
        }
    }

    /// Ends the process because of an exhausted budget. Calls in flight are abandoned with a valid
    /// history.
    pub(super) fn end_with_exhausted_budget(&mut self, reached: ReachedLimit) {
        if let Phase::Thinking { .. } | Phase::Acting { .. } = self.state.phase {
            self.abandon_calls(ABANDONED);
        }
        self.end_process(Exit::new(
            ExitStatus::BudgetExhausted,
            exhausted_message(reached),
        ));
    }

    /// Handles a scheduled wake-up: ends or pauses the process if its wall time is used up, and
    /// refuses held calls that have expired. The comparison uses the scheduled time, not the clock,
    /// which may have been set back.
    pub(super) fn handle_time(&mut self, at_ms: u64) {
        if !self.end_or_pause_at_deadline(at_ms) && self.expire_held_calls(at_ms) {
            self.start_unstarted_calls();
        }
    }

    /// Handles what is due now: held calls that have expired, and alarms.
    pub(super) fn handle_wake(&mut self) {
        if self.expire_held_calls(self.now_ms) {
            self.start_unstarted_calls();
        }
        self.fire_due_alarms();
    }

    /// Ends or pauses the process if its wall time is used up at `at_ms`, and the rule of the program
    /// does not raise it. Returns whether it ended or is paused.
    pub(super) fn end_or_pause_at_deadline(&mut self, at_ms: u64) -> bool {
        loop {
            let budget = &self.state.budget;
            let (Some(deadline), Some(limit)) =
                (budget.deadline_ms(), budget.limits().wall_time_ms)
            else {
                return false;
            };
            if deadline > at_ms {
                return false;
            }
            if !self.raise_by_rule(Amount::WallTime) {
                self.end_or_pause(ReachedLimit {
                    amount: Amount::WallTime,
                    used: limit,
                    limit,
                });
                return true;
            }
        }
    }

    /// Keeps the account of the wall time, if it is limited: records when the process begins and
    /// ceases to rest, and with each decision that records anything, how long it has run. So a
    /// crash loses the time of one decision at most.
    pub(super) fn update_clock(&mut self) {
        let budget = &self.state.budget;
        if budget.limits().wall_time_ms.is_none() || self.state.exit().is_some() {
            return;
        }
        let clock = if self.state.busy_reason().is_none() {
            Clock::Rests
        } else {
            Clock::Runs
        };
        let is_behind =
            clock == Clock::Runs && self.has_facts() && !budget.is_counted_at(self.now_ms);
        if clock != budget.clock() || is_behind {
            self.set_clock(clock);
        }
    }

    /// Records the time that the process has run until now, and whether it runs on.
    pub(super) fn set_clock(&mut self, clock: Clock) {
        let ran_ms = self.state.budget.ran_ms(self.now_ms);
        self.emit(Change::Clock {
            ran_ms,
            at_ms: self.now_ms,
            clock,
        });
    }

    /// Charges the time that a child ran while this process rested, at most the time that this
    /// process has rested since its clock was last set. The time in which the child itself rested
    /// does not count.
    pub(super) fn charge_wait(&mut self, child_ran_ms: u64) {
        let budget = &self.state.budget;
        if budget.limits().wall_time_ms.is_none() || budget.clock() == Clock::Runs {
            return;
        }
        let ran_ms = budget.counted_ms() + child_ran_ms.min(budget.rested_ms(self.now_ms));
        self.emit(Change::Clock {
            ran_ms,
            at_ms: self.now_ms,
            clock: Clock::Rests,
        });
    }

    /// Restarts the clock of a process that was not in memory: that time does not count. Each
    /// decision about such a process begins with this, whether it runs the process or not.
    pub(super) fn skip_unloaded_time(&mut self) {
        let budget = &self.state.budget;
        let is_alive = self.state.exit().is_none();
        if is_alive && budget.limits().wall_time_ms.is_some() && budget.clock() == Clock::Runs {
            let ran_ms = budget.counted_ms();
            self.emit(Change::Clock {
                ran_ms,
                at_ms: self.now_ms,
                clock: Clock::Runs,
            });
        }
    }

    /// Reserves a share for each of these children of a call. Children that have a share keep it.
    pub(super) fn reserve_shares(
        &mut self,
        call: CallId,
        indices: &[u32],
        (program, requested_budget): (&Program, Budget),
        access: Access,
    ) -> Result<(), Refusal> {
        let account = &self.state.budget;
        // A repeated call keeps the shares that were reserved before the restart.
        let indices: Vec<_> = indices
            .iter()
            .copied()
            .filter(|index| account.share(call, *index).is_none())
            .collect();
        if indices.is_empty() {
            return Ok(());
        }
        let kernel_tools = self.state.host.kernel_tools;
        let child_creation =
            if can_create_children(program, kernel_tools, access, self.state.depth + 1) {
                ChildCreation::Allowed
            } else {
                ChildCreation::Denied
            };
        let request = ShareRequest {
            children: indices.len() as u64,
            other_children: self.count_children_of_unstarted_calls(call),
            later_children: self.count_later_background_children(call),
            requested_budget,
            child_creation,
        };
        let share = account
            .share_for(&request, self.now_ms)
            .map_err(|insufficient| insufficient.to_string())?;
        self.emit(Change::Reserved {
            call,
            shares: indices.into_iter().map(|index| (index, share)).collect(),
        });
        Ok(())
    }

    /// The number of children that the other unstarted calls of the turn are going to create.
    pub(super) fn count_children_of_unstarted_calls(&self, call: CallId) -> u64 {
        let others = self.state.pending_calls().iter().filter(|pending_call| {
            pending_call.call != call && !pending_call.started && pending_call.answer.is_none()
        });
        let counts = others.map(|pending_call| match self.bound_tool_of(pending_call) {
            Some(tool) if tool.makes_children() => {
                self.count_expected_children(pending_call) as u64
            }
            _ => 0,
        });
        counts.sum()
    }

    /// The number of further background children that the process may start while the child of this
    /// call runs. 0 if the call waits for its child.
    fn count_later_background_children(&self, call: CallId) -> u64 {
        match self.process_handler(call) {
            Some(ProcessHandler::Spawn { waits, .. }) if !waits(&self.pending_call(call).args) => {
                let max_children = self.state.program.limits().max_children as usize;
                max_children.saturating_sub(self.count_other_running_children(call) + 1) as u64
            }
            _ => 0,
        }
    }

    /// Returns the rest of a child's share, at most once (CALL-1). `spent` is unknown if the child
    /// was abandoned.
    pub(super) fn return_share(&mut self, call: CallId, index: u32, spent: Option<Usage>) {
        if self.state.budget.share(call, index).is_some() {
            self.emit(Change::Returned { call, index, spent });
        }
    }

    /// Continues a process that was waiting for shares to be returned.
    pub(super) fn continue_with_returned_shares(&mut self) {
        match self.state.phase {
            Phase::Ready { stop_reason: None } => self.call_model(),
            Phase::Ready {
                stop_reason: Some(stop),
            } => self.handle_stop_reason(stop),
            Phase::Idle | Phase::Thinking { .. } | Phase::Acting { .. } | Phase::Ended { .. } => {}
        }
    }

    /// Looks for children whose call is answered while their share is still reserved. Such a child
    /// was never created, or its end was missed or is about to be reported.
    pub(super) fn find_children_of_answered_calls(&mut self) {
        let mut children = Vec::new();
        for ((call, index), _) in self.state.budget.shares() {
            if !self.state.is_open(call) && !self.state.runs_in_background_at(call, index) {
                children.push((call, index));
            }
        }
        for (call, index) in children {
            self.find_child(call, index);
        }
    }

    /// Records the usage of a reply to an abandoned call. The usage is counted once.
    pub(super) fn record_late_usage(
        &mut self,
        call: CallId,
        model: &str,
        result: &Result<Reply, ModelError>,
    ) {
        if let Ok(reply) = result
            && self.state.budget.awaits_usage(call)
        {
            self.record_usage(call, self.state.usage_with_cost(model, reply));
        }
    }

    pub(super) fn record_usage(&mut self, call: CallId, usage: Usage) {
        if usage != Usage::default() {
            self.emit(Change::Used { call, usage });
        }
    }
}

impl State {
    /// When the process has to be awake: at the end of its wall time, or when a held call expires.
    /// Milliseconds since the epoch, UTC; `None` if no time matters.
    #[must_use]
    pub fn next_wake_ms(&self) -> Option<u64> {
        if self.exit().is_some() {
            return None;
        }
        let times = [self.budget.deadline_ms(), self.phase.next_expiry_ms()];
        times.into_iter().flatten().min()
    }

    /// The usage of a reply, with its cost. The cost becomes part of the fact, so that a later price
    /// table does not change a replayed state (DUR-2).
    pub(super) fn usage_with_cost(&self, model: &str, reply: &Reply) -> Usage {
        let price = self.program.price(model, &self.host.prices);
        Usage {
            cost_nanos: price.map_or(0, |price| price.reply_cost_nanos(reply)),
            ..reply.usage
        }
    }
}

/// Whether a process of this program may create children, given its access level and its depth in
/// the tree.
pub(super) fn can_create_children(
    program: &Program,
    kernel_tools: &ToolSet,
    access: Access,
    depth: u32,
) -> bool {
    let makes_children = |name: &str| kernel_tools.find(name).is_some_and(Tool::makes_children);
    let mut creating_tools = program
        .tools()
        .iter()
        .filter(|tool| makes_children(&tool.name));
    depth < program.limits().max_depth
        && creating_tools.any(|tool| tool.access.unwrap_or(Access::Admin) <= access)
}

pub(super) fn exhausted_message(
    ReachedLimit {
        amount,
        used,
        limit,
    }: ReachedLimit,
) -> String {
    let word = amount.word();
    let used = amount.show(used);
    let limit = amount.show(limit);
    format!(
        "the budget of {word} is used up: {used} of {limit} by this process and all below it \
         (budget.{word})"
    )
}

/// The warning of a near limit, as XML.
fn format_warning(
    ReachedLimit {
        amount,
        used,
        limit,
    }: ReachedLimit,
    at_limit: AtLimit,
) -> String {
    let word = amount.word();
    let what_follows = match at_limit {
        AtLimit::End => "you are ended, and so are they",
        AtLimit::Pause => "you are paused, and so are they, until a person raises it",
    };
    let message = format!(
        "Your budget of {word} is nearly used up, by you and the processes below you. When it is, \
         {what_follows}. Finish soon: say what you have found."
    );
    let element = Element::new("budget_warning").attribute("amount", word);
    let element = element
        .attribute("used", amount.show(used))
        .attribute("limit", amount.show(limit));
    element
        .child(Element::new("message").text(message))
        .to_xml()
}
