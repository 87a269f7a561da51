//! Permits for model calls: the tasks that wait for one, and the timer that ends a pause of a
//! provider, or a wait for the tokens of the last minute.
//!
//! [`dormouse_kernel::permits`] decides which request is next; this module delivers its decisions
//! to the waiting tasks. A *ticket* is the number of a request, from its place in the queue until
//! its permit is returned. The lock is held only during a decision, never while a task waits.
//! Dropping a permit returns it. Dropping the future that waits for a permit removes its ticket
//! from the queue, even if the permit was granted at the same moment.
//!
//! Kernels that share permits share their queues: a tree is known by its root, so that trees of all
//! of them take turns, if no two of these kernels have a pid in common.
//!
//! Several programs can share the limits of a server: each has a share, which somebody sets who
//! knows what all of them use ([`ModelPermits::in_shares`]).
//!
//! Permits limit calls and nothing else: a process that waits for one receives messages and signals
//! as usual.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dormouse_kernel::permits::{
    PermitDemand, PermitShare, PermitTicket, Permits, Requester, TokenDemand,
};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// How many calls run concurrently at each server of a provider.
#[derive(Clone, Debug)]
pub(crate) struct CallLimits {
    /// The limit of a provider that `by_provider` does not list.
    pub(crate) default: usize,
    pub(crate) by_provider: BTreeMap<String, usize>,
}

/// A server that model calls go to: a provider, with the base URL and the variable of the key if a
/// program names others than the provider's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelServer {
    /// The word in `[model] provider = "…"`.
    pub provider: String,
    /// The base URL.
    pub base_url: Option<String>,
    /// The environment variable that has the key.
    pub api_key_env: Option<String>,
}

/// What the calls of this program to one server use of its limits, and could use.
#[derive(Clone, Debug)]
pub struct ServerDemand {
    /// The server.
    pub server: ModelServer,
    /// What is used, and wanted.
    pub demand: PermitDemand,
    /// What this program may use now.
    pub share: PermitShare,
}

/// The permits for model calls: a queue for each server of each provider. Several kernels of one
/// program can share them
/// ([`KernelBuilder::model_permits`](crate::handle::KernelBuilder::model_permits)).
pub struct ModelPermits {
    limits: CallLimits,
    queues: Mutex<BTreeMap<ModelServer, Arc<PermitQueue>>>,
    /// What a queue begins with.
    first_share: PermitShare,
    /// Wakes when a call waits that came to a queue with a share.
    waiting: Arc<Notify>,
}

impl ModelPermits {
    /// Permits for `max_concurrent` calls at each provider, and at each server and with each key
    /// that programs name instead; for another number at the providers in `by_provider`, by the
    /// word in `[model] provider = "…"`. At least one call may run in any case.
    #[must_use]
    pub fn new(
        max_concurrent: usize,
        by_provider: impl IntoIterator<Item = (String, usize)>,
    ) -> Self {
        let by_provider = by_provider.into_iter();
        Self::with_limits(CallLimits {
            default: max_concurrent.max(1),
            by_provider: by_provider
                .map(|(provider, calls)| (provider, calls.max(1)))
                .collect(),
        })
    }

    /// Permits of a program that shares the limits of servers with others: each server begins with
    /// this share, and keeps the one that [`set_share`](Self::set_share) sets last.
    #[must_use]
    pub fn in_shares(self, first: PermitShare) -> Self {
        Self {
            first_share: first,
            ..self
        }
    }

    pub(crate) fn with_limits(limits: CallLimits) -> Self {
        Self {
            limits,
            queues: Mutex::default(),
            first_share: PermitShare::default(),
            waiting: Arc::default(),
        }
    }

    /// What this program may use of the limits of a server from now on. Permits that are granted
    /// stay: see [`demands`](Self::demands) for what they are.
    pub fn set_share(&self, server: &ModelServer, share: PermitShare) {
        let queue = self.queues().get(server).cloned();
        if let Some(queue) = queue {
            queue.change_and_grant(|state| state.permits.set_share(share));
        }
    }

    /// What calls use and want, of each server that there was a call to. The share that is returned
    /// is in force: what is used grows no more than up to it.
    #[must_use]
    pub fn demands(&self) -> Vec<ServerDemand> {
        let queues = self.queues().clone().into_iter();
        let demand = |(server, queue): (ModelServer, Arc<PermitQueue>)| {
            let now = queue.now_ms();
            let state = queue.lock();
            ServerDemand {
                demand: state.permits.demand(now),
                share: state.permits.share(),
                server,
            }
        };
        queues.map(demand).collect()
    }

    /// Resolves when a call waits that came since the last time, at a server with a share.
    pub async fn waiting(&self) {
        self.waiting.notified().await;
    }

    fn queues(&self) -> MutexGuard<'_, BTreeMap<ModelServer, Arc<PermitQueue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limit(&self, provider: &str) -> usize {
        let limit = self.limits.by_provider.get(provider).copied();
        limit.unwrap_or(self.limits.default)
    }

    /// The queue of a server. O(log n) in the number of servers.
    pub(crate) fn queue(
        &self,
        provider: &str,
        base_url: Option<&str>,
        api_key_env: Option<&str>,
    ) -> Arc<PermitQueue> {
        let server = ModelServer {
            provider: provider.to_owned(),
            base_url: base_url.map(str::to_owned),
            api_key_env: api_key_env.map(str::to_owned),
        };
        let new_queue = || {
            let queue = PermitQueue::new(self.limit(provider), self.waiting.clone());
            queue.lock().permits.set_share(self.first_share);
            Arc::new(queue)
        };
        let mut queues = self.queues();
        queues.entry(server).or_insert_with(new_queue).clone()
    }
}

/// The queue of one server.
pub(crate) struct PermitQueue {
    /// The origin of its millisecond timestamps.
    start: Instant,
    state: Mutex<QueueState>,
    /// Told when a call waits, if the queue has a share.
    waiting: Arc<Notify>,
}

struct QueueState {
    permits: Permits,
    /// The senders that grant waiting tickets. A sender is removed when its ticket is granted or
    /// dropped.
    grant_senders: BTreeMap<PermitTicket, oneshot::Sender<()>>,
    /// When the next permit may be granted although nothing changes, and the task that grants it.
    timer: Option<(u64, AbortHandle)>,
}

/// The right to make one call, or a place in the queue for it. Dropping it returns the permit or
/// leaves the queue.
#[must_use = "a permit is returned when it is dropped"]
pub(crate) struct Permit {
    queue: Arc<PermitQueue>,
    ticket: PermitTicket,
    /// The tokens that the call used.
    used: Option<u64>,
}

impl Permit {
    /// Records the tokens that the call used.
    pub(crate) fn set_used(&mut self, tokens: u64) {
        self.used = Some(tokens);
    }
}

impl PermitQueue {
    fn new(limit: usize, waiting: Arc<Notify>) -> Self {
        let state = QueueState {
            permits: Permits::new(limit),
            grant_senders: BTreeMap::new(),
            timer: None,
        };
        Self {
            start: Instant::now(),
            state: Mutex::new(state),
            waiting,
        }
    }

    /// Waits for a permit. Dropping the future leaves the queue.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        requester: Requester,
        demand: Option<TokenDemand>,
    ) -> Permit {
        let (grant_sender, grant_receiver) = oneshot::channel();
        // The permit owns the ticket from the start, so that a cancelled wait returns the ticket.
        let permit = self.enqueue(requester, demand, grant_sender);
        grant_receiver
            .await
            .expect("the sender of a ticket is kept until it is granted");
        permit
    }

    fn enqueue(
        self: &Arc<Self>,
        requester: Requester,
        demand: Option<TokenDemand>,
        grant_sender: oneshot::Sender<()>,
    ) -> Permit {
        let ticket = self.change_and_grant(|state| {
            let ticket = match demand {
                Some(demand) => state.permits.enter_limited(requester, demand),
                None => state.permits.enter(requester),
            };
            state.grant_senders.insert(ticket, grant_sender);
            ticket
        });
        Permit {
            queue: self.clone(),
            ticket,
            used: None,
        }
    }

    /// Grants no permit for `delay`. A longer pause that is already active stays.
    pub(crate) fn pause(self: &Arc<Self>, delay: Duration) {
        // Rounds up: a call that comes a fraction of a millisecond early is refused again.
        let until = self
            .now_ms()
            .saturating_add(delay.as_millis() as u64)
            .saturating_add(1);
        self.change_and_grant(|state| state.permits.pause(until));
    }

    /// Changes the queue, then grants every permit that is available.
    fn change_and_grant<T>(self: &Arc<Self>, change: impl FnOnce(&mut QueueState) -> T) -> T {
        let now = self.now_ms();
        let mut state = self.lock();
        let changed = change(&mut state);
        let granted: Vec<_> = std::iter::from_fn(|| state.permits.grant(now)).collect();
        let taken_senders: Vec<_> = granted
            .iter()
            .filter_map(|ticket| state.grant_senders.remove(ticket))
            .collect();
        self.set_timer(&mut state, now);
        let is_shared = state.permits.share() != PermitShare::default();
        if is_shared && state.permits.waiting() > 0 {
            self.waiting.notify_one();
        }
        drop(state);
        // If a task stopped waiting in the meantime, dropping its ticket returns the permit.
        for grant_sender in taken_senders {
            let _ = grant_sender.send(());
        }
        changed
    }

    /// Sets the timer for the time at which the next permit may be granted, unless it is set.
    fn set_timer(self: &Arc<Self>, state: &mut QueueState, now: u64) {
        let wake = state.permits.wake_ms(now);
        if state.timer.as_ref().map(|(at, _)| *at) == wake {
            return;
        }
        if let Some((_, task)) = state.timer.take() {
            task.abort();
        }
        // Without a runtime, no task waits for a permit any more.
        if let (Some(wake), Ok(runtime)) = (wake, Handle::try_current()) {
            let at = self.start + Duration::from_millis(wake);
            let task = runtime.spawn(grant_at(Arc::downgrade(self), at));
            state.timer = Some((wake, task.abort_handle()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }
}

/// Sleeps until that time, then grants the permits that are available.
async fn grant_at(queue: Weak<PermitQueue>, at: Instant) {
    tokio::time::sleep_until(at).await;
    if let Some(queue) = queue.upgrade() {
        queue.change_and_grant(|state| state.timer = None);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let (ticket, used) = (self.ticket, self.used);
        let now = self.queue.now_ms();
        self.queue.change_and_grant(|state| {
            state.grant_senders.remove(&ticket);
            state.permits.end_call(ticket, used, now);
            state.permits.leave(ticket);
        });
    }
}

impl Drop for PermitQueue {
    fn drop(&mut self) {
        if let Some((_, timer)) = self.lock().timer.take() {
            timer.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::id::Pid;
    use dormouse_proto::process::Priority;
    use futures_util::future::FutureExt;

    use super::*;

    fn requester(tree: u64) -> Requester {
        Requester {
            priority: Priority::Normal,
            tree: Pid(tree),
        }
    }

    fn queue(limit: usize) -> Arc<PermitQueue> {
        Arc::new(PermitQueue::new(limit, Arc::default()))
    }

    fn counts(queue: &PermitQueue) -> (usize, usize, usize) {
        let state = queue.lock();
        (
            state.permits.granted(),
            state.permits.waiting(),
            state.grant_senders.len(),
        )
    }

    #[tokio::test]
    async fn a_dropped_wait_leaves_no_ticket_even_if_it_was_just_granted() {
        let queue = queue(1);
        let held = queue.acquire(requester(1), None).await;
        let (mut first, mut second) = (
            Box::pin(queue.acquire(requester(2), None)),
            Box::pin(queue.acquire(requester(3), None)),
        );
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        assert_eq!(counts(&queue), (1, 2, 2));
        drop(second);
        assert_eq!(counts(&queue), (1, 1, 1));
        drop(held);
        assert_eq!(
            counts(&queue),
            (1, 0, 0),
            "the ticket is granted, and its task has not run since"
        );
        drop(first);
        assert_eq!(counts(&queue), (0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_ends_when_the_longest_requested_delay_is_over() {
        let queue = queue(2);
        let start = Instant::now();
        queue.pause(Duration::from_secs(10));
        queue.pause(Duration::from_secs(30));
        queue.pause(Duration::from_secs(5));
        drop(queue.acquire(requester(1), None).await);
        let waited = start.elapsed();
        assert!(
            waited >= Duration::from_secs(30) && waited < Duration::from_secs(31),
            "{waited:?}"
        );
        assert!(queue.lock().timer.is_none());
        queue.pause(Duration::from_secs(1));
        drop(queue.acquire(requester(1), None).await);
        assert!(
            start.elapsed() > waited,
            "a further pause has a timer of its own"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_the_tokens_of_the_last_minute() {
        let queue = queue(4);
        let start = Instant::now();
        let demand = |tokens| {
            Some(TokenDemand {
                tokens,
                per_minute: 100,
            })
        };
        let mut first = queue.acquire(requester(1), demand(50)).await;
        first.set_used(80);
        tokio::time::sleep(Duration::from_secs(5)).await;
        drop(first);
        let small = queue.acquire(requester(2), demand(20)).await;
        assert_eq!(start.elapsed(), Duration::from_secs(5));
        drop(small);
        let waiting = Box::pin(queue.acquire(requester(3), demand(60)));
        drop(waiting.await);
        assert_eq!(start.elapsed(), Duration::from_secs(65));
        assert!(queue.lock().timer.is_none());
    }

    #[test]
    fn each_provider_has_its_own_bound() {
        let by_provider = [("anthropic".to_owned(), 2)];
        let queues = ModelPermits::new(1, by_provider);
        for (provider, limit) in [("anthropic", 2), ("scripted", 1)] {
            let queue = queues.queue(provider, None, None);
            let waits: Vec<_> = (0..3)
                .map(|_| queue.enqueue(requester(1), None, oneshot::channel().0))
                .collect();
            assert_eq!(counts(&queue), (limit, 3 - limit, 3 - limit), "{provider}");
            drop(waits);
            assert_eq!(
                counts(&queues.queue(provider, None, None)),
                (0, 0, 0),
                "a second lookup returns the same queue"
            );
        }
    }
}
