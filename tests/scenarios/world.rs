//! A small world: two lives that end in the middle of it, by a shutdown or by a cut-off, and a
//! third in which everything ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dormouse::host::{LocalHost, Permissions};
use dormouse::id::Pid;
use dormouse::process::ProcessRow;
use dormouse::program::Program;
use dormouse::store::MemoryStore;
use dormouse::{Budget, Event, Kernel, KernelBuilder, ProcessInfo};
use dormouse_tests::Requests;
use dormouse_tests::faulty::Faulty;
use futures_util::StreamExt;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::person::{ASKED, Person, Rounds};
use crate::place::Place;
use crate::tally::Tally;
use crate::{mind, tools};
use dormouse_tests::random::Random;

/// What the host does in a life.
const ACTS: u64 = 14;
/// The longest that a tree may take to come to rest, in the kernel's time.
const LONGEST: Duration = Duration::from_secs(2 * 3_600);
/// After a `cont` for each, children may still be born stopped that were on their way.
const BIRTH: Duration = Duration::from_secs(5);

pub(crate) struct World {
    seed: u64,
    pub(crate) random: Random,
    pub(crate) tally: Tally,
    place: Place,
    folder: tempfile::TempDir,
    pub(crate) requests: Requests,
    /// How often each tool ran for each key.
    pub(crate) runs: Tally,
    asked: Tally,
    pub(crate) person: Person,
    /// The number of the life, from 1.
    pub(crate) life: usize,
    numbers: u64,
    /// Those at the top of a tree, and what the host said that they may use; none: as it was where
    /// they come from.
    pub(crate) roots: BTreeMap<Pid, Option<Budget>>,
    pub(crate) sessions: BTreeSet<Pid>,
    /// The process table at the end.
    pub(crate) rows: Vec<ProcessRow>,
}

/// What was seen of one life of the kernel.
pub(crate) struct Life {
    pub(crate) before: Vec<ProcessRow>,
    pub(crate) events: Vec<Event>,
}

impl World {
    pub(crate) fn new(seed: u64, tally: Tally) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = format!(
            "[model]\nname = \"m\"\nprovider = \"scripted\"\nmax_iterations = 7\n[tools]\nenabled \
             = [{}, \"read_fd\", \"search_fd\", \"rename_fd\", \"goto\", \"send_message\", \
             \"receive_messages\", \"wait\", \"list_processes\", {{ name = \"fork\", access = \
             \"write\" }}, \"spawn\"]\nask = [\"{ASKED}\"]\n[file_descriptor]\nmax_direct_output_chars = \
             500\ndefault_page_size = 200\n[linked_programs]\nmain = \
             \"main.toml\"\n[limits]\nmax_depth = 2\nmax_children = 4\n",
            tools::ENABLED
        );
        std::fs::write(folder.path().join("main.toml"), program).unwrap();
        let place = match seed % 4 {
            0 => Place::Folder(tempfile::tempdir().unwrap()),
            _ => Place::Memory(Arc::new(MemoryStore::new())),
        };
        Self {
            seed,
            random: Random::of(&[seed]),
            tally,
            place,
            folder,
            requests: Requests::default(),
            runs: Tally::default(),
            asked: Tally::default(),
            person: Person::new(seed),
            life: 0,
            numbers: 0,
            roots: BTreeMap::new(),
            sessions: BTreeSet::new(),
            rows: Vec::new(),
        }
    }

    pub(crate) async fn run(mut self) {
        let mut lives = Vec::new();
        for _ in 0..2 {
            let commits = self.random.below(120) as usize;
            let store = self.place.open();
            let builder = match self.random.percent(60) {
                true => Kernel::open(Faulty::crashing_after(20 + commits, store)),
                false => Kernel::open(store),
            };
            lives.push(self.live(builder, false).await);
        }
        lives.push(self.live(Kernel::open(self.place.open()), true).await);
        self.check_lives(&lives);
        self.check_requests();
        self.check_runs(&lives);
        self.check_held(&lives);
    }

    async fn live(&mut self, builder: KernelBuilder, is_last: bool) -> Life {
        self.life += 1;
        let others = Handle::current().metrics().num_alive_tasks();
        let model = mind::model(self.seed, self.asked.clone(), self.tally.clone());
        let host = LocalHost::new(Permissions::none(), self.folder.path()).unwrap();
        let builder = builder
            .model("m", self.requests.record(model))
            .host(host)
            .model_calls(3);
        let builder = builder
            .model_deadline(Duration::from_secs(200))
            .snapshot_after_facts(20);
        let kernel = tools::enter(builder, &self.runs).build().await.unwrap();
        let events = collect(&kernel);
        let before: Vec<_> = kernel
            .processes()
            .await
            .unwrap()
            .into_iter()
            .map(|info| info.row)
            .collect();
        if before.is_empty() {
            self.start_inbox(&kernel).await;
            self.start(&kernel).await;
        }
        for _ in 0..2 {
            kernel.resume_all().await.unwrap();
        }
        for _ in 0..ACTS {
            self.act(&kernel).await;
        }
        if is_last {
            self.let_all_end(&kernel).await;
        }
        // A store that was cut off fails the last sync too.
        let _ = tokio::time::timeout(Duration::from_secs(60), kernel.shutdown())
            .await
            .expect("a kernel shuts down");
        let events = events.await.unwrap();
        // What was cancelled is dropped when the runtime comes to it.
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        let left = Handle::current().metrics().num_alive_tasks();
        assert!(
            left <= others,
            "{} tasks outlive their kernel",
            left - others
        );
        Life { before, events }
    }

    /// Continues what is stopped, answers what is asked, and gives everything time to come to its end
    /// by itself; sessions, which have none, are killed.
    async fn let_all_end(&mut self, kernel: &Kernel) {
        let began = Instant::now();
        let resting = loop {
            self.answer_held(kernel, Rounds::OfAll).await;
            let rows = kernel.processes().await.unwrap();
            self.check_processes(&rows);
            let living: Vec<_> = rows
                .into_iter()
                .filter(|info| info.row.exit.is_none())
                .collect();
            for info in living.iter().filter(|_| began.elapsed() < BIRTH) {
                let process = kernel.process(info.row.pid).await.unwrap();
                // It may have ended in the meantime.
                let _ = process.cont().await;
            }
            if began.elapsed() >= BIRTH && living.iter().all(|info| info.status.word() == "idle") {
                break living;
            }
            assert!(
                began.elapsed() < LONGEST,
                "seed {}: it does not come to rest: {living:#?}",
                self.seed
            );
            sleep(if began.elapsed() < BIRTH {
                Duration::from_secs(1)
            } else {
                Duration::from_secs(20)
            })
            .await;
        };
        for info in resting {
            let (pid, is_restored) = (
                info.row.pid,
                matches!(info.row.origin, dormouse::process::Origin::Copied { .. }),
            );
            assert!(
                is_restored || self.sessions.contains(&pid),
                "a task waits for nothing: {info:#?}"
            );
            kernel.process(pid).await.unwrap().kill().await.unwrap();
        }
        let (rows, ended) = self.rest(kernel).await;
        assert!(ended, "not all have ended: {rows:#?}");
        self.check_end(kernel, &rows).await;
        self.rows = rows.into_iter().map(|info| info.row).collect();
    }

    async fn rest(&self, kernel: &Kernel) -> (Vec<ProcessInfo>, bool) {
        for _ in 0..60 {
            let rows = kernel.processes().await.unwrap();
            if rows.iter().all(|info| info.row.exit.is_some()) {
                return (rows, true);
            }
            sleep(Duration::from_secs(1)).await;
        }
        (kernel.processes().await.unwrap(), false)
    }

    pub(crate) fn program(&self, kernel: &Kernel) -> Program {
        kernel
            .load(self.folder.path().join("main.toml"))
            .unwrap()
            .program
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

/// All events up to the kernel's end.
fn collect(kernel: &Kernel) -> JoinHandle<Vec<Event>> {
    let events = kernel.events();
    tokio::spawn(events.collect())
}
