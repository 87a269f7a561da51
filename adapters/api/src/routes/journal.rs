//! Facts, conversations, differences and checkpoints.

use aide::axum::ApiRouter;
use aide::axum::routing::get_with;
use axum::Json;
use axum::extract::State;
use dormouse_actors::handle::Position;
use dormouse_proto::id::{FactNumber, Pid};
use schemars::JsonSchema;
use serde::Deserialize;

use super::at::{CheckpointPath, ProcessPath, position};
use crate::api::ControlApi;
use crate::error::ApiError;
use crate::extract::{Path, Query};
use crate::view::{CheckpointView, ConversationView, DiffView, FactLine, FactPage, MessageView};

const DEFAULT_FACTS: usize = 200;
const MAX_FACTS: usize = 2000;
const DEFAULT_MESSAGES: usize = 100;
const MAX_MESSAGES: usize = 1000;

/// The routes of this file.
pub(super) fn routes() -> ApiRouter<ControlApi> {
    ApiRouter::new()
        .api_route(
            "/processes/{pid}/facts",
            get_with(facts, |operation| {
                operation
                    .id("getFacts")
                    .summary("The journal of a process")
                    .description(
                        "Costs a read for each commit of the journal, and the facts of the page.",
                    )
            }),
        )
        .api_route(
            "/processes/{pid}/conversation",
            get_with(conversation, |operation| {
                operation
                    .id("getConversation")
                    .summary("The conversation of a process at any position")
                    .description("Costs the journal since the latest snapshot before the position.")
            }),
        )
        .api_route(
            "/diff",
            get_with(diff, |operation| {
                operation
                    .id("getDiff")
                    .summary("What differs between two positions")
            }),
        )
        .api_route(
            "/checkpoints",
            get_with(checkpoints, |operation| {
                operation.id("listCheckpoints").summary("Checkpoints")
            }),
        )
        .api_route(
            "/checkpoints/{checkpoint}",
            get_with(checkpoint, |operation| {
                operation.id("getCheckpoint").summary("One checkpoint")
            }),
        )
}

/// Which facts are listed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FactsQuery {
    /// The first fact; 0 is the birth.
    from: Option<u64>,
    /// The last `tail` facts, in place of those from `from` on.
    tail: Option<u64>,
    /// The most facts of the page: 1 to 2000, by default 200.
    limit: Option<usize>,
}

fn checked_limit(limit: Option<usize>, default: usize, max: usize) -> Result<usize, ApiError> {
    let limit = limit.unwrap_or(default);
    match (1..=max).contains(&limit) {
        true => Ok(limit),
        false => Err(ApiError::invalid(format!(
            "limit is {limit}: valid are 1 to {max}"
        ))),
    }
}

async fn facts(
    State(api): State<ControlApi>,
    Path(path): Path<ProcessPath>,
    Query(query): Query<FactsQuery>,
) -> Result<Json<FactPage>, ApiError> {
    let limit = checked_limit(query.limit, DEFAULT_FACTS, MAX_FACTS)?;
    if query.from.is_some() && query.tail.is_some() {
        return Err(ApiError::invalid("name `from` or `tail`, not both"));
    }
    let pid = path.pid();
    let kernel = api.kernel();
    let from = match query.tail {
        None => query.from.unwrap_or(0),
        Some(tail) => {
            let page = kernel.log_page(pid, FactNumber(u64::MAX), 1).await?;
            let last = page.retained.map_or(0, |(_, last)| last.0);
            (last + 1).saturating_sub(tail)
        }
    };
    let page = kernel.log_page(pid, FactNumber(from), limit).await?;
    let (first, last) = page.retained.unzip();
    if let Some(last) = last.filter(|last| from > last.0) {
        return Err(ApiError::not_found(format!(
            "process {pid} has no fact {from} or later: its last is {last}"
        )));
    }
    let last_listed = page.lines.last().map(|line| line.number);
    let next = last_listed.filter(|listed| Some(*listed) < last && page.lost.is_none());
    Ok(Json(FactPage {
        pid: pid.0,
        facts: page.lines.iter().map(FactLine::from).collect(),
        first: first.map(|first| first.0),
        last: last.map(|last| last.0),
        next: next.map(|listed| listed.0 + 1),
        lost: page.lost.map(|error| error.to_string()),
    }))
}

/// Which part of a conversation is shown, and how.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ConversationQuery {
    /// The position: the number of a fact, or a checkpoint such as `cp:3`. Without it, the present.
    at: Option<String>,
    /// Every message as it was, compacted ones included, in place of what the model sees.
    all: Option<bool>,
    /// Arguments and answers of calls are cut to their beginning.
    fold: Option<bool>,
    /// The most messages of the page: 1 to 1000, by default 100.
    limit: Option<usize>,
    /// The messages after this many: `next` of the page before.
    after: Option<usize>,
    /// The last `tail` messages, in place of those after `after`.
    tail: Option<usize>,
}

async fn conversation(
    State(api): State<ControlApi>,
    Path(path): Path<ProcessPath>,
    Query(query): Query<ConversationQuery>,
) -> Result<Json<ConversationView>, ApiError> {
    let limit = checked_limit(query.limit, DEFAULT_MESSAGES, MAX_MESSAGES)?;
    if query.after.is_some() && query.tail.is_some() {
        return Err(ApiError::invalid("name `after` or `tail`, not both"));
    }
    let at = query.at.as_deref().map_or(Ok(Position::Now), position)?;
    let (kernel, pid) = (api.kernel(), path.pid());
    let conversation = kernel.conversation(pid, at).await?;
    let mut view = ConversationView::head(&conversation);
    let all = match query.all {
        Some(true) => Some(kernel.all_messages(pid, at).await?),
        _ => None,
    };
    let numbered: Vec<_> = match &all {
        Some(messages) => (1..).map(Some).zip(messages).collect(),
        None => conversation.numbered().collect(),
    };
    view.total = numbered.len();
    let start = match query.tail {
        Some(tail) => view.total.saturating_sub(tail),
        None => query.after.unwrap_or(0).min(view.total),
    };
    let end = (start + limit).min(view.total);
    let page = numbered[start..end].iter().map(|(number, message)| {
        let message = MessageView::new(*number, message, conversation.compacted);
        match query.fold {
            Some(true) => message.folded(),
            _ => message,
        }
    });
    view.messages = page.collect();
    view.next = (end < view.total).then_some(end);
    Ok(Json(view))
}

/// Two positions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DiffQuery {
    /// One position: `PID`, `PID@FACT` or `PID@cp:N`.
    left: String,
    /// The other.
    right: String,
}

async fn diff(
    State(api): State<ControlApi>,
    Query(query): Query<DiffQuery>,
) -> Result<Json<DiffView>, ApiError> {
    let left = process_position(&query.left)?;
    let right = process_position(&query.right)?;
    let diff = api.kernel().diff(left, right).await?;
    Ok(Json(DiffView::from(diff)))
}

fn process_position(text: &str) -> Result<(Pid, Position), ApiError> {
    let (pid, at) = match text.split_once('@') {
        Some((pid, at)) => (pid, position(at)?),
        None => (text, Position::Now),
    };
    let pid = pid.parse().map(Pid).map_err(|_| {
        ApiError::invalid(format!(
            "'{text}' is not a position: write PID, PID@FACT or PID@cp:N"
        ))
    })?;
    Ok((pid, at))
}

async fn checkpoints(State(api): State<ControlApi>) -> Result<Json<Vec<CheckpointView>>, ApiError> {
    let checkpoints = api.kernel().checkpoints().await?;
    Ok(Json(checkpoints.iter().map(CheckpointView::from).collect()))
}

async fn checkpoint(
    State(api): State<ControlApi>,
    Path(path): Path<CheckpointPath>,
) -> Result<Json<CheckpointView>, ApiError> {
    let checkpoint = api.kernel().checkpoint(path.id()?).await?;
    Ok(Json(CheckpointView::from(&checkpoint)))
}
