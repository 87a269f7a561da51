//! `/metrics`: how a node is, in the text format of Prometheus.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::collections::CollectionCounters;
use crate::database::on_database;
use crate::held::ShardState;
use crate::node::Node;

/// How many rows of a process table are counted at once.
const ROWS_AT_ONCE: usize = 4096;

/// The metrics of a node. Costs a list of the shards, and a pass over the process tables.
pub(crate) async fn metrics(State(node): State<Arc<Node>>) -> Response {
    let held = node.caller.held.all();
    let open: Vec<_> = held
        .iter()
        .filter(|(_, held)| held.state == ShardState::Open)
        .collect();
    let database = node.caller.tables.0.clone();
    let statuses = match on_database(move || database.shards()).await {
        Ok(statuses) => statuses,
        Err(error) => return (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    };
    let mut commits = 0;
    let (mut living, mut ended) = (0, 0);
    for (shard, held) in &open {
        let status = statuses.iter().find(|status| status.shard == *shard);
        commits += status.map_or(0, |status| status.last_commit.0);
        let mut after = None;
        while let Some(kernel) = &held.kernel
            && let Ok(page) = kernel.process_page(after, ROWS_AT_ONCE).await
        {
            let ended_of_page = page.iter().filter(|info| info.row.exit.is_some()).count();
            ended += ended_of_page;
            living += page.len() - ended_of_page;
            after = page.last().map(|info| info.row.pid);
            if page.len() < ROWS_AT_ONCE {
                break;
            }
        }
    }
    let counters = &node.counters;
    let metrics: [Metric; 10] = [
        (
            "shards_held",
            "gauge",
            "Shards whose kernel is open here.",
            open.len() as f64,
        ),
        (
            "epoch_changes_total",
            "counter",
            "Shards that this node has claimed.",
            count(&counters.claims),
        ),
        (
            "shards_lost_total",
            "counter",
            "Shards that were stopped since their lease or store was lost.",
            count(&counters.losses),
        ),
        (
            "commits",
            "gauge",
            "Commits of the shards that are held, since they were made.",
            commits as f64,
        ),
        (
            "processes",
            "gauge",
            "Processes of the shards that are held and have not ended.",
            living as f64,
        ),
        (
            "processes_ended",
            "gauge",
            "Processes of the shards that are held and have ended.",
            ended as f64,
        ),
        (
            "lease_age_seconds",
            "gauge",
            "How long ago leases were renewed.",
            node.lease_age().as_secs_f64(),
        ),
        (
            "calls_total",
            "counter",
            "Calls of other programs.",
            count(&counters.calls),
        ),
        (
            "refused_calls_total",
            "counter",
            "Requests with a wrong token.",
            count(&counters.refused_calls),
        ),
        (
            "ready",
            "gauge",
            "Whether the node is ready.",
            f64::from(u8::from(node.is_ready())),
        ),
    ];
    let mut text = String::new();
    let of_garbage = garbage_metrics(&node.caller.collections.counters);
    for (name, kind, help, value) in metrics.into_iter().chain(of_garbage) {
        // Writing to a string never fails.
        let _ = writeln!(
            text,
            "# HELP dormouse_{name} {help}\n# TYPE dormouse_{name} {kind}\ndormouse_{name} {value}"
        );
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

/// A name without its prefix, a kind, what it says, and the value.
type Metric = (&'static str, &'static str, &'static str, f64);

fn garbage_metrics(counters: &CollectionCounters) -> [Metric; 6] {
    let metric = |name, help, counter| (name, "counter", help, count(counter));
    [
        metric(
            "garbage_collections_total",
            "Garbage collections of shards that this node has made.",
            &counters.shards,
        ),
        metric(
            "garbage_processes_total",
            "Ended processes that they deleted.",
            &counters.processes,
        ),
        metric(
            "garbage_contents_total",
            "Contents, and references to objects, that they deleted.",
            &counters.contents,
        ),
        metric(
            "garbage_bytes_total",
            "The bytes of these contents.",
            &counters.bytes,
        ),
        metric(
            "garbage_objects_total",
            "Objects that this node has deleted since no shard referred to them.",
            &counters.objects,
        ),
        metric(
            "garbage_object_bytes_total",
            "The bytes of these objects.",
            &counters.object_bytes,
        ),
    ]
}

fn count(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}
