//! From `kill -9` of a node to the first new fact of a tree of its shards, and to one of each such
//! tree.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dormouse_cluster::shard_of;
use futures_util::future::try_join_all;
use tokio_postgres::Client;

use crate::nodes::{NodeProgram, NodeSettings};
use crate::programs::working;
use crate::report::{Durations, print_head, print_row, shown};
use crate::schema::Schema;

const SHARDS: u32 = 16;
const TREES: usize = 64;
/// The lease, and how often a node is killed.
const RUNS: [(Duration, usize); 2] = [(Duration::from_secs(2), 16), (Duration::from_secs(10), 10)];
/// What a failover may take in addition to the lease.
const GOAL: Duration = Duration::from_secs(1);

/// One failover.
struct Failover {
    /// What was left of the last lease of the node when it was killed.
    lease_left: Duration,
    claimed: Duration,
    first: Duration,
    all: Duration,
}

pub(crate) async fn measure() -> Result<()> {
    print_head();
    for (lease, kills) in RUNS {
        measure_lease(lease, kills).await?;
    }
    Ok(())
}

async fn measure_lease(lease: Duration, kills: usize) -> Result<()> {
    let schema = Schema::new()?;
    let settings = NodeSettings {
        shards: SHARDS,
        lease,
        model_calls: TREES,
    };
    let mut nodes = [
        ("a", NodeProgram::start(&schema, "a", settings)?),
        ("b", NodeProgram::start(&schema, "b", settings)?),
    ];
    let cluster = schema.connect().await?;
    let client = schema.client().await?;
    schema
        .settled(&cluster, &client, SHARDS, &["a", "b"])
        .await?;
    let starts = (0..TREES).map(|_| {
        cluster
            .start(working(100_000, 100))
            .input("Begin")
            .into_future()
    });
    let trees = try_join_all(starts).await?;
    let trees: Vec<(i32, i64)> = trees
        .iter()
        .map(|tree| {
            (
                shard_of(tree.pid()).0 as i32,
                (tree.pid().0 ^ 1 << 63) as i64,
            )
        })
        .collect();
    let mut failovers = Vec::new();
    for kill in 0..kills {
        let (name, node) = &mut nodes[kill % 2];
        // At any moment between two renewals.
        tokio::time::sleep(lease.mul_f64(0.4 + 0.37 * (kill as f64 * 0.618).fract())).await;
        let again = |schema: &Schema| NodeProgram::start(schema, name, settings);
        failovers.push(fail_over(&schema, &client, &trees, name, node, again).await?);
        schema
            .settled(&cluster, &client, SHARDS, &["a", "b"])
            .await?;
    }
    print(lease, &failovers);
    Ok(())
}

fn print(lease: Duration, failovers: &[Failover]) {
    let all = |of: fn(&Failover) -> Duration| Durations(failovers.iter().map(of).collect());
    let left = all(|failover| failover.lease_left);
    let name = "what was left of the lease";
    let what = |what: &str| format!("{what}, lease {}", shown(lease));
    print_row(
        what("kill -9 to the first claim"),
        &all(|each| each.claimed),
        name,
        &left,
    );
    print_row(
        what("to the first new fact"),
        &all(|each| each.first),
        name,
        &left,
    );
    print_row(
        what("to a new fact of every tree"),
        &all(|each| each.all),
        name,
        &left,
    );
    let after = all(|each| each.first.saturating_sub(each.lease_left));
    println!(
        "  first new fact after the end of the lease: median {}, longest {}; goal {} after a whole lease: {} of {} runs",
        shown(after.median()),
        shown(after.at(1.0)),
        shown(GOAL),
        failovers
            .iter()
            .filter(|each| each.first <= lease + GOAL)
            .count(),
        failovers.len(),
    );
}

/// Kills a node, waits until each tree of its shards has a new fact, and starts it again.
async fn fail_over(
    schema: &Schema,
    client: &Client,
    trees: &[(i32, i64)],
    name: &str,
    node: &mut NodeProgram,
    again: impl Fn(&Schema) -> Result<NodeProgram>,
) -> Result<Failover> {
    let owners = schema.owners(client).await?;
    let lost = trees.iter().filter(|(shard, _)| {
        owners
            .get(&(*shard as u32))
            .is_some_and(|owner| owner == name)
    });
    let (shards, ids): (Vec<i32>, Vec<i64>) = lost.copied().unzip();
    ensure!(!shards.is_empty(), "{name} has no tree");
    let begun = Instant::now();
    node.kill()?;
    let left = "SELECT coalesce(extract(epoch FROM max(until) - clock_timestamp()), 0)::float8
        FROM lease WHERE shard = ANY ($1)";
    let lease_left: f64 = client.query_one(left, &[&shards]).await?.get(0);
    // What the program had sent has arrived, and the lease is longer than this.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = last_facts(client, &shards, &ids).await?;
    let epochs = "SELECT max(epoch) FROM shard WHERE id = ANY ($1)";
    let epoch: i64 = client.query_one(epochs, &[&shards]).await?.get(0);
    let (mut claimed, mut first) = (None, None);
    loop {
        let highest: i64 = client.query_one(epochs, &[&shards]).await?.get(0);
        if highest > epoch {
            claimed.get_or_insert_with(|| begun.elapsed());
        }
        let now = last_facts(client, &shards, &ids).await?;
        let new = now.iter().zip(&before).filter(|(now, before)| now > before);
        let new = new.count();
        if new > 0 {
            first.get_or_insert_with(|| begun.elapsed());
        }
        if new == ids.len() {
            break;
        }
        ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "{} of {} trees of {name} do not go on",
            ids.len() - new,
            ids.len()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let all = begun.elapsed();
    *node = again(schema)?;
    Ok(Failover {
        lease_left: Duration::from_secs_f64(lease_left.max(0.0)),
        claimed: claimed.context("a fact follows a claim")?,
        first: first.context("some tree is the first")?,
        all,
    })
}

/// The number of the last fact of each process, in the order of `ids`.
async fn last_facts(client: &Client, shards: &[i32], ids: &[i64]) -> Result<Vec<i64>> {
    let sql = "SELECT f.number FROM unnest($1::integer[], $2::bigint[]) WITH ORDINALITY AS t (shard, id, n)
        LEFT JOIN LATERAL (SELECT number FROM record AS r
            WHERE r.shard = t.shard AND r.kind = 3 AND r.id = t.id ORDER BY number DESC LIMIT 1) AS f ON true
        ORDER BY t.n";
    let rows = client.query(sql, &[&shards, &ids]).await?;
    let number = |row: &tokio_postgres::Row| row.get::<_, Option<i64>>(0).unwrap_or(i64::MIN);
    Ok(rows.iter().map(number).collect())
}
