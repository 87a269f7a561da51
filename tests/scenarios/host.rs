//! The host of a small world: at random times it starts, speaks, signals, sends back, forks and
//! calls tools.

use std::time::Duration;

use dormouse::id::Pid;
use dormouse::process::Priority;
use dormouse::{Amount, Budget, Kernel, KernelError, Process, ProcessError, StoreFailure};
use tokio::time::{sleep, timeout};

use crate::person::Rounds;
use crate::world::World;

/// How long the host waits for anything. A tool that hangs ends before.
const PATIENCE: Duration = Duration::from_secs(400);

impl World {
    /// Lets some time pass, then does something to somebody.
    pub(crate) async fn act(&mut self, kernel: &Kernel) {
        sleep(Duration::from_millis(
            self.random.one_of(&[0, 1, 40, 2_000, 20_000, 70_000]),
        ))
        .await;
        let rows = kernel.processes().await.unwrap();
        self.check_processes(&rows);
        let living: Vec<_> = rows
            .iter()
            .filter(|info| info.row.exit.is_none())
            .map(|info| info.row.pid)
            .collect();
        if living.is_empty() {
            return self.start(kernel).await;
        }
        let pid = self.random.one_of(&living);
        let process = kernel.process(pid).await.unwrap();
        timeout(PATIENCE, self.act_on(kernel, &process))
            .await
            .unwrap_or_else(|_| panic!("the host waits for {pid}"));
        timeout(PATIENCE, self.answer_held(kernel, Rounds::OfSome))
            .await
            .expect("a verdict is recorded in time");
    }

    async fn act_on(&mut self, kernel: &Kernel, process: &Process) {
        let number = self.next_number();
        let (word, done) = match self.random.below(100) {
            0..10 => return self.start(kernel).await,
            10..28 => ("input", process.input(format!("input {number}")).await),
            28..33 => (
                "message",
                process.message(Pid(99), format!("said {number}")).await,
            ),
            33..39 => ("interrupt", process.interrupt().await),
            39..47 => ("stop", process.stop().await),
            47..57 => ("cont", process.cont().await),
            57..59 => ("kill", process.kill().await),
            59..63 => ("stop a tree", process.tree().stop().await),
            63..69 => ("continue a tree", process.tree().cont().await),
            69..71 => ("interrupt a tree", process.tree().interrupt().await),
            71..72 => ("kill a tree", process.tree().kill().await),
            72..80 => {
                let position = format!("msg:{}", 1 + self.random.below(6));
                (
                    "goto",
                    process
                        .goto(position, format!("back, says the host, {number}"))
                        .await
                        .map(drop),
                )
            }
            80..84 => {
                let copy = process.fork().await;
                let copy = copy
                    .map(|copy| self.roots.insert(copy.pid(), None))
                    .map(drop);
                ("fork", copy)
            }
            84..86 => {
                let restored = kernel.copy(process.pid(), None).await;
                (
                    "restore",
                    restored
                        .map(|restored| self.roots.insert(restored.pid(), None))
                        .map(drop),
                )
            }
            86..90 => (
                "open",
                process
                    .open("notes", "line 1 of notes\n".repeat(40), None)
                    .await
                    .map(drop),
            ),
            _ => {
                let tool = self
                    .random
                    .one_of(&["once", "repeatable", "hangs", "large"]);
                let args = format!(
                    "{{\"key\": \"host {number}\", \"ms\": {}}}",
                    self.random.below(9_000)
                );
                ("call", process.call(tool, args).await.map(drop))
            }
        };
        self.tally.count(format!("host: {word}: {}", outcome(done)));
    }

    /// A task or a session, with what it may use.
    pub(crate) async fn start(&mut self, kernel: &Kernel) {
        let number = self.next_number();
        let budget = Budget {
            output_tokens: self
                .random
                .one_of(&[None, None, Some(150), Some(400), Some(1_000)]),
            wall_time_ms: self
                .random
                .one_of(&[None, None, None, Some(90_000), Some(400_000)]),
            processes: self.random.one_of(&[None, Some(2), Some(4), Some(6)]),
            ..Budget::default()
        };
        let priority = self
            .random
            .one_of(&[Priority::Low, Priority::Normal, Priority::High]);
        let start = kernel
            .start(self.program(kernel))
            .input(format!("task {number}"))
            .budget(budget)
            .priority(priority);
        let is_session = self.random.percent(30);
        let started = if is_session { start.session() } else { start }.await;
        self.tally.count(format!(
            "host: start: {}",
            outcome(started.as_ref().map(drop))
        ));
        if let Ok(process) = started {
            self.roots.insert(process.pid(), Some(budget));
            self.sessions.extend(is_session.then(|| process.pid()));
        }
    }

    /// The one that has a name.
    pub(crate) async fn start_inbox(&mut self, kernel: &Kernel) {
        let start = kernel
            .start(self.program(kernel))
            .session()
            .input("keep the inbox")
            .name("inbox");
        let budget = Budget::default().with(Amount::OutputTokens, Some(900));
        let process = start.budget(budget).await.unwrap();
        self.roots.insert(process.pid(), Some(budget));
        self.sessions.insert(process.pid());
    }
}

/// What came of it: errors that a host must reckon with, and no others.
fn outcome<T>(done: Result<T, impl std::borrow::Borrow<KernelError>>) -> &'static str {
    match done.as_ref().map_err(|error| error.borrow()) {
        Ok(_) => "done",
        Err(KernelError::Process(ProcessError::Ended(_))) => "ended",
        Err(KernelError::Process(ProcessError::Unanswered(_))) => "unanswered",
        Err(KernelError::Store(StoreFailure::NotDurable(_))) => "not durable",
        Err(error) => panic!("{error:?}"),
    }
}
