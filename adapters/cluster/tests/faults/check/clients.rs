//! What clients were told: everything that was acknowledged is there, once, and nothing of what was
//! refused.

use std::collections::BTreeMap;
use std::fmt::Write;

use dormouse::id::Pid;
use dormouse::message::Role;

use super::{FinalState, Findings};
use crate::history::{Asked, History, Learned, Operation, Outcome};

pub(super) fn check(state: &FinalState, history: &History, findings: &mut Findings) {
    let requests = requests(state);
    for (request, pids) in &requests {
        if pids.len() > 1 {
            findings.violate("start-made-twice", format!("{request}: {pids:?}"));
        }
    }
    let mut labels: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, checkpoint) in &state.checkpoints {
        *labels.entry(&checkpoint.label).or_default() += 1;
    }
    let heard = heard(state);
    for operation in history.operations() {
        count(&operation, findings);
        check_operation(state, &requests, &labels, &heard, &operation, findings);
    }
    for (pid, facts) in history.seen() {
        findings.count("facts seen to be durable", facts.len() as u64);
        let log = state.processes.get(&pid).map(|process| &process.log);
        for (number, name) in facts {
            let line = log.and_then(|log| log.get(number as usize));
            if line.is_none_or(|line| line.name != name) {
                let found = line.map(|line| line.name);
                let evidence = format!("process {pid}: fact {number} was {name}, is {found:?}");
                findings.violate("durable-fact-lost", evidence);
            }
        }
    }
}

fn count(operation: &Operation, findings: &mut Findings) {
    let kind = match &operation.outcome {
        Some(Outcome::Acknowledged(_)) => "operations acknowledged",
        Some(Outcome::Refused(_)) => "operations refused",
        Some(Outcome::Unknown(_)) | None => "operations unknown",
    };
    findings.count(kind, 1);
}

fn check_operation(
    state: &FinalState,
    requests: &BTreeMap<&str, Vec<Pid>>,
    labels: &BTreeMap<&str, u64>,
    heard: &str,
    operation: &Operation,
    findings: &mut Findings,
) {
    let evidence = format!("{operation:?}");
    match (&operation.asked, &operation.outcome) {
        (Asked::Start { request }, outcome) => {
            let made = requests.get(&**request).map(|pids| pids[0]);
            match outcome {
                Some(Outcome::Acknowledged(Learned::Process(pid))) if made != Some(*pid) => {
                    findings.violate("start-lost", format!("{evidence}: it is {made:?}"));
                }
                Some(Outcome::Refused(_)) if made.is_some() => {
                    findings.violate("refused-start-was-made", format!("{evidence}: {made:?}"));
                }
                _ => {}
            }
        }
        (Asked::Input { text, .. }, outcome) => {
            let times = heard.matches(text.as_str()).count();
            match (outcome, times) {
                (Some(Outcome::Acknowledged(_)), 0) => findings.violate("input-lost", evidence),
                (Some(Outcome::Refused(_)), 1..) => {
                    findings.violate("refused-input-arrived", evidence);
                }
                (_, 2..) => findings.violate("input-arrived-twice", evidence),
                _ => {}
            }
        }
        (Asked::Checkpoint { label, .. }, outcome) => {
            let times = labels.get(&**label).copied().unwrap_or_default();
            match (outcome, times) {
                (Some(Outcome::Acknowledged(_)), 0) => {
                    findings.violate("checkpoint-lost", evidence);
                }
                (Some(Outcome::Refused(_)), 1..) => {
                    findings.violate("refused-checkpoint-was-made", evidence);
                }
                (_, 2..) => findings.violate("checkpoint-made-twice", evidence),
                _ => {}
            }
        }
        (Asked::Wait { pid }, Some(Outcome::Acknowledged(Learned::Exit(exit)))) => {
            let found = state
                .processes
                .get(pid)
                .and_then(|process| process.row.exit.as_ref());
            if found.is_none_or(|found| *found.message != **exit) {
                findings.violate("end-lost", format!("{evidence}: it is {found:?}"));
            }
            if !exit.ends_with(" is done") {
                findings.violate("tree-failed", evidence);
            }
        }
        (Asked::End { pid }, Some(Outcome::Acknowledged(_))) => {
            let process = state.processes.get(pid);
            if process.is_none_or(|process| process.row.exit.is_none()) {
                findings.violate("end-lost", evidence);
            }
        }
        _ => {}
    }
}

/// The processes that each request of a start has made.
fn requests(state: &FinalState) -> BTreeMap<&str, Vec<Pid>> {
    let mut requests: BTreeMap<&str, Vec<Pid>> = BTreeMap::new();
    for (pid, process) in &state.processes {
        let labels = process.row.labels.iter();
        let mut of_start = labels.filter(|label| label.key() == "dormouse.request");
        if let Some(label) = of_start.next() {
            requests.entry(label.value()).or_default().push(*pid);
        }
    }
    requests
}

/// All that listeners were told, by clients and by trees.
pub(super) fn heard(state: &FinalState) -> String {
    let mut heard = String::new();
    let sessions = state
        .processes
        .values()
        .filter(|process| process.row.program.contains("listener"));
    for conversation in sessions.filter_map(|process| process.conversation.as_ref()) {
        let messages = conversation.messages.iter();
        for message in messages.filter(|message| message.role == Role::User) {
            // Writing to a string never fails.
            let _ = writeln!(heard, "{}", message.text());
        }
    }
    heard
}
