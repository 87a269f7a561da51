//! Shared pieces of the tests: models made of closures, a recorder of requests, a gate to hold a
//! call open, and the conformance cases. Nothing here sleeps: what is awaited is an event, bounded
//! by [`PATIENCE`].

pub mod bombs;
pub mod book;
pub mod faulty;
pub mod forge;
pub mod pair;
pub mod random;
pub mod swarm;

use std::io::BufRead;
use std::panic::Location;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dormouse::message::{Block, Role};
use dormouse::model::{Delta, ModelError, Reply, Request, StopReason, Usage};
use dormouse::ports::Model;
use dormouse::program::Program;
use dormouse::{Event, Events, Kernel, Process};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::StreamExt;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

/// How long anything may take that must happen, on a machine that runs two hundred tests at once:
/// what hangs is still found.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Awaits what must happen; panics, naming the caller, where it does not.
#[track_caller]
pub fn within<F: IntoFuture>(future: F) -> impl Future<Output = F::Output> {
    let caller = Location::caller();
    async move {
        match tokio::time::timeout(PATIENCE, future).await {
            Ok(value) => value,
            Err(_) => panic!("what {caller} waits for did not happen within {PATIENCE:?}"),
        }
    }
}

/// Copies a folder, without the entries that have one of these names.
///
/// # Errors
/// If a file cannot be copied.
pub fn copy_folder(from: &Path, to: &Path, skipped: &[&str]) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if skipped.iter().any(|skipped| name == *skipped) {
            continue;
        }
        let target = to.join(name);
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target, skipped)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// A program of the model `m`. `rest` goes on in `[model]`, until it opens a section of its own.
///
/// # Panics
/// Where it does not compile.
#[track_caller]
#[must_use]
pub fn program(kernel: &Kernel, rest: &str) -> Program {
    let text = format!("[model]\nname = \"m\"\nprovider = \"scripted\"\n{rest}");
    kernel
        .parse(text.clone())
        .unwrap_or_else(|errors| panic!("{errors}\n{text}"))
        .program
}

/// A model that answers by a function of the request.
pub struct FnModel<F>(pub F);

impl<F, R> Model for FnModel<F>
where
    F: Fn(Request) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Reply, ModelError>> + Send + 'static,
{
    fn call<'a>(
        &'a self,
        request: Request,
        _deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        (self.0)(request).boxed()
    }
}

/// A reply that ends a turn.
#[must_use]
pub fn says(text: &str) -> Reply {
    Reply {
        blocks: vec![Block::text(text)],
        stop: StopReason::EndTurn,
        usage: Usage::default(),
    }
}

/// A reply that calls tools: name and arguments of each, as they stand.
#[must_use]
pub fn asks(calls: &[(&str, &str)]) -> Reply {
    let block = |(index, (name, args)): (usize, &(&str, &str))| Block::ToolUse {
        id: format!("use_{index}").into(),
        name: (*name).into(),
        args: (*args).into(),
        raw: None,
    };
    let blocks = calls.iter().enumerate().map(block).collect();
    Reply {
        blocks,
        stop: StopReason::ToolUse,
        usage: Usage::default(),
    }
}

/// Every request that a [`Recording`] model got.
#[derive(Clone, Default)]
pub struct Requests(Arc<Mutex<Vec<Request>>>);

impl Requests {
    /// All, in the order that they came.
    #[must_use]
    pub fn all(&self) -> Vec<Request> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Those of one process.
    #[must_use]
    pub fn of(&self, pid: u64) -> Vec<Request> {
        self.all()
            .into_iter()
            .filter(|request| request.pid.0 == pid)
            .collect()
    }

    /// `model`, its requests recorded here.
    pub fn record<M: Model>(&self, model: M) -> Recording<M> {
        Recording {
            model,
            requests: self.clone(),
        }
    }
}

/// A model whose requests are kept, and checked: each must be one that a provider would take.
pub struct Recording<M> {
    model: M,
    requests: Requests,
}

impl<M: Model> Model for Recording<M> {
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        self.requests
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(request.clone());
        self.model.call(request, deltas)
    }
}

/// The tool results of a message, in order: text and error flag. `at` counts from the end: 0 is the
/// last message.
#[must_use]
pub fn results(request: &Request, at: usize) -> Vec<(String, bool)> {
    let message = request.messages.iter().rev().nth(at);
    let blocks = message.into_iter().flat_map(|message| &message.blocks);
    let result = |block: &Block| match block {
        Block::ToolResult { text, is_error, .. } => Some((text.to_string(), *is_error)),
        _ => None,
    };
    blocks.filter_map(result).collect()
}

/// What makes a history one that no provider takes: a tool use without its result in the next
/// message, or the reverse.
#[must_use]
pub fn fault_of(request: &Request) -> Option<String> {
    let mut asked: Vec<Arc<str>> = Vec::new();
    for (at, message) in request.messages.iter().enumerate() {
        let answered: Vec<Arc<str>> = message
            .blocks
            .iter()
            .filter_map(|block| match block {
                Block::ToolResult { id, .. } => Some(id.clone()),
                _ => None,
            })
            .collect();
        if answered != asked {
            return Some(format!(
                "message {at} answers {answered:?}, asked was {asked:?}"
            ));
        }
        asked = message
            .blocks
            .iter()
            .filter_map(|block| match block {
                Block::ToolUse { id, .. } => Some(id.clone()),
                _ => None,
            })
            .collect();
        if message.blocks.is_empty() || (message.role == Role::User && !asked.is_empty()) {
            return Some(format!(
                "message {at} of the {:?} holds {:?}",
                message.role, message.blocks
            ));
        }
    }
    let last = request.messages.last().map(|message| message.role);
    (last != Some(Role::User)).then(|| format!("the last message is of {last:?}"))
}

/// Panics where a recorded request is not one that a provider would take.
#[track_caller]
pub fn check_histories(requests: &Requests) {
    for request in requests.all() {
        if let Some(fault) = fault_of(&request) {
            panic!(
                "process {} sent an invalid history: {fault}\n{:#?}",
                request.pid, request.messages
            );
        }
    }
}

/// A place where calls stand until they are let through.
#[derive(Clone)]
pub struct Gate {
    entered: Arc<Semaphore>,
    opened: Arc<Semaphore>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            entered: Arc::new(Semaphore::new(0)),
            opened: Arc::new(Semaphore::new(0)),
        }
    }
}

impl Gate {
    /// Says that someone stands here, and stands until the gate is open.
    pub async fn pass(&self) {
        self.entered.add_permits(1);
        let _open = self.opened.acquire().await;
    }

    /// Awaits that someone (one more) stands here.
    #[track_caller]
    pub fn entered(&self) -> impl Future<Output = ()> {
        let waiting = within(self.entered.clone().acquire_owned());
        async move { waiting.await.expect("never closed").forget() }
    }

    /// Lets everyone through from now on.
    pub fn open(&self) {
        self.opened.add_permits(1_000);
    }
}

/// The whole lines that a program prints, as they come.
pub fn lines(mut output: impl BufRead + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        // A killed program may leave its last line incomplete: that line acknowledged nothing.
        while output.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line.ends_with('\n') {
            // Who no longer reads has dropped its side.
            let _ = sender.send(line.trim_end().to_owned());
            line.clear();
        }
    });
    lines
}

/// Reads events up to and with the first that `is_last` holds for.
#[track_caller]
pub fn events_until(
    mut events: Events,
    is_last: impl Fn(&Event) -> bool,
) -> impl Future<Output = Vec<Event>> {
    within(async move {
        let mut seen = Vec::new();
        while let Some(event) = events.next().await {
            seen.push(event);
            if seen.last().is_some_and(&is_last) {
                break;
            }
        }
        seen
    })
}

/// Says something to a session and awaits the end of the turn; its last word.
#[track_caller]
pub fn turn(process: &Process, input: &str) -> impl Future<Output = String> {
    let (process, input) = (process.clone(), input.to_owned());
    within(async move {
        let end = process.turn(input).await.expect("a session takes input");
        assert_eq!(process.exit(), None, "the session ended");
        end.message.to_string()
    })
}

/// A conformance case of `conformance/fd_cases.json`.
#[derive(Debug)]
pub struct Case {
    /// What it is called.
    pub name: String,
    /// What is done.
    pub op: String,
    /// With what.
    pub params: Map<String, Value>,
    /// The content of the descriptor.
    pub content: String,
    /// What must come of it.
    pub expected: Map<String, Value>,
}

impl Case {
    /// All cases.
    ///
    /// # Panics
    /// Where the file is not what it should be.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let cases: Vec<Value> = serde_json::from_str(include_str!("../conformance/fd_cases.json"))
            .expect("the cases are a JSON list");
        let text = |case: &Value, key: &str| case[key].as_str().expect("a text").to_owned();
        let table = |case: &Value, key: &str| case[key].as_object().expect("a table").clone();
        let case = |case: &Value| Self {
            name: text(case, "name"),
            op: text(case, "op"),
            params: table(case, "params"),
            content: text(case, "content"),
            expected: table(case, "expected"),
        };
        cases.iter().map(case).collect()
    }

    /// A parameter that is a number.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u32> {
        self.params
            .get(key)
            .and_then(Value::as_u64)
            .and_then(|number| u32::try_from(number).ok())
    }
}
