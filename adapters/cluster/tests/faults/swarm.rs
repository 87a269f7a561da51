//! The clients of the cluster: they start trees in waves, write to listeners, make checkpoints,
//! stop and continue trees, watch facts become durable, and wait for the ends. All of it goes into
//! the history.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use dormouse::checkpoint::Scope;
use dormouse::id::Pid;
use dormouse::process::Exit;
use dormouse_cluster::{
    Cluster, ClusterError, ClusterEvent, ClusterProcess, ClusterProcessInfo, ProgramFiles, Refusal,
    Signal,
};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::task::JoinSet;

use crate::history::{Asked, History, Learned};
use crate::programs;
use crate::random::Random;

/// How many trees and listeners a wave has.
pub(crate) const TREES: usize = 40;
const LISTENERS: usize = 3;

/// How often the clients write to a listener of a wave.
const INPUTS: usize = 12;

/// How many processes are started at the same time.
const STARTS_AT_ONCE: usize = 32;

/// After the faults have ended, clients have continued what they had stopped by then.
const LONG_AFTER: Duration = Duration::from_secs(20);

/// The clients.
pub(crate) struct Swarm {
    cluster: Cluster,
    history: History,
    tree: ProgramFiles,
    /// Numbers that make texts and requests unique.
    next: AtomicU64,
    listeners: Mutex<Vec<ClusterProcess>>,
    idle: Mutex<Vec<ClusterProcess>>,
    waits: tokio::sync::Mutex<JoinSet<()>>,
    /// Trees that were started, and trees whose end is known.
    pub(crate) started: AtomicU64,
    pub(crate) ended: std::sync::Arc<AtomicU64>,
}

/// What did not come to its end in time.
pub(crate) struct Unfinished {
    pub(crate) trees: u64,
    /// Listeners that were still busy, with their status.
    pub(crate) listeners: Vec<String>,
}

impl Swarm {
    pub(crate) fn new(cluster: Cluster, history: History, ledger: &Path) -> Self {
        Self {
            cluster,
            history,
            tree: programs::tree(ledger),
            next: AtomicU64::new(0),
            listeners: Mutex::default(),
            idle: Mutex::default(),
            waits: tokio::sync::Mutex::default(),
            started: AtomicU64::new(0),
            ended: std::sync::Arc::default(),
        }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    async fn start(&self, program: ProgramFiles, input: Option<String>) -> Option<ClusterProcess> {
        let request = format!("request-{}", self.number());
        let start = self.cluster.start(program).request_id(request.clone());
        let start = match input {
            Some(input) => start.input(input),
            None => start.session().without_input(),
        };
        let asked = Asked::Start { request };
        let learned = |process: &ClusterProcess| Learned::Process(process.pid());
        let started = self
            .history
            .record(asked, start.into_future(), learned)
            .await;
        started.ok()
    }

    /// Starts a wave, and all that its clients do besides.
    pub(crate) async fn wave(&self, number: usize, random: &mut Random) {
        let mut listeners = Vec::new();
        for _ in 0..LISTENERS {
            listeners.extend(self.start(programs::listener(), None).await);
        }
        lock(&self.listeners).extend(listeners.iter().cloned());
        if listeners.is_empty() {
            return;
        }
        let trees = FuturesUnordered::new();
        for tree in 0..TREES {
            let (peer, rounds) = (random.pick(&listeners).pid(), 8 + random.below(9));
            let input = format!("w{number}t{tree} to {peer} for {rounds}");
            let (after, also) = (random.millis(8000), random.below(8));
            let times = (random.millis(6000), random.millis(3000));
            trees.push(async move {
                tokio::time::sleep(after).await;
                let Some(process) = self.start(self.tree.clone(), Some(input)).await else {
                    return;
                };
                self.started.fetch_add(1, Ordering::Relaxed);
                self.follow(process, also, times).await;
            });
        }
        for listener in &listeners {
            let (history, listener) = (self.history.clone(), listener.clone());
            let texts =
                (0..INPUTS).map(|_| (format!("say {}.", self.number()), random.millis(3000)));
            let texts: Vec<_> = texts.collect();
            self.waits.lock().await.spawn(async move {
                for (text, pause) in texts {
                    tokio::time::sleep(pause).await;
                    let pid = listener.pid();
                    let asked = Asked::Input {
                        pid,
                        text: text.clone(),
                    };
                    let input = listener.input(text);
                    // What became of it is in the history.
                    let _ = history.record(asked, input, |()| Learned::Nothing).await;
                }
            });
        }
        trees.collect::<()>().await;
    }

    /// Watches a tree, waits for its end, and does something to some of them.
    async fn follow(&self, process: ClusterProcess, also: usize, times: (Duration, Duration)) {
        let mut waits = self.waits.lock().await;
        let (history, watched) = (self.history.clone(), process.clone());
        waits.spawn(async move {
            let mut events = std::pin::pin!(watched.events());
            while let Some(event) = events.next().await {
                if let ClusterEvent::Fact { number, name } = event {
                    history.saw(watched.pid(), number, &name);
                }
            }
        });
        let (history, waited, ended) = (self.history.clone(), process.clone(), self.ended.clone());
        waits.spawn(async move {
            let asked = Asked::Wait { pid: waited.pid() };
            let learned = |exit: &Exit| Learned::Exit(exit.message.to_string());
            let end = wait_for_end(&waited);
            if history.record(asked, end, learned).await.is_ok() {
                ended.fetch_add(1, Ordering::Relaxed);
            }
        });
        let (history, label) = (self.history.clone(), format!("label-{}", self.number()));
        waits.spawn(async move {
            tokio::time::sleep(times.0).await;
            let pid = process.pid();
            match also {
                0 | 1 => {
                    let asked = Asked::Checkpoint {
                        pid,
                        label: label.clone(),
                    };
                    let made = process.checkpoint(label, Scope::Tree);
                    let _ = history
                        .record(asked, made, |made| Learned::Checkpoint(made.id))
                        .await;
                }
                2 => {
                    let asked = Asked::StopAndContinue { pid };
                    let both = async {
                        let stopped = process.signal(Signal::Stop, Scope::Tree).await;
                        tokio::time::sleep(times.1).await;
                        // Whatever became of the stop, the tree is to end.
                        continue_tree(&process).await;
                        stopped
                    };
                    let _ = history.record(asked, both, |()| Learned::Nothing).await;
                }
                _ => {}
            }
        });
    }

    /// Starts sessions that wait, so that they hibernate.
    pub(crate) async fn start_idle(&self, count: usize) {
        let starts = (0..count).map(|_| self.start(programs::listener(), None));
        let started: Vec<_> = futures_util::stream::iter(starts)
            .buffer_unordered(STARTS_AT_ONCE)
            .filter_map(std::future::ready)
            .collect()
            .await;
        lock(&self.idle).extend(started);
    }

    /// Writes to some of the sessions that wait: they wake up and answer.
    pub(crate) async fn wake_some(&self, count: usize, random: &mut Random) {
        let idle = lock(&self.idle).clone();
        for _ in 0..count.min(idle.len()) {
            let process = random.pick(&idle).clone();
            let text = format!("say {}.", self.number());
            let pid = process.pid();
            let asked = Asked::Input {
                pid,
                text: text.clone(),
            };
            let history = self.history.clone();
            self.waits.lock().await.spawn(async move {
                let input = process.input(text);
                let _ = history.record(asked, input, |()| Learned::Nothing).await;
            });
        }
    }

    /// Waits until every tree has ended and every listener has answered all that it heard, at most
    /// until the limit.
    pub(crate) async fn finish(&self, limit: Duration) -> Unfinished {
        let begun = Instant::now();
        let mut waits = self.waits.lock().await;
        let all = async { while waits.join_next().await.is_some() {} };
        if tokio::time::timeout(limit, all).await.is_err() {
            waits.abort_all();
        }
        let mut busy = Vec::new();
        let listeners = lock(&self.listeners).clone();
        for listener in listeners {
            loop {
                let info = listener.info().await;
                if info
                    .as_ref()
                    .is_ok_and(|info| info.status == "idle" || info.status == "hibernated")
                {
                    break;
                }
                if begun.elapsed() > limit {
                    let status = info.map_or_else(|error| error.to_string(), |info| info.status);
                    busy.push(format!("process {}: {status}", listener.pid()));
                    break;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        let trees = self.started.load(Ordering::Relaxed) - self.ended.load(Ordering::Relaxed);
        Unfinished {
            trees,
            listeners: busy,
        }
    }

    /// Continues trees that are stopped long after the faults have ended: each was continued
    /// before, so that a failover has lost it. Says which.
    pub(crate) async fn continue_again(&self, lost: &mut BTreeSet<Pid>) -> Infallible {
        loop {
            tokio::time::sleep(LONG_AFTER).await;
            let Ok(processes) = self.living_trees().await else {
                continue;
            };
            for info in processes.iter().filter(|info| info.status == "stopped") {
                lost.insert(info.row.pid);
                continue_tree(&self.cluster.process(info.row.pid)).await;
            }
        }
    }

    /// The processes of trees that have not ended, as the cluster lists them.
    pub(crate) async fn living_trees(&self) -> Result<Vec<ClusterProcessInfo>> {
        let mut living = Vec::new();
        let mut after = None;
        loop {
            let page = self.cluster.processes(after, 500).await?;
            let Some(last) = page.last() else {
                return Ok(living);
            };
            after = Some(last.row.pid);
            living.extend(
                page.into_iter().filter(|info| {
                    info.row.exit.is_none() && !info.row.program.contains("listener")
                }),
            );
        }
    }

    /// Ends the listeners and the sessions that wait.
    pub(crate) async fn end_sessions(&self) {
        let sessions = lock(&self.listeners).clone();
        for session in sessions {
            let asked = Asked::End { pid: session.pid() };
            let _ = self
                .history
                .record(asked, session.kill(), |()| Learned::Nothing)
                .await;
        }
    }
}

/// Waits for the end of a process, and again if it is held meanwhile: a process that cannot be read
/// is read again by itself when the outage is over.
async fn wait_for_end(process: &ClusterProcess) -> Result<Exit, ClusterError> {
    loop {
        match process.wait().await {
            Err(ClusterError::Refused {
                kind: Refusal::Held,
                ..
            }) => tokio::time::sleep(Duration::from_millis(500)).await,
            end => return end,
        }
    }
}

/// Continues a tree, however often that takes.
async fn continue_tree(process: &ClusterProcess) {
    loop {
        match process.signal(Signal::Continue, Scope::Tree).await {
            Ok(()) => return,
            Err(ClusterError::Refused {
                kind: Refusal::Ended | Refusal::NotFound,
                ..
            }) => return,
            Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
