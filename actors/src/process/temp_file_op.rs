//! Asks the temporary files actor for the operations of a process.

use dormouse_content::Content;
use dormouse_kernel::process::Completion;
use dormouse_kernel::syscall::PendingTempFile;
use dormouse_proto::id::CallId;
use dormouse_proto::temp_file::{TempFileError, TempFileOp, TempFileOrigin, TempFileReply};
use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::oneshot;

use super::RunningProcess;
use super::effects::in_tool_span;
use crate::temp_files::{self, TempFilesMessage};

/// The result of an operation on the temporary files of the tree.
pub(super) type TempFileResult = Result<TempFileReply<Content>, TempFileError>;

impl RunningProcess {
    /// Starts an operation on a temporary file. The request is sent at once, so that operations of
    /// one reply keep their order; only the answer is awaited in a task.
    pub(super) fn start_temp_file_op(&mut self, call: CallId, pending: PendingTempFile) {
        let work = self.request_temp_file(call, pending.op.clone(), pending.max_bytes);
        let work = in_tool_span(self.tool_span(call), work, Result::is_err);
        self.spawn_work(
            work,
            call,
            move |result| Completion::TempFile { pending, result },
            temp_files_failed,
        );
    }

    /// Sends a request to the temporary files actor at once; the returned future waits for the
    /// answer.
    pub(super) fn request_temp_file(
        &self,
        call: CallId,
        op: TempFileOp<Content>,
        max_bytes: u64,
    ) -> BoxFuture<'static, TempFileResult> {
        let (reply, answer) = oneshot::channel();
        // The local id, not the pid: a branch keeps it, so that the temporary files recognize a
        // call from before the cut.
        let origin = TempFileOrigin {
            pid: self.state.pid(),
            call,
        };
        let request = temp_files::TempFileRequest {
            root: self.root,
            origin,
            op,
            max_bytes,
            reply,
        };
        // If the actor has stopped, the reply channel is dropped with the request.
        let _ = self
            .context
            .temp_files
            .cast(TempFilesMessage::Request(request));
        async move {
            answer
                .await
                .unwrap_or_else(|_| temp_files_failed("they gave no answer".to_owned()))
        }
        .boxed()
    }
}

/// The result of an operation without an answer. The operation may have been executed, and the text
/// says so.
fn temp_files_failed(why: String) -> TempFileResult {
    let reason = format!(
        "The temporary files failed internally: {why}. Whether this was done is unknown: read, then \
         decide."
    );
    Err(TempFileError::Unavailable { reason })
}
