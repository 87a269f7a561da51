//! What the models say: a seeded function of the process, how many messages it has, and how often
//! it was asked there. Each key that a model gives to a tool or says to another process is given
//! once in a world, whatever the kernel does.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use dormouse::model::{ModelError, ModelErrorKind, Reply, Request, Usage};
use dormouse::ports::Model;
use dormouse_tests::{FnModel, asks, says};
use serde_json::{Value, json};

use crate::person::ASKED;
use crate::tally::Tally;
use dormouse_tests::random::Random;

/// The most output tokens of one call.
pub(crate) const MOST_TOKENS: u64 = 40;
/// How a text begins that one process says to another; it ends with a semicolon.
pub(crate) const NOTE: &str = "note-";
/// A turn says its last word when its conversation is so long.
const LONG: usize = 15;

/// Fails as a provider does, with the delay that it asks for.
const FAILURES: [(ModelErrorKind, Option<u64>); 7] = [
    (ModelErrorKind::Transport, None),
    (ModelErrorKind::CutStream, None),
    (ModelErrorKind::Overloaded, None),
    (ModelErrorKind::Overloaded, Some(20)),
    (ModelErrorKind::Overloaded, Some(90)),
    (ModelErrorKind::Authentication, None),
    (ModelErrorKind::InvalidRequest, None),
];

/// A model of the world `seed`. `asked` outlives the kernel, so that no key is given twice.
pub(crate) fn model(seed: u64, asked: Tally, tally: Tally) -> impl Model {
    let asked = Arc::new(asked);
    FnModel(move |request: Request| {
        let (asked, tally) = (asked.clone(), tally.clone());
        async move {
            let (pid, len) = (request.pid.0, request.messages.len());
            let time = asked.count(format!("{pid} {len}"));
            let random = Random::of(&[seed, pid, len as u64, time]);
            let key = format!("{pid}.{len}.{time}");
            Mind {
                random,
                key,
                len,
                tally,
            }
            .answer()
            .await
        }
    })
}

struct Mind {
    random: Random,
    key: String,
    len: usize,
    tally: Tally,
}

impl Mind {
    async fn answer(mut self) -> Result<Reply, ModelError> {
        let delay = self
            .random
            .one_of(&[0, 0, 0, 3, 700, 5_000, 30_000, 120_000]);
        tokio::time::sleep(Duration::from_millis(delay)).await;
        match self.random.below(100) {
            0..2 => {
                self.tally.count("a model hangs");
                pending().await
            }
            2..14 => Err(self.failure()),
            _ => Ok(self.reply()),
        }
    }

    fn failure(&mut self) -> ModelError {
        let (kind, retry_after) = self.random.one_of(&FAILURES);
        self.tally.count(format!(
            "a model fails: {kind:?}, {}",
            if retry_after.is_some() {
                "hint"
            } else {
                "no hint"
            }
        ));
        ModelError {
            retry_after: retry_after.map(Duration::from_secs),
            ..ModelError::new(kind, "it fails")
        }
    }

    fn reply(&mut self) -> Reply {
        let usage = Usage {
            input_tokens: 1 + self.random.below(20),
            output_tokens: 1 + self.random.below(MOST_TOKENS),
            ..Usage::default()
        };
        let reply = match self.random.below(100) {
            _ if self.len >= LONG => says("That is long enough."),
            0..25 => says(&format!("said {}", self.key)),
            25..33 => {
                let to = format!("msg:{}", 1 + self.random.below(self.len as u64 + 1));
                self.calls(vec![(
                    "goto",
                    json!({ "position": to, "message": format!("back {}", self.key) }),
                )])
            }
            _ => {
                let calls = (0..self.random.one_of(&[1, 1, 2, 3]))
                    .map(|index| self.call(index))
                    .collect();
                self.calls(calls)
            }
        };
        Reply { usage, ..reply }
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

    fn call(&mut self, index: u32) -> (&'static str, Value) {
        let key = format!("{}.{index}", self.key);
        let ms = self.random.one_of(&[0, 0, 20, 1_000, 15_000, 100_000]);
        match self.random.below(100) {
            0..14 => ("repeatable", json!({ "key": key, "ms": ms })),
            14..22 => ("once", json!({ "key": key, "ms": ms })),
            22..26 => (ASKED, json!({ "key": key, "ms": ms })),
            26..30 => ("hangs", json!({ "key": key, "ms": ms })),
            30..33 => ("panics", json!({ "key": key, "ms": ms })),
            33..37 => ("large", json!({ "key": key, "ms": ms })),
            37..39 => ("floods", json!({ "key": key, "ms": ms })),
            39..43 => (
                "read_fd",
                json!({ "fd": format!("fd:{}", 1 + self.random.below(2)), "page": 2 }),
            ),
            43..45 => ("search_fd", json!({ "fd": "*", "query": "line 1" })),
            45..47 => (
                "rename_fd",
                json!({ "fd": "fd:1", "name": format!("n{}", self.random.below(9)) }),
            ),
            47..62 => {
                let to = self.random.one_of(&[
                    "parent", "parent", "inbox", "inbox", "1", "2", "3", "5", "7",
                ]);
                (
                    "send_message",
                    json!({ "to": to, "text": format!("{NOTE}{key};") }),
                )
            }
            62..67 => (
                "receive_messages",
                json!({ "timeout_ms": self.random.one_of(&[0, 0, 2_000, 60_000]) }),
            ),
            67..72 => match self.random.percent(50) {
                true => ("wait", json!({})),
                false => (
                    "wait",
                    json!({ "timeout_ms": self.random.one_of(&[0, 1_000, 90_000]) }),
                ),
            },
            72..75 => ("list_processes", json!({})),
            75..84 => {
                let prompts: Vec<_> = (0..=self.random.below(2))
                    .map(|child| format!("part {child} of {key}"))
                    .collect();
                ("fork", json!({ "prompts": prompts }))
            }
            84..90 => ("spawn", json!({ "program_name": "main", "query": key })),
            90..97 => (
                "spawn",
                json!({ "program_name": "main", "query": key, "wait": false }),
            ),
            97..98 => ("nothing", json!({})),
            _ => ("fork", json!({ "prompts": key })),
        }
    }
}
