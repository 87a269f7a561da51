//! Running one tool: its deadline, its output cap, its panics. Whatever a tool does, the process
//! gets an answer.

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

/// What runs once, and where its output goes.
pub(crate) type ToolRun =
    Box<dyn FnOnce(OutputSink) -> BoxFuture<'static, Result<(), ToolError>> + Send>;

/// Runs the tool that is called `name` once, as `policy` says; its output goes into `sink`.
/// Dropping the future abandons the tool: it runs in a task that ends with it.
pub(crate) async fn run(
    name: Arc<str>,
    policy: ToolPolicy,
    run: ToolRun,
    sink: OutputSink,
) -> ToolOutput {
    let mut task = JoinSet::new();
    let out = sink.clone();
    task.spawn(async move { run(out).await }.in_current_span());
    let end = tokio::select! {
        end = task.join_next() => match end {
            Some(Ok(end)) => end.map_err(String::from),
            Some(Err(error)) => Err(task_error(&name, error)),
            None => Ok(()),
        },
        () = sink.full() => Ok(()),
        () = tokio::time::sleep(Duration::from_millis(policy.deadline_ms)) => Err(format!(
            "{name} was stopped: it did not finish within {} ms.",
            policy.deadline_ms
        )),
    };
    // A tool that ended by itself may have overlooked that its output did not fit: what is cut is
    // never shown as whole.
    let truncated = || {
        let limit = policy.output_cap_bytes;
        format!(
            "{name} was stopped: its output reached the limit of {limit} bytes. What stands above \
             is its beginning."
        )
    };
    output(
        &sink,
        end.and_then(|()| {
            if sink.has_overflowed() {
                Err(truncated())
            } else {
                Ok(())
            }
        }),
    )
}

fn task_error(name: &str, error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return format!("{name} was cancelled.");
    };
    format!("{name} failed inside: {}", panic_text(&*panic))
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or_default();
    format!("it panicked. {text}")
}

/// What the tool wrote, and behind it what went wrong.
fn output(sink: &OutputSink, end: Result<(), String>) -> ToolOutput {
    let CappedBytes { bytes, cut_bytes } = sink.take();
    let output = match end {
        Ok(()) => ToolOutput::ok(bytes),
        Err(reason) if bytes.is_empty() => ToolOutput::error(reason),
        Err(reason) => {
            // What was written is nobody else's, so that the reason is put behind it and no copy is
            // made.
            let mut bytes = bytes
                .try_into_mut()
                .unwrap_or_else(|shared| BytesMut::from(&shared[..]));
            bytes.extend_from_slice(b"\n\n");
            bytes.extend_from_slice(reason.as_bytes());
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
