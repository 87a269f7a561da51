//! The traced spans of a running kernel. No other module knows the names of spans and fields.
//!
//! The names follow the OpenTelemetry semantic conventions for generative AI;
//! `tracing-opentelemetry` reads the `otel.*` fields.
//!
//! * `invoke_agent {program}`: a turn. A turn that continues after a restart gets a span of its
//!   own. The span has no parent; all turns of a tree share `gen_ai.conversation.id`, which is the
//!   pid of the root of the tree.
//! * `chat {model}`, child of the turn or the tool call: a model call with all attempts and waits.
//! * `execute_tool {tool}`, child of the turn: a tool that runs outside of the process machine.
//!   Tools that only read or annotate descriptors are answered at once and have no span; nor do
//!   `fork`, `spawn`, `goto` and the messaging tools.
//!
//! A span holds names, numbers and kinds of failure, never prompts, arguments or answers. The span
//! of a cancelled call ends without usage and error.

use std::panic::AssertUnwindSafe;

use dormouse_kernel::process::State;
use dormouse_proto::id::Pid;
use dormouse_proto::model::{ModelError, Reply, Request, StopReason, Usage};
use dormouse_proto::process::ExitStatus;
use futures_util::future::{BoxFuture, FutureExt};
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

const NAME: &str = "otel.name";
const KIND: &str = "otel.kind";
const STATUS: &str = "otel.status_code";
const ERROR: &str = "error.type";
const OPERATION: &str = "gen_ai.operation.name";
const CONVERSATION: &str = "gen_ai.conversation.id";
const AGENT_NAME: &str = "gen_ai.agent.name";
const AGENT_ID: &str = "gen_ai.agent.id";
const PROVIDER: &str = "gen_ai.provider.name";
const MODEL: &str = "gen_ai.request.model";
const MAX_TOKENS: &str = "gen_ai.request.max_tokens";
const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
const CACHE_WRITE_TOKENS: &str = "gen_ai.usage.cache_creation.input_tokens";
const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
const TOOL_NAME: &str = "gen_ai.tool.name";
const TOOL_CALL: &str = "gen_ai.tool.call.id";

/// The span of a turn.
pub(crate) fn turn_span(pid: Pid, state: &State, root: Pid) -> Span {
    let program = state.program().name();
    info_span!(
        parent: None,
        "invoke_agent",
        { NAME } = format!("invoke_agent {program}"),
        { KIND } = "internal",
        { STATUS } = Empty,
        { ERROR } = Empty,
        { OPERATION } = "invoke_agent",
        { AGENT_NAME } = program,
        { AGENT_ID } = pid.to_string(),
        { CONVERSATION } = root.to_string(),
    )
}

/// Records the outcome of a turn. A turn that was interrupted or killed from outside does not count
/// as failed.
pub(crate) fn record_turn_end(turn: &Span, status: ExitStatus) {
    match status {
        ExitStatus::Done | ExitStatus::Interrupted | ExitStatus::Killed => {}
        ExitStatus::Truncated
        | ExitStatus::IterationLimit
        | ExitStatus::Refused
        | ExitStatus::ModelFailed
        | ExitStatus::BudgetExhausted
        | ExitStatus::Faulted
        | ExitStatus::InvalidResult => record_failure(turn, status.word()),
    }
}

/// The span of a model call below `parent`. The span has no parent if the host made the call.
pub(crate) fn model_call_span(parent: &Span, provider: &str, root: Pid, request: &Request) -> Span {
    let model = &*request.model;
    let max_tokens = request
        .parameters
        .get("max_tokens")
        .and_then(serde_json::Value::as_u64);
    info_span!(
        parent: parent,
        "chat",
        { NAME } = format!("chat {model}"),
        { KIND } = "client",
        { STATUS } = Empty,
        { ERROR } = Empty,
        { OPERATION } = "chat",
        { PROVIDER } = provider,
        { MODEL } = model,
        { MAX_TOKENS } = max_tokens,
        { CONVERSATION } = root.to_string(),
        { INPUT_TOKENS } = Empty,
        { OUTPUT_TOKENS } = Empty,
        { CACHE_READ_TOKENS } = Empty,
        { CACHE_WRITE_TOKENS } = Empty,
        { FINISH_REASONS } = Empty,
    )
}

/// Records the result of a model call.
pub(crate) fn record_model_result(span: &Span, result: &Result<Reply, ModelError>) {
    match result {
        Ok(Reply { stop, usage, .. }) => {
            let Usage {
                output_tokens,
                cache_read_tokens,
                cache_write_tokens,
                ..
            } = *usage;
            // The conventions count cached tokens as input tokens; `Usage` counts them separately.
            span.record(INPUT_TOKENS, usage.all_input_tokens());
            span.record(OUTPUT_TOKENS, output_tokens);
            span.record(CACHE_READ_TOKENS, cache_read_tokens);
            span.record(CACHE_WRITE_TOKENS, cache_write_tokens);
            span.record(FINISH_REASONS, format!("[\"{}\"]", finish_reason(*stop)));
        }
        Err(error) => record_failure(span, error.kind.word()),
    }
}

/// The span of a tool call below `parent`, with the tool name and call id that the model uses. The
/// span has no parent if the host made the call.
pub(crate) fn tool_call_span(parent: &Span, tool: &str, id: &str) -> Span {
    info_span!(
        parent: parent,
        "execute_tool",
        { NAME } = format!("execute_tool {tool}"),
        { KIND } = "internal",
        { STATUS } = Empty,
        { ERROR } = Empty,
        { OPERATION } = "execute_tool",
        { TOOL_NAME } = tool,
        { TOOL_CALL } = id,
    )
}

/// Runs `work` in a span, then calls `record_outcome` with its result. Spans that `work` creates
/// are children of `span`.
pub(crate) fn in_span<T: Send + 'static>(
    span: Span,
    work: BoxFuture<'static, T>,
    record_outcome: impl FnOnce(&Span, &T) + Send + 'static,
) -> BoxFuture<'static, T> {
    if span.is_disabled() {
        // Nobody sees the span, which would take some memory for as long as the work runs.
        return work;
    }
    record_in_span(span, work, record_outcome).boxed()
}

async fn record_in_span<T: 'static>(
    span: Span,
    work: BoxFuture<'static, T>,
    record_outcome: impl FnOnce(&Span, &T),
) -> T {
    let result = AssertUnwindSafe(work.instrument(span.clone()))
        .catch_unwind()
        .await;
    match result {
        Ok(result) => {
            record_outcome(&span, &result);
            result
        }
        Err(panic) => {
            record_failure(&span, "panic");
            std::panic::resume_unwind(panic)
        }
    }
}

/// Records that a tool failed. The error text may contain user data, so it is not recorded.
pub(crate) fn record_tool_failure(span: &Span) {
    record_failure(span, "tool_error");
}

fn record_failure(span: &Span, kind: &'static str) {
    span.record(ERROR, kind);
    span.record(STATUS, "ERROR");
}

/// The finish reason, as the OpenTelemetry conventions name it.
fn finish_reason(stop: StopReason) -> &'static str {
    match stop {
        StopReason::EndTurn | StopReason::StopSequence => "stop",
        StopReason::ToolUse => "tool_call",
        StopReason::MaxTokens | StopReason::ContextWindow => "length",
        StopReason::Refusal => "content_filter",
        StopReason::Pause => "pause",
    }
}
