//! Explorations: the tool `explore`, a fork of speculative children (`speculation.rs`).
//!
//! A child that would act outside of itself ends instead, and its last message proposes the calls.
//! The first child that is done and passes the *judge*, a schema, wins, and its last message is the
//! answer. Without a judge, a child that is done ends the others. `children.rs` starts the children
//! and collects their ends.

use dormouse_program::ValueSchema;
use dormouse_proto::id::CallId;
use dormouse_proto::process::ExitStatus;
use dormouse_proto::record::Speculation;
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;

use super::decide::Draft;
use super::{Effect, PlacedExit};
use crate::tool::{ProcessHandler, Refusal};

impl Draft {
    /// Continues as several speculative children.
    pub(super) fn explore(
        &mut self,
        call: CallId,
        parse_prompts: fn(&str, u32) -> Result<Vec<String>, Refusal>,
        parse_judge: fn(&str) -> Result<Option<ValueSchema>, Refusal>,
    ) {
        if let Err(refusal) = parse_judge(&self.pending_call(call).args) {
            return self.answer_in_full(call, refusal.into());
        }
        self.fork_as(call, parse_prompts, Speculation::Child);
        // After a restart, the other children of an exploration that already has a winner are ended
        // here.
        self.end_children_that_lost(call);
    }

    /// Ends the other children of an exploration without a judge once one of them is done.
    pub(super) fn end_children_that_lost(&mut self, call: CallId) {
        let Some(pending_call) = self.state.call_in_flight(call) else {
            return;
        };
        let Some(ProcessHandler::Explore { judge, .. }) = self.process_handler_of(pending_call)
        else {
            return;
        };
        let has_judge = !matches!(judge(&pending_call.args), Ok(None));
        let mut ended = pending_call.ended_children.values();
        let has_winner = ended.any(|(_, exit)| exit.status == ExitStatus::Done);
        if has_winner && !has_judge && self.state.budget.has_shares(call) {
            self.schedule(Effect::KillChildren { call });
        }
    }

    /// Answers an exploration with the last message of its winner, the first child that passes, and
    /// with the beginnings of the others. The call fails if no child passes.
    pub(super) fn answer_exploration(&mut self, call: CallId, ended: Vec<PlacedExit>) {
        let winner = ended
            .iter()
            .find(|exit| exit.why_it_loses.is_none())
            .map(|exit| exit.index);
        let mut produced = 0;
        let mut results = Element::new("explore_result")
            .attribute("children", ended.len())
            .attribute_if("winner", winner.map(|index| index + 1));
        for exit in ended {
            let element = Element::new("child")
                .attribute("index", exit.index + 1)
                .attribute("pid", exit.child)
                .attribute("status", exit.status.word());
            results = results.child(if Some(exit.index) == winner {
                produced = exit.placement.produced_chars();
                self.fill_element(element, exit.placement)
            } else {
                let lost = exit.why_it_loses.as_deref().unwrap_or("another child won");
                element.attribute("lost", lost).text(exit.beginning)
            });
        }
        let answer = Answer {
            is_error: winner.is_none(),
            ..Answer::shown(results)
        };
        self.answer_call(call, answer, produced);
    }
}
