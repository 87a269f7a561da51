//! The garbage collections that this node makes, for itself and for others.
//!
//! A collection can take longer than a call: it runs in a task, and is asked for again until it is
//! done. So the last one of each kind is kept with its reply.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dormouse::Kernel;
use dormouse::ports::{SweepMode, SweepOutcome};
use dormouse::retention::Retention;
use dormouse_postgres::ShardId;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use crate::call::{CallError, CollectCall, Reply, WAIT_AT_MOST};
use crate::caller::Caller;
use crate::database::on_database;
use crate::garbage::ShardCollection;

/// What a collection is of: a shard, or the object store.
type Of = Option<ShardId>;

type SharedReply = Shared<BoxFuture<'static, Result<Reply, CallError>>>;

/// The last collection of each shard, and of objects, by the id of its request.
#[derive(Default)]
pub(crate) struct Collections {
    last: Mutex<HashMap<Of, (Arc<str>, SharedReply)>>,
    pub(crate) counters: CollectionCounters,
}

/// What `/metrics` counts.
#[derive(Default)]
pub(crate) struct CollectionCounters {
    pub(crate) shards: AtomicU64,
    pub(crate) processes: AtomicU64,
    pub(crate) contents: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) objects: AtomicU64,
    pub(crate) object_bytes: AtomicU64,
}

impl Collections {
    /// Begins a collection, unless it is the last one, and waits for its end for a while.
    async fn run(
        &self,
        of: Of,
        request: Arc<str>,
        collection: impl Future<Output = Result<Reply, CallError>> + Send + 'static,
    ) -> Result<Reply, CallError> {
        let reply = {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            match last.get(&of) {
                Some((id, reply)) if *id == request => reply.clone(),
                _ => {
                    let task = tokio::spawn(collection);
                    let reply = async move {
                        let ended = task.await;
                        ended.unwrap_or_else(|error| Err(CallError::Interrupted(error.to_string())))
                    };
                    let reply = reply.boxed().shared();
                    last.insert(of, (request.clone(), reply.clone()));
                    reply
                }
            }
        };
        let Ok(reply) = tokio::time::timeout(WAIT_AT_MOST, reply).await else {
            return Ok(Reply::Collecting);
        };
        if reply.is_err() {
            // The next attempt is another collection.
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.get(&of).is_some_and(|(id, _)| *id == request) {
                last.remove(&of);
            }
        }
        reply
    }
}

/// Makes a collection of a shard of this node, or of the objects of all shards.
pub(crate) async fn collect(
    caller: &Caller,
    shard: ShardId,
    kernel: &Kernel,
    request: Arc<str>,
    what: CollectCall,
) -> Result<Reply, CallError> {
    let collections = caller.collections.clone();
    match what {
        CollectCall::Shard { retention, mode } => {
            let kernel = kernel.clone();
            let collection = collect_shard(collections.clone(), kernel, retention, mode);
            collections.run(Some(shard), request, collection).await
        }
        CollectCall::Objects { grace } => {
            let Some(objects) = caller.objects.clone() else {
                return Ok(Reply::CollectedObjects(None));
            };
            let (counted, database) = (collections.clone(), caller.tables.0.clone());
            let collection = async move {
                let collecting = move || database.collect_objects(&*objects, grace);
                let collected = on_database(collecting).await?;
                let counters = &counted.counters;
                add(&counters.objects, collected.deleted);
                add(&counters.object_bytes, collected.deleted_bytes);
                Ok(Reply::CollectedObjects(Some(collected)))
            };
            collections.run(None, request, collection).await
        }
    }
}

async fn collect_shard(
    collections: Arc<Collections>,
    kernel: Kernel,
    retention: Retention,
    mode: SweepMode,
) -> Result<Reply, CallError> {
    let report = kernel.collect_garbage(retention, mode).await?;
    let deleted = ShardCollection::from(&report);
    if mode == SweepMode::Free {
        let counters = &collections.counters;
        add(&counters.shards, 1);
        add(&counters.processes, deleted.processes);
        add(&counters.contents, deleted.freed_contents);
        add(&counters.bytes, deleted.freed_bytes);
    }
    if report.swept.outcome == SweepOutcome::Interrupted {
        let why = "the kernel closes, and the collection of its shard is not done";
        return Err(CallError::Interrupted(why.to_owned()));
    }
    Ok(Reply::Collected {
        deleted,
        unreadable: report.unreadable,
    })
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_long_collection_is_made_once_and_one_that_failed_again() {
        let (collections, begun) = (Collections::default(), Arc::new(AtomicU64::new(0)));
        let ask = |request: &str| {
            let begun = begun.clone();
            collections.run(None, request.into(), async move {
                let is_second = begun.fetch_add(1, Ordering::Relaxed) == 1;
                tokio::time::sleep(WAIT_AT_MOST * 3 / 2).await;
                match is_second {
                    true => Err(CallError::Interrupted("it closes".to_owned())),
                    false => Ok(Reply::Done),
                }
            })
        };
        assert!(matches!(ask("one").await, Ok(Reply::Collecting)));
        // The second one is the answer to an attempt whose answer was lost.
        for _ in 0..2 {
            assert!(matches!(ask("one").await, Ok(Reply::Done)));
        }
        assert_eq!(begun.load(Ordering::Relaxed), 1);
        assert!(matches!(ask("two").await, Ok(Reply::Collecting)));
        assert!(matches!(ask("two").await, Err(CallError::Interrupted(_))));
        assert!(matches!(ask("two").await, Ok(Reply::Collecting)));
        assert!(matches!(ask("two").await, Ok(Reply::Done)));
        assert_eq!(begun.load(Ordering::Relaxed), 3);
    }
}
