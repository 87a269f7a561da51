//! Calls: one that must not repeat runs at most once, none runs without its intent, an answer says
//! what ran, and a message is kept once.

use std::collections::{BTreeMap, BTreeSet};

use dormouse::message::Block;

use super::{FinalState, Findings};

/// What an answer says when it is not known whether the call ran.
const UNKNOWN: &str = "Its effect is unknown";

/// A call, with all answers that some process has to it: forks have those of their parents.
#[derive(Default)]
struct Call {
    tool: String,
    answers: BTreeSet<String>,
}

pub(super) fn check(
    state: &FinalState,
    ledger: &BTreeMap<String, Vec<String>>,
    findings: &mut Findings,
) {
    let (calls, messages) = read_calls(state);
    findings.count("calls", calls.len() as u64);
    for (id, lines) in ledger {
        findings.count("effects", lines.len() as u64);
        match calls.get(id) {
            None => findings.violate("effect-without-intent", format!("{id}: {lines:?}")),
            Some(call) if call.tool == "once" && lines.len() > 1 => {
                let evidence = format!("{id}: {lines:?}, answers {:?}", call.answers);
                findings.violate("call-ran-twice", evidence);
            }
            Some(_) if lines.len() > 1 => findings.count("calls that may repeat and did", 1),
            Some(_) => {}
        }
    }
    for (id, call) in &calls {
        let none = Vec::new();
        check_answers(id, call, ledger.get(id).unwrap_or(&none), findings);
    }
    check_messages(state, &messages, findings);
}

fn check_answers(id: &str, call: &Call, lines: &[String], findings: &mut Findings) {
    for answer in &call.answers {
        let evidence = || format!("{id} ({}): answer {answer:?}, lines {lines:?}", call.tool);
        if let Some(ran) = answer.split("ran ").nth(1) {
            let ran: String = ran
                .chars()
                .take_while(|c| c.is_ascii_digit() || *c == '.')
                .collect();
            if !lines.contains(&ran) {
                findings.violate("answer-without-effect", evidence());
            }
        } else if answer.contains(UNKNOWN) {
            findings.count("calls named as unknown", 1);
            findings.count("unknown calls that ran", u64::from(!lines.is_empty()));
        } else {
            findings.count("calls with another answer", 1);
            if !lines.is_empty() {
                findings.violate("effect-not-named", evidence());
            }
        }
    }
    if call.answers.is_empty() && !lines.is_empty() {
        findings.violate(
            "effect-not-named",
            format!("{id}: no answer, lines {lines:?}"),
        );
    }
}

/// The calls of counting tools by their id, and for each message that was sent whether every answer
/// says that it was kept.
fn read_calls(state: &FinalState) -> (BTreeMap<String, Call>, BTreeMap<String, bool>) {
    let mut calls: BTreeMap<String, Call> = BTreeMap::new();
    let mut messages = BTreeMap::new();
    for process in state.processes.values() {
        let conversation = process.conversation.iter();
        let blocks: Vec<_> = conversation
            .flat_map(|conversation| &conversation.messages)
            .flat_map(|message| message.blocks.iter())
            .collect();
        let mut answers: BTreeMap<&str, (&str, bool)> = BTreeMap::new();
        for block in &blocks {
            if let Block::ToolResult { id, text, is_error } = block {
                answers.insert(id, (text, *is_error));
            }
        }
        for block in blocks {
            let Block::ToolUse { id, name, args, .. } = block else {
                continue;
            };
            let args: serde_json::Value = serde_json::from_str(args).unwrap_or_default();
            let answer = answers.get(&**id);
            if let Some(call_id) = args["id"].as_str() {
                let call = calls.entry(call_id.to_owned()).or_default();
                call.tool = name.to_string();
                call.answers
                    .extend(answer.map(|(text, _)| (*text).to_owned()));
            } else if let Some(text) = args["text"].as_str() {
                let is_kept = answer.is_some_and(|(_, is_error)| !is_error);
                messages.insert(text.to_owned(), is_kept);
            }
        }
    }
    (calls, messages)
}

fn check_messages(state: &FinalState, messages: &BTreeMap<String, bool>, findings: &mut Findings) {
    let heard = super::clients::heard(state);
    for (text, is_kept) in messages {
        let times = heard.matches(text.as_str()).count();
        findings.count("messages between trees", 1);
        if *is_kept && times == 0 {
            findings.violate("message-lost", text.clone());
        }
        if times > 1 {
            findings.violate("message-kept-twice", format!("{text}: {times} times"));
        }
    }
}
