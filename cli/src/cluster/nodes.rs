//! `dormouse nodes` and `dormouse drain`: the nodes of a cluster.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use dormouse_cluster::NodeInfo;
use serde_json::{Value, json};

use super::database::DatabaseUrl;
use crate::failure::Failure;
use crate::terminal::{self, one_line};

/// How often it is looked whether a node has left.
const EVERY: Duration = Duration::from_millis(100);

/// `dormouse nodes`
#[derive(Debug, Args)]
pub(crate) struct Nodes {
    #[command(flatten)]
    database: DatabaseUrl,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// `dormouse drain`
#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// The name of the node.
    node: String,
    #[command(flatten)]
    database: DatabaseUrl,
}

/// Lists the live nodes, by name.
pub(super) async fn nodes(args: Nodes) -> Result<ExitCode, Failure> {
    let cluster = args.database.connect().await?;
    let mut nodes = cluster.nodes().await?;
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let mut out = terminal::stdout();
    if !args.json {
        writeln!(
            out,
            "{:<20} {:<9} {:>6}  {:<22} LABELS",
            "NODE", "STATE", "SHARDS", "ADDRESS"
        )?;
    }
    for node in &nodes {
        match args.json {
            true => writeln!(out, "{}", terminal::escaped_json(&node_json(node)))?,
            false => writeln!(out, "{}", one_line(&node_line(node)))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn state(node: &NodeInfo) -> &'static str {
    match node.is_draining {
        true => "draining",
        false => "live",
    }
}

fn node_line(node: &NodeInfo) -> String {
    let labels = node.labels.join(",");
    let NodeInfo {
        name,
        address,
        shards,
        ..
    } = node;
    let line = format!(
        "{name:<20} {:<9} {shards:>6}  {address:<22} {labels}",
        state(node)
    );
    line.trim_end().to_owned()
}

/// A node as JSON. Scripts read it: `docs/cluster.md`.
fn node_json(node: &NodeInfo) -> Value {
    json!({
        "node": node.name, "state": state(node), "shards": node.shards, "address": node.address,
        "labels": node.labels,
    })
}

/// Drains a node, and waits until it has left.
pub(super) async fn drain(args: Drain) -> Result<ExitCode, Failure> {
    let cluster = args.database.connect().await?;
    cluster.drain_node(&args.node).await?;
    while cluster
        .nodes()
        .await?
        .iter()
        .any(|live| live.name == args.node)
    {
        tokio::time::sleep(EVERY).await;
    }
    Ok(ExitCode::SUCCESS)
}
