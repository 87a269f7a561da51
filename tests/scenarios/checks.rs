//! What must hold, asserted of what can be seen from outside.

use dormouse::record::{CallFact, ChildFact, MailFact};
use std::collections::{BTreeMap, BTreeSet};

use dormouse::id::{FactNumber, Pid};
use dormouse::message::{Block, Role};
use dormouse::model::Request;
use dormouse::process::{ExitStatus, Origin, ProcessRow};
use dormouse::{Amount, Event, Fact, Kernel, ProcessInfo};
use dormouse_tests::check_histories;

use crate::mind::{MOST_TOKENS, NOTE};
use crate::tally::Tally;
use crate::world::{Life, World};

impl World {
    /// No tree holds more processes than its root may have.
    pub(crate) fn check_processes(&self, rows: &[ProcessInfo]) {
        let parents: BTreeMap<_, _> = rows
            .iter()
            .map(|info| (info.row.pid, info.row.parent))
            .collect();
        let mut living: BTreeMap<Pid, u64> = BTreeMap::new();
        for info in rows.iter().filter(|info| info.row.exit.is_none()) {
            *living.entry(root(&parents, info.row.pid)).or_default() += 1;
        }
        for (root, living) in living {
            let limit = self
                .roots
                .get(&root)
                .copied()
                .flatten()
                .and_then(|budget| budget.processes);
            assert!(
                limit.is_none_or(|limit| living <= limit),
                "TREE-1: {living} of {limit:?} live below {root}: {rows:#?}"
            );
        }
    }

    /// All have ended: how, and what they used.
    pub(crate) async fn check_end(&self, kernel: &Kernel, rows: &[ProcessInfo]) {
        let parents: BTreeMap<_, _> = rows
            .iter()
            .map(|info| (info.row.pid, info.row.parent))
            .collect();
        let mut used: BTreeMap<Pid, (u64, u64)> = BTreeMap::new();
        for info in rows {
            let (pid, exit) = (info.row.pid, info.row.exit.as_ref().unwrap());
            self.tally.count(format!("ended: {}", exit.status.word()));
            assert_ne!(exit.status, ExitStatus::Faulted, "{info:#?}");
            for amount in [Amount::OutputTokens, Amount::WallTime] {
                if exit
                    .message
                    .contains(&format!("budget of {} is used up", amount.word()))
                {
                    self.tally.count(format!("used up: {}", amount.word()));
                }
            }
            let view = kernel.inspect(pid).await.unwrap();
            assert_eq!(
                (view.status().word(), view.budget.shares().len()),
                (exit.status.word(), 0),
                "{pid}"
            );
            let (processes, tokens) = used.entry(root(&parents, pid)).or_default();
            *processes += 1;
            *tokens += view.usage.output_tokens;
        }
        for (root, (processes, tokens)) in used {
            let view = kernel.inspect(root).await.unwrap();
            let overshoot = MOST_TOKENS * processes;
            let overdrawn = view.budget.overdrawn(Amount::OutputTokens);
            assert!(
                overdrawn <= overshoot,
                "TREE-1: {root} is overdrawn by {overdrawn} with {processes} processes"
            );
            let budget = self.roots.get(&root).copied().flatten();
            if let Some(limit) = budget.and_then(|budget| budget.output_tokens) {
                assert!(
                    tokens <= limit + overshoot,
                    "TREE-1: {tokens} of {limit} used by {processes} below {root}"
                );
            }
        }
    }

    /// What each life told of ends fits what the store says. A process that is opened again has one
    /// end more, with the next number (REOPEN-1).
    pub(crate) fn check_lives(&self, lives: &[Life]) {
        self.check_facts(lives);
        for (at, life) in lives.iter().enumerate() {
            let mut exits: BTreeMap<(Pid, u32), u32> = BTreeMap::new();
            for event in &life.events {
                match event {
                    Event::Exited { pid, exit } => {
                        *exits.entry((*pid, exit.reopenings)).or_default() += 1;
                    }
                    Event::Reopened { .. } => {
                        self.tally.count("an ended process is opened again");
                    }
                    _ => {}
                }
            }
            for ((pid, number), count) in &exits {
                assert!(
                    *count == 1 && !had_ended(&life.before, *pid, *number),
                    "REOPEN-1: end {number} of {pid} is told {count} times in life {at}"
                );
            }
            // What was told is durable; what is durable may not have been told where the kernel was
            // cut off.
            if let Some(next) = lives.get(at + 1) {
                let told = exits
                    .keys()
                    .find(|(pid, number)| !had_ended(&next.before, *pid, *number));
                assert_eq!(told, None, "an end was told in life {at} and is gone");
            }
        }
        let last = lives.last().unwrap();
        let mut ended: BTreeSet<_> = last
            .before
            .iter()
            .filter(|row| row.exit.is_some())
            .map(|row| row.pid)
            .collect();
        let is_exit = |event: &&Event| matches!(event, Event::Exited { .. });
        ended.extend(last.events.iter().filter(is_exit).filter_map(Event::pid));
        let all: BTreeSet<_> = self.rows.iter().map(|row| row.pid).collect();
        assert_eq!(ended, all, "each ends, and is told to");
    }

    /// DUR-1 and CALL-1: no fact is told twice, in any life, and what a call comes to is known
    /// once.
    fn check_facts(&self, lives: &[Life]) {
        let mut last: BTreeMap<Pid, FactNumber> = BTreeMap::new();
        let mut once: BTreeSet<String> = BTreeSet::new();
        for event in lives.iter().flat_map(|life| &life.events) {
            match event {
                Event::Fact { pid, number, fact } => {
                    let before = last.insert(*pid, *number);
                    assert!(
                        before < Some(*number),
                        "DUR-1: {number} of {pid} follows {before:?}: {fact:?}"
                    );
                    self.count_fact(fact);
                    let what = match &**fact {
                        Fact::Call(CallFact::ModelReplied { call, .. }) => {
                            format!("{pid} is replied to in {call}")
                        }
                        Fact::Call(CallFact::ToolReturned { call, .. }) => {
                            format!("{pid} is answered in {call}")
                        }
                        Fact::Mail(MailFact::Received { from, call, .. }) => {
                            format!("{pid} hears {from} in {call}")
                        }
                        Fact::Child(ChildFact::Ended { call, index, .. }) => {
                            format!("{pid} loses child {index} of {call}")
                        }
                        Fact::Child(ChildFact::Reported { call, .. }) => {
                            format!("{pid} hears of the child of {call}")
                        }
                        _ => continue,
                    };
                    assert!(!once.contains(&what), "CALL-1: {what}, twice");
                    once.insert(what);
                }
                Event::Retrying { .. } => {
                    self.tally.count("a model is asked again");
                }
                Event::Lagged { missed } => panic!("{missed} events were missed"),
                _ => {}
            }
        }
    }

    fn count_fact(&self, fact: &Fact) {
        self.tally.count(format!("fact: {}", fact.name()));
        let Fact::Call(CallFact::ToolReturned { answer, .. }) = fact else {
            return;
        };
        let words = [
            "did not finish within",
            "it panicked",
            "output reached the limit",
            "Its effect is unknown",
            "<fd_result",
            "No further children",
            "There is no tool",
        ];
        for word in words.into_iter().filter(|word| answer.text.contains(word)) {
            self.tally.count(format!("answer: {word}"));
        }
    }

    /// HIST-1, FORK-2, MAIL-1: of all that was sent to models, in all lives.
    pub(crate) fn check_requests(&self) {
        check_histories(&self.requests);
        let all = self.requests.all();
        let mut of: BTreeMap<Pid, Vec<(usize, &Request)>> = BTreeMap::new();
        for (at, request) in all.iter().enumerate() {
            of.entry(request.pid).or_default().push((at, request));
        }
        for (pid, requests) in &of {
            for pair in requests.windows(2) {
                self.check_step(*pid, pair[0].1, pair[1].1);
            }
            requests
                .iter()
                .for_each(|(_, request)| heard_once(request, &self.tally));
            let row = self.row(*pid).unwrap();
            if let (Origin::Forked { .. }, Some(parent)) = (&row.origin, row.parent) {
                let (at, first) = requests[0];
                let line = self.restored_from(parent);
                let before = all[..at]
                    .iter()
                    .filter(|request| line.contains(&request.pid));
                self.check_fork(first, before.collect());
            }
        }
    }

    /// HIST-1: a request begins with the one before it, up to where somebody went back.
    fn check_step(&self, pid: Pid, before: &Request, after: &Request) {
        assert_eq!(
            (&before.system, &before.tools),
            (&after.system, &after.tools),
            "HIST-1: {pid}"
        );
        let Some(at) = parted(before, after) else {
            return;
        };
        let back = after
            .messages
            .get(at)
            .map(|message| message.text())
            .unwrap_or_default();
        let went = back.starts_with("<goto from=") && back.contains(&format!(" to=\"msg:{at}\""));
        assert!(
            went,
            "HIST-1: {pid} at {at}\n{:#?}\n{:#?}",
            before.messages, after.messages
        );
        self.tally.count("a request after somebody went back");
    }

    /// FORK-2: the first request of a child is one of its parent, what its model said to that, and
    /// the answers.
    fn check_fork(&self, first: &Request, parents: Vec<&Request>) {
        let same = |parent: &&&Request| {
            let len = parent.messages.len();
            (&parent.system, &parent.tools) == (&first.system, &first.tools)
                && parted(parent, first).is_none()
                && (first.messages.len() == len + 2
                    || is_back(first, len + 2)
                    || is_back(first, len))
        };
        let found = parents.iter().find(same);
        assert!(found.is_some() || is_back(first, 0), "FORK-2: {first:#?}");
        self.tally.count("the first request of a forked child");
    }

    /// The process, the one that it was restored from, and so on: what it does may follow from what
    /// they were told.
    fn restored_from(&self, pid: Pid) -> Vec<Pid> {
        let mut line = vec![pid];
        while let Some(Origin::Copied { from, .. }) = line
            .last()
            .and_then(|pid| self.row(*pid))
            .map(|row| &row.origin)
        {
            line.push(*from);
        }
        line
    }

    fn row(&self, pid: Pid) -> Option<&ProcessRow> {
        self.rows.iter().find(|row| row.pid == pid)
    }

    /// CALL-2: what is not idempotent ran once for each call. One that was restored before the call
    /// has a call of its own.
    pub(crate) fn check_runs(&self, lives: &[Life]) {
        let mut callers: BTreeMap<String, Vec<Pid>> = BTreeMap::new();
        for event in lives.iter().flat_map(|life| &life.events) {
            let Event::ToolCalled { pid, tool, args } = event else {
                continue;
            };
            let args: serde_json::Value = serde_json::from_str(args).unwrap_or_default();
            let Some(key) = args["key"].as_str() else {
                continue;
            };
            callers
                .entry(format!("{tool} {key}"))
                .or_default()
                .push(*pid);
        }
        for (run, times) in self.runs.all() {
            let callers = &callers[&run];
            let different: BTreeSet<_> = callers.iter().collect();
            if run.starts_with("repeatable") {
                if callers.len() > different.len() {
                    self.tally.count("a call is made again");
                }
            } else {
                assert_eq!(
                    (callers.len(), times),
                    (different.len(), different.len() as u64),
                    "CALL-2: {run}: {callers:?}"
                );
            }
        }
    }
}

/// Whether the process had come to the end with this number.
fn had_ended(rows: &[ProcessRow], pid: Pid, number: u32) -> bool {
    rows.iter().any(|row| {
        row.pid == pid
            && (row.reopenings > number || (row.reopenings == number && row.exit.is_some()))
    })
}

/// The process at the top of the tree.
fn root(parents: &BTreeMap<Pid, Option<Pid>>, mut pid: Pid) -> Pid {
    while let Some(parent) = parents.get(&pid).copied().flatten() {
        pid = parent;
    }
    pid
}

/// The first message of `before` that is not in `after`.
fn parted(before: &Request, after: &Request) -> Option<usize> {
    before
        .messages
        .iter()
        .enumerate()
        .find(|(at, message)| after.messages.get(*at) != Some(*message))
        .map(|(at, _)| at)
}

/// Whether the host sent it back before it was asked for the first time.
fn is_back(request: &Request, from: usize) -> bool {
    request
        .messages
        .iter()
        .skip(from)
        .any(|message| message.text().starts_with("<goto from="))
}

/// MAIL-1: no message of another process stands in a conversation twice.
fn heard_once(request: &Request, tally: &Tally) {
    let heard = request
        .messages
        .iter()
        .filter(|message| message.role == Role::User);
    let texts = heard
        .flat_map(|message| &message.blocks)
        .filter_map(|block| match block {
            Block::Text { text, .. } | Block::ToolResult { text, .. } => Some(text),
            Block::ToolUse { .. } | Block::Media { .. } | Block::Opaque(_) => None,
        });
    let mut notes: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    // By its sender as well: what is restored from one that was about to say something says it,
    // too.
    for said in texts.flat_map(|text| text.split("<process_message from=\"").skip(1)) {
        if let (Some((from, _)), Some((_, note))) = (said.split_once('"'), said.split_once(NOTE)) {
            *notes
                .entry((from, note.split(';').next().unwrap_or_default()))
                .or_default() += 1;
        }
    }
    if !notes.is_empty() {
        tally.count("a request with what another process said");
    }
    let twice = notes.iter().find(|(_, times)| **times > 1);
    assert_eq!(
        twice, None,
        "MAIL-1: {} hears it again\n{:#?}",
        request.pid, request.messages
    );
}
