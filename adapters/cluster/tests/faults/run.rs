//! One history: a cluster, its clients, faults, the end of the faults, and the check.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dormouse_cluster::Cluster;
use dormouse_postgres::DatabaseOptions;
use tokio::sync::Mutex;

use crate::check::{self, Evidence, Findings};
use crate::faults::Victims;
use crate::history::History;
use crate::link::Link;
use crate::node::{LEASE, Node, NodeSettings, Objects, SHARDS};
use crate::observer;
use crate::postgres::{Postgres, Replication};
use crate::random::Random;
use crate::swarm::Swarm;

/// How long everything may take to come to its end once the faults have ended.
const END_LIMIT: Duration = Duration::from_secs(150);

/// How long a node may drain.
const DRAIN_LIMIT: Duration = Duration::from_secs(90);

/// The time between the beginnings of two waves.
const BETWEEN_WAVES: Duration = Duration::from_secs(35);

/// After this time a process that rests hibernates.
const RESTS_IN_MEMORY: Duration = Duration::from_secs(60);

/// What a history is to be.
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) schema: String,
    pub(crate) folder: PathBuf,
    pub(crate) under_faults: Duration,
    /// How many sessions are started that only wait.
    pub(crate) idle: usize,
    pub(crate) only: Vec<String>,
    pub(crate) program: PathBuf,
    pub(crate) faketime: Option<PathBuf>,
    pub(crate) objects: Objects,
}

/// What a history was.
pub(crate) struct Outcome {
    pub(crate) findings: Findings,
    pub(crate) history: History,
}

/// A cluster that runs.
struct Running {
    victims: Victims,
    swarm: Swarm,
    history: History,
    database: DatabaseOptions,
    ledger: PathBuf,
}

/// Runs a history.
pub(crate) async fn run(plan: &Plan, postgres: Arc<Mutex<Postgres>>) -> Result<Outcome> {
    let running = begin(plan, postgres).await?;
    let (victims, swarm, history) = (&running.victims, &running.swarm, &running.history);
    let idle_from = Instant::now();
    swarm.start_idle(plan.idle).await;
    let idle_to = Instant::now();
    println!(
        "{} sessions wait after {:?}",
        plan.idle,
        idle_to - idle_from
    );
    let end = Instant::now() + plan.under_faults;
    let faults = victims.suffer(end, Random::of(plan.seed, "faults"));
    let waves = async {
        let mut random = Random::of(plan.seed, "waves");
        let mut number = 0;
        while Instant::now() + BETWEEN_WAVES / 2 < end {
            let next = tokio::time::Instant::now() + BETWEEN_WAVES;
            swarm.wave(number, &mut random).await;
            tokio::time::sleep_until(next.min(end.into())).await;
            number += 1;
        }
    };
    let mut random = Random::of(plan.seed, "hibernate");
    let amid = idle_from + RESTS_IN_MEMORY + random.between(Duration::ZERO, idle_to - idle_from);
    let idle = async {
        match plan.idle > 0 && amid < end {
            true => hibernate(victims, swarm, plan, amid).await,
            false => Ok(()),
        }
    };
    let (suffered, (), idle) = tokio::join!(faults, waves, idle);
    suffered.context("a fault could not be made")?;
    idle?;
    println!("the faults have ended");
    let mut findings = Findings::default();
    let healed = Instant::now();
    let is_async = victims.postgres.lock().await.replication == Replication::Async;
    let mut continued = BTreeSet::new();
    let unfinished = tokio::select! {
        unfinished = swarm.finish(END_LIMIT) => unfinished,
        never = swarm.continue_again(&mut continued), if is_async => match never {},
    };
    for pid in continued {
        findings.violate("continue-lost", format!("process {pid} was stopped"));
    }
    println!("everything came to its end after {:?}", healed.elapsed());
    if unfinished.trees > 0 {
        let living = swarm.living_trees().await?;
        let living = living.iter().map(|info| {
            let (pid, program) = (info.row.pid, &info.row.program);
            format!("process {pid} ({program}): {}", info.status)
        });
        let living: Vec<_> = living.collect();
        // A tree whose start a failover has lost is nowhere: the check names it.
        if !(is_async && living.is_empty()) {
            let evidence = format!("{} trees: {living:?}", unfinished.trees);
            findings.violate("tree-never-ended", evidence);
        }
    }
    for listener in unfinished.listeners {
        findings.violate("listener-never-idle", listener);
    }
    findings.count(
        "trees",
        swarm.started.load(std::sync::atomic::Ordering::Relaxed),
    );
    swarm.end_sessions().await;
    for node in &victims.nodes {
        let mut node = node.lock().await;
        if !node.drain(DRAIN_LIMIT).await? {
            findings.violate("drain-never-ended", node.name);
        }
        count_log(&Node::log_path(&plan.folder, node.name), &mut findings)?;
    }
    history.flush()?;
    let evidence = Evidence {
        history: history.clone(),
        writes: observer::read(&*victims.postgres.lock().await, &plan.schema).await?,
        ledger: running.ledger.clone(),
        database: running.database.clone(),
        objects: plan.objects.clone(),
    };
    check::check(&evidence, &mut findings).await?;
    Ok(Outcome {
        findings,
        history: running.history,
    })
}

async fn begin(plan: &Plan, postgres: Arc<Mutex<Postgres>>) -> Result<Running> {
    let ledger = plan.folder.join("ledger");
    std::fs::create_dir_all(&ledger)?;
    let history = History::create(&plan.folder.join("history.jsonl"))?;
    let locked = postgres.lock().await;
    let client_link = Link::to(locked.port()).await?;
    let url = format!("postgres://client@127.0.0.1:{}/postgres", client_link.port);
    let database = DatabaseOptions::new(&url)?.schema(&plan.schema)?;
    // Makes the tables.
    let cluster = Cluster::connect(database.clone()).await?;
    observer::observe(&locked, &plan.schema).await?;
    let settings = NodeSettings {
        program: plan.program.clone(),
        folder: plan.folder.clone(),
        schema: plan.schema.clone(),
        objects: plan.objects.clone(),
        faketime: plan.faketime.clone(),
        variables: Vec::new(),
    };
    let mut nodes = Vec::new();
    let mut database_links = vec![client_link];
    for name in ["a", "b", "c"] {
        let mut node = Node::new(name, settings.clone(), locked.port()).await?;
        node.start(0)?;
        database_links.push(node.database.clone());
        nodes.push(Arc::new(Mutex::new(node)));
    }
    until_owned(&locked, &plan.schema).await?;
    drop(locked);
    let victims = Victims {
        nodes,
        postgres,
        schema: plan.schema.clone(),
        database_links,
        history: history.clone(),
        has_faketime: plan.faketime.is_some(),
        only: plan.only.clone(),
    };
    Ok(Running {
        swarm: Swarm::new(cluster, history.clone(), &ledger),
        victims,
        history,
        database,
        ledger,
    })
}

/// Waits until each shard has an owner.
async fn until_owned(postgres: &Postgres, schema: &str) -> Result<()> {
    let begun = Instant::now();
    let sql = format!("SELECT 1 FROM {schema}.lease WHERE until > clock_timestamp()");
    while postgres.sql(&sql).await?.len() < SHARDS as usize {
        anyhow::ensure!(
            begun.elapsed() < END_LIMIT,
            "the nodes do not claim all shards"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Kills a node at a moment at which some of the sessions that wait hibernate, others have not yet
/// begun to, and wakes some of them.
async fn hibernate(victims: &Victims, swarm: &Swarm, plan: &Plan, amid: Instant) -> Result<()> {
    let mut random = Random::of(plan.seed, "wake");
    tokio::time::sleep_until(amid.into()).await;
    {
        let mut node = random.pick(&victims.nodes).lock().await;
        let description = format!(
            "kill-hibernating-node: {}, {} sessions",
            node.name, plan.idle
        );
        victims.history.fault("kill-hibernating-node", &description);
        node.kill();
        tokio::time::sleep(random.between(Duration::ZERO, LEASE)).await;
        node.start(0)?;
    }
    swarm.wake_some(40, &mut random).await;
    Ok(())
}

/// Counts what a node says of commits that were refused and of shards that it lost.
fn count_log(path: &Path, findings: &mut Findings) -> Result<()> {
    let log = std::fs::read(path)?;
    let log = String::from_utf8_lossy(&log);
    for (name, text) in [
        (
            "commits refused as stale",
            "not made durable error=the store was claimed by a newer owner",
        ),
        ("commits refused as moved", "the database has lost some"),
        ("shards lost by nodes", "the shard is lost"),
        (
            "processes stopped by a commit error",
            "a process was stopped",
        ),
        ("panics", "panicked at"),
    ] {
        findings.count(name, log.matches(text).count() as u64);
    }
    if let Some(at) = log.find("panicked at") {
        let evidence: String = log[at..].chars().take(600).collect();
        findings.violate("node-panicked", evidence);
    }
    Ok(())
}
