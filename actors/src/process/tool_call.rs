//! Runs one tool call with its deadline and output cap, and catches panics. The process gets an
//! answer in every case.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use dormouse_content::CappedBytes;
use dormouse_proto::tool::{ToolOutput, ToolPolicy};
use futures_util::future::BoxFuture;
use tokio::task::{JoinError, JoinSet};
use tracing::Instrument;

use crate::ports::{OutputSink, ToolError};

/// The call of a tool, given the sink for its output.
pub(crate) type ToolRun =
    Box<dyn FnOnce(OutputSink) -> BoxFuture<'static, Result<(), ToolError>> + Send>;

/// Runs the tool `name` once under `policy`; its output goes into `sink`. The tool runs in a task
/// that is aborted when the returned future is dropped.
pub(crate) async fn run(
    name: Arc<str>,
    policy: ToolPolicy,
    tool_run: ToolRun,
    sink: OutputSink,
) -> ToolOutput {
    let mut task = JoinSet::new();
    let out = sink.clone();
    task.spawn(async move { tool_run(out).await }.in_current_span());
    let result = tokio::select! {
        result = task.join_next() => match result {
            Some(Ok(result)) => result,
            Some(Err(error)) => Err(task_error(&name, error)),
            None => Ok(()),
        },
        () = sink.wait_until_full() => Ok(()),
        () = tokio::time::sleep(Duration::from_millis(policy.deadline_ms)) => Err(format!(
            "{name} was stopped: it did not finish within {} ms.",
            policy.deadline_ms
        )
        .into()),
    };
    // A tool may return successfully although its output did not fit. Truncated output is never
    // shown as complete.
    let result = match result {
        Ok(()) if sink.has_overflowed() => Err(format!(
            "{name} was stopped: its output reached the limit of {} bytes. The text above is \
             its beginning.",
            policy.output_cap_bytes
        )
        .into()),
        result => result,
    };
    build_output(&sink, result)
}

fn task_error(name: &str, error: JoinError) -> ToolError {
    let Ok(panic) = error.try_into_panic() else {
        return format!("{name} was cancelled.").into();
    };
    format!("{name} failed internally: {}", panic_text(&*panic)).into()
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or_default();
    format!("it panicked. {text}")
}

/// The output of the tool, followed by the failure if there is one.
fn build_output(sink: &OutputSink, result: Result<(), ToolError>) -> ToolOutput {
    let CappedBytes { bytes, cut_bytes } = sink.take();
    let output = match result {
        Ok(()) => ToolOutput::ok(bytes),
        Err(error) if bytes.is_empty() => ToolOutput::error(String::from(error)),
        Err(error) => {
            // The buffer usually has no other owner, so the reason is appended without a copy.
            let mut bytes = bytes
                .try_into_mut()
                .unwrap_or_else(|shared| BytesMut::from(&shared[..]));
            bytes.extend_from_slice(b"\n\n");
            bytes.extend_from_slice(String::from(error).as_bytes());
            ToolOutput {
                is_error: true,
                ..ToolOutput::ok(bytes.freeze())
            }
        }
    };
    ToolOutput {
        cut_bytes,
        attached: sink.take_attached(),
        ..output
    }
}
