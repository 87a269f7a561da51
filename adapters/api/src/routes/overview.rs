//! What concerns the whole kernel: its store, what waits for a person, usage, labels, alarms.

use std::collections::BTreeMap;

use aide::axum::ApiRouter;
use aide::axum::routing::get_with;
use axum::Json;
use axum::extract::State;
use dormouse_actors::KernelError;
use dormouse_actors::handle::ProcessInfo;
use dormouse_proto::model::Usage;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::api::{ControlApi, EndedUsage};
use crate::error::ApiError;
use crate::extract::Query;
use crate::view::{AlarmView, KernelView, LabelView, PendingView, ProcessTable, UsageGroup};

/// The routes of this file.
pub(super) fn routes() -> ApiRouter<ControlApi> {
    ApiRouter::new()
        .api_route(
            "/kernel",
            get_with(kernel, |operation| {
                operation.id("getKernel").summary("The kernel and its store")
            }),
        )
        .api_route(
            "/pending",
            get_with(pending, |operation| {
                operation
                    .id("listPending")
                    .summary("What waits for a person")
                    .description(
                        "Reads the journal of each process with held calls that is not in memory.",
                    )
            }),
        )
        .api_route(
            "/usage",
            get_with(usage, |operation| {
                operation
                    .id("getUsage")
                    .summary("Tokens and money")
                    .description(
                        "Reads the journal of each process that is not in memory; of ended processes \
                         once.",
                    )
            }),
        )
        .api_route(
            "/labels",
            get_with(labels, |operation| {
                operation.id("listLabels").summary("Budgets of labels")
            }),
        )
        .api_route(
            "/alarms",
            get_with(alarms, |operation| {
                operation
                    .id("listAlarms")
                    .summary("The open alarms of all processes, the earliest first")
                    .description("Reads the journal of each living process that is not in memory.")
            }),
        )
        .api_route(
            "/openapi.json",
            get_with(document, |operation| {
                operation.id("getOpenapi").summary("This document")
            }),
        )
}

async fn kernel(State(api): State<ControlApi>) -> Result<Json<KernelView>, ApiError> {
    let kernel = api.kernel();
    let processes = kernel.processes().await?;
    let loaded = processes.iter().filter(|info| is_loaded(info)).count();
    let is_read_only = kernel.is_read_only();
    let last_commit = match is_read_only {
        true => None,
        false => Some(kernel.commits().await?.after().0),
    };
    Ok(Json(KernelView {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        running: !is_read_only,
        closed: kernel.close_reason().map(|reason| reason.to_string()),
        processes: processes.len(),
        loaded,
        resident_bytes: kernel.resident_bytes(),
        last_commit,
        losses: kernel.losses().to_vec(),
        acknowledged_losses: kernel.acknowledged_losses().to_vec(),
        unreadable: kernel.unreadable(),
    }))
}

fn is_loaded(info: &ProcessInfo) -> bool {
    let is_in_memory = info.view.as_ref().is_some_and(|view| !view.hibernated);
    is_in_memory && info.row.exit.is_none()
}

async fn pending(State(api): State<ControlApi>) -> Result<Json<PendingView>, ApiError> {
    let pending = api.kernel().pending().await?;
    Ok(Json(PendingView::from(&pending)))
}

async fn labels(State(api): State<ControlApi>) -> Json<Vec<LabelView>> {
    let labels = api.kernel().labels();
    Json(labels.iter().map(LabelView::from).collect())
}

async fn alarms(State(api): State<ControlApi>) -> Result<Json<Vec<AlarmView>>, ApiError> {
    let _permit = api.large_read().await;
    let table = ProcessTable::read(api.kernel()).await?;
    let mut alarms = Vec::new();
    let living = table.processes().iter();
    for info in living.filter(|info| info.row.exit.is_none()) {
        // A journal that cannot be read is shown by the list of processes.
        if let Ok(view) = ProcessTable::view(api.kernel(), info).await {
            let of_process = view.alarms.iter();
            alarms.extend(of_process.map(|alarm| AlarmView::new(info.row.pid, alarm)));
        }
    }
    alarms.sort_by_key(|alarm| alarm.due_ms);
    Ok(Json(alarms))
}

async fn document() -> Json<Value> {
    Json(crate::openapi::openapi())
}

/// What usage is summed by.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum UsageKey {
    /// The program.
    #[default]
    Program,
    /// The first model of the program.
    Model,
    /// The root of the tree.
    Tree,
    /// The process.
    Process,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UsageQuery {
    /// What usage is summed by: `program` (by default), `model`, `tree` or `process`.
    by: Option<UsageKey>,
}

async fn usage(
    State(api): State<ControlApi>,
    Query(query): Query<UsageQuery>,
) -> Result<Json<Vec<UsageGroup>>, ApiError> {
    let by = query.by.unwrap_or_default();
    let _permit = api.large_read().await;
    let table = ProcessTable::read(api.kernel()).await?;
    let mut groups: BTreeMap<(u64, String), (usize, Usage)> = BTreeMap::new();
    for info in table.processes() {
        // A journal that cannot be read is shown by the list of processes.
        let Ok((usage, model)) = own_usage(&api, info).await else {
            continue;
        };
        // Numbers are sorted as numbers.
        let key = match by {
            UsageKey::Program => (0, info.row.program.to_string()),
            UsageKey::Model => (0, model),
            UsageKey::Tree => {
                let root = table.root(info).row.pid;
                (root.0, root.to_string())
            }
            UsageKey::Process => (info.row.pid.0, info.row.pid.to_string()),
        };
        let (processes, sum) = groups.entry(key).or_default();
        *processes += 1;
        *sum += usage;
    }
    let groups = groups
        .into_iter()
        .map(|((_, key), (processes, usage))| UsageGroup {
            key,
            processes,
            usage: usage.into(),
        });
    Ok(Json(groups.collect()))
}

/// What a process used itself, and its model. That of an ended process is remembered.
async fn own_usage(api: &ControlApi, info: &ProcessInfo) -> Result<(Usage, String), KernelError> {
    let pid = info.row.pid;
    let has_ended = info.row.exit.is_some();
    let known = api.ended_usage().get(&pid).cloned();
    if let Some(known) = known.filter(|known| has_ended && known.reopenings == info.row.reopenings)
    {
        return Ok((known.usage, known.model));
    }
    let view = ProcessTable::view(api.kernel(), info).await?;
    let model = view.program.model().name.to_string();
    if has_ended {
        let ended = EndedUsage {
            reopenings: info.row.reopenings,
            usage: view.usage,
            model: model.clone(),
        };
        api.ended_usage().insert(pid, ended);
    }
    Ok((view.usage, model))
}
