//! Automatic summaries: a model summarizes each new descriptor over a size, while the turn goes on.
//!
//! The prompt is that of the tool `summarize_fd`, and a summary becomes the same note. Nothing
//! waits for it, and what was sent to the model stays as it is: the summary is shown from then on
//! wherever the descriptor is listed or read. A summary that is not finished when the process
//! leaves memory is not made.

use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::descriptor::view::Encoding;
use dormouse_proto::id::FdId;
use dormouse_proto::model::{ModelError, Reply};
use dormouse_proto::record::DescriptorFact;

use super::Effect;
use super::arrival::Arrival;
use super::decide::Draft;
use crate::table::Table;
use crate::table::placement::Placer;
use crate::tool::{Call, Handler, Outcome, PendingSummary, Summarized, Syscall};

/// The tool that builds the prompt of a summary.
const SUMMARY_TOOL: &str = "summarize_fd";

/// A new descriptor whose text has to be read for its summary.
#[derive(Clone, Debug)]
pub(super) struct NewSummary {
    fd: FdId,
    table: Table,
    more_than_chars: u64,
    summarize: Syscall,
}

impl NewSummary {
    /// Reads the content. `None` if it needs no summary: it is short or binary, or cannot be read.
    pub(super) fn read(&self, placer: &Placer<'_>) -> Option<PendingSummary> {
        let args = serde_json::json!({ "fd": self.fd.to_string() }).to_string();
        let call = Call {
            table: &self.table,
            args: &args,
            settings: placer.settings?,
            now_ms: placer.now_ms,
            quota: placer.quota,
        };
        match (self.summarize)(&call) {
            Outcome::Summarize(pending) => Some(pending).filter(|pending| {
                pending.extent.total_chars > self.more_than_chars
                    && pending.extent.encoding == Encoding::Text
            }),
            _ => None,
        }
    }
}

impl Draft {
    /// Requests the text of a descriptor that was just opened, if the program wants a summary of
    /// it.
    pub(super) fn request_auto_summary(&mut self, fd: &FdId) {
        let settings = self.state.settings().copied();
        let Some(new_summary) = settings.and_then(|settings| self.new_summary(fd, &settings))
        else {
            return;
        };
        self.request_arrival_placement(Arrival::Summary(new_summary));
    }

    /// Requests the texts of the descriptors that came with the message that opened the process again.
    /// They were opened by facts that were committed while the process did not run, so that no read
    /// was performed.
    pub(super) fn request_summaries_of_reopening(&mut self) {
        for fd in self.state.pending_reads.take_reopened_with() {
            self.request_auto_summary(&fd);
        }
    }

    fn new_summary(&self, fd: &FdId, settings: &DescriptorSettings) -> Option<NewSummary> {
        let more_than_chars = settings.auto_summary_chars?;
        let entry = self.state.table.get(fd)?;
        // A text has at least as many bytes as characters. References are the model's own words.
        let is_new = entry.notes.summary.is_none() && matches!(fd, FdId::Fd(_));
        if !is_new || entry.content.len_bytes() <= more_than_chars {
            return None;
        }
        match self.state.host.kernel_tools.find(SUMMARY_TOOL)?.handler {
            Handler::Table(summarize) => Some(NewSummary {
                fd: fd.clone(),
                table: self.state.table.clone(),
                more_than_chars,
                summarize,
            }),
            Handler::Process(_) => None,
        }
    }

    /// Asks the model for the summary, unless the process is stopped or its budget is used up.
    pub(super) fn start_auto_summary(&mut self, pending: PendingSummary) {
        if self.state.is_stopped() || self.find_summary_refusal().is_some() {
            return;
        }
        let model = self.state.summarizer();
        let request = self.state.summary_request(&model, &pending);
        self.state.pending_reads.add_summary();
        self.schedule(Effect::Summarize {
            pending,
            request,
            model,
        });
    }

    /// Keeps the summary with its descriptor. A compaction requests its summary by the same effect,
    /// and takes the reply first (`compaction.rs`). The usage is charged in any case: the reply may
    /// be unusable, and the descriptor may have got a summary meanwhile or be gone since the
    /// process was restored.
    pub(super) fn handle_auto_summary(
        &mut self,
        pending: PendingSummary,
        result: Result<Reply, ModelError>,
    ) {
        self.state.pending_reads.finish_summary();
        let model = self.state.summarizer().name;
        let result = result.map(|reply| Reply {
            usage: self.state.usage_with_cost(&model, &reply),
            ..reply
        });
        let Some((pending, result)) = self.finish_summarized_compaction(pending, result) else {
            return;
        };
        let usage = result.as_ref().map(|reply| reply.usage).unwrap_or_default();
        let Summarized { note, .. } = pending.into_summarized(result);
        // A late summary of a compaction that was given up names a history, which gets no note.
        let is_wanted = |id: &FdId| {
            let entry = self.state.table.get(id);
            matches!(id, FdId::Fd(_)) && entry.is_some_and(|entry| entry.notes.summary.is_none())
        };
        match note.filter(|(id, _)| is_wanted(id)) {
            Some((id, note)) => self.emit(DescriptorFact::Annotated { id, note }),
            // No call of the process has this number yet, so it stands for none.
            None => self.record_usage(self.state.next_call(), usage),
        }
    }
}
