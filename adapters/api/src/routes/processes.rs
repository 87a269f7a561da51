//! `GET /processes/{pid}` and what belongs to one process besides its journal and descriptors.

use aide::axum::ApiRouter;
use aide::axum::routing::get_with;
use axum::Json;
use axum::extract::State;
use dormouse_actors::handle::ProcessInfo;
use dormouse_actors::{KernelError, NotFound};
use dormouse_proto::id::Pid;
use schemars::JsonSchema;
use serde::Deserialize;

use super::at::{ProcessPath, position};
use crate::api::ControlApi;
use crate::error::ApiError;
use crate::extract::{Path, Query};
use crate::view::{AlarmView, EffectsView, ProcessDetail, ProcessTable};

/// The routes of this file.
pub(super) fn routes() -> ApiRouter<ControlApi> {
    ApiRouter::new()
        .api_route(
            "/processes/{pid}",
            get_with(process, |operation| {
                operation
                    .id("getProcess")
                    .summary("One process")
                    .description(
                        "A process that is not in memory is read from its journal, and not woken.",
                    )
            }),
        )
        .api_route(
            "/processes/{pid}/effects",
            get_with(effects, |operation| {
                operation
                    .id("getEffects")
                    .summary("What a process did outside of itself")
                    .description("Costs its whole journal.")
            }),
        )
        .api_route(
            "/processes/{pid}/alarms",
            get_with(alarms, |operation| {
                operation
                    .id("getAlarms")
                    .summary("The open alarms of a process")
            }),
        )
}

/// The row of a process of the table.
pub(super) fn row(table: &ProcessTable, pid: Pid) -> Result<&ProcessInfo, ApiError> {
    let found = table.find(pid);
    found.ok_or_else(|| KernelError::from(NotFound::Process(pid)).into())
}

async fn process(
    State(api): State<ControlApi>,
    Path(path): Path<ProcessPath>,
) -> Result<Json<ProcessDetail>, ApiError> {
    let table = ProcessTable::read(api.kernel()).await?;
    let info = row(&table, path.pid())?;
    let view = ProcessTable::view(api.kernel(), info).await?;
    let line = table.line(info, Ok(&view));
    Ok(Json(ProcessDetail::new(line, info, &view)))
}

/// Since when effects are listed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SinceQuery {
    /// Only what was done after this position: the number of a fact, or a checkpoint such as `cp:3`.
    since: Option<String>,
}

async fn effects(
    State(api): State<ControlApi>,
    Path(path): Path<ProcessPath>,
    Query(query): Query<SinceQuery>,
) -> Result<Json<EffectsView>, ApiError> {
    let since = query.since.as_deref().map(position).transpose()?;
    let _permit = api.large_read().await;
    let effects = api.kernel().effects(path.pid(), since).await?;
    Ok(Json(EffectsView::from(&effects)))
}

async fn alarms(
    State(api): State<ControlApi>,
    Path(path): Path<ProcessPath>,
) -> Result<Json<Vec<AlarmView>>, ApiError> {
    let table = ProcessTable::read(api.kernel()).await?;
    let info = row(&table, path.pid())?;
    let view = ProcessTable::view(api.kernel(), info).await?;
    let alarms = view.alarms.iter();
    Ok(Json(
        alarms
            .map(|alarm| AlarmView::new(path.pid(), alarm))
            .collect(),
    ))
}
