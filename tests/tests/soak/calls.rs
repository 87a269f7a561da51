//! Calls that must not be repeated: each reply that asks for one gives it a number of its own, and
//! each run is counted. One that ran more than once is explained from the journals: a copy or a
//! branch from a point before the call was begun makes its own.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::id::{CallId, FactNumber, Pid};
use dormouse::message::Block;
use dormouse::ports::Store;
use dormouse::process::ProcessRow;
use dormouse::store::LogStore;
use dormouse::{FnTool, KernelBuilder};
use dormouse_proto::record::{self, CallFact, ContentRef, codec};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Soak;

type Fact = record::Fact<ContentRef>;

/// How a panic begins that is meant.
pub(super) const NO_LUCK: &str = "no luck";
/// How long a call is waited for that hangs.
const DEADLINE: Duration = Duration::from_millis(300);
/// How soon a second run is explained: before the processes that know of it are given up.
const SOON: Duration = Duration::from_millis(500);

#[derive(Deserialize, JsonSchema)]
struct Work {
    id: u64,
    /// How it goes on.
    how: How,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum How {
    Returns,
    Fails,
    Hangs,
    Panics,
}

/// What was called, and how often it ran.
pub(super) struct Calls {
    pub(super) seed: u64,
    last: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of each number, whether it ran: a bit each.
    ran: Vec<u64>,
    /// Those that ran again, and how often in all.
    again: BTreeMap<u64, u64>,
    explained: u64,
    unexplained: Vec<String>,
}

impl Calls {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            last: AtomicU64::default(),
            state: Mutex::default(),
        }
    }

    /// A number that was never given.
    pub(super) fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn run(&self, id: u64) {
        let mut state = self.state.lock().unwrap();
        let (word, bit) = (id as usize / 64, 1 << (id % 64));
        if state.ran.len() <= word {
            state.ran.resize(word + 1, 0);
        }
        if state.ran[word] & bit != 0 {
            *state.again.entry(id).or_insert(1) += 1;
        }
        state.ran[word] |= bit;
    }

    /// Calls that ran twice, each explained and not.
    pub(super) fn counts(&self) -> (u64, usize) {
        let state = self.state.lock().unwrap();
        (state.explained, state.unexplained.len())
    }

    /// Those that ran again and are not explained yet, and how often each ran.
    pub(super) fn take_again(&self) -> BTreeMap<u64, u64> {
        std::mem::take(&mut self.state.lock().unwrap().again)
    }

    /// Explains calls that ran again from what a store holds.
    pub(super) fn explain(&self, again: BTreeMap<u64, u64>, store: &LogStore) {
        for (id, runs) in again {
            match explanation(store, id, runs) {
                None => self.state.lock().unwrap().explained += 1,
                Some(fault) => self.fault(fault),
            }
        }
    }

    /// Says what must not be.
    pub(super) fn fault(&self, fault: String) {
        eprintln!("soak: {fault}");
        self.state.lock().unwrap().unexplained.push(fault);
    }

    /// Panics where something happened that must not.
    pub(super) fn check(&self) {
        let (again, unexplained) = {
            let state = self.state.lock().unwrap();
            (state.again.len(), state.unexplained.clone())
        };
        // The lock is free again: a panic under it would stop the tasks that still run.
        assert!(
            again == 0 && unexplained.is_empty(),
            "{again} calls ran again and wait to be explained; {unexplained:#?}"
        );
    }
}

/// Enters the tools of a program.
pub(super) fn enter(builder: KernelBuilder, calls: &Arc<Calls>) -> KernelBuilder {
    let calls = calls.clone();
    let once = FnTool::new(
        "once",
        "Must not be repeated.",
        move |Work { id, how }: Work| {
            calls.run(id);
            async move {
                tokio::time::sleep(Duration::from_millis(id % 7)).await;
                match how {
                    How::Returns => Ok(format!("did {id}")),
                    How::Fails => Err(format!("could not do {id}")),
                    How::Hangs => pending().await,
                    How::Panics => panic!("{NO_LUCK} with {id}"),
                }
            }
        },
    );
    let large = FnTool::new("large", "Much.", |Work { id, .. }: Work| async move {
        let lines = 500 + id % 4_000;
        Ok::<_, String>(
            (0..lines)
                .map(|line| format!("{id}: line {line} of {lines}\n"))
                .collect::<String>(),
        )
    });
    builder
        .tool(once.deadline(DEADLINE))
        .tool(large.idempotent())
}

/// Explains each call that ran again, soon after it did.
pub(super) async fn explain(soak: Arc<Soak>) {
    loop {
        let is_over = soak.is_over();
        let again = soak.calls.take_again();
        if !again.is_empty() {
            // The run begins before its intent can be read by others; both are durable after this.
            tokio::time::sleep(Duration::from_millis(100)).await;
            soak.calls.explain(again, &soak.open().await.store);
        } else if is_over {
            return;
        }
        soak.pause(SOON).await;
    }
}

/// What a process has to do with a call.
#[derive(Debug)]
struct Part {
    row: ProcessRow,
    /// The number of the reply that asks for it, in its own journal.
    asked: Option<FactNumber>,
    /// The number of the intent, in its own journal.
    called: Option<FactNumber>,
}

/// Why a call ran more often than it may; none where each run is one of a process that begins it by
/// itself.
fn explanation(store: &LogStore, id: u64, runs: u64) -> Option<String> {
    let rows = store.processes().expect("the store is whole").rows;
    let asks = format!("\"id\":{id},");
    let facts: BTreeMap<Pid, _> = rows
        .iter()
        .map(|row| (row.pid, facts(store, row.pid)))
        .collect();
    let call = facts
        .values()
        .flatten()
        .find_map(|(_, fact)| asked_call(fact, &asks));
    let Some(call) = call else {
        return Some(format!(
            "call {id} ran {runs} times, and nobody asked for it"
        ));
    };
    let parts = rows.into_iter().map(|row| {
        let of = &facts[&row.pid];
        let asked = of.iter().find(|(_, fact)| asked_call(fact, &asks).is_some()).map(|(number, _)| *number);
        let is_intent =
            |fact: &Fact| matches!(fact, Fact::Call(CallFact::ToolCalled { call: called }) if *called == call);
        let called = of.iter().find(|(_, fact)| is_intent(fact)).map(|(number, _)| *number);
        Part { row, asked, called }
    });
    let parts: BTreeMap<Pid, Part> = parts.map(|part| (part.row.pid, part)).collect();
    let begins =
        |part: &&Part| part.called.is_some() && knows(&parts, part) && !had_begun(&parts, part);
    let may = parts.values().filter(begins).count() as u64;
    let concerned: Vec<_> = parts
        .values()
        .filter(|part| part.called.is_some() || part.asked.is_some())
        .collect();
    (runs > may).then(|| format!("call {id} ran {runs} times, and may {may} times: {concerned:#?}"))
}

/// Whether the call of a process is the one that is meant: the reply stands in its journal, or in
/// that of one that it goes on from.
fn knows(parts: &BTreeMap<Pid, Part>, part: &Part) -> bool {
    let ancestor = part.row.ancestor().and_then(|(pid, _)| parts.get(&pid));
    part.asked.is_some() || ancestor.is_some_and(|ancestor| knows(parts, ancestor))
}

/// Whether the call had begun at the point that a process goes on from.
fn had_begun(parts: &BTreeMap<Pid, Part>, part: &Part) -> bool {
    let Some((pid, at)) = part.row.ancestor() else {
        return false;
    };
    let Some(ancestor) = parts.get(&pid) else {
        return false;
    };
    ancestor.called.is_some_and(|called| called <= at) || had_begun(parts, ancestor)
}

/// The facts of a process that are kept, numbered.
fn facts(store: &dyn Store, pid: Pid) -> Vec<(FactNumber, Fact)> {
    let Ok(history) = store.history(pid) else {
        return Vec::new();
    };
    let Some(first) = history.commits.first() else {
        return Vec::new();
    };
    let first = first.first.max(FactNumber(1));
    let facts = store.facts(pid, first, history.last()).unwrap_or_default();
    let numbered = facts.iter().zip(first.0..).map(|(fact, number)| {
        let fact = codec::decode(fact).expect("what was written can be read");
        (FactNumber(number), fact)
    });
    numbered.collect()
}

/// The call of a reply that asks for this.
fn asked_call(fact: &Fact, asks: &str) -> Option<CallId> {
    let Fact::Call(CallFact::ModelReplied { call, blocks, .. }) = fact else {
        return None;
    };
    let uses = blocks.iter().filter_map(|block| match block {
        Block::ToolUse { args, .. } => Some(args),
        _ => None,
    });
    let at = uses
        .enumerate()
        .find_map(|(at, args)| args.contains(asks).then_some(at))?;
    Some(CallId {
        seq: call.seq + 1 + at as u32,
        ..*call
    })
}
