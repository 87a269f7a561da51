//! The files of one process tree, the requests that wait for a decision, and the batch that waits
//! for its commit. This module uses no actor and no store: the actor calls it, commits the changes
//! that it returns, and sends the replies.

use dormouse_content::Content;
use dormouse_kernel::temp_files::{FileParts, TempFileDecision, TempFiles, decide, evolve};
use dormouse_proto::temp_file::{TempFileError, TempFileRecord, TempFileReply};

use super::parts::LoadFilesError;
use super::{TempFileReplySender, TempFileRequest};
use crate::checkpoint::CommitError;

/// The files of a tree. At most one batch waits for its commit.
pub(super) struct TreeFiles {
    /// The durable files; `None` until they have been read.
    files: Option<TempFiles<Content>>,
    waiting_requests: Vec<TempFileRequest>,
    batch: Option<DecidedBatch>,
    /// Whether the processes of the tree have ended.
    has_ended: bool,
}

/// Requests that were decided together and become durable in one commit.
struct DecidedBatch {
    /// The files once the batch is durable.
    files: TempFiles<Content>,
    replies: Vec<PreparedReply>,
}

/// A reply that is sent once the batch is durable.
pub(super) struct PreparedReply {
    pub(super) reply: TempFileReplySender,
    /// A file that was read is given as its parts: the actor joins them, which may block.
    pub(super) result: Result<TempFileReply<FileParts<Content>>, TempFileError>,
}

impl TreeFiles {
    pub(super) fn new(files: Option<TempFiles<Content>>) -> Self {
        Self {
            files,
            waiting_requests: Vec::new(),
            batch: None,
            has_ended: false,
        }
    }

    pub(super) fn push(&mut self, request: TempFileRequest) {
        self.waiting_requests.push(request);
    }

    pub(super) fn set_files(&mut self, files: TempFiles<Content>) {
        self.files = Some(files);
    }

    pub(super) fn mark_ended(&mut self) {
        self.has_ended = true;
    }

    /// Whether the tree has ended and no request is pending.
    pub(super) fn is_done(&self) -> bool {
        self.has_ended && self.batch.is_none() && self.waiting_requests.is_empty()
    }

    /// Decides all waiting requests in order, each on the result of those before it. Returns the
    /// changes, to be made durable together, and then passed to [`finish_batch`](Self::finish_batch).
    /// `None` if no request waits, the files are not read yet, or another batch is not durable yet.
    pub(super) fn decide_waiting(&mut self) -> Option<Vec<TempFileRecord<Content>>> {
        if self.batch.is_some() || self.waiting_requests.is_empty() {
            return None;
        }
        let mut files = self.files.clone()?;
        let mut records = Vec::new();
        let mut replies = Vec::new();
        for TempFileRequest {
            origin,
            op,
            max_bytes,
            reply,
            ..
        } in std::mem::take(&mut self.waiting_requests)
        {
            let decision = decide(&files, origin, op, max_bytes);
            let result = decision.map(|TempFileDecision { record, reply }| {
                record.iter().for_each(|record| evolve(&mut files, record));
                records.extend(record);
                reply
            });
            replies.push(PreparedReply { reply, result });
        }
        self.batch = Some(DecidedBatch { files, replies });
        Some(records)
    }

    /// The replies of a batch. If the batch is not durable, the files stay as they were and every
    /// request fails.
    pub(super) fn finish_batch(&mut self, result: Result<(), CommitError>) -> Vec<PreparedReply> {
        let Some(DecidedBatch { files, replies }) = self.batch.take() else {
            return Vec::new();
        };
        match result {
            Ok(()) => {
                self.files = Some(files);
                replies
            }
            Err(error) => replies
                .into_iter()
                .map(|PreparedReply { reply, .. }| not_durable_reply(reply, &error))
                .collect(),
        }
    }

    /// Fails all waiting requests, because the files cannot be read.
    pub(super) fn fail_waiting(self, error: &LoadFilesError) {
        let reason = format!("The temporary files of this process tree cannot be read: {error}");
        for request in self.waiting_requests {
            let _ = request.reply.send(Err(TempFileError::Unavailable {
                reason: reason.clone(),
            }));
        }
    }
}

fn not_durable_reply(reply: TempFileReplySender, error: &CommitError) -> PreparedReply {
    let reason =
        format!("The temporary files are unchanged: a change could not be made durable: {error}");
    PreparedReply {
        reply,
        result: Err(TempFileError::Unavailable { reason }),
    }
}
