//! Draining a node with 1,000 trees while another one takes them over.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dormouse::ports::SyncLevel;
use dormouse_cluster::{Cluster, ProgramFiles, shard_of};
use futures_util::future::try_join_all;
use tokio_postgres::Client;

use crate::baseline::{PlainInsert, multiplied};
use crate::nodes::{NodeProgram, NodeSettings};
use crate::programs::{answering, working};
use crate::report::{Durations, print_head, print_row, shown};
use crate::schema::Schema;

const SHARDS: u32 = 64;
/// The trees at the node that is drained.
const TREES: usize = 1000;
const DRAINS: usize = 5;
const SETTINGS: NodeSettings = NodeSettings {
    shards: SHARDS,
    lease: Duration::from_secs(10),
    model_calls: 4096,
};
/// How long each model call of a tree at work takes. A drain waits for those in flight.
const DELAY: Duration = Duration::from_secs(4);

pub(crate) async fn measure() -> Result<()> {
    print_head();
    measure_trees("idle", &answering(), DRAINS).await?;
    let delay_ms = DELAY.as_millis() as u64;
    measure_trees(
        "in a model call of 4 s",
        &working(100_000, delay_ms),
        DRAINS,
    )
    .await
}

async fn measure_trees(what: &str, program: &ProgramFiles, drains: usize) -> Result<()> {
    let schema = Schema::new()?;
    let start = |name| NodeProgram::start(&schema, name, SETTINGS);
    let (mut a, _b) = (start("a")?, start("b")?);
    let cluster = schema.connect().await?;
    let client = schema.client().await?;
    schema
        .settled(&cluster, &client, SHARDS, &["a", "b"])
        .await?;
    start_trees(&schema, &cluster, &client, program).await?;
    let mut plain = PlainInsert::new(&schema, SyncLevel::Synced).await?;
    let mut alone = Durations::default();
    let (mut left, mut taken_over) = (Durations::default(), Durations::default());
    let (mut joined, mut commits) = (Durations::default(), Vec::new());
    for _ in 0..drains {
        tokio::time::sleep(Duration::from_secs(2)).await;
        alone.0.extend(plain.times(100).await?.0);
        let before = commits_of(&client).await?;
        let begun = Instant::now();
        a.terminate()?;
        let waits = async {
            a.ended().await?;
            Ok::<_, anyhow::Error>(begun.elapsed())
        };
        let others = async {
            schema.settled(&cluster, &client, SHARDS, &["b"]).await?;
            Ok(begun.elapsed())
        };
        let (ended, settled) = tokio::try_join!(waits, others)?;
        left.push(ended);
        taken_over.push(settled);
        commits.push(commits_of(&client).await? - before);
        let begun = Instant::now();
        a = start("a")?;
        schema
            .settled(&cluster, &client, SHARDS, &["a", "b"])
            .await?;
        joined.push(begun.elapsed());
    }
    let name = format!("{TREES} INSERTs");
    let alone = multiplied(&alone, TREES as u32);
    print_row(
        format!("SIGTERM to the end, {TREES} trees {what}"),
        &left,
        &name,
        &alone,
    );
    print_row(
        "  until all shards are open elsewhere",
        &taken_over,
        &name,
        &alone,
    );
    print_row(
        "  start of the node until it has them back",
        &joined,
        &name,
        &alone,
    );
    commits.sort_unstable();
    println!(
        "  commits of all shards meanwhile: median {}; the longest drain took {}",
        commits[commits.len() / 2],
        shown(left.at(1.0))
    );
    Ok(())
}

/// Starts trees until so many are at the node `a`.
async fn start_trees(
    schema: &Schema,
    cluster: &Cluster,
    client: &Client,
    program: &ProgramFiles,
) -> Result<()> {
    let owners = schema.owners(client).await?;
    let mut at_a = 0;
    while at_a < TREES {
        let starts = (0..100.min(TREES - at_a)).map(|_| {
            let start = cluster.start(program.clone());
            start.session().input("Hello").into_future()
        });
        let started = try_join_all(starts).await?;
        let is_at_a = |pid| {
            owners
                .get(&shard_of(pid).0)
                .is_some_and(|owner| owner == "a")
        };
        at_a += started.iter().filter(|tree| is_at_a(tree.pid())).count();
    }
    ensure!(at_a >= TREES);
    // The first turns end.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(())
}

async fn commits_of(client: &Client) -> Result<i64> {
    let sql = "SELECT sum(last_commit)::bigint FROM shard";
    Ok(client.query_one(sql, &[]).await?.get(0))
}
