//! Compaction: when the conversation fills the context of the model, its older messages become a
//! descriptor `history:N`, and a summary takes their place.
//!
//! A compaction is requested before a model call if the last request was near the window
//! (`[context] compact_at`), and when the provider says that the conversation is too long. A read
//! makes its contents (`compaction/draft.rs`), and the summary model is asked if the program wants
//! that. Then one fact, [`Fact::Compacted`], changes the conversation, and the model is called.
//! Nothing is stored before that fact: after a crash, an interrupt or a stop, the compaction is
//! requested again where the turn continues.
//!
//! `cut.rs` decides which messages stay. A [`CompactionDraft`] holds what is to be recorded; it is
//! not the [`Draft`] of a decision, and is given up if the epoch rises.
//!
//! COMPACT-1: nothing is lost. The descriptor has the text of every message, and a second content
//! has the messages themselves, so that `goto` still reaches them. Both are contents, which a
//! journal holds once and its images name.

mod cut;
mod draft;

use dormouse_proto::compaction::SummaryAuthor;
use dormouse_proto::descriptor::HintableTools;
use dormouse_proto::message::{Role, text_of};
use dormouse_proto::model::{ModelError, Reply, Usage};
use dormouse_proto::process::ExitStatus;
use dormouse_proto::program::SummaryMethod;

use self::cut::Urgency;
pub use self::draft::CompactionDraft;
pub(super) use self::draft::CompactionRead;
use super::arrival::Arrival;
use super::decide::Draft;
use super::{Effect, Fact, State};
use crate::tool::PendingSummary;
use dormouse_proto::text::truncate;

/// Why a conversation is compacted.
#[derive(Clone, Debug)]
pub(super) enum CompactionCause {
    /// The last request was near the window. If nothing can be compacted, the model is called.
    Threshold,
    /// The provider refused the conversation. If nothing can be compacted, the call has failed, and
    /// the next model of the program is called.
    Refused(ModelError),
    /// The provider cut the reply since the context was full. If nothing can be compacted, the turn
    /// ends.
    CutReply,
}

/// A compaction that the process waits for. It is not stored.
#[derive(Clone, Debug)]
pub(super) struct RunningCompaction {
    /// Epoch in which it was requested; in a later one it is given up.
    epoch: u32,
    cause: CompactionCause,
    /// What is to be done once the summary model has replied.
    summarizing: Option<(PendingSummary, Box<CompactionDraft>)>,
}

impl State {
    /// Whether the process waits for a compaction.
    pub(super) fn is_compacting(&self) -> bool {
        let compaction = self.pending_reads.compaction();
        compaction.is_some_and(|compaction| compaction.epoch == self.epoch)
    }

    /// Whether the conversation is to be compacted before the next model call. A reply that the
    /// provider paused is continued first, since it must be sent back as it is.
    pub(super) fn is_compaction_due(&self) -> bool {
        let threshold = self.program.context().compaction_threshold();
        threshold.is_some_and(|threshold| self.request_tokens > threshold)
            && !self
                .messages
                .last()
                .is_some_and(|last| last.role == Role::Assistant)
    }
}

impl Draft {
    /// Requests the contents of a compaction of the conversation.
    pub(super) fn request_compaction(&mut self, cause: CompactionCause) {
        let epoch = self.state.epoch;
        let urgency = match &cause {
            CompactionCause::Threshold => Urgency::Early,
            // Before the newest messages are compacted, another model is tried.
            CompactionCause::Refused(error) if self.next_fallback_model(error).is_some() => {
                Urgency::Early
            }
            CompactionCause::Refused(_) => Urgency::Needed,
            CompactionCause::CutReply => Urgency::NeededAfterReply,
        };
        self.state.pending_reads.set_compaction(RunningCompaction {
            epoch,
            cause,
            summarizing: None,
        });
        let state = &self.state;
        let settings = state.settings();
        let read = CompactionRead {
            epoch,
            urgency,
            context: state.program.context(),
            messages: state.messages.clone(),
            compacted: state.last_compacted(),
            earlier: state
                .compacted
                .front()
                .zip(state.compacted.back())
                .map(|(first, last)| (first.history, last.history)),
            history: state.table.last_history().saturating_add(1),
            forked_at: state.forked_at.clone(),
            model: state.model,
            page_chars: settings.map(|settings| settings.page_chars),
            tools: settings.map_or(HintableTools::of([]), |settings| settings.hintable_tools),
        };
        self.request_arrival_placement(Arrival::Compaction(read));
    }

    /// Continues a compaction whose contents are made: asks the summary model, or finishes it with
    /// excerpts. The draft of a compaction that was given up is dropped.
    pub(super) fn handle_compaction_draft(
        &mut self,
        epoch: u32,
        draft: Option<Box<CompactionDraft>>,
    ) {
        if !self.state.is_compacting() || epoch != self.state.epoch {
            return;
        }
        let Some(draft) = draft else {
            return self.give_compaction_up();
        };
        let wants_model = self.state.program.context().summary == SummaryMethod::Model;
        if !wants_model || self.state.is_stopped() || self.find_summary_refusal().is_some() {
            return self.finish_compaction(*draft, None);
        }
        let pending = draft.pending_summary();
        let model = self.state.summarizer();
        let request = self.state.summary_request(&model, &pending);
        self.state.pending_reads.add_summary();
        if let Some(running) = self.state.pending_reads.take_compaction() {
            self.state.pending_reads.set_compaction(RunningCompaction {
                summarizing: Some((pending.clone(), draft)),
                ..running
            });
        }
        self.schedule(Effect::Summarize {
            pending,
            request,
            model,
        });
    }

    /// Finishes the compaction that waits for this summary. A summary that no compaction waits for
    /// is returned.
    pub(super) fn finish_summarized_compaction(
        &mut self,
        pending: PendingSummary,
        result: Result<Reply, ModelError>,
    ) -> Option<(PendingSummary, Result<Reply, ModelError>)> {
        let running = self.state.pending_reads.compaction();
        let waits = running
            .and_then(|running| running.summarizing.as_ref())
            .is_some_and(|(expected, _)| *expected == pending);
        if !waits || !self.state.is_compacting() {
            return Some((pending, result));
        }
        let running = self.state.pending_reads.take_compaction();
        if let Some((_, draft)) = running.and_then(|running| running.summarizing) {
            self.finish_compaction(*draft, result.ok());
        }
        None
    }

    /// Records a compaction and calls the model. `reply` is that of the summary model.
    fn finish_compaction(&mut self, draft: CompactionDraft, reply: Option<Reply>) {
        self.state.pending_reads.take_compaction();
        let usage = reply.as_ref().map_or(Usage::default(), |reply| reply.usage);
        let max_chars = self.state.program.context().max_summary_chars as usize;
        let text = reply.map(|reply| truncate(text_of(&reply.blocks).trim(), max_chars));
        let summary = match text.filter(|text| !text.is_empty()) {
            Some(text) => draft.summary_message(&text, SummaryAuthor::Model),
            None => draft.summary_message(&draft.excerpts, SummaryAuthor::Kernel),
        };
        let CompactionDraft {
            compacted,
            entry,
            kept,
            ..
        } = draft;
        self.emit(Fact::Compacted {
            compacted,
            entry: Box::new(entry),
            summary: summary.into(),
            kept,
            usage,
        });
        self.call_model_without_warning();
    }

    /// Continues after a compaction that has nothing to compact.
    fn give_compaction_up(&mut self) {
        let Some(running) = self.state.pending_reads.take_compaction() else {
            return;
        };
        const NOTHING_LEFT: &str = "nothing more of the conversation can be compacted";
        match running.cause {
            CompactionCause::Threshold if self.state.is_stopped() => {}
            CompactionCause::Threshold => self.start_model_call_at_once(),
            CompactionCause::Refused(error) => {
                self.handle_model_failure(&error, format!("{error}; {NOTHING_LEFT}"));
            }
            CompactionCause::CutReply => self.end_turn(
                ExitStatus::ModelFailed,
                format!("the conversation is too long for the model; {NOTHING_LEFT}"),
            ),
        }
    }
}
