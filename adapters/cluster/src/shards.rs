//! How a node opens a shard, gives it up, and stops one that it has lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dormouse::ports::StoreError;
use dormouse::{CloseReason, Kernel, KernelError, Recovery};
use dormouse_postgres::{Claim, ClaimMode, PostgresLog, ShardId};
use dormouse_records::RecordStore;

use crate::copies;
use crate::database::on_database;
use crate::held::{ClaimLease, HeldShard};
use crate::node::Node;
use crate::peers::ShardPeers;
use crate::placement::Labels;
use crate::shard::pids_of;

/// How long a kernel that closed may take to shut down. What it could still write, it has lost.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// A shard that a kernel is built for.
#[derive(Clone, Debug)]
pub struct Shard {
    /// Its number.
    pub id: ShardId,
    /// The labels that its trees need, all of which this node has.
    pub needs: Labels,
}

impl Node {
    /// Claims a shard and opens its kernel, unless another node is faster.
    pub(crate) async fn open_shard(self: Arc<Self>, shard: Shard, held: HeldShard) {
        let id = shard.id;
        match self.try_open(shard, &held).await {
            Ok(true) => {}
            Ok(false) => self.caller.held.remove(id, &held),
            Err(error) => {
                let wait = self.failures.add(id, error.to_string(), Instant::now());
                let wait_s = wait.as_secs();
                tracing::error!(shard = %id, %error, wait_s, "the shard cannot be opened");
                let claim = self.caller.held.get(id).and_then(|held| held.claim);
                match claim {
                    Some(claim) => self.let_go(claim, &held).await,
                    None => self.caller.held.remove(id, &held),
                }
            }
        }
    }

    async fn try_open(
        self: &Arc<Self>,
        shard: Shard,
        held: &HeldShard,
    ) -> Result<bool, KernelError> {
        let (id, lease, node) = (shard.id, self.options.lease, self.id.clone());
        let database = self.caller.tables.0.clone();
        let claim = move || database.claim_shard(id, &node, lease, ClaimMode::IfFree);
        let Some(claim) = on_database(claim).await? else {
            return Ok(false);
        };
        self.counters.claims.fetch_add(1, Ordering::Relaxed);
        self.caller.held.set_claim(&claim);
        self.end_moved(&claim).await?;
        let tables = self.caller.tables.clone();
        let read = move || Ok((tables.moved_pids(id)?, tables.moves_to(id)?));
        let (moved, come) = on_database(read).await?;
        self.caller.held.set_moved(id, moved);
        let recovery = copies::recovery(come);
        let kernel = self.build_kernel(&claim, shard, recovery).await?;
        self.caller.held.set_open(id, kernel.clone());
        self.failures.opened(id, Instant::now());
        tracing::info!(shard = %id, epoch = claim.owner().0, "the shard is open");
        let (node, held) = (self.clone(), held.clone());
        tokio::spawn(async move {
            let reason = kernel.closed().await;
            if !matches!(reason, CloseReason::ShutDown) {
                node.stop_lost(claim, kernel, reason, &held).await;
            }
        });
        Ok(true)
    }

    pub(crate) async fn build_kernel(
        &self,
        claim: &Claim,
        shard: Shard,
        recovery: Recovery,
    ) -> Result<Kernel, KernelError> {
        let id = shard.id;
        let mut log = PostgresLog::claimed(&self.caller.tables.0, claim);
        if let Some((objects, from_bytes)) = &self.options.large_contents {
            log = log.large_contents(objects.clone(), *from_bytes);
        }
        let mut store = RecordStore::new_on(log);
        if let Some(settings) = &self.options.store {
            store = settings(store);
        }
        let builder = (self.kernel)(shard)
            .store(store)
            .pids(pids_of(id))
            .lease(ClaimLease(claim.clone()))
            .peers(ShardPeers::new(&self.caller, id))
            .label_slices(self.labels.open(claim))
            .model_permits(self.permits.clone())
            .recovery(recovery);
        builder.build().await
    }

    /// Lets the work of a shard come to rest and releases the shard, so that another node can open
    /// it at once. Nothing happens if it is not open.
    pub(crate) async fn give_up(&self, shard: ShardId) {
        let Some(held) = self.caller.held.begin_closing(shard) else {
            return;
        };
        let (Some(kernel), Some(claim)) = (held.kernel.clone(), held.claim.clone()) else {
            return;
        };
        match kernel.clone().drain(self.options.drain_deadline).await {
            Ok(0) => {}
            Ok(at_work) => tracing::warn!(%shard, at_work, "calls were cut off at the deadline"),
            Err(error) => tracing::error!(%shard, %error, "the shard was not closed cleanly"),
        }
        self.close_slices(&claim, Some(&kernel)).await;
        self.let_go(claim, &held).await;
        tracing::info!(%shard, "the shard was given up");
    }

    /// Removes a shard whose kernel closed: its lease is lost, or its store takes no more commits.
    async fn stop_lost(&self, claim: Claim, kernel: Kernel, reason: CloseReason, held: &HeldShard) {
        let shard = claim.shard();
        tracing::error!(%shard, %reason, "the shard is lost");
        if let CloseReason::Store(error) = &reason
            && let StoreError::Failed(why) = &**error
        {
            let wait = self.failures.add(shard, why.clone(), Instant::now());
            let wait_s = wait.as_secs();
            tracing::warn!(%shard, wait_s, "it is opened again from what is written, after a wait");
        }
        self.counters.losses.fetch_add(1, Ordering::Relaxed);
        let shutdown = tokio::time::timeout(SHUTDOWN_LIMIT, kernel.shutdown()).await;
        if let Ok(Err(error)) = shutdown {
            tracing::debug!(%shard, %error, "what was not written is lost");
        }
        // The claim has ended, unless the store failed otherwise.
        self.let_go(claim, held).await;
    }

    /// Releases and removes a shard whose kernel is shut down.
    pub(crate) async fn let_go(&self, claim: Claim, held: &HeldShard) {
        let (database, shard) = (self.caller.tables.0.clone(), claim.shard());
        self.close_slices(&claim, None).await;
        self.caller.held.end_claim(shard, held);
        let released = on_database(move || database.release(&[claim])).await;
        if let Err(error) = released {
            tracing::warn!(%error, "a shard was not released: its lease ends by itself");
        }
        self.caller.held.remove(shard, held);
    }
}
