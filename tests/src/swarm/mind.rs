//! What the processes of the swarm do: a pure function of the request, one straight line of code
//! for each role.
//!
//! Nothing that they say in the end depends on pids, on the order in which they ran, or on whether
//! a kernel died on the way: a call that was interrupted is made good. Whatever is lost, doubled or
//! answered otherwise changes the last word of the coordinator.

use std::collections::BTreeMap;

use dormouse::model::{Reply, Request};
use serde_json::json;

use super::talk::{Answer, Call, Talk, Then};
use crate::says;

/// The temporary file that all write to: the first of its tree.
const BOARD: &str = "temp:1";

/// How often the coordinator forks and spawns.
const ROUNDS: usize = 4;

/// What the children of a fork are told.
const PARTS: [&str; 3] = ["left", "middle", "right"];

/// The file that the coordinator writes.
pub(super) const REPORT: &str = "out/report.txt";

/// What the model replies.
pub(super) fn reply(request: &Request) -> Reply {
    if *request.program == *"clerk" {
        return clerk(&mut Talk::of_listener(request)).unwrap_or_else(|reply| reply);
    }
    let mut talk = Talk::of(request);
    let task = talk.task().to_owned();
    let said = match (&*request.program, task.as_str()) {
        ("scout", name) => scout(&mut talk, name),
        (_, "go") => coordinator(&mut talk),
        (_, name) => part(&mut talk, name),
    };
    said.map_or_else(|reply| reply, |text| says(&text))
}

/// Forks and spawns in rounds, hears of everybody, and tells what all came to.
fn coordinator(talk: &mut Talk) -> Then<String> {
    talk.call("create_temp_file", json!({ "content": "begun\n" }))?;
    talk.call("survey", json!({ "topic": "land", "lines": 3_000 }))?;
    let page = talk.call(
        "read_fd",
        json!({ "fd": "fd:1", "start_line": 2_000, "end_line": 2_003 }),
    )?;
    record(talk, &["the coordinator begins".to_owned()])?;
    let (mut said, mut expected) = (vec![lines_of(&page)], Vec::new());
    for round in 1..=ROUNDS {
        said.extend(one_round(talk, round, &mut expected)?);
    }
    talk.call("send_message", json!({ "to": "clerk", "text": "tell all" }))?;
    while !talk.heard().keys().any(|text| text.starts_with("all:")) {
        talk.call("receive_messages", json!({ "timeout_ms": 60_000 }))?;
    }
    let board = talk.call("read_temp_file", json!({ "temp_file_id": BOARD }))?;
    let mut board: Vec<_> = lines_of(&board).lines().map(str::to_owned).collect();
    board.sort_unstable();
    let report = json!({ "fd": "fd:1", "file_path": REPORT, "start_line": 7, "end_line": 11 });
    talk.call("fd_to_file", report)?;
    record(talk, &["the coordinator ends".to_owned()])?;
    let heard: BTreeMap<_, _> = talk.heard();
    Ok(json!({ "said": said, "heard": heard, "board": board }).to_string())
}

/// One spawned in the background, three forked, one spawned and waited for; what each said in the
/// end.
fn one_round(talk: &mut Talk, round: usize, expected: &mut Vec<String>) -> Then<Vec<String>> {
    let (near, far) = (format!("near scout {round}"), format!("far scout {round}"));
    let spawned = talk.call(
        "spawn",
        json!({ "program_name": "scout", "query": far, "wait": false }),
    )?;
    let pid = spawned.attribute("pid").unwrap_or_default().to_owned();
    let part = format!("fd:1 lines {}-{}", 100 * round, 100 * round + 50);
    talk.call(
        "send_message",
        json!({ "to": pid, "text": "set out", "fds": [part] }),
    )?;
    let prompts: Vec<_> = PARTS
        .iter()
        .map(|part| format!("{part} part {round}"))
        .collect();
    let forked = talk.call("fork", json!({ "prompts": prompts }))?;
    expected.extend(
        prompts
            .iter()
            .chain([&far])
            .map(|name| format!("{name} found it")),
    );
    while !expected.iter().all(|text| talk.heard().contains_key(text)) {
        talk.call("receive_messages", json!({ "timeout_ms": 60_000 }))?;
    }
    // In one round it asks for the end of the one in the background, in the other it is told at the
    // end of its turn.
    while !talk.knows_end_of(&pid) {
        match round % 2 {
            0 => drop(talk.calls(&[("wait", json!({ "pids": [pid] }))])?),
            _ => talk.pause("I wait.")?,
        }
    }
    let preloads = json!(["fd:1 lines 1-5"]);
    let spawned =
        json!({ "program_name": "scout", "query": near, "additional_preload_fds": preloads });
    let scouted = talk.call("spawn", spawned)?;
    expected.push(format!("{near} found it"));
    Ok(vec![without_pids(&forked.text), scouted.text])
}

/// A forked child: searches what it inherited, surveys for itself, notes it all, and tells clerk
/// and parent.
fn part(talk: &mut Talk, name: &str) -> Then<String> {
    let found = talk.call(
        "search_fd",
        json!({ "fd": "fd:1", "query": "line 10", "max_matches": 3 }),
    )?;
    talk.call("survey", json!({ "topic": name, "lines": 400 }))?;
    record(talk, &[format!("{name} one"), format!("{name} two")])?;
    talk.call(
        "append_temp_file",
        json!({ "temp_file_id": BOARD, "content": format!("{name}\n") }),
    )?;
    tell(talk, name)?;
    let count = found.text.matches("line 10").count();
    Ok(format!("{name} found {count}"))
}

/// A spawned process: one in the background waits until it is told to set out.
fn scout(talk: &mut Talk, name: &str) -> Then<String> {
    while name.starts_with("far") && !talk.heard().contains_key("set out") {
        talk.call("receive_messages", json!({ "timeout_ms": 60_000 }))?;
    }
    let read = talk.call(
        "read_fd",
        json!({ "fd": "fd:1", "start_line": 2, "end_line": 3 }),
    )?;
    record(talk, &[name.to_owned()])?;
    talk.call(
        "append_temp_file",
        json!({ "temp_file_id": BOARD, "content": format!("{name}\n") }),
    )?;
    tell(talk, name)?;
    Ok(format!("{name} read {}", lines_of(&read)))
}

/// Tells parent and clerk, both in one reply, and waits until the clerk has noted it.
fn tell(talk: &mut Talk, name: &str) -> Then<()> {
    let text = format!("{name} found it");
    let to = |to: &str| ("send_message", json!({ "to": to, "text": text }));
    let answers = talk.calls(&[to("parent"), to("clerk")])?;
    if let Some(refused) = answers
        .iter()
        .find(|answer| !answer.text.starts_with("<message_sent"))
    {
        return Err(says(&format!("a message was answered {}", refused.text)));
    }
    while !talk.heard().contains_key(&format!("noted: {text}")) {
        talk.call("receive_messages", json!({ "timeout_ms": 60_000 }))?;
    }
    Ok(())
}

/// A session of a tree of its own: answers each who writes, and the coordinator with all that it
/// was told.
fn clerk(talk: &mut Talk) -> Then<Reply> {
    talk.listen();
    let mut answered = 0;
    loop {
        let letters = talk.letters();
        let calls: Vec<Call> = letters[answered..]
            .iter()
            .map(|letter| {
                let text = match letter.text.as_str() {
                    "tell all" => format!("all: {:?}", talk.heard()),
                    text => format!("noted: {text}"),
                };
                ("send_message", json!({ "to": letter.from, "text": text }))
            })
            .collect();
        answered = letters.len();
        talk.calls(&calls)?;
        talk.pause("Noted.")?;
    }
}

/// Has each of these recorded once, whatever is interrupted: it looks before it calls again, under
/// another name.
fn record(talk: &mut Talk, what: &[String]) -> Then<()> {
    let mut open: Vec<String> = what.to_vec();
    for attempt in 1.. {
        let named: Vec<_> = open
            .iter()
            .map(|what| format!("{what} #{attempt}"))
            .collect();
        let answers = talk.calls(
            &named
                .iter()
                .map(|id| ("record", json!({ "id": id })))
                .collect::<Vec<_>>(),
        )?;
        let mut missing = Vec::new();
        for ((id, what), answer) in named.iter().zip(open).zip(&answers) {
            let is_missing = match answer.text == format!("recorded {id}") {
                true => false,
                false if answer.is_interrupted() => {
                    talk.call("look", json!({ "id": id }))?.text == "no"
                }
                false => return Err(says(&format!("record {id} was answered {}", answer.text))),
            };
            missing.extend(is_missing.then_some(what));
        }
        open = missing;
        if open.is_empty() {
            break;
        }
    }
    Ok(())
}

/// What stands between the tags of an element.
fn lines_of(answer: &Answer) -> String {
    let text = answer
        .text
        .split_once('>')
        .and_then(|(_, rest)| rest.rsplit_once("</"));
    text.map_or_else(|| answer.text.clone(), |(text, _)| text.to_owned())
}

/// Who it was differs from run to run, what was said does not.
fn without_pids(text: &str) -> String {
    let mut parts = text.split(" pid=\"");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |whole, part| {
        whole + part.split_once('"').map_or(part, |(_, rest)| rest)
    })
}
