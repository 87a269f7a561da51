//! Model calls: permits, attempts, the deadline, and the stream of deltas.
//!
//! A call holds a permit during an attempt and never while it backs off. If an overloaded
//! provider names a delay of at most [`MAX_RETRY_AFTER`], the queue of the provider pauses for all
//! calls; otherwise only the failed call backs off.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use dormouse_content::Content;
use dormouse_kernel::permits::{Requester, TokenDemand};
use dormouse_kernel::program::{ModelChoice, Program};
use dormouse_proto::id::{FdId, Pid};
use dormouse_proto::message::Block;
use dormouse_proto::model::{Delta, ModelError, ModelErrorKind, Reply, Request};
use dormouse_proto::server_tool::{ServerBlock, server_blocks, server_summaries};

use super::StartedSignal;
use crate::context::KernelContext;
use crate::event::Event;
use crate::permits::PermitQueue;

/// The delay before the second attempt, without jitter.
const FIRST_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(60);
/// A call is not repeated if the provider asks for a longer delay.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(900);

/// Where the deltas of a reply go.
#[derive(Clone, Debug)]
pub(super) enum DeltaSink {
    /// Deltas are published as events, and the first one notifies the signal.
    Publish(Option<StartedSignal>),
    /// Deltas are discarded: the reply is not part of the conversation.
    Discard,
}

/// A model call with everything it needs. It is boxed: the future of a call would hold it twice.
pub(super) struct ModelRequest {
    pub(super) context: Arc<KernelContext>,
    pub(super) program: Program,
    pub(super) model: ModelChoice,
    pub(super) requester: Requester,
    pub(super) request: Request,
    /// Attachments of the request. Their bytes are read before the first attempt.
    pub(super) media: BTreeMap<FdId, Content>,
    pub(super) delta_sink: DeltaSink,
}

/// Repeats the call until the model replies, an error occurs that a retry cannot fix, or no attempt
/// is left.
pub(super) async fn call_model(mut call: Box<ModelRequest>) -> Result<Reply, ModelError> {
    let media = std::mem::take(&mut call.media);
    call.request.media = call.context.read_pool.read_bytes(media).await;
    let ModelRequest {
        context,
        program,
        model: choice,
        requester,
        request,
        delta_sink,
        ..
    } = &*call;
    let model = context.model(program, choice)?;
    let queue = context.model_permits.queue(
        choice.provider.word(),
        choice.base_url.as_deref(),
        choice.api_key_env.as_deref(),
    );
    let demand = choice.tokens_per_minute.map(|per_minute| TokenDemand {
        tokens: request.estimated_tokens(),
        per_minute,
    });
    let max_attempts = choice.failures.unwrap_or(context.limits.model_attempts);
    let deadline = context.model_deadline(choice);
    let mut delays = backoff_delays();
    let mut attempt = 1;
    let on_delta = |delta| publish_delta(&call, delta);
    loop {
        let mut permit = queue.acquire(*requester, demand).await;
        // The wait for the permit may have outlasted the lease.
        if !context.ownership.may_act() {
            return Err(closed_error());
        }
        let result = tokio::time::timeout(deadline, model.call(request.clone(), &on_delta))
            .await
            .unwrap_or_else(|_| Err(deadline_error(deadline)));
        // The queue pauses before the permit is returned, so that no other call gets it in between.
        match &result {
            Err(error) => pause_if_requested(&queue, error),
            Ok(Reply { usage, .. }) => {
                let input = usage.all_input_tokens();
                permit.set_used(input.saturating_add(usage.output_tokens));
            }
        }
        drop(permit);
        match result {
            Err(error) if attempt < max_attempts && may_repeat(&error) => {
                back_off(context, request.pid, delays.next(), &error).await;
                attempt += 1;
            }
            Err(error) => return Err(explain_long_wait(error)),
            Ok(reply) => {
                summarize_blocks(&reply);
                if let DeltaSink::Publish(_) = delta_sink {
                    publish_server_calls(context, request.pid, &reply);
                }
                return Ok(reply);
            }
        }
    }
}

/// The error with a sentence about a delay that is too long to wait.
fn explain_long_wait(mut error: ModelError) -> ModelError {
    if let Some(delay) = error.retry_after.filter(|delay| *delay > MAX_RETRY_AFTER) {
        let asked = Duration::from_secs(delay.as_secs());
        error.message = format!(
            "{}. The provider asks to wait {asked:?}, and a call waits at most \
             {MAX_RETRY_AFTER:?}: continue later, or name another model in `[[model.fallback]]`",
            error.message.trim_end_matches('.')
        );
    }
    error
}

/// Computes what the blocks say about tools of the provider. The process actor needs it for the cost
/// of the reply, and must not wait for it.
fn summarize_blocks(reply: &Reply) {
    for block in &reply.blocks {
        let _ = server_summaries(block);
    }
}

/// Publishes the calls of tools that the provider ran.
fn publish_server_calls(context: &KernelContext, pid: Pid, reply: &Reply) {
    let has_calls = |block: &&Block| server_summaries(block).iter().any(|found| found.calls > 0);
    let found = reply
        .blocks
        .iter()
        .filter(has_calls)
        .flat_map(server_blocks);
    for ServerBlock {
        tool, calls, input, ..
    } in found.filter(|found| found.calls > 0)
    {
        context.publish(Event::ServerToolCalled {
            pid,
            tool: tool.into(),
            calls,
            args: input.into(),
        });
    }
}

fn may_repeat(error: &ModelError) -> bool {
    error.is_transient()
        && error
            .retry_after
            .is_none_or(|delay| delay <= MAX_RETRY_AFTER)
}

/// Pauses the queue of an overloaded provider for the delay that the provider names, unless the
/// delay is too long to wait. This does not depend on whether the call is repeated.
fn pause_if_requested(queue: &Arc<PermitQueue>, error: &ModelError) {
    if let (ModelErrorKind::Overloaded, Some(delay)) = (
        error.kind,
        requested_delay(error).filter(|delay| *delay <= MAX_RETRY_AFTER),
    ) {
        queue.pause(delay);
    }
}

fn publish_delta(call: &ModelRequest, delta: Delta) {
    let DeltaSink::Publish(started_signal) = &call.delta_sink else {
        return;
    };
    started_signal.iter().for_each(StartedSignal::notify);
    if let Some(event) = delta_event(call.request.pid, delta) {
        call.context.publish(event);
    }
}

/// The reply of a call that does not begin any more. It is never recorded.
fn closed_error() -> ModelError {
    let message = "the kernel closed before the model was called".to_owned();
    ModelError::new(ModelErrorKind::Unavailable, message)
}

fn deadline_error(deadline: Duration) -> ModelError {
    let message = format!(
        "no complete reply within {deadline:?}: `timeout` in `[model]` allows a longer time"
    );
    ModelError::new(ModelErrorKind::Deadline, message)
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

/// The delay that the provider names, otherwise the next backoff delay.
fn retry_delay(backoff: Option<Duration>, error: &ModelError) -> Duration {
    requested_delay(error).or(backoff).unwrap_or(MAX_DELAY)
}

/// The delay that the provider names. A delay of zero (a date in the past) is ignored: all attempts
/// would be spent at once.
fn requested_delay(error: &ModelError) -> Option<Duration> {
    error.retry_after.filter(|delay| !delay.is_zero())
}

/// Exponential backoff with jitter: each delay doubles and gets a random addition of up to its own
/// length, so that processes do not retry at the same time.
fn backoff_delays() -> ExponentialBackoff {
    let delays = ExponentialBuilder::new()
        .with_min_delay(FIRST_DELAY)
        .with_max_delay(MAX_DELAY);
    delays.without_max_times().with_jitter().build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_of_the_provider_is_used_unless_it_is_zero() {
        let delay = |retry_after| {
            let error = ModelError {
                retry_after,
                ..ModelError::new(ModelErrorKind::Overloaded, "")
            };
            retry_delay(backoff_delays().next(), &error)
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
    fn a_delay_that_is_too_long_to_wait_is_named() {
        let explained = |seconds| {
            let error = ModelError {
                retry_after: Some(Duration::from_secs(seconds)),
                ..ModelError::new(ModelErrorKind::Overloaded, "status 429: slow down.")
            };
            (may_repeat(&error), explain_long_wait(error).message)
        };
        assert_eq!(explained(900), (true, "status 429: slow down.".to_owned()));
        let (may_repeat, message) = explained(7_200);
        assert!(!may_repeat);
        let expected = "slow down. The provider asks to wait 7200s, and a call waits at most 900s";
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn backoff_delays_grow_to_a_limit_and_do_not_run_out() {
        let delays: Vec<_> = backoff_delays().take(200).collect();
        assert_eq!(delays.len(), 200);
        assert!(
            delays[3] > delays[0] && delays.iter().all(|delay| *delay <= 2 * MAX_DELAY),
            "{delays:?}"
        );
    }
}
