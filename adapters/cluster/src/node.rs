//! A node: says that it lives, renews its leases, and takes and gives up shards as placement says.
//!
//! Two loops run apart from each other, so that opening a shard never delays a renewal. Leases and
//! lives end by the clock of the database.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dormouse::ports::StoreError;
use dormouse::{KernelBuilder, ModelPermits};
use dormouse_postgres::{Claim, ShardId};
use futures_util::future::join_all;
use tokio::sync::watch;

use crate::caller::Caller;
use crate::database::on_database;
use crate::failures::{Failure, Failures};
use crate::held::ShardState;
use crate::label_sharing::LabelSharing;
use crate::options::ClusterOptions;
use crate::placement::{self, Candidate, watched_by};
use crate::shards::Shard;
use crate::tables::{LiveNode, PROTOCOL, Placement};

/// How often what is kept for a while only is deleted.
const CLEAN_UP_EVERY: Duration = Duration::from_secs(600);

/// How often a node reads all that placement depends on, also if it has seen no change: a database
/// that was restored, or a standby that was promoted, may have lost one.
const READ_ALL_EVERY: Duration = Duration::from_secs(60);

/// A node of a cluster.
pub(crate) struct Node {
    /// The id of this run.
    pub(crate) id: String,
    pub(crate) caller: Arc<Caller>,
    pub(crate) options: ClusterOptions,
    pub(crate) address: String,
    pub(crate) kernel: Box<dyn Fn(Shard) -> KernelBuilder + Send + Sync>,
    pub(crate) permits: Arc<ModelPermits>,
    pub(crate) labels: LabelSharing,
    pub(crate) counters: Counters,
    phase: watch::Sender<Phase>,
    pub(crate) failures: Failures,
    last_renewal: Mutex<Instant>,
    /// Held while the database is told that the node lives, or has left: the last word is that it
    /// has.
    heart: tokio::sync::Mutex<()>,
    /// Held while shares of limits are reported or returned: none is reported after the return.
    pub(crate) reporting: tokio::sync::Mutex<()>,
    /// Whether all shards that are this node's are open, as far as it knows.
    is_settled: AtomicBool,
}

/// What a node has placed shards by.
struct Placed {
    generation: i64,
    /// The node whose end this one would see.
    watched: Option<String>,
    /// The shards that are its own.
    own: Vec<ShardId>,
    /// Whether all that it had to open was open, and all that it had to give up was given up.
    is_done: bool,
    read_at: Instant,
}

/// What `/metrics` counts.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) claims: AtomicU64,
    pub(crate) losses: AtomicU64,
    pub(crate) calls: AtomicU64,
    pub(crate) refused_calls: AtomicU64,
}

/// A node's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum Phase {
    Running,
    Draining,
    Left,
}

impl Node {
    pub(crate) fn new(
        id: String,
        caller: Arc<Caller>,
        options: ClusterOptions,
        address: String,
        kernel: Box<dyn Fn(Shard) -> KernelBuilder + Send + Sync>,
    ) -> Self {
        let first_share = options.shared_limits.first_share();
        let permits = ModelPermits::new(options.model_calls, []).in_shares(first_share);
        Self {
            id,
            caller,
            address,
            kernel,
            permits: Arc::new(permits),
            options,
            labels: LabelSharing::default(),
            counters: Counters::default(),
            phase: watch::Sender::new(Phase::Running),
            failures: Failures::default(),
            last_renewal: Mutex::new(Instant::now()),
            heart: tokio::sync::Mutex::default(),
            reporting: tokio::sync::Mutex::default(),
            is_settled: AtomicBool::new(false),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// How long ago leases were last renewed.
    pub(crate) fn lease_age(&self) -> Duration {
        let last = self.last_renewal.lock();
        last.unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Whether the node holds what it should, and can renew it.
    pub(crate) fn is_ready(&self) -> bool {
        self.phase() == Phase::Running
            && self.is_settled.load(Ordering::Relaxed)
            && self.lease_age() < self.options.lease
    }

    /// The failures of shards that are not open, a line each.
    pub(crate) fn failures(&self) -> String {
        let now = Instant::now();
        let failures = self.failures.all(now).into_iter();
        let failures = failures.filter(|(shard, _)| {
            let held = self.caller.held.get(*shard);
            held.is_none_or(|held| held.state != ShardState::Open)
        });
        let line = |(shard, failure): (ShardId, Failure)| {
            let Failure { times, why, .. } = &failure;
            let wait_s = failure.retry_at.saturating_duration_since(now).as_secs();
            format!("{shard} has failed {times} times, and is opened again in {wait_s} s: {why}\n")
        };
        failures.map(line).collect()
    }

    fn as_live(&self) -> LiveNode {
        LiveNode {
            candidate: Candidate {
                id: self.id.clone(),
                name: self.options.name.clone(),
                labels: self.options.labels.clone(),
            },
            address: self.address.clone(),
            is_draining: self.phase() != Phase::Running,
            protocol: PROTOCOL,
        }
    }

    /// Says that the node lives. Returns whether it is to be drained.
    pub(crate) async fn heartbeat(&self) -> Result<bool, StoreError> {
        let (tables, node, lease) = (
            self.caller.tables.clone(),
            self.as_live(),
            self.options.lease,
        );
        on_database(move || tables.heartbeat(&node, lease)).await
    }

    /// Says which live nodes speak another version of the calls. They run side by side while nodes
    /// are upgraded, and not for longer.
    pub(crate) async fn compare_protocols(&self) -> Result<(), StoreError> {
        let tables = self.caller.tables.clone();
        let nodes = on_database(move || tables.live_nodes()).await?;
        for node in nodes.iter().filter(|node| node.protocol != PROTOCOL) {
            tracing::warn!(
                node = node.candidate.name,
                its_version = node.protocol,
                own_version = PROTOCOL,
                "nodes of different versions run side by side: calls that one of them does not know \
                 fail. Upgrade all nodes"
            );
        }
        Ok(())
    }

    /// Renews the life and the leases of the node until it leaves.
    pub(crate) async fn renew_leases(self: Arc<Self>) {
        let every = self.options.lease / 3;
        let mut next = tokio::time::interval(every);
        next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while self.phase() != Phase::Left {
            next.tick().await;
            match self.renew_once().await {
                Ok(true) => {
                    self.phase.send_if_modified(|phase| {
                        let is_new = *phase == Phase::Running;
                        if is_new {
                            *phase = Phase::Draining;
                        }
                        is_new
                    });
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "leases were not renewed");
                    next.reset_after(every / 4);
                }
            }
        }
    }

    async fn renew_once(&self) -> Result<bool, StoreError> {
        let _heart = self.heart.lock().await;
        if self.phase() == Phase::Left {
            return Ok(false);
        }
        let begun = Instant::now();
        let is_to_drain = self.heartbeat().await?;
        let (database, claims) = (self.caller.tables.0.clone(), self.caller.held.claims());
        // A kernel whose lease is lost closes by itself.
        let lost = on_database(move || database.renew(&claims)).await?;
        // Some may have been released since the renewal began.
        let claims = self.caller.held.claims();
        let held: BTreeSet<ShardId> = claims.iter().map(Claim::shard).collect();
        for shard in lost {
            if held.contains(&shard) {
                tracing::error!(%shard, "another node has claimed the shard, or its lease ended");
            }
        }
        let mut last = self
            .last_renewal
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *last = begun;
        Ok(is_to_drain)
    }

    /// Takes and gives up shards until the node leaves.
    pub(crate) async fn place_shards(self: Arc<Self>) {
        let every =
            (self.options.lease / 20).clamp(Duration::from_millis(50), Duration::from_millis(500));
        let mut phase = self.phase.subscribe();
        let mut cleaned = Instant::now();
        let mut placed: Option<Placed> = None;
        loop {
            match self.phase() {
                Phase::Running => match self.place_again(placed.take()).await {
                    Ok(last) => placed = Some(last),
                    Err(error) => tracing::warn!(%error, "shards were not placed"),
                },
                Phase::Draining => return self.leave().await,
                Phase::Left => return,
            }
            if cleaned.elapsed() > CLEAN_UP_EVERY {
                cleaned = Instant::now();
                let tables = self.caller.tables.clone();
                if let Err(error) = on_database(move || tables.delete_old()).await {
                    tracing::warn!(%error, "old requests were not deleted");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                changed = phase.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Places shards, unless nothing has changed since the last time.
    async fn place_again(self: &Arc<Self>, last: Option<Placed>) -> Result<Placed, StoreError> {
        if let Some(last) = last
            && last.is_done
            && last.read_at.elapsed() < READ_ALL_EVERY
            && last.own.iter().all(|shard| self.is_open(*shard))
        {
            let (tables, generation) = (self.caller.tables.clone(), last.generation);
            let watched = last.watched.clone();
            let look = move || tables.has_changed(generation, watched.as_deref());
            if !on_database(look).await? {
                self.is_settled.store(true, Ordering::Relaxed);
                return Ok(last);
            }
        }
        self.place_once().await
    }

    fn is_open(&self, shard: ShardId) -> bool {
        let held = self.caller.held.get(shard);
        held.is_some_and(|held| held.state == ShardState::Open)
    }

    async fn place_once(self: &Arc<Self>) -> Result<Placed, StoreError> {
        let tables = self.caller.tables.clone();
        let read_at = Instant::now();
        let placement = on_database(move || tables.placement()).await?;
        let Placement {
            generation,
            nodes,
            needs,
            shards,
        } = placement;
        let watched = watched_by(&self.id, nodes.iter().map(|node| &*node.candidate.id));
        let nodes = nodes.into_iter().filter(|node| !node.is_draining);
        let nodes: Vec<Candidate> = nodes.map(|node| node.candidate).collect();
        let mut own = Vec::new();
        let (mut is_settled, mut is_done) = (true, true);
        for status in shards {
            let needs = needs.get(&status.shard).cloned().unwrap_or_default();
            let owner = placement::owner(status.shard, &needs, &nodes);
            let is_own = owner.is_some_and(|owner| owner.id == self.id);
            own.extend(is_own.then_some(status.shard));
            let held = self.caller.held.get(status.shard);
            match held.map(|held| held.state) {
                None if is_own => {
                    is_settled = false;
                    if status.lease.is_none()
                        && self.failures.may_open(status.shard, Instant::now())
                    {
                        let shard = Shard {
                            id: status.shard,
                            needs,
                        };
                        self.begin_opening(shard);
                    }
                }
                Some(ShardState::Open) if !is_own && owner.is_some() => {
                    is_done = false;
                    let (node, shard) = (self.clone(), status.shard);
                    tokio::spawn(async move { node.give_up(shard).await });
                }
                Some(ShardState::Opening) => is_settled = false,
                None => self.failures.forget(status.shard),
                Some(ShardState::Open | ShardState::Closing) => {}
            }
        }
        self.is_settled.store(is_settled, Ordering::Relaxed);
        Ok(Placed {
            generation,
            watched,
            own,
            is_done: is_done && is_settled,
            read_at,
        })
    }

    fn begin_opening(self: &Arc<Self>, shard: Shard) {
        if let Some(held) = self.caller.held.begin_opening(shard.id) {
            tokio::spawn(self.clone().open_shard(shard, held));
        }
    }

    /// Begins to give up all shards and to leave.
    pub(crate) fn drain(&self) {
        self.phase.send_if_modified(|phase| {
            let is_new = *phase == Phase::Running;
            if is_new {
                *phase = Phase::Draining;
            }
            is_new
        });
    }

    /// Resolves when the node has left.
    pub(crate) async fn left(&self) {
        let mut phase = self.phase.subscribe();
        // The sender lives as long as the node.
        let _ = phase.wait_for(|phase| *phase == Phase::Left).await;
    }

    async fn leave(&self) {
        // From now on the shards belong to others, who wait for their release.
        if let Err(error) = self.heartbeat().await {
            tracing::warn!(%error, "others learn only by the leases that this node leaves");
        }
        loop {
            let held = self.caller.held.all();
            let open: BTreeSet<ShardId> = held
                .iter()
                .filter(|(_, held)| held.state == ShardState::Open)
                .map(|(shard, _)| *shard)
                .collect();
            // All at once: each waits for calls in flight, and the deadline of a shard is that of
            // all.
            join_all(open.into_iter().map(|shard| self.give_up(shard))).await;
            if self.caller.held.all().is_empty() {
                break;
            }
            // Some were being opened, or lost.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let _reporting = self.reporting.lock().await;
        self.return_permits().await;
        let _heart = self.heart.lock().await;
        let (tables, id) = (self.caller.tables.clone(), self.id.clone());
        if let Err(error) = on_database(move || tables.delete_node(&id)).await {
            tracing::warn!(%error, "the node was not removed from the list: its life ends by itself");
        }
        self.phase.send_replace(Phase::Left);
    }
}
