//! ModelRequest a model: permits, attempts, the deadline, and the stream of deltas to whoever watches.
//!
//! A permit is held while an attempt lasts, never while a call backs off. A provider that says how
//! long it wants to be left alone is left alone by everybody; where it says nothing, only the call
//! that failed backs off.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use dormouse_content::Content;
use dormouse_kernel::permits::Requester;
use dormouse_kernel::program::{ModelChoice, Program};
use dormouse_proto::id::{FdId, Pid};
use dormouse_proto::model::{Delta, ModelError, ModelErrorKind, Reply, Request};

use super::StartedSignal;
use crate::context::KernelContext;
use crate::event::Event;
use crate::permits::Queue;
use crate::ports::Model;

const FIRST_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(60);
/// A provider that asks for more patience than this is given up.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(900);

/// Who is told of a reply while it comes in.
#[derive(Clone, Debug)]
pub(super) enum DeltaSink {
    /// Whoever watches the process, and the signal that something has come.
    Publish(Option<StartedSignal>),
    /// Nobody: it is no part of the conversation.
    Discard,
}

/// A call that is to be made, and for whom.
pub(super) struct ModelRequest {
    pub(super) context: Arc<KernelContext>,
    pub(super) program: Program,
    pub(super) model: ModelChoice,
    pub(super) requester: Requester,
    pub(super) request: Request,
    /// What the request shows, yet to be read.
    pub(super) media: BTreeMap<FdId, Content>,
    pub(super) deltas: DeltaSink,
}

/// Asks until there is a reply, an error that no further attempt can mend, or no attempt left.
pub(super) async fn call_model(call: ModelRequest) -> Result<Reply, ModelError> {
    let ModelRequest {
        context,
        program,
        model: choice,
        requester,
        mut request,
        media,
        deltas,
    } = call;
    request.media = context.read_pool.bytes(media).await;
    let model = context.model(&program, &choice)?;
    let queue = context
        .model_permits
        .queue(choice.provider.word(), choice.base_url.as_deref());
    let attempts = choice.failures.unwrap_or(context.limits.model_attempts);
    let mut delays = delays();
    let mut attempt = 1;
    loop {
        let permit = queue.acquire(requester).await;
        let end = attempt_call(&context, &*model, request.clone(), &deltas).await;
        // Before the permit is given back, so that it goes to nobody in between.
        end.as_ref()
            .err()
            .into_iter()
            .for_each(|error| pause_if_asked(&queue, error));
        drop(permit);
        match end {
            Err(error) if attempt < attempts && may_repeat(&error) => {
                back_off(&context, request.pid, delays.next(), &error).await;
                attempt += 1;
            }
            end => return end,
        }
    }
}

fn may_repeat(error: &ModelError) -> bool {
    error.is_transient() && error.retry_after.is_none_or(|hint| hint <= MAX_RETRY_AFTER)
}

/// Pauses the provider's queue for as long as the provider asks for, whatever becomes of the call
/// that was told.
fn pause_if_asked(queue: &Arc<Queue>, error: &ModelError) {
    if let (ModelErrorKind::Overloaded, Some(hint)) = (
        error.kind,
        requested_delay(error).filter(|hint| *hint <= MAX_RETRY_AFTER),
    ) {
        queue.pause(hint);
    }
}

/// One attempt.
async fn attempt_call(
    context: &KernelContext,
    model: &dyn Model,
    request: Request,
    deltas: &DeltaSink,
) -> Result<Reply, ModelError> {
    let pid = request.pid;
    let on_delta = move |delta| {
        let DeltaSink::Publish(started) = deltas else {
            return;
        };
        started.iter().for_each(StartedSignal::notify);
        if let Some(event) = delta_event(pid, delta) {
            context.publish(event);
        }
    };
    let deadline = context.limits.model_deadline;
    tokio::time::timeout(deadline, model.call(request, &on_delta))
        .await
        .unwrap_or_else(|_| {
            let message = format!("no reply within {} s", deadline.as_secs());
            Err(ModelError::new(ModelErrorKind::Deadline, message))
        })
}

fn delta_event(pid: Pid, delta: Delta) -> Option<Event> {
    match delta {
        Delta::Text(text) => Some(Event::Text { pid, text }),
        Delta::Thinking(text) => Some(Event::Thinking { pid, text }),
        Delta::ToolUse(_) => None,
    }
}

async fn back_off(
    context: &KernelContext,
    pid: Pid,
    backoff: Option<Duration>,
    error: &ModelError,
) {
    let delay = retry_delay(backoff, error);
    context.publish(Event::Retrying {
        pid,
        reason: error.to_string(),
        delay_ms: delay.as_millis() as u64,
    });
    tokio::time::sleep(delay).await;
}

/// What the provider asks for, else what comes next by itself.
fn retry_delay(backoff: Option<Duration>, error: &ModelError) -> Duration {
    requested_delay(error).or(backoff).unwrap_or(MAX_DELAY)
}

/// What the provider asks for. No wait at all (a date that has passed) is no hint: attempts would
/// be spent in an instant.
fn requested_delay(error: &ModelError) -> Option<Duration> {
    error.retry_after.filter(|hint| !hint.is_zero())
}

/// Waits that double, each spread by chance over as much again, so that processes do not come back
/// in step.
fn delays() -> ExponentialBackoff {
    let delays = ExponentialBuilder::new()
        .with_min_delay(FIRST_DELAY)
        .with_max_delay(MAX_DELAY);
    delays.without_max_times().with_jitter().build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_obeyed_unless_it_is_to_wait_for_nothing() {
        let delay = |retry_after| {
            let error = ModelError {
                retry_after,
                ..ModelError::new(ModelErrorKind::Overloaded, "")
            };
            retry_delay(delays().next(), &error)
        };
        assert_eq!(
            delay(Some(Duration::from_millis(1))),
            Duration::from_millis(1)
        );
        for none in [None, Some(Duration::ZERO)] {
            assert!(
                delay(none) >= FIRST_DELAY && delay(none) <= FIRST_DELAY * 2,
                "{:?}",
                delay(none)
            );
        }
    }

    #[test]
    fn waits_grow_to_a_bound_and_do_not_end() {
        let delays: Vec<_> = delays().take(200).collect();
        assert_eq!(delays.len(), 200);
        assert!(
            delays[3] > delays[0] && delays.iter().all(|delay| *delay <= 2 * MAX_DELAY),
            "{delays:?}"
        );
    }
}
