//! `GET /processes`: a page of the table, filtered and sorted.

use aide::axum::ApiRouter;
use aide::axum::routing::get_with;
use axum::Json;
use axum::extract::State;
use dormouse_actors::ProcessStatus;
use dormouse_actors::handle::ProcessInfo;
use dormouse_proto::id::Pid;
use dormouse_proto::process::{ExitStatus, Waiting};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::api::ControlApi;
use crate::error::ApiError;
use crate::extract::Query;
use crate::view::{ProcessPage, ProcessTable};

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;

/// Which processes are listed, and in which order.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// `pid` (by default), `tree` (children below their parents) or `attention` (what needs a person
    /// first).
    sort: Option<Sort>,
    /// Only processes with one of these statuses: words with commas between them, such as
    /// `asking,paused`. `alive` are all that have not ended.
    status: Option<String>,
    /// Only processes of the program with this name.
    program: Option<String>,
    /// Only processes of trees with this label, such as `user=anna`.
    label: Option<String>,
    /// Only this process and those below it.
    below: Option<u64>,
    /// Only processes without a parent.
    roots: Option<bool>,
    /// Only what the rows of the table tell: no journal is read for processes that are not in
    /// memory, and their counts are zero.
    brief: Option<bool>,
    /// The most processes of the page: 1 to 1000, by default 100.
    limit: Option<usize>,
    /// `next` of the page before.
    after: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Sort {
    #[default]
    Pid,
    Tree,
    Attention,
}

/// The routes of this file.
pub(super) fn routes() -> ApiRouter<ControlApi> {
    ApiRouter::new().api_route(
        "/processes",
        get_with(list, |operation| {
            operation.id("listProcesses").summary("Processes").description(
                "Costs a pass over the table of processes, and reads the journal of each process of \
                 the page that is not in memory, unless `brief` is set.",
            )
        }),
    )
}

async fn list(
    State(api): State<ControlApi>,
    Query(query): Query<ListQuery>,
) -> Result<Json<ProcessPage>, ApiError> {
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(ApiError::invalid(format!(
            "limit is {limit}: valid are 1 to {MAX_LIMIT}"
        )));
    }
    let kernel = api.kernel();
    let table = ProcessTable::read(kernel).await?;
    let filter = Filter::new(&query, &table)?;
    let mut listed: Vec<&ProcessInfo> = match query.sort.unwrap_or_default() {
        Sort::Tree => in_tree_order(&table),
        _ => table.processes().iter().collect(),
    };
    listed.retain(|info| filter.accepts(&table, info));
    if query.sort == Some(Sort::Attention) {
        // Sorted by pid before, and stable.
        listed.sort_by_cached_key(|info| urgency(info, status(&table, info)));
    }
    let total = listed.len();
    let start = match &query.after {
        Some(after) => position_after(&listed, after, query.sort.unwrap_or_default())?,
        None => 0,
    };
    let page = &listed[start.min(total)..(start + limit).min(total)];
    let is_brief = query.brief == Some(true);
    let _permit = match is_brief {
        true => None,
        false => api.large_read().await,
    };
    let mut processes = Vec::with_capacity(page.len());
    for info in page {
        processes.push(if is_brief && info.view.is_none() {
            table.brief_line(info)
        } else {
            let view = ProcessTable::view(kernel, info).await;
            table.line(info, view.as_ref())
        });
    }
    let has_more = start + limit < total;
    let last = page.last().filter(|_| has_more);
    Ok(Json(ProcessPage {
        processes,
        total,
        next: last.map(|info| info.row.pid.to_string()),
        lost: kernel.losses().to_vec(),
    }))
}

/// Where the page after the process `after` begins.
fn position_after(listed: &[&ProcessInfo], after: &str, sort: Sort) -> Result<usize, ApiError> {
    let pid: u64 = after.parse().map_err(|_| {
        ApiError::invalid(format!(
            "'{after}' is not a place in the list: give the `next` of the page before"
        ))
    })?;
    let pid = Pid(pid);
    if sort == Sort::Pid {
        return Ok(listed.partition_point(|info| info.row.pid <= pid));
    }
    let at = listed.iter().position(|info| info.row.pid == pid);
    at.map(|at| at + 1).ok_or_else(|| {
        ApiError::gone(format!(
            "process {pid} is not in the list any more, so no page follows it: list anew"
        ))
    })
}

/// Each process, then those below it.
fn in_tree_order(table: &ProcessTable) -> Vec<&ProcessInfo> {
    let mut children = std::collections::BTreeMap::<Pid, Vec<&ProcessInfo>>::new();
    let mut stack = Vec::new();
    for info in table.processes().iter().rev() {
        match info
            .row
            .parent
            .filter(|parent| table.find(*parent).is_some())
        {
            Some(parent) => children.entry(parent).or_default().push(info),
            // A root, or a process whose parent the store has lost.
            None => stack.push(info),
        }
    }
    let mut ordered = Vec::with_capacity(table.processes().len());
    // The stack is in descending order of pids, so that the first child is taken first.
    while let Some(info) = stack.pop() {
        ordered.push(info);
        stack.extend(children.remove(&info.row.pid).into_iter().flatten());
    }
    ordered
}

fn status(table: &ProcessTable, info: &ProcessInfo) -> ProcessStatus {
    table.status(info, info.view.as_deref())
}

/// How soon a person should look at a process: 0 is first.
fn urgency(info: &ProcessInfo, status: ProcessStatus) -> u8 {
    let is_asking = matches!(info.row.waiting, Waiting::Person { .. });
    match status {
        ProcessStatus::Asking => 0,
        _ if is_asking && info.row.exit.is_none() => 0,
        ProcessStatus::Paused => 1,
        ProcessStatus::Suspended => 2,
        ProcessStatus::Stopped => 3,
        ProcessStatus::Ended(ExitStatus::Done) => 12,
        ProcessStatus::Ended(ExitStatus::Killed | ExitStatus::Interrupted) => 11,
        ProcessStatus::Ended(_) => 4,
        ProcessStatus::Held => 5,
        ProcessStatus::Acting => 6,
        ProcessStatus::Thinking => 7,
        ProcessStatus::Starting => 8,
        ProcessStatus::Waiting => 9,
        _ => 10,
    }
}

/// Which processes are listed.
struct Filter<'a> {
    query: &'a ListQuery,
    statuses: Option<Vec<&'a str>>,
}

/// The words of [`ProcessStatus::word`], and `alive`.
const STATUSES: [&str; 23] = [
    "alive",
    "held",
    "starting",
    "idle",
    "waiting",
    "asleep",
    "thinking",
    "acting",
    "asking",
    "paused",
    "stopped",
    "suspended",
    "hibernated",
    "done",
    "truncated",
    "iteration_limit",
    "budget_exhausted",
    "refused",
    "model_failed",
    "interrupted",
    "killed",
    "faulted",
    "invalid_result",
];

impl<'a> Filter<'a> {
    fn new(query: &'a ListQuery, table: &ProcessTable) -> Result<Self, ApiError> {
        let statuses: Option<Vec<&str>> = query
            .status
            .as_deref()
            .map(|words| words.split(',').map(str::trim).collect());
        let mut words = statuses.iter().flatten();
        if let Some(unknown) = words.find(|word| !STATUSES.contains(*word)) {
            return Err(ApiError::invalid(format!(
                "there is no status '{unknown}': valid are {}",
                STATUSES.join(", ")
            )));
        }
        if let Some(pid) = query.below.filter(|pid| table.find(Pid(*pid)).is_none()) {
            return Err(ApiError::not_found(format!(
                "there is no process {pid}: GET /v1/processes lists all"
            )));
        }
        Ok(Self { query, statuses })
    }

    fn accepts(&self, table: &ProcessTable, info: &ProcessInfo) -> bool {
        let row = &info.row;
        let has_status = |statuses: &Vec<&str>| {
            statuses.contains(&status(table, info).word())
                || (row.exit.is_none() && statuses.contains(&"alive"))
        };
        let query = self.query;
        let has_label = |label: &String| {
            table
                .labels(info)
                .iter()
                .any(|of_tree| of_tree.to_string() == *label)
        };
        let is_below = |pid: &u64| table.ancestry(info).any(|above| above.row.pid.0 == *pid);
        query
            .program
            .as_ref()
            .is_none_or(|program| **program == *row.program)
            && (query.roots != Some(true) || row.parent.is_none())
            && self.statuses.as_ref().is_none_or(has_status)
            && query.label.as_ref().is_none_or(has_label)
            && query.below.as_ref().is_none_or(is_below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_knows_every_word_of_a_status() {
        let words = [
            ProcessStatus::Held,
            ProcessStatus::Starting,
            ProcessStatus::Idle,
            ProcessStatus::Waiting,
            ProcessStatus::Asleep,
            ProcessStatus::Thinking,
            ProcessStatus::Acting,
            ProcessStatus::Asking,
            ProcessStatus::Paused,
            ProcessStatus::Stopped,
            ProcessStatus::Suspended,
            ProcessStatus::Hibernated,
            ProcessStatus::Ended(ExitStatus::Done),
            ProcessStatus::Ended(ExitStatus::Truncated),
            ProcessStatus::Ended(ExitStatus::IterationLimit),
            ProcessStatus::Ended(ExitStatus::BudgetExhausted),
            ProcessStatus::Ended(ExitStatus::Refused),
            ProcessStatus::Ended(ExitStatus::ModelFailed),
            ProcessStatus::Ended(ExitStatus::Interrupted),
            ProcessStatus::Ended(ExitStatus::Killed),
            ProcessStatus::Ended(ExitStatus::Faulted),
            ProcessStatus::Ended(ExitStatus::InvalidResult),
        ]
        .map(ProcessStatus::word);
        assert_eq!(STATUSES[1..], words);
    }
}
