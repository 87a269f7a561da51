//! Decisions of a process whose tree has labels: before each one it is looked whether the budget of a
//! label is used up, by any tree. If so, the process is suspended first, so that nothing begins.
//!
//! What a decision used is counted before it is accepted. If that uses a budget up and the decision
//! begins something, it is made again in the suspended process: so no model call follows the reply
//! that used it up (LABEL-1). A decision is pure, and can be made twice.

use dormouse_kernel::labels::{ExhaustedLabel, LabelChange};
use dormouse_kernel::process::{Decision, Input, Signal, decide};
use dormouse_proto::model::Usage;

use super::{Delivery, RunningProcess, read};
use crate::checkpoint::LogRecord;
use crate::supervisor::WakeMessage;

impl RunningProcess {
    /// Whether the process has to stay suspended, and ignores the end of a suspension.
    pub(super) fn is_kept_suspended(&mut self, input: &Input) -> bool {
        if !matches!(input, Input::Signal(Signal::Release)) {
            return false;
        }
        let exhausted = self.exhausted_label();
        let is_kept = exhausted.is_some();
        if let Some(exhausted) = exhausted {
            self.report_hold(exhausted);
        }
        is_kept
    }

    /// Decides on an input. Returns what has to be recorded for the labels of the tree as well.
    pub(super) fn decide(&mut self, input: Input, now_ms: u64) -> (Decision, Option<LogRecord>) {
        let decide = |process: &Self, input| {
            decide(&process.state, input, now_ms).read_inline(read::INLINE_BYTES, now_ms)
        };
        if self.labels.is_empty() {
            return (decide(self, input), None);
        }
        self.suspend_if_exhausted(&input);
        let decision = decide(self, input.clone());
        let usage = decision.state.usage().saturating_sub(self.state.usage());
        if usage == Usage::default() {
            return (decision, None);
        }
        self.context.labels.charge(&self.labels, usage);
        // The end of a turn is no beginning: its reply is not kept back.
        let decision = match decision.begins_work() && self.suspend_if_exhausted(&input) {
            true => decide(self, input),
            false => decision,
        };
        let labels = self.labels.clone();
        let used = LabelChange::Used { labels, usage };
        (decision, Some(LogRecord::Label(used)))
    }

    /// Suspends the process if a label of its tree is used up. Returns whether it did.
    fn suspend_if_exhausted(&mut self, input: &Input) -> bool {
        let is_suspension = matches!(input, Input::Signal(Signal::Suspend));
        if is_suspension || self.state.is_suspended() || self.state.exit().is_some() {
            return false;
        }
        let Some(exhausted) = self.exhausted_label() else {
            return false;
        };
        self.handle_input(Delivery::internal(Input::Signal(Signal::Suspend)));
        self.report_hold(exhausted);
        true
    }

    fn exhausted_label(&self) -> Option<ExhaustedLabel> {
        self.context.labels.exhausted(&self.labels)
    }

    fn report_hold(&self, exhausted: ExhaustedLabel) {
        let pid = self.pid();
        self.cast_to_supervisor(WakeMessage::HeldByLabel { pid, exhausted });
    }
}
