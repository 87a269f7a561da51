//! What is traced of a running kernel: the only place that knows the names of spans and of their
//! fields.
//!
//! They are those of OpenTelemetry's conventions for generative AI, and `otel.*` is what
//! `tracing-opentelemetry` reads.
//!
//! * `invoke_agent {program}`: a turn. One that goes on after a restart goes on in a span of its
//!   own. It has no parent: the turns of a tree have `gen_ai.conversation.id` in common, which is
//!   the pid at the top of the tree.
//! * `chat {model}`, below the turn or the tool call: a call of a model, with all its attempts and
//!   with what it waits for.
//! * `execute_tool {tool}`, below the turn: a tool that does something outside of the machine.
//!   Tools that only read or note descriptors are answered at once and have none; nor have `fork`,
//!   `spawn` and `goto`, whose children and turns have, and the tools by which processes speak to
//!   each other.
//!
//! A span holds names, numbers and kinds of failure. What was said, asked for or answered never
//! stands in one. A call that is given up ends its span without a usage or an error.

use std::panic::AssertUnwindSafe;

use dormouse_kernel::process::State;
use dormouse_proto::id::Pid;
use dormouse_proto::model::{ModelError, Reply, Request, StopReason, Usage};
use dormouse_proto::process::ExitStatus;
use futures_util::future::FutureExt;
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

/// A turn of a process.
pub(crate) fn turn(pid: Pid, state: &State, root: Pid) -> Span {
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

/// A turn ended. One that somebody ended from outside has not failed.
pub(crate) fn turn_ended(turn: &Span, status: ExitStatus) {
    match status {
        ExitStatus::Done | ExitStatus::Interrupted | ExitStatus::Killed => {}
        ExitStatus::Truncated
        | ExitStatus::IterationLimit
        | ExitStatus::Refused
        | ExitStatus::ModelFailed
        | ExitStatus::BudgetExhausted
        | ExitStatus::Faulted => fail(turn, status.word()),
    }
}

/// A call of a model, below `parent`, which is no span where the host asked for it.
pub(crate) fn model_call(parent: &Span, provider: &str, root: Pid, request: &Request) -> Span {
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

/// What came of a call of a model.
pub(crate) fn model_called(span: &Span, result: &Result<Reply, ModelError>) {
    match result {
        Ok(Reply { stop, usage, .. }) => {
            let Usage {
                output_tokens,
                cache_read_tokens,
                cache_write_tokens,
                ..
            } = *usage;
            // All that went in, as the conventions count it; ours leave out what the cache had to
            // do with.
            span.record(INPUT_TOKENS, usage.all_input_tokens());
            span.record(OUTPUT_TOKENS, output_tokens);
            span.record(CACHE_READ_TOKENS, cache_read_tokens);
            span.record(CACHE_WRITE_TOKENS, cache_write_tokens);
            span.record(FINISH_REASONS, format!("[\"{}\"]", finish_reason(*stop)));
        }
        Err(error) => fail(span, error.kind.word()),
    }
}

/// A call of a tool, by the name and the id that the model knows, below `parent`, which is no span
/// where the host called.
pub(crate) fn tool_call(parent: &Span, tool: &str, id: &str) -> Span {
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

/// Runs `work` in a span, and lets `tell` note there what came of it. What is traced below is its
/// child.
pub(crate) async fn in_span<T>(
    span: Span,
    work: impl Future<Output = T>,
    record_outcome: impl FnOnce(&Span, &T),
) -> T {
    let end = AssertUnwindSafe(work.instrument(span.clone()))
        .catch_unwind()
        .await;
    match end {
        Ok(end) => {
            record_outcome(&span, &end);
            end
        }
        Err(panic) => {
            fail(&span, "panic");
            std::panic::resume_unwind(panic)
        }
    }
}

/// For tools, whose failures are texts: that it failed is all that may be told.
pub(crate) fn tool_failed(span: &Span) {
    fail(span, "tool_error");
}

fn fail(span: &Span, kind: &'static str) {
    span.record(ERROR, kind);
    span.record(STATUS, "ERROR");
}

/// The word of the conventions, where they have one.
fn finish_reason(stop: StopReason) -> &'static str {
    match stop {
        StopReason::EndTurn | StopReason::StopSequence => "stop",
        StopReason::ToolUse => "tool_call",
        StopReason::MaxTokens | StopReason::ContextWindow => "length",
        StopReason::Refusal => "content_filter",
        StopReason::Pause => "pause",
    }
}
