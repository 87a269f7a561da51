//! Pauses at limits. Where the program says `budget.at_limit = "pause"`, a process that has used up
//! an amount of its budget is *paused* instead of ended: it starts nothing and rests, results of
//! calls in flight are recorded, and messages wait. The processes below it are *suspended* by the
//! shell, and start nothing either. Once the limit is raised, they all go on.
//!
//! A pause ends only by a raise, which is a fact. It is no stop: `Stop` and `Continue` work on
//! their own, and a process goes on when nothing holds it up any more. No return to an earlier point
//! ends a pause, since usage stays.
//!
//! A child has a share of its parent's budget. To raise its limits, its parent first reserves a
//! larger share (TREE-1); that is idempotent, so a crash between the two facts loses nothing. Each
//! of the two decides by itself, as an input where it is loaded, and otherwise in its journal
//! ([`record_raise`], [`record_share`]): a raise loads neither.
//!
//! Invariant kept here: PAUSE-1, nothing begins in a process that is paused or suspended.

use std::sync::Arc;

use dormouse_proto::budget::{Amount, AtLimit, Budget, Change, Paused, RaiseSource};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::record::{Control, ControlFact};
use dormouse_proto::tool::Answer;

use super::decide::{Draft, Recorded};
use super::{Effect, Report, State};
use crate::budget::ReachedLimit;

/// Why limits are not raised, and what to try. Pids are those that the tree knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RaiseError {
    /// No amount is named.
    #[error("name an amount, such as cost")]
    Nothing,
    /// The process has no limit of this amount.
    #[error("process {pid} has no limit of {}, so there is nothing to raise", .amount.word())]
    Unlimited {
        /// The process.
        pid: Pid,
        /// The amount.
        amount: Amount,
    },
    /// The limits were raised by another request at the same time.
    #[error("the limits of process {0} were just changed: look at them, and try again")]
    Changed(Pid),
    /// The process has no such child.
    #[error("process {0} has no share for such a child: the child has ended")]
    NoShare(Pid),
    /// The parent has not enough left.
    #[error(
        "its share comes from process {parent}, its parent, which has {} of {} \
         left. Raise process {parent} first",
        .amount.show(*left), .amount.word()
    )]
    ParentHasTooLittle {
        /// The parent.
        parent: Pid,
        /// The amount.
        amount: Amount,
        /// What the parent has left.
        left: u64,
    },
}

impl State {
    /// The limit that the process is paused at.
    #[must_use]
    pub fn paused(&self) -> Option<&Paused> {
        self.pausing.paused.as_ref()
    }

    /// Whether a process above this one is paused at a limit.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.pausing.is_suspended
    }

    /// Whether the process starts nothing because of a limit: its own, or one above it.
    #[must_use]
    pub fn is_held_by_limit(&self) -> bool {
        self.pausing.paused.is_some() || self.pausing.is_suspended
    }

    /// Whether the process is stopped, and the calls that were in flight are lost: no completion
    /// comes for them, since they were made before a restart, or by the original of a copy.
    pub(super) fn has_lost_calls(&self) -> bool {
        self.control == Control::StoppedWithoutCalls || self.pausing.has_lost_calls
    }

    pub(super) fn apply_to_pausing(&mut self, change: &Change) {
        match change {
            Change::Paused { at } => self.pausing.paused = Some(at.clone()),
            Change::Raised {
                source: RaiseSource::Rule,
                ..
            } => self.pausing.raises = self.pausing.raises.saturating_add(1),
            Change::Unpaused => {
                self.pausing.paused = None;
                self.forget_lost_calls();
            }
            _ => {}
        }
    }

    pub(super) fn apply_control(&mut self, fact: ControlFact) {
        match fact {
            ControlFact::Stopped => self.control = Control::Stopped,
            ControlFact::StoppedWithoutCalls if self.control == Control::Running => {
                self.pausing.has_lost_calls = true;
            }
            ControlFact::StoppedWithoutCalls => self.control = Control::StoppedWithoutCalls,
            ControlFact::Continued => {
                self.pausing.has_lost_calls |= self.control == Control::StoppedWithoutCalls;
                self.control = Control::Running;
                self.forget_lost_calls();
            }
            ControlFact::Suspended => self.pausing.is_suspended = true,
            ControlFact::Released => {
                self.pausing.is_suspended = false;
                self.forget_lost_calls();
            }
            ControlFact::SpeculationEnded => self.leave_speculation(),
        }
    }

    /// What goes on makes its calls again.
    fn forget_lost_calls(&mut self) {
        if !self.is_stopped() {
            self.pausing.has_lost_calls = false;
        }
    }

    /// An ended process is held up by nothing. How often its limits were raised stays.
    pub(super) fn end_pausing(&mut self) {
        self.pausing.paused = None;
        self.pausing.is_suspended = false;
        self.pausing.has_lost_calls = false;
    }
}

impl Draft {
    /// Raises a limit as the rule of the program (`[budget.raise]`) says, if the rule covers the
    /// amount and has not raised limits as often as it may. Returns whether it did. The limits of a
    /// child are its share, which only its parent can raise.
    pub(super) fn raise_by_rule(&mut self, amount: Amount) -> bool {
        let rule = self.state.program.budget_section().raise;
        let is_root = self.state.depth == 0;
        let Some(more) = rule
            .by
            .limit(amount)
            .filter(|_| is_root && self.state.pausing.raises < rule.times)
        else {
            return false;
        };
        let by = Budget::default().with(amount, Some(more));
        self.record_raise(by, RaiseSource::Rule);
        true
    }

    /// Pauses the process at a limit, or ends it, as its program says.
    pub(super) fn end_or_pause(&mut self, reached: ReachedLimit) {
        if self.state.program.budget_section().at_limit == AtLimit::End {
            return self.end_with_exhausted_budget(reached);
        }
        let ReachedLimit {
            amount,
            used,
            limit,
        } = reached;
        let paused = Paused {
            amount,
            used,
            limit,
        };
        self.emit(Change::Paused { at: paused.clone() });
        self.schedule(Effect::Report(Report::Paused { paused }));
    }

    fn record_raise(&mut self, by: Budget, source: RaiseSource) {
        self.emit(Change::Raised { by, source });
        self.schedule(Effect::Report(Report::Raised { by, source }));
    }

    /// Raises limits at the request of the host. A process that is paused goes on if no limit is
    /// reached any more.
    pub(super) fn raise_for_host(
        &mut self,
        request_id: Arc<str>,
        by: &Budget,
        expected: Option<&Budget>,
    ) {
        let answer = match self.raise(by, expected) {
            Ok(()) => Answer::shown("Raised."),
            Err(error) => Answer::failed(error.to_string()),
        };
        let is_raised = !answer.is_error;
        self.schedule(Effect::AnswerHost { request_id, answer });
        if is_raised {
            self.continue_after_raise();
        }
    }

    /// Raises limits, and records the end of the pause if no limit is reached any more.
    fn raise(&mut self, by: &Budget, expected: Option<&Budget>) -> Result<(), RaiseError> {
        let pid = self.state.pid;
        let limits = self.state.budget.limits();
        if expected.is_some_and(|expected| expected != limits) {
            return Err(RaiseError::Changed(pid));
        }
        check_raise(pid, limits, by)?;
        self.record_raise(*by, RaiseSource::Person);
        Ok(())
    }

    /// Goes on after a raise: ends the pause if no limit is reached any more. A process that waited
    /// for shares to be returned may have enough now.
    fn continue_after_raise(&mut self) {
        if self.state.paused().is_none() {
            return self.continue_with_returned_shares();
        }
        let has_lost_calls = self.state.has_lost_calls();
        if self.unpause_if_within_limits() {
            self.go_on(has_lost_calls);
        }
    }

    /// Ends the pause if no limit is reached any more, or else names the limit that still is. Returns
    /// whether it has ended.
    fn unpause_if_within_limits(&mut self) -> bool {
        let reached = self.state.budget.reached_limit(self.now_ms);
        match (self.state.paused(), reached) {
            (None, _) => false,
            (Some(_), None) => {
                self.emit(Change::Unpaused);
                self.schedule(Effect::Report(Report::Unpaused));
                true
            }
            (Some(paused), Some(reached)) => {
                let at = Paused {
                    amount: reached.amount,
                    used: reached.used,
                    limit: reached.limit,
                };
                if *paused != at {
                    self.emit(Change::Paused { at });
                }
                false
            }
        }
    }

    /// Reserves a larger share for a child, so that it may have these limits.
    pub(super) fn raise_share_for_host(
        &mut self,
        request_id: Arc<str>,
        (call, index): (CallId, u32),
        limits: &Budget,
    ) {
        let answer = match self.raise_share((call, index), limits) {
            Ok(()) => Answer::shown("Reserved."),
            Err(error) => Answer::failed(error.to_string()),
        };
        self.schedule(Effect::AnswerHost { request_id, answer });
    }

    fn raise_share(
        &mut self,
        (call, index): (CallId, u32),
        limits: &Budget,
    ) -> Result<(), RaiseError> {
        let parent = self.state.pid;
        let account = &self.state.budget;
        let Some(share) = account.share(call, index) else {
            return Err(RaiseError::NoShare(parent));
        };
        let mut larger = *share;
        for (amount, limit) in limits.limited() {
            let Some(reserved) = share.limit(amount) else {
                continue;
            };
            let more = limit.saturating_sub(reserved);
            let left = match amount {
                // The time that the child runs is charged when it ends, so that what the parent has
                // left may be more than its limit allows.
                Amount::WallTime => account.limits().wall_time_ms.map(|of_parent| {
                    let left = account.wall_time_left_ms(self.now_ms).unwrap_or(of_parent);
                    left.min(of_parent.saturating_sub(reserved))
                }),
                Amount::Depth => account
                    .limits()
                    .depth
                    .map(|depth| depth.saturating_sub(reserved.saturating_add(1))),
                _ => account.remaining(amount),
            };
            if let Some(left) = left.filter(|left| *left < more) {
                return Err(RaiseError::ParentHasTooLittle {
                    parent,
                    amount,
                    left,
                });
            }
            larger = larger.with(amount, Some(reserved.saturating_add(more)));
        }
        if larger != *share {
            self.emit(Change::Reserved {
                call,
                shares: vec![(index, larger)],
            });
        }
        Ok(())
    }

    /// A process above this one is paused.
    pub(super) fn suspend(&mut self) {
        if !self.state.is_suspended() {
            self.emit(ControlFact::Suspended);
        }
    }

    /// No process above this one is paused any more.
    pub(super) fn release(&mut self) {
        if self.state.is_suspended() {
            let has_lost_calls = self.state.has_lost_calls();
            self.emit(ControlFact::Released);
            self.go_on(has_lost_calls);
        }
    }

    /// Why a limit lets a process begin nothing, and what to do.
    pub(super) fn describe_hold_by_limit(&self) -> String {
        let pid = self.state.pid;
        match self.state.paused() {
            Some(paused) => {
                format!("process {pid} is paused: it has used {paused}. Raise its limit first")
            }
            None => format!(
                "a process above process {pid} is paused at a limit, or a label of its tree has used \
                 up its budget. Raise that limit first"
            ),
        }
    }
}

/// Checks that a process with these limits can be raised by these amounts.
///
/// # Errors
/// [`RaiseError::Nothing`], [`RaiseError::Unlimited`].
pub fn check_raise(pid: Pid, limits: &Budget, by: &Budget) -> Result<(), RaiseError> {
    let mut amounts = by.limited().map(|(amount, _)| amount).peekable();
    if amounts.peek().is_none() {
        return Err(RaiseError::Nothing);
    }
    match amounts.find(|amount| limits.limit(*amount).is_none()) {
        Some(amount) => Err(RaiseError::Unlimited { pid, amount }),
        None => Ok(()),
    }
}

/// The facts that raise limits of a process that does not run. It goes on when it is resumed.
///
/// # Errors
/// [`RaiseError`] if nothing is raised.
pub fn record_raise(
    state: &State,
    by: &Budget,
    expected: Option<&Budget>,
    now_ms: u64,
) -> Result<Recorded, RaiseError> {
    let mut draft = Draft::of_unloaded(state, now_ms);
    draft.raise(by, expected)?;
    draft.unpause_if_within_limits();
    Ok(draft.into_recorded())
}

/// The facts by which a process that does not run reserves a larger share for the child at this
/// index of a call, so that it may have these limits. No facts if its share is large enough.
///
/// # Errors
/// [`RaiseError`] if the process has too little left.
pub fn record_share(
    state: &State,
    child: (CallId, u32),
    limits: &Budget,
    now_ms: u64,
) -> Result<Recorded, RaiseError> {
    let mut draft = Draft::of_unloaded(state, now_ms);
    draft.raise_share(child, limits)?;
    Ok(draft.into_recorded())
}
