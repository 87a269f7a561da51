//! A message between processes: from the reply of the sender's model that sends it to the first
//! call of the receiver's model with it. Two facts are committed on the way: the reply, and the
//! receipt.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dormouse::id::Pid;
use dormouse::ports::SyncLevel;
use dormouse_cluster::{Cluster, ClusterOptions, ClusterProcess, shard_of};
use tokio::sync::mpsc;
use tokio_postgres::Client;

use crate::baseline::{PlainInsert, multiplied};
use crate::link::{Link, LinkModel};
use crate::report::{Durations, print_head, print_row};
use crate::schema::{Schema, plain_kernel};

const SHARDS: u32 = 8;
const MESSAGES: usize = 300;
/// Those through the table are polled for.
const POLLED_MESSAGES: usize = 20;

/// Where the two processes are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Places {
    OneShard,
    OneNode,
    TwoNodes,
    /// The nodes cannot reach each other: every message goes through the table.
    TwoNodesApart,
}

pub(crate) async fn measure() -> Result<()> {
    print_head();
    for (places, what) in [
        (Places::OneShard, "message within a shard"),
        (Places::OneNode, "message between two shards of one node"),
        (Places::TwoNodes, "message between two nodes"),
        (Places::TwoNodesApart, "message through the inbox (250 ms)"),
    ] {
        let exchange = exchange(places).await?;
        let alone = multiplied(&exchange.alone, 2);
        print_row(what, &exchange.messages, "two INSERTs", &alone);
        println!(
            "  {:.1} commits for each message and its turn",
            exchange.commits
        );
    }
    Ok(())
}

/// What was measured of the messages between two processes.
struct Exchange {
    messages: Durations,
    /// INSERTs in between.
    alone: Durations,
    /// Commits for each message and its turn, also those that nothing waits for.
    commits: f64,
}

async fn exchange(places: Places) -> Result<Exchange> {
    let schema = Schema::new()?;
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let link = Link::new(arrived);
    let (ping, pong) = (LinkModel::new(&link), LinkModel::new(&link));
    let mut nodes = Vec::new();
    let names: &[&str] = match places {
        Places::OneShard | Places::OneNode => &["a"],
        Places::TwoNodes | Places::TwoNodesApart => &["a", "b"],
    };
    for name in names {
        let mut options = ClusterOptions::new(schema.options()?, *name).shards(SHARDS);
        if places == Places::TwoNodesApart {
            // Others are told an address where nobody listens.
            options = options.advertised("127.0.0.1:1");
        }
        let (ping, pong) = (ping.clone(), pong.clone());
        let kernel = move || {
            let models = plain_kernel().model("ping", ping.clone());
            models.model("pong", pong.clone())
        };
        nodes.push(schema.join(options, kernel).await?);
    }
    let client = schema.client().await?;
    while schema.owners(&client).await?.len() < SHARDS as usize
        || !nodes.iter().all(Cluster::is_ready)
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let owners = schema.owners(&client).await?;
    let first = start(&nodes, &owners, "ping", |_| true).await?;
    let fits = |pid: Pid| {
        let (one, other) = (shard_of(first.pid()).0, shard_of(pid).0);
        match places {
            Places::OneShard => one == other,
            Places::OneNode => one != other,
            Places::TwoNodes | Places::TwoNodesApart => owners.get(&one) != owners.get(&other),
        }
    };
    let second = start(&nodes, &owners, "pong", fits).await?;
    ensure!(ping.to.set(second.pid()).is_ok() && pong.to.set(first.pid()).is_ok());
    let mut plain = PlainInsert::new(&schema, SyncLevel::Synced).await?;
    let mut alone = Durations::default();
    first.input("begin").await?;
    let mut messages = Durations::default();
    let count = match places {
        Places::TwoNodesApart => POLLED_MESSAGES,
        _ => MESSAGES,
    };
    let before = commits(&client).await?;
    for _ in 0..count {
        let arrival = tokio::time::timeout(Duration::from_secs(60), arrivals.recv());
        let arrival = arrival
            .await?
            .context("the processes write to each other")?;
        messages.push(arrival);
        // The receiver waits before it sends: nothing else is written now.
        alone.push(plain.once().await?);
    }
    let commits = (commits(&client).await? - before) as f64 / count as f64;
    for process in [first, second] {
        process.kill().await?;
    }
    for node in nodes {
        node.drain().await;
    }
    Ok(Exchange {
        messages,
        alone,
        commits,
    })
}

/// The commits of all shards so far.
async fn commits(client: &Client) -> Result<i64> {
    let sql = "SELECT sum(last_commit)::bigint FROM shard";
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// Starts sessions with this model until one is in a shard that fits. The address of a node is of
/// no use where nodes are apart, so each is started by the node that has its shard.
async fn start(
    nodes: &[Cluster],
    owners: &std::collections::BTreeMap<u32, String>,
    model: &str,
    fits: impl Fn(Pid) -> bool,
) -> Result<ClusterProcess> {
    let program = format!(
        "[model]\nname = '{model}'\nprovider = 'scripted'\nmax_iterations = 100000\n\
         [tools]\nenabled = ['send_message']\n"
    );
    let names = ["a", "b"];
    for number in 0..1000 {
        // A node without a way to the others only starts what belongs to its own shards.
        let node = &nodes[number % nodes.len()];
        let start = node.start(program.clone()).session().without_input();
        let start = tokio::time::timeout(Duration::from_millis(500), start.into_future());
        let Ok(Ok(process)) = start.await else {
            continue;
        };
        if fits(process.pid()) {
            let owner = owners.get(&shard_of(process.pid()).0);
            let at = names
                .iter()
                .position(|name| owner.is_some_and(|owner| owner == name));
            let node = at.and_then(|at| nodes.get(at)).unwrap_or(node);
            return Ok(node.process(process.pid()));
        }
    }
    anyhow::bail!("no process with the model {model} is in a shard that fits")
}
