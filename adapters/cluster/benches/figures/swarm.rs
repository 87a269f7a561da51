//! Trees a second of a swarm whose models take time, on 1, 2 and 4 nodes, and where the machine and
//! the database become busy.
//!
//! Each tree calls its model four times and a tool three times, and ends. A client keeps so many
//! trees under way that each node has more of them than permits for model calls. A bare client
//! meanwhile measures what one INSERT takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dormouse::ports::SyncLevel;
use dormouse_cluster::{Cluster, placement};
use dormouse_postgres::ShardId;

use crate::baseline::PlainInsert;
use crate::cpu::{self, ServerCpu};
use crate::nodes::{NodeProgram, NodeSettings};
use crate::programs::working;
use crate::report::{Durations, shown};
use crate::schema::Schema;

const SHARDS: u32 = 64;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const CALLS_OF_A_TREE: u32 = 4;
const DELAY: Duration = Duration::from_millis(500);
/// How long a tree takes, with its waits for permits.
const TREE: Duration = Duration::from_secs(4);
const WARM_UP: Duration = Duration::from_secs(9);
const RUN: Duration = Duration::from_secs(12);
/// How many model calls a node makes at once.
const PERMITS: [usize; 3] = [16, 64, 256];
/// How many trees are under way for each permit.
const TREES_FOR_A_PERMIT: usize = 2;

/// What was counted in a run.
struct Run {
    trees_per_second: f64,
    /// The most that the permits and the delay allow.
    most: f64,
    /// The most that the node with the most shards allows for long: trees are spread over shards by
    /// chance, and in time all wait for that node. A run that begins with equal queues can be
    /// above.
    placement: f64,
    /// Processor time for each second of the run: of the database, of the nodes, of this client.
    database: f64,
    nodes: f64,
    client: f64,
    inserts: Durations,
    commits_per_tree: f64,
    wal_bytes_per_tree: f64,
}

pub(crate) async fn measure() -> Result<()> {
    let cores = std::thread::available_parallelism()?;
    println!(
        "{cores} cores for nodes, database and client; a tree has {CALLS_OF_A_TREE} model calls of {} each",
        shown(DELAY)
    );
    println!(
        "{:>5} {:>7} {:>8} {:>8} {:>6} {:>9} {:>8}  {:>8} {:>6} {:>6}  {:>10} {:>10} {:>8} {:>8}",
        "nodes",
        "permits",
        "trees/s",
        "at most",
        "part",
        "placement",
        "calls/s",
        "database",
        "nodes",
        "client",
        "INSERT p50",
        "INSERT p99",
        "commits",
        "WAL"
    );
    for permits in PERMITS {
        for nodes in [1, 2, 4] {
            print(nodes, permits, &run(nodes, permits).await?);
        }
    }
    Ok(())
}

fn print(nodes: usize, permits: usize, run: &Run) {
    println!(
        "{nodes:5} {permits:7} {:8.1} {:8.1} {:5.0}% {:9.1} {:8.0}  {:7.0}% {:5.0}% {:5.0}%  {:>10} {:>10} {:8.1} {:5.1} kB",
        run.trees_per_second,
        run.most,
        100.0 * run.trees_per_second / run.most,
        run.placement,
        run.trees_per_second * f64::from(CALLS_OF_A_TREE),
        100.0 * run.database,
        100.0 * run.nodes,
        100.0 * run.client,
        shown(run.inserts.median()),
        shown(run.inserts.at(0.99)),
        run.commits_per_tree,
        run.wal_bytes_per_tree / 1e3,
    );
}

async fn run(nodes: usize, permits: usize) -> Result<Run> {
    let schema = Schema::new()?;
    let settings = NodeSettings {
        shards: SHARDS,
        lease: Duration::from_secs(10),
        model_calls: permits,
    };
    let names = &NAMES[..nodes];
    let start = |name: &&str| NodeProgram::start(&schema, name, settings);
    let programs = names.iter().map(start).collect::<Result<Vec<_>>>()?;
    let cluster = schema.connect().await?;
    let client = schema.client().await?;
    schema.settled(&cluster, &client, SHARDS, names).await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let ended = Arc::new(AtomicUsize::new(0));
    let clients = (0..TREES_FOR_A_PERMIT * permits * nodes).map(|number| {
        // Spread over the time of a tree. If all trees ended at the same moments, the count would
        // depend on how many of these moments a run has.
        let wait = TREE.mul_f64((number as f64 * 0.618).fract());
        let (cluster, ended, is_over) = (cluster.clone(), ended.clone(), is_over.clone());
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            keep_one_going(cluster, ended, is_over).await
        })
    });
    let clients: Vec<_> = clients.collect();
    tokio::time::sleep(WARM_UP).await;

    let server = ServerCpu::new(&client).await?;
    let ids = || programs.iter().map(NodeProgram::id);
    let cpu = || -> Result<[Duration; 3]> {
        let own = cpu::of_programs([std::process::id()])?;
        Ok([server.so_far()?, cpu::of_programs(ids())?, own])
    };
    let counted = async || -> Result<(i64, f64)> {
        let sql = "SELECT sum(last_commit)::bigint, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 FROM shard";
        let row = client.query_one(sql, &[]).await?;
        Ok((row.get(0), row.get(1)))
    };
    let mut plain = PlainInsert::new(&schema, SyncLevel::Synced).await?;
    let (before, counted_before) = (cpu()?, counted().await?);
    let (begun, ended_before) = (Instant::now(), ended.load(Ordering::Relaxed));
    let mut inserts = Durations::default();
    while begun.elapsed() < RUN {
        inserts.push(plain.once().await?);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let trees = (ended.load(Ordering::Relaxed) - ended_before) as f64;
    let (after, counted_after) = (cpu()?, counted().await?);
    is_over.store(true, Ordering::Relaxed);
    // Trees under way end with the programs.
    clients.iter().for_each(tokio::task::JoinHandle::abort);
    let part = |which: usize| (after[which] - before[which]).as_secs_f64() / seconds;
    let calls_per_second = permits as f64 / DELAY.as_secs_f64();
    let trees_of_a_node = calls_per_second / f64::from(CALLS_OF_A_TREE);
    Ok(Run {
        trees_per_second: trees / seconds,
        most: trees_of_a_node * nodes as f64,
        placement: trees_of_a_node / largest_part(names)?,
        database: part(0),
        nodes: part(1),
        client: part(2),
        inserts,
        commits_per_tree: (counted_after.0 - counted_before.0) as f64 / trees,
        wal_bytes_per_tree: (counted_after.1 - counted_before.1) / trees,
    })
}

/// The part of the shards that the node with the most of them has.
fn largest_part(names: &[&str]) -> Result<f64> {
    let candidate = |name: &&str| placement::Candidate {
        id: (*name).to_owned(),
        name: (*name).to_owned(),
        labels: placement::Labels::default(),
    };
    let nodes: Vec<_> = names.iter().map(candidate).collect();
    let shards_of = |node: &placement::Candidate| {
        let owned = (0..SHARDS).filter(|shard| {
            let owner = placement::owner(ShardId(*shard), &placement::Labels::default(), &nodes);
            owner.is_some_and(|owner| owner.name == node.name)
        });
        owned.count()
    };
    let most = nodes
        .iter()
        .map(shards_of)
        .max()
        .context("there is a node")?;
    Ok(most as f64 / f64::from(SHARDS))
}

/// Starts a tree and waits for its end, again and again.
async fn keep_one_going(
    cluster: Cluster,
    ended: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
) -> Result<()> {
    let program = working(CALLS_OF_A_TREE, DELAY.as_millis() as u64);
    while !is_over.load(Ordering::Relaxed) {
        let tree = cluster.start(program.clone()).input("Begin").await?;
        tree.wait().await?;
        ended.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
