//! Claims of shards: who may write, and until when nobody else begins to.
//!
//! A claim raises the epoch of its shard, and from then on the database refuses the writes of all
//! earlier owners. A lease only keeps other nodes from claiming meanwhile. It ends by the clock of
//! the database. The node knows by a monotonic clock of its own how long the lease lasts at least.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dormouse_actors::ports::{OwnerToken, StoreError};

use crate::connections::parameters;
use crate::database::Database;
use crate::error::other_error;
use crate::number::nonce;
use crate::shard::{ShardId, unknown_shard};

/// A shard that this node has claimed. Clones are the same claim.
#[derive(Clone, Debug)]
pub struct Claim(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shard: ShardId,
    owner: OwnerToken,
    lease: Duration,
    /// Until when the lease lasts at least; `None` once it was released or lost.
    until: Mutex<Option<Instant>>,
}

/// When a shard may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimMode {
    /// Only if no node has a lease of it that has not ended.
    IfFree,
    /// In any case. The present owner can write no more.
    Force,
}

impl Claim {
    /// The claimed shard.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.0.shard
    }

    /// The token of the owner, which is the shard's epoch.
    #[must_use]
    pub fn owner(&self) -> OwnerToken {
        self.0.owner
    }

    /// Whether no other node can have claimed the shard unless by force, even if the clocks of this
    /// machine and of the database differ in speed by a tenth.
    ///
    /// The clock is monotonic, and stands still while the machine is suspended: then the answer may
    /// be `true` for a lease that has ended. The database refuses the writes of such an owner.
    /// Costs a look at the clock.
    #[must_use]
    pub fn is_surely_held(&self) -> bool {
        self.surely_held_for() > Duration::ZERO
    }

    /// How much longer [`is_surely_held`](Self::is_surely_held) is `true` without a renewal.
    #[must_use]
    pub fn surely_held_for(&self) -> Duration {
        let until = *self.0.until.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        });
        left.saturating_sub(self.0.lease / 10)
    }

    fn set_until(&self, until: Option<Instant>) {
        *self.0.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

/// The outcome of an attempt to claim.
enum ClaimOutcome {
    Claimed(OwnerToken),
    /// Another node has a lease.
    Held,
    /// Another owner has claimed the shard since its epoch was read.
    Moved,
}

impl Database {
    /// Claims a shard for a node, with a lease of this length. `None` if another node has a lease,
    /// or was faster. `node` names this run of the program: a node that starts again under the same
    /// name waits for its own lease to end. Waits for a write of the present owner that has begun.
    /// Two round trips.
    ///
    /// # Errors
    /// [`StoreError::Io`]; the shard may be claimed then, until the lease ends.
    pub fn claim_shard(
        &self,
        shard: ShardId,
        node: &str,
        lease: Duration,
        mode: ClaimMode,
    ) -> Result<Option<Claim>, StoreError> {
        let seen = self.epoch(shard)?;
        let begun = Instant::now();
        let node = Some(node.to_owned());
        match self.try_claim(shard, seen, node, lease, mode)? {
            ClaimOutcome::Claimed(owner) => Ok(Some(Claim(Arc::new(Inner {
                shard,
                owner,
                lease,
                until: Mutex::new(Some(begun + lease)),
            })))),
            ClaimOutcome::Held | ClaimOutcome::Moved => Ok(None),
        }
    }

    /// Claims a shard by force and without a lease, whoever has one.
    pub(crate) fn claim_unleased(&self, shard: ShardId) -> Result<OwnerToken, StoreError> {
        loop {
            let seen = self.epoch(shard)?;
            let mode = ClaimMode::Force;
            let outcome = self.try_claim(shard, seen, None, Duration::ZERO, mode)?;
            if let ClaimOutcome::Claimed(owner) = outcome {
                return Ok(owner);
            }
        }
    }

    /// The epoch of a shard.
    pub(crate) fn epoch(&self, shard: ShardId) -> Result<OwnerToken, StoreError> {
        let doing = "read the owner of a shard";
        let sql = "SELECT epoch FROM {schema}.shard WHERE id = $1";
        let rows = self.query(doing, sql, parameters![shard.to_sql()])?;
        let row = rows.first().ok_or_else(|| unknown_shard(doing, shard))?;
        Ok(OwnerToken(row.get::<_, i64>(0) as u64))
    }

    fn try_claim(
        &self,
        shard: ShardId,
        seen: OwnerToken,
        node: Option<String>,
        lease: Duration,
        mode: ClaimMode,
    ) -> Result<ClaimOutcome, StoreError> {
        let doing = "claim a shard";
        let sql = "SELECT out_outcome, out_epoch FROM {schema}.claim($1, $2, $3, $4, $5, $6)";
        let row = self.query_one(
            doing,
            sql,
            parameters![
                shard.to_sql(),
                seen.0 as i64,
                nonce()?,
                node,
                lease.as_millis() as i64,
                mode == ClaimMode::Force,
            ],
        )?;
        match row.get(0) {
            Some("claimed") => Ok(ClaimOutcome::Claimed(OwnerToken(
                row.get::<_, i64>(1) as u64
            ))),
            Some("held") => Ok(ClaimOutcome::Held),
            Some("moved") => Ok(ClaimOutcome::Moved),
            None => Err(unknown_shard(doing, shard)),
            Some(other) => Err(other_error(
                doing,
                format!("the answer {other:?} is unknown"),
            )),
        }
    }

    /// Renews the leases of all these claims, each to its full length. Returns the shards whose
    /// lease is lost, since another owner has claimed them: the node must stop them. A lease that
    /// has ended is renewed if nobody has claimed the shard. Tries for the shortest lease, if the
    /// server cannot be reached. One round trip.
    ///
    /// # Errors
    /// [`StoreError::Io`]; some leases may have been renewed then.
    pub fn renew(&self, claims: &[Claim]) -> Result<Vec<ShardId>, StoreError> {
        let Some(shortest) = claims.iter().map(|claim| claim.0.lease).min() else {
            return Ok(Vec::new());
        };
        // The rows are locked in one order, so that two renewals do not wait for each other.
        let sql = "UPDATE {schema}.lease AS l
            SET until = clock_timestamp() + c.lease_ms * interval '1 millisecond'
            FROM (
                SELECT l.shard, c.lease_ms
                FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) AS c (shard, epoch, lease_ms)
                JOIN {schema}.lease AS l ON l.shard = c.shard AND l.epoch = c.epoch
                ORDER BY l.shard FOR UPDATE OF l
            ) AS c
            WHERE l.shard = c.shard
            RETURNING l.shard, l.epoch";
        let lease_ms = claims.iter().map(|claim| claim.0.lease.as_millis() as i64);
        let (shards, owners) = columns(claims);
        let parameters = parameters![shards, owners, lease_ms.collect::<Vec<_>>()];
        let begun = Instant::now();
        let rows = self.query_within(shortest, "renew leases", sql, parameters)?;
        let claim_of = |row: &tokio_postgres::Row| {
            let owner = OwnerToken(row.get::<_, i64>(1) as u64);
            (ShardId::from_sql(row.get(0)), owner)
        };
        let renewed: BTreeSet<_> = rows.iter().map(claim_of).collect();
        let mut lost = Vec::new();
        for claim in claims {
            let is_renewed = renewed.contains(&(claim.shard(), claim.owner()));
            claim.set_until(is_renewed.then(|| begun + claim.0.lease));
            if !is_renewed {
                lost.push(claim.shard());
            }
        }
        Ok(lost)
    }

    /// Ends the leases of these claims, so that other nodes can claim the shards at once. The
    /// caller has stopped writing. One round trip.
    ///
    /// # Errors
    /// [`StoreError::Io`]; the leases end by themselves then.
    pub fn release(&self, claims: &[Claim]) -> Result<(), StoreError> {
        for claim in claims {
            claim.set_until(None);
        }
        let sql = "DELETE FROM {schema}.lease AS l
            USING unnest($1::integer[], $2::bigint[]) AS c (shard, epoch)
            WHERE l.shard = c.shard AND l.epoch = c.epoch";
        let (shards, owners) = columns(claims);
        self.query("release shards", sql, parameters![shards, owners])?;
        Ok(())
    }
}

/// The shards and the epochs of claims.
fn columns(claims: &[Claim]) -> (Vec<i32>, Vec<i64>) {
    let columns = claims
        .iter()
        .map(|claim| (claim.shard().to_sql(), claim.owner().0 as i64));
    columns.unzip()
}
