//! The shards that this node holds, each with its kernel.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse::Kernel;
use dormouse::id::Pid;
use dormouse::ports::Lease;
use dormouse_postgres::{Claim, ShardId};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use crate::call::{CallError, Reply};

/// All shards of this node.
#[derive(Default)]
pub(crate) struct Held(Mutex<BTreeMap<ShardId, HeldShard>>);

/// A shard on its way in, held, or on its way out. Clones are the same shard.
#[derive(Clone)]
pub(crate) struct HeldShard {
    pub(crate) state: ShardState,
    /// `None` before the shard is claimed.
    pub(crate) claim: Option<Claim>,
    /// `None` before the kernel is open.
    pub(crate) kernel: Option<Kernel>,
    pub(crate) in_flight: Arc<InFlight>,
    /// Where processes of the shard have gone.
    pub(crate) moved: Arc<HashMap<Pid, Pid>>,
}

impl HeldShard {
    /// Whether the two are the same shard, held without a break.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.in_flight, &other.in_flight)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardState {
    Opening,
    Open,
    /// Its kernel drains, or is shut down.
    Closing,
}

impl Held {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ShardId, HeldShard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to open a shard, unless it is here.
    pub(crate) fn begin_opening(&self, shard: ShardId) -> Option<HeldShard> {
        let mut held = self.lock();
        if held.contains_key(&shard) {
            return None;
        }
        let opening = HeldShard {
            state: ShardState::Opening,
            claim: None,
            kernel: None,
            in_flight: Arc::default(),
            moved: Arc::default(),
        };
        held.insert(shard, opening.clone());
        Some(opening)
    }

    pub(crate) fn set_claim(&self, claim: &Claim) {
        if let Some(held) = self.lock().get_mut(&claim.shard()) {
            held.claim = Some(claim.clone());
        }
    }

    pub(crate) fn set_open(&self, shard: ShardId, kernel: Kernel) {
        if let Some(held) = self.lock().get_mut(&shard) {
            held.kernel = Some(kernel);
            held.state = ShardState::Open;
        }
    }

    pub(crate) fn set_moved(&self, shard: ShardId, moved: HashMap<Pid, Pid>) {
        if let Some(held) = self.lock().get_mut(&shard) {
            held.moved = Arc::new(moved);
        }
    }

    /// Takes the kernel of a shard that is closing: callers wait until it is open again.
    pub(crate) fn take_kernel(&self, shard: ShardId, of: &HeldShard) {
        let mut held = self.lock();
        let found = held.get_mut(&shard).filter(|held| held.is(of));
        let taken = found.and_then(|held| held.kernel.take());
        // A kernel is dropped outside of the lock.
        drop(held);
        drop(taken);
    }

    /// Begins to close a shard, unless it is not open.
    pub(crate) fn begin_closing(&self, shard: ShardId) -> Option<HeldShard> {
        let mut held = self.lock();
        let found = held.get_mut(&shard)?;
        if found.state != ShardState::Open {
            return None;
        }
        found.state = ShardState::Closing;
        Some(found.clone())
    }

    /// Renews the lease of a shard no more: it is being released.
    pub(crate) fn end_claim(&self, shard: ShardId, of: &HeldShard) {
        if let Some(held) = self.lock().get_mut(&shard).filter(|held| held.is(of)) {
            held.claim = None;
        }
    }

    /// Removes a shard, unless it was removed and is being opened again.
    pub(crate) fn remove(&self, shard: ShardId, of: &HeldShard) {
        let mut held = self.lock();
        let is_here = held.get(&shard).is_some_and(|held| held.is(of));
        let removed = is_here.then(|| held.remove(&shard));
        // A kernel is dropped outside of the lock.
        drop(held);
        drop(removed);
    }

    pub(crate) fn get(&self, shard: ShardId) -> Option<HeldShard> {
        self.lock().get(&shard).cloned()
    }

    /// All shards, by number.
    pub(crate) fn all(&self) -> Vec<(ShardId, HeldShard)> {
        let held = self.lock();
        held.iter()
            .map(|(shard, held)| (*shard, held.clone()))
            .collect()
    }

    /// The claims to renew.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        let held = self.lock();
        held.values()
            .filter_map(|held| held.claim.clone())
            .collect()
    }
}

/// The lease of a kernel, as its claim has it.
pub(crate) struct ClaimLease(pub(crate) Claim);

impl Lease for ClaimLease {
    fn is_held(&self) -> bool {
        self.0.is_surely_held()
    }
}

/// The requests of a shard that run now: an attempt that comes while an earlier one runs gets the
/// same reply, and is not executed twice.
#[derive(Default)]
pub(crate) struct InFlight(Mutex<HashMap<Arc<str>, SharedReply>>);

type SharedReply = Shared<BoxFuture<'static, Result<Reply, CallError>>>;

impl InFlight {
    /// Runs a request, or waits for the one with this id that runs. The request goes on if the
    /// caller goes away.
    pub(crate) async fn run(
        self: &Arc<Self>,
        id: Arc<str>,
        request: impl Future<Output = Result<Reply, CallError>> + Send + 'static,
    ) -> Result<Reply, CallError> {
        let reply = {
            let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match running.get(&id) {
                Some(reply) => reply.clone(),
                None => {
                    let (in_flight, key) = (self.clone(), id.clone());
                    let task = tokio::spawn(async move {
                        let reply = request.await;
                        let mut running =
                            in_flight.0.lock().unwrap_or_else(PoisonError::into_inner);
                        running.remove(&key);
                        reply
                    });
                    let reply = async move {
                        task.await
                            .unwrap_or_else(|error| Err(CallError::Interrupted(error.to_string())))
                    };
                    let reply = reply.boxed().shared();
                    running.insert(id, reply.clone());
                    reply
                }
            }
        };
        reply.await
    }
}
