//! The port for tools that run outside of the process machine: functions of the host, and commands.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_content::{CappedBuffer, CappedBytes};
use dormouse_proto::effect::RepeatRule;
use dormouse_proto::tool::{Attachment, Progress, ToolPolicy, ToolSpec};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::sync::Notify;

/// A tool. The kernel checks access, enforces the deadline and the output cap, and catches panics.
pub trait Tool: Send + Sync + 'static {
    /// The name, description and schema that a model sees.
    fn spec(&self) -> ToolSpec;

    /// The access, deadline and output cap of the tool, and whether a call may be repeated.
    fn policy(&self) -> ToolPolicy;

    /// How a repeated call is recognised, and what happens to it, after the process went back to an
    /// earlier point: which arguments may differ, or which ones alone count. By default all
    /// arguments count. A program can say otherwise (`[tools.effects]`).
    fn repeat_rule(&self) -> RepeatRule {
        RepeatRule::default()
    }

    /// Runs the tool once. `args` is JSON text as the model wrote it; the output goes into `out`.
    /// Dropping the future abandons the call, and nothing that the tool started may outlive it.
    ///
    /// # Errors
    /// Why the tool failed. The output so far is kept, followed by this text.
    fn call(&self, args: String, out: OutputSink) -> BoxFuture<'static, Result<(), ToolError>>;
}

/// Why a tool failed, or why its server cannot be reached, as a text for the model: what went wrong
/// and what to try. Any text converts: `Err("the table is locked: try again".into())`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ToolError(String);

impl From<String> for ToolError {
    fn from(message: String) -> Self {
        Self(message)
    }
}

impl From<&str> for ToolError {
    fn from(message: &str) -> Self {
        Self(message.to_owned())
    }
}

impl From<ToolError> for String {
    fn from(error: ToolError) -> Self {
        error.0
    }
}

/// The output of a tool, limited so that an endless tool cannot exhaust memory. Output up to
/// `keep_bytes` is kept; output up to `cap_bytes` is accepted, and what is not kept is counted;
/// output beyond `cap_bytes` is refused and ends the call. Attachments count towards `cap_bytes`
/// only: one that is accepted is kept whole, since a part of an image shows nothing.
#[derive(Clone)]
pub struct OutputSink {
    shared: Arc<SharedSink>,
    observer: Option<SharedObserver>,
}

/// Observes a call for the one who waits for it outside of the kernel: the host, or the MCP client
/// behind `dormouse mcp`. It receives the progress and the raw result of the call, and may add
/// metadata to the request. A closure that takes the progress is an observer.
///
/// What an observer receives is not stored, and no model sees it.
pub trait CallObserver: Send + Sync + 'static {
    /// The tool reports how far it is.
    fn progress(&self, progress: Progress);

    /// Passes on the whole result of a server's tool, as MCP defines it. The bytes of the output
    /// were converted from this result.
    fn server_result(&self, result: Value) {
        drop(result);
    }

    /// Whether [`server_result`](Self::server_result) does anything: otherwise the result is not
    /// copied.
    fn wants_server_result(&self) -> bool {
        false
    }

    /// Metadata of the caller's request, for the server that the tool belongs to.
    fn request_meta(&self) -> Option<Map<String, Value>> {
        None
    }
}

impl<F: Fn(Progress) + Send + Sync + 'static> CallObserver for F {
    fn progress(&self, progress: Progress) {
        self(progress);
    }
}

/// The observer of a call, shared by the tasks that run it.
pub(crate) type SharedObserver = Arc<dyn CallObserver>;

/// The part of a sink that its clones share.
struct SharedSink {
    state: Mutex<SinkState>,
    cap_bytes: u64,
    keep_bytes: u64,
    overflowed: AtomicBool,
    full: Notify,
}

struct SinkState {
    builder: CappedBuffer,
    attached: Vec<Attachment>,
    bytes: u64,
}

/// The output cap is reached: further output is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the output cap of the tool is reached")]
pub struct OutputFull;

impl OutputSink {
    /// A sink that accepts and keeps up to `cap_bytes`.
    #[must_use]
    pub fn with_cap(cap_bytes: u64) -> Self {
        Self::with_limits(cap_bytes, cap_bytes)
    }

    /// A sink that accepts up to `cap_bytes` and keeps the first `keep_bytes`.
    #[must_use]
    pub fn with_limits(keep_bytes: u64, cap_bytes: u64) -> Self {
        let state = Mutex::new(SinkState {
            builder: CappedBuffer::with_cap(keep_bytes),
            attached: Vec::new(),
            bytes: 0,
        });
        let shared = SharedSink {
            state,
            cap_bytes,
            keep_bytes,
            overflowed: AtomicBool::new(false),
            full: Notify::new(),
        };
        Self {
            shared: Arc::new(shared),
            observer: None,
        }
    }

    /// The same sink, with an observer of the call.
    #[must_use]
    pub fn with_observer(self, observer: impl CallObserver) -> Self {
        Self {
            observer: Some(Arc::new(observer)),
            ..self
        }
    }

    /// Reports the progress of the tool to the observer. Progress is not output: no model sees it.
    pub fn report_progress(&self, progress: Progress) {
        if let Some(observer) = &self.observer {
            observer.progress(progress);
        }
    }

    /// Reports the whole result of a server's tool to the observer. `result` is called only if the
    /// observer wants it.
    pub fn report_server_result(&self, result: impl FnOnce() -> Value) {
        if let Some(observer) = self
            .observer
            .as_ref()
            .filter(|observer| observer.wants_server_result())
        {
            observer.server_result(result());
        }
    }

    /// Metadata of the caller's request, for the server that the tool belongs to.
    #[must_use]
    pub fn request_meta(&self) -> Option<Map<String, Value>> {
        self.observer
            .as_ref()
            .and_then(|observer| observer.request_meta())
    }

    /// Adds as much of `bytes` to the output as fits.
    ///
    /// # Errors
    /// [`OutputFull`] if not all of it fitted; the kernel then ends the call.
    pub fn push(&self, bytes: &[u8]) -> Result<(), OutputFull> {
        let mut state = self
            .shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let room = usize::try_from(self.shared.cap_bytes - state.bytes).unwrap_or(usize::MAX);
        let fits = &bytes[..bytes.len().min(room)];
        state.builder.push(fits);
        state.bytes += fits.len() as u64;
        if fits.len() == bytes.len() {
            return Ok(());
        }
        drop(state);
        self.overflow()
    }

    /// Adds an attachment (an image, a document), completely or not at all. Its bytes count towards
    /// `cap_bytes`, and not towards `keep_bytes`.
    ///
    /// # Errors
    /// [`OutputFull`] if it did not fit; the kernel then ends the call.
    pub fn attach(&self, attachment: Attachment) -> Result<(), OutputFull> {
        let mut state = self
            .shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let bytes = state.bytes.saturating_add(attachment.bytes.len() as u64);
        if bytes > self.shared.cap_bytes {
            drop(state);
            return self.overflow();
        }
        state.bytes = bytes;
        state.attached.push(attachment);
        Ok(())
    }

    fn overflow(&self) -> Result<(), OutputFull> {
        self.shared.overflowed.store(true, Ordering::Release);
        self.shared.full.notify_waiters();
        Err(OutputFull)
    }

    /// Whether output was refused because of the cap. A tool may end without noticing it.
    #[must_use]
    pub fn has_overflowed(&self) -> bool {
        self.shared.overflowed.load(Ordering::Acquire)
    }

    /// Resolves once output was refused because of the cap, for every caller.
    pub async fn wait_until_full(&self) {
        // Created before the check, so that an overflow between the two is not missed.
        let overflow = self.shared.full.notified();
        if !self.has_overflowed() {
            overflow.await;
        }
    }

    /// Removes and returns the kept output, with the number of bytes that were accepted but not
    /// kept. Refused bytes are not counted.
    #[must_use]
    pub fn take(&self) -> CappedBytes {
        let mut state = self
            .shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(
            &mut state.builder,
            CappedBuffer::with_cap(self.shared.keep_bytes),
        )
        .finish()
    }

    /// Removes and returns the attachments, in order.
    #[must_use]
    pub fn take_attached(&self) -> Vec<Attachment> {
        std::mem::take(
            &mut self
                .shared
                .state
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .attached,
        )
    }
}

impl fmt::Debug for OutputSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputSink")
            .field("cap_bytes", &self.shared.cap_bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn all_who_wait_for_an_overflow_are_notified() {
        let sink = OutputSink::with_cap(1);
        let waiting = [sink.clone(), sink.clone()]
            .map(|sink| tokio::spawn(async move { sink.wait_until_full().await }));
        tokio::task::yield_now().await;
        assert!(sink.wait_until_full().now_or_never().is_none());
        assert_eq!(sink.push(b"ab"), Err(OutputFull));
        let within = std::time::Duration::from_secs(10);
        for waiter in waiting {
            tokio::time::timeout(within, waiter).await.unwrap().unwrap();
        }
    }

    #[test]
    fn a_sink_keeps_the_output_that_fits_and_reports_overflow() {
        let sink = OutputSink::with_cap(4);
        assert_eq!(sink.push(b"abc"), Ok(()));
        assert!(!sink.has_overflowed());
        assert_eq!(sink.push(b"de"), Err(OutputFull));
        assert_eq!(sink.push(b"f"), Err(OutputFull));
        for caller in ["first", "second"] {
            let full = sink.wait_until_full().now_or_never();
            assert_eq!(full, Some(()), "{caller}");
        }
        assert!(sink.has_overflowed());
        assert_eq!(&sink.take().bytes[..], b"abcd");
    }

    #[test]
    fn an_attachment_counts_towards_the_cap_and_is_added_whole_or_not_at_all() {
        let attachment = |bytes: &'static [u8]| Attachment {
            name: None,
            media_type: "image/png".into(),
            bytes: bytes::Bytes::from_static(bytes),
        };
        let sink = OutputSink::with_cap(6);
        assert_eq!(sink.push(b"ab"), Ok(()));
        assert_eq!(sink.attach(attachment(b"123")), Ok(()));
        assert_eq!(sink.attach(attachment(b"45")), Err(OutputFull));
        assert!(sink.has_overflowed());
        assert_eq!(&sink.take().bytes[..], b"ab");
        assert_eq!(sink.take_attached(), [attachment(b"123")]);
    }

    #[test]
    fn a_sink_counts_output_that_it_does_not_keep() {
        let sink = OutputSink::with_limits(2, 5);
        assert_eq!(sink.push(b"abcd"), Ok(()));
        assert_eq!(sink.push(b"ef"), Err(OutputFull));
        let CappedBytes { bytes, cut_bytes } = sink.take();
        assert_eq!((&bytes[..], cut_bytes), (&b"ab"[..], 3));
    }
}
