//! A conversation as steps, so that what a model says can be written as one straight line of code.
//!
//! A mind is run from its beginning for every request: what it did before is answered from the
//! conversation, and the first thing that is not there yet is what it says now. It looks at nothing
//! that comes after where it stands, so that the same conversation always gives the same reply.

use std::collections::BTreeMap;

use dormouse::message::{Block, Message, Role};
use dormouse::model::{Reply, Request};
use serde_json::Value;

use crate::{asks, says};

/// What a mind comes to; the error is what it says now.
pub(super) type Then<T> = Result<T, Reply>;

/// How every forked child is addressed.
const CHILD: &str = "You are child ";

/// What a tool answered.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) text: String,
    is_error: bool,
}

impl Answer {
    /// Whether it says that the call was in flight when a kernel died.
    pub(super) fn is_interrupted(&self) -> bool {
        self.is_error && self.text.contains("Its effect is unknown")
    }

    /// Whether it says that the store refused what was asked for, so that nothing came of it.
    fn is_refused_by_the_store(&self) -> bool {
        self.is_error && self.text.contains("a change could not be made durable")
    }

    /// The first value of an attribute of this name.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.text
            .split_once(&format!(" {name}=\""))?
            .1
            .split('"')
            .next()
    }
}

/// A call: the tool and its arguments.
pub(super) type Call = (&'static str, Value);

/// One thing that happened in a conversation.
enum Step {
    /// The user's side spoke: the task, or what others said.
    Heard(String),
    /// The model ended a turn.
    Said,
    /// The model called tools.
    Called(Vec<Answer>),
}

/// A message of another process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Envelope {
    pub(super) from: String,
    pub(super) text: String,
}

/// A conversation, and how far a mind has gone through it.
pub(super) struct Talk {
    task: String,
    steps: Vec<Step>,
    at: usize,
}

impl Talk {
    /// The conversation of `request`: that of a forked child begins with its fork.
    pub(super) fn of(request: &Request) -> Self {
        let fork = request
            .messages
            .iter()
            .enumerate()
            .rev()
            .find_map(|(at, message)| Some((at, fork_prompt(message)?)));
        let (begin, task) = fork.unwrap_or_else(|| (0, request.messages[0].text()));
        Self {
            task,
            steps: request.messages[begin + 1..]
                .iter()
                .filter_map(|message| step(message))
                .collect(),
            at: 0,
        }
    }

    /// A conversation with one who is only ever told things: what was said first is no task.
    pub(super) fn of_listener(request: &Request) -> Self {
        Self {
            task: String::new(),
            steps: request
                .messages
                .iter()
                .filter_map(|message| step(message))
                .collect(),
            at: 0,
        }
    }

    /// What it was born to do.
    pub(super) fn task(&self) -> &str {
        &self.task
    }

    /// Calls tools, all in one reply.
    pub(super) fn calls(&mut self, calls: &[Call]) -> Then<Vec<Answer>> {
        let Some(Step::Called(answers)) = self.steps.get(self.at) else {
            let args: Vec<_> = calls
                .iter()
                .map(|(tool, args)| (*tool, args.to_string()))
                .collect();
            return Err(asks(
                &args
                    .iter()
                    .map(|(tool, args)| (*tool, args.as_str()))
                    .collect::<Vec<_>>(),
            ));
        };
        self.at += 1;
        Ok(answers.clone())
    }

    /// Calls a tool that may be asked again, until it is answered by more than that the call was
    /// interrupted, or that the disk was full.
    pub(super) fn call(&mut self, tool: &'static str, args: Value) -> Then<Answer> {
        loop {
            let answer = self.calls(&[(tool, args.clone())])?.remove(0);
            match (
                answer.is_error,
                answer.is_interrupted() || answer.is_refused_by_the_store(),
            ) {
                (false, _) => return Ok(answer),
                (true, true) => {}
                (true, false) => {
                    return Err(says(&format!("{tool} {args} was answered {}", answer.text)));
                }
            }
        }
    }

    /// Ends the turn with these words, and goes on when others have said something.
    pub(super) fn pause(&mut self, words: &str) -> Then<()> {
        let [Step::Said, Step::Heard(_), ..] = &self.steps[self.at..] else {
            return Err(says(words));
        };
        self.at += 2;
        Ok(())
    }

    /// Begins by being told something.
    pub(super) fn listen(&mut self) {
        assert!(
            matches!(self.steps[self.at], Step::Heard(_)),
            "nothing was said yet"
        );
        self.at += 1;
    }

    /// The messages of others so far.
    pub(super) fn letters(&self) -> Vec<Envelope> {
        self.texts().flat_map(letters).collect()
    }

    /// Whether it has been told so far that child `pid` has ended.
    pub(super) fn knows_end_of(&self, pid: &str) -> bool {
        self.texts()
            .any(|text| text.contains(&format!("<child_ended pid=\"{pid}\"")))
    }

    /// What was said so far, and how often.
    pub(super) fn heard(&self) -> BTreeMap<String, usize> {
        let mut heard = BTreeMap::new();
        for letter in self.letters() {
            *heard.entry(letter.text).or_default() += 1;
        }
        heard
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        self.steps[..self.at].iter().flat_map(|step| match step {
            Step::Heard(text) => vec![text.as_str()],
            Step::Said => Vec::new(),
            Step::Called(answers) => answers.iter().map(|answer| answer.text.as_str()).collect(),
        })
    }
}

fn answers(message: &Message) -> Vec<Answer> {
    let answer = |block: &Block| match block {
        Block::ToolResult { text, is_error, .. } => Some(Answer {
            text: text.to_string(),
            is_error: *is_error,
        }),
        _ => None,
    };
    message.blocks.iter().filter_map(answer).collect()
}

fn fork_prompt(message: &Message) -> Option<String> {
    let answer = answers(message)
        .into_iter()
        .find(|answer| answer.text.starts_with(CHILD))?;
    answer
        .text
        .split_once("\n\n")
        .map(|(_, prompt)| prompt.to_owned())
}

/// What a message is; none of a reply that calls tools, which its answers stand for.
fn step(message: &Message) -> Option<Step> {
    let calls = message
        .blocks
        .iter()
        .any(|block| matches!(block, Block::ToolUse { .. }));
    let answers = answers(message);
    match message.role {
        Role::User if answers.is_empty() => Some(Step::Heard(message.text())),
        Role::User => Some(Step::Called(answers)),
        Role::Assistant if calls => None,
        Role::Assistant => Some(Step::Said),
    }
}

fn letters(text: &str) -> Vec<Envelope> {
    let within = |text: &str, from: &str, to: &str| {
        Some(text.split_once(from)?.1.split_once(to)?.0.to_owned())
    };
    let letter = |element: &str| {
        let element = element.split("</process_message>").next()?;
        let (from, text) = (
            within(element, "from=\"", "\"")?,
            within(element, "<message>", "</message>")?,
        );
        Some(Envelope { from, text })
    };
    text.split("<process_message ")
        .skip(1)
        .filter_map(letter)
        .collect()
}
