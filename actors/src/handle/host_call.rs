//! Host calls: the host calls tools of a process and opens descriptors in its table, outside of the
//! conversation.

use std::future::{Future, ready};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_content::{CappedBuffer, CappedBytes};
use dormouse_kernel::process::{HostRequest, Input};
use dormouse_proto::descriptor::MAX_CONTENT_BYTES;
use dormouse_proto::tool::Answer;
use futures_util::stream::{Stream, StreamExt};

use super::process::Process;
use crate::error::KernelError;
use crate::ports::{CallObserver, SharedObserver};

impl Process {
    /// Calls a tool of the process as its model would, outside of the conversation, and returns
    /// what the model would read. Such calls run concurrently with each other, but not during a
    /// turn of the model.
    ///
    /// # Errors
    /// [`ProcessError::Busy`](crate::ProcessError::Busy),
    /// [`ProcessError::Ended`](crate::ProcessError::Ended). A failure of the tool is not an error
    /// but an [`Answer`].
    pub async fn call(
        &self,
        tool: impl Into<String>,
        args: impl Into<String>,
    ) -> Result<Answer, KernelError> {
        let tool = tool.into();
        let args = args.into();
        self.request_answer(|request_id| Input::Host {
            request_id,
            request: HostRequest::Call { tool, args },
        })
        .await
    }

    /// Like [`call`](Self::call). If `cancelled` resolves first, this call alone is cancelled, and
    /// its answer says so. Up to 64 calls of the host run concurrently for one process. Dropping
    /// the future does not cancel the call.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn call_until(
        &self,
        tool: impl Into<String>,
        args: impl Into<String>,
        cancelled: impl Future<Output = ()>,
    ) -> Result<Answer, KernelError> {
        self.call_with_cancel((tool.into(), args.into()), cancelled, None)
            .await
    }

    /// Like [`call_until`](Self::call_until); `observer` receives what a tool outside of the kernel
    /// reports: its progress, and the whole result of a server.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn call_watched(
        &self,
        tool: impl Into<String>,
        args: impl Into<String>,
        cancelled: impl Future<Output = ()>,
        observer: impl CallObserver,
    ) -> Result<Answer, KernelError> {
        self.call_with_cancel(
            (tool.into(), args.into()),
            cancelled,
            Some(Arc::new(observer)),
        )
        .await
    }

    async fn call_with_cancel(
        &self,
        (tool, args): (String, String),
        cancelled: impl Future<Output = ()>,
        observer: Option<SharedObserver>,
    ) -> Result<Answer, KernelError> {
        let request_id = self.new_request_id();
        let answer_future = self.request_with_id(
            request_id.clone(),
            Input::Host {
                request_id: request_id.clone(),
                request: HostRequest::Call { tool, args },
            },
            observer,
        );
        let mut answer_future = std::pin::pin!(answer_future);
        tokio::select! {
            // `biased`: the call is sent before it can be cancelled.
            biased;
            answer = &mut answer_future => answer,
            () = cancelled => {
                self.send_without_slot(Input::Host { request_id, request: HostRequest::Cancel }).await?;
                answer_future.await
            }
        }
    }

    /// Opens a content as a descriptor of the process. The answer names the descriptor and shows
    /// its first page; `page_chars` overrides the page size of the program. The content is durable
    /// when this returns.
    ///
    /// # Errors
    /// [`ProcessError::Busy`](crate::ProcessError::Busy),
    /// [`ProcessError::Ended`](crate::ProcessError::Ended).
    pub async fn open(
        &self,
        source: impl Into<String>,
        bytes: impl Into<Bytes>,
        page_chars: Option<u32>,
    ) -> Result<Answer, KernelError> {
        self.open_content(
            source.into(),
            CappedBytes {
                bytes: bytes.into(),
                cut_bytes: 0,
            },
            page_chars,
        )
        .await
    }

    /// Opens a file as a descriptor with source `file:PATH`, if the host permits reading it. Bytes
    /// past the `max_content_bytes` of the program are dropped, and the answer reports how many.
    ///
    /// # Errors
    /// [`KernelError::File`], and as [`open`](Self::open).
    pub async fn open_file(
        &self,
        path: impl AsRef<Path>,
        page_chars: Option<u32>,
    ) -> Result<Answer, KernelError> {
        let path = path.as_ref().to_owned();
        let source = format!("file:{}", path.display());
        let host = self.kernel.context.host.clone();
        let collected =
            tokio::task::spawn_blocking(move || host.read_capped(&path, MAX_CONTENT_BYTES));
        let collected = collected.await??;
        self.open_content(source, collected, page_chars).await
    }

    /// Opens the output of a stream as a descriptor, once the stream has ended. Memory use is
    /// limited to the largest permitted content; bytes past that are counted and dropped.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_stream(
        &self,
        source: impl Into<String>,
        chunks: impl Stream<Item = Bytes>,
        page_chars: Option<u32>,
    ) -> Result<Answer, KernelError> {
        let builder = CappedBuffer::with_cap(MAX_CONTENT_BYTES);
        let builder = chunks.fold(builder, |mut builder, chunk| {
            builder.push(&chunk);
            ready(builder)
        });
        self.open_content(source.into(), builder.await.finish(), page_chars)
            .await
    }

    async fn open_content(
        &self,
        source: String,
        capped: CappedBytes,
        page_chars: Option<u32>,
    ) -> Result<Answer, KernelError> {
        self.request_answer(|request_id| Input::Host {
            request_id,
            request: HostRequest::Open {
                capped,
                source,
                page_chars,
            },
        })
        .await
    }
}
