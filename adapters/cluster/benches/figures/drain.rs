//! Draining a node with 1,000 trees while another one takes them over.

use std::time::{Duration, Instant};

use anyhow::Result;
use dormouse::ports::SyncLevel;
use dormouse_cluster::{Cluster, ClusterProcess, ProgramFiles, shard_of};
use futures_util::future::try_join_all;
use futures_util::{StreamExt, TryStreamExt};
use tokio_postgres::Client;

use crate::baseline::{PlainInsert, multiplied};
use crate::nodes::{NodeProgram, NodeSettings};
use crate::programs::{answering, working};
use crate::report::{Durations, print_head, print_row};
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

/// What the trees do when their node is drained.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trees {
    /// They have had a turn since they were loaded, so that each has something to write.
    Idle,
    /// They are in a model call.
    AtWork,
}

pub(crate) async fn measure() -> Result<()> {
    print_head();
    measure_trees(Trees::Idle).await?;
    measure_trees(Trees::AtWork).await
}

async fn measure_trees(trees: Trees) -> Result<()> {
    let (what, program) = match trees {
        Trees::Idle => ("idle", answering()),
        Trees::AtWork => (
            "in a model call of 4 s",
            working(100_000, DELAY.as_millis() as u64),
        ),
    };
    let schema = Schema::new()?;
    let start = |name| NodeProgram::start(&schema, name, SETTINGS);
    let (mut a, _b) = (start("a")?, start("b")?);
    let cluster = schema.connect().await?;
    let client = schema.client().await?;
    schema
        .settled(&cluster, &client, SHARDS, &["a", "b"])
        .await?;
    let at_a = start_trees(&schema, &cluster, &client, &program).await?;
    let mut plain = PlainInsert::new(&schema, SyncLevel::Synced).await?;
    let mut alone = Durations::default();
    let (mut left, mut taken_over) = (Durations::default(), Durations::default());
    let (mut joined, mut commits) = (Durations::default(), Vec::new());
    for _ in 0..DRAINS {
        if trees == Trees::Idle {
            each_has_a_turn(&at_a).await?;
        }
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
    println!("  commits of all shards until then, in each drain: {commits:?}");
    Ok(())
}

/// Every tree answers an input.
async fn each_has_a_turn(trees: &[ClusterProcess]) -> Result<()> {
    let turns = futures_util::stream::iter(trees).map(async |tree| {
        tree.input("And then?").await?;
        while tree.info().await?.status != "idle" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    });
    turns.buffer_unordered(64).try_collect().await
}

/// Starts trees until so many are at the node `a`, and returns those.
async fn start_trees(
    schema: &Schema,
    cluster: &Cluster,
    client: &Client,
    program: &ProgramFiles,
) -> Result<Vec<ClusterProcess>> {
    let owners = schema.owners(client).await?;
    let mut at_a = Vec::new();
    while at_a.len() < TREES {
        let starts = (0..100.min(TREES - at_a.len())).map(|_| {
            let start = cluster.start(program.clone());
            start.session().input("Hello").into_future()
        });
        let started = try_join_all(starts).await?.into_iter();
        let owner = |tree: &ClusterProcess| owners.get(&shard_of(tree.pid()).0);
        at_a.extend(started.filter(|tree| owner(tree).is_some_and(|owner| owner == "a")));
    }
    Ok(at_a)
}

async fn commits_of(client: &Client) -> Result<i64> {
    let sql = "SELECT sum(last_commit)::bigint FROM shard";
    Ok(client.query_one(sql, &[]).await?.get(0))
}
