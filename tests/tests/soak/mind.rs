//! What the models say: random, and no number of a call or a message twice.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use dormouse::message::{Block, Role};
use dormouse::model::{ModelError, ModelErrorKind, Reply, Request};
use dormouse::ports::Model;
use dormouse_tests::random::Random;
use dormouse_tests::{FnModel, asks, says};
use serde_json::{Value, json};

use super::calls::{Calls, NO_LUCK};

/// How the text of a message begins that one process sends to another; it ends with a semicolon.
const NOTE: &str = "note-";
/// A turn ends when its conversation is so long.
const LONG: usize = 24;

pub(super) fn model(calls: Arc<Calls>) -> impl Model {
    FnModel(move |request: Request| {
        let calls = calls.clone();
        async move {
            if let Some(note) = heard_twice(&request) {
                calls.fault(format!(
                    "process {} heard {note:?} twice: {:#?}",
                    request.pid, request.messages
                ));
            }
            let random = Random::of(&[calls.seed, calls.next()]);
            let (pid, len, checkpoint) = (
                request.pid.0,
                request.messages.len(),
                latest_checkpoint(&request),
            );
            Mind {
                random,
                calls,
                pid,
                len,
                checkpoint,
            }
            .answer()
            .await
        }
    })
}

/// What was said to the model, and what its tools answered.
fn told(request: &Request) -> impl DoubleEndedIterator<Item = &Arc<str>> {
    let told = request
        .messages
        .iter()
        .filter(|message| message.role == Role::User);
    told.flat_map(|message| &message.blocks)
        .filter_map(|block| match block {
            Block::Text { text, .. } | Block::ToolResult { text, .. } => Some(text),
            Block::ToolUse { .. } | Block::Media { .. } | Block::Opaque(_) => None,
        })
}

fn latest_checkpoint(request: &Request) -> Option<u64> {
    let number = |text: &Arc<str>| {
        let (_, rest) = text.split_once("\"cp:")?;
        rest.split('"').next()?.parse().ok()
    };
    told(request).rev().find_map(number)
}

/// A message that the same process sent twice, as this conversation tells it.
fn heard_twice(request: &Request) -> Option<(String, String)> {
    let mut notes: BTreeMap<(String, String), u32> = BTreeMap::new();
    // By its sender as well: a branch of one that was about to send something sends it, too.
    for said in told(request).flat_map(|text| text.split("<process_message from=\"").skip(1)) {
        if let (Some((from, _)), Some((_, note))) = (said.split_once('"'), said.split_once(NOTE)) {
            let note = note.split(';').next().unwrap_or_default();
            *notes.entry((from.to_owned(), note.to_owned())).or_default() += 1;
        }
    }
    notes
        .into_iter()
        .find(|(_, times)| *times > 1)
        .map(|(note, _)| note)
}

struct Mind {
    random: Random,
    calls: Arc<Calls>,
    pid: u64,
    len: usize,
    /// The latest checkpoint that the conversation tells of.
    checkpoint: Option<u64>,
}

impl Mind {
    async fn answer(mut self) -> Result<Reply, ModelError> {
        tokio::time::sleep(Duration::from_millis(
            self.random.one_of(&[0, 0, 1, 3, 10, 40]),
        ))
        .await;
        match self.random.below(1_000) {
            0..3 => pending().await,
            3..6 => panic!("{NO_LUCK} with a model"),
            6..40 => Err(ModelError::new(self.random.one_of(&FAILURES), "it fails")),
            _ => Ok(self.reply()),
        }
    }

    fn reply(&mut self) -> Reply {
        match self.random.below(100) {
            _ if self.len >= LONG => says("That is enough."),
            0..30 => says("said"),
            30..34 => self.calls(vec![(
                "goto",
                json!({ "position": self.position(), "message": "back" }),
            )]),
            34..37 => {
                let id = format!("cp:{}", self.checkpoint.unwrap_or(1));
                self.calls(vec![("restore_process", json!({ "checkpoint_id": id }))])
            }
            _ => {
                let calls = (0..self.random.one_of(&[1, 1, 2, 3]))
                    .map(|_| self.call())
                    .collect();
                self.calls(calls)
            }
        }
    }

    fn position(&self) -> String {
        format!("msg:{}", 1 + self.calls.next() % (self.len as u64 + 1))
    }

    fn calls(&self, calls: Vec<(&'static str, Value)>) -> Reply {
        let written: Vec<_> = calls
            .iter()
            .map(|(tool, args)| (*tool, args.to_string()))
            .collect();
        asks(
            &written
                .iter()
                .map(|(tool, args)| (*tool, args.as_str()))
                .collect::<Vec<_>>(),
        )
    }

    fn call(&mut self) -> (&'static str, Value) {
        let id = self.calls.next();
        match self.random.below(100) {
            0..35 => {
                let how = match self.random.below(100) {
                    0..85 => "returns",
                    85..92 => "fails",
                    92..96 => "hangs",
                    _ => "panics",
                };
                ("once", json!({ "id": id, "how": how }))
            }
            35..50 => ("large", json!({ "id": id, "how": "returns" })),
            50..60 => (
                "read_fd",
                json!({ "fd": format!("fd:{}", 1 + self.random.below(3)), "page": 2 }),
            ),
            60..75 => {
                let near = self
                    .pid
                    .saturating_sub(self.random.below(20))
                    .max(1)
                    .to_string();
                let to = if self.random.percent(30) {
                    "parent".to_owned()
                } else {
                    near
                };
                (
                    "send_message",
                    json!({ "to": to, "text": format!("{NOTE}{id};") }),
                )
            }
            75..78 => (
                "receive_messages",
                json!({ "timeout_ms": self.random.one_of(&[0, 20, 200]) }),
            ),
            78..80 => (
                "wait",
                json!({ "timeout_ms": self.random.one_of(&[0, 50, 500]) }),
            ),
            80..84 => ("checkpoint_process", json!({ "label": "mine" })),
            84..86 => (
                "create_temp_file",
                json!({ "content": format!("text {id}\n") }),
            ),
            86..88 => (
                "append_temp_file",
                json!({ "temp_file_id": "temp:1", "content": format!("more {id}\n") }),
            ),
            88..93 => ("fork", json!({ "prompts": [format!("part {id}")] })),
            93..96 => (
                "spawn",
                json!({ "program_name": "main", "query": format!("query {id}") }),
            ),
            _ => (
                "spawn",
                json!({ "program_name": "main", "query": format!("query {id}"), "wait": false }),
            ),
        }
    }
}

const FAILURES: [ModelErrorKind; 4] = [
    ModelErrorKind::Transport,
    ModelErrorKind::CutStream,
    ModelErrorKind::Overloaded,
    ModelErrorKind::InvalidRequest,
];
