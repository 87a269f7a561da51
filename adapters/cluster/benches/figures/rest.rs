//! What nodes cost that have nothing to do: statements a second, and processor time; and what one
//! pass of placement costs with many nodes and shards.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dormouse_cluster::placement::{self, Candidate, Labels};
use dormouse_postgres::ShardId;
use tokio_postgres::Client;

use crate::cpu::{self, ServerCpu};
use crate::nodes::{NodeProgram, NodeSettings};
use crate::report::{Durations, shown};
use crate::schema::Schema;

const SETTINGS: NodeSettings = NodeSettings {
    shards: 64,
    lease: Duration::from_secs(10),
    model_calls: 16,
};
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const RUN: Duration = Duration::from_secs(10);
const PASSES: usize = 10;

pub(crate) async fn measure() -> Result<()> {
    for nodes in [1, 2, 4, 8] {
        measure_nodes(nodes).await?;
    }
    for (nodes, shards) in [(4, 64), (100, 1024), (1000, 1024), (1000, 4096)] {
        let passes = measure_placement(nodes, shards)?;
        println!(
            "placement of {shards} shards over {nodes} nodes: {}",
            shown(passes.median())
        );
    }
    Ok(())
}

async fn measure_nodes(nodes: usize) -> Result<()> {
    let schema = Schema::new()?;
    let names = &NAMES[..nodes];
    let start = |name: &&str| NodeProgram::start(&schema, name, SETTINGS);
    let programs = names.iter().map(start).collect::<Result<Vec<_>>>()?;
    let cluster = schema.connect().await?;
    let client = schema.client().await?;
    schema
        .settled(&cluster, &client, SETTINGS.shards, names)
        .await?;
    let server = ServerCpu::new(&client).await?;
    let ids = || programs.iter().map(NodeProgram::id);
    // Idle connections have told their counters after this time.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let begun = Instant::now();
    let (before, server_before, nodes_before) = (
        transactions(&client).await?,
        server.so_far()?,
        cpu::of_programs(ids())?,
    );
    tokio::time::sleep(RUN).await;
    let (after, server_after, nodes_after) = (
        transactions(&client).await?,
        server.so_far()?,
        cpu::of_programs(ids())?,
    );
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{nodes} nodes at rest: {:.0} transactions a second, {:.1}% of a core in the database, {:.1}% in the nodes",
        (after - before) as f64 / seconds,
        100.0 * (server_after - server_before).as_secs_f64() / seconds,
        100.0 * (nodes_after - nodes_before).as_secs_f64() / seconds,
    );
    Ok(())
}

async fn transactions(client: &Client) -> Result<i64> {
    let sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// The owner of each shard, as each node computes them after each change.
fn measure_placement(nodes: usize, shards: u32) -> Result<Durations> {
    let candidate = |number| Candidate {
        id: format!("node-{number}#1"),
        name: format!("node-{number}"),
        labels: Labels::default(),
    };
    let nodes: Vec<_> = (0..nodes).map(candidate).collect();
    let mut passes = Durations::default();
    for _ in 0..PASSES {
        let begun = Instant::now();
        let needs = Labels::default();
        let owned =
            (0..shards).filter(|shard| placement::owner(ShardId(*shard), &needs, &nodes).is_some());
        ensure!(owned.count() == shards as usize, "each shard has an owner");
        passes.push(begun.elapsed());
    }
    Ok(passes)
}
