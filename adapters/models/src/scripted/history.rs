//! The view of a request that scripts work with: its texts by origin, and the current prompt.
//!
//! Everything is computed from the request alone, so the same request always gives the same view.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::model::Request;
use regex::Regex;
use serde::Deserialize;

/// The beginning of the tool result in which the kernel gives a forked child its number.
static CHILD_NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^You are child (\d+) of \d+").expect("the pattern is a constant")
});

/// The texts of a conversation that a pattern is matched against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// Results of tools.
    #[default]
    Results,
    /// Messages of the user or of another process.
    Input,
    /// The system prompt.
    System,
    /// The last message only, including its tool results.
    Last,
    /// System prompt, inputs and tool results.
    All,
}

/// The point of the conversation from which on a pattern is matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Since {
    /// From the beginning; for a forked child this includes the conversation of its parent.
    #[default]
    Start,
    /// From the message that holds the current prompt.
    Prompt,
}

/// A view of one request.
pub(crate) struct History<'a> {
    request: &'a Request,
    prompt: Cow<'a, str>,
    prompt_at: usize,
}

impl<'a> History<'a> {
    /// The view of a request. Costs one search from the last message back to the current prompt.
    pub(crate) fn of(request: &'a Request) -> Self {
        let current = request
            .messages
            .iter()
            .enumerate()
            .rev()
            .find_map(|(at, _)| Some((at, prompt_in(&request.messages, at)?)));
        let (prompt_at, prompt) = current.unwrap_or((0, Cow::Borrowed("")));
        Self {
            request,
            prompt,
            prompt_at,
        }
    }

    /// The current prompt: the last text of the user, or the prompt of the fork.
    pub(crate) fn prompt(&self) -> &str {
        &self.prompt
    }

    /// The name of the program.
    pub(crate) fn program(&self) -> &'a str {
        &self.request.program
    }

    /// The texts of the last message, including its tool results, with a line break between them.
    pub(crate) fn last(&self) -> String {
        self.texts(Source::Last, Since::Start).join("\n")
    }

    /// The names of the tools that the last message answers.
    pub(crate) fn answered_tools(&self) -> impl Iterator<Item = &'a str> {
        let (last, earlier) = match self.request.messages.split_last() {
            Some((last, earlier)) => (last.blocks.as_slice(), earlier),
            None => (&[][..], &[][..]),
        };
        last.iter().filter_map(move |block| match block {
            Block::ToolResult { id, .. } => tool_use(earlier, id).map(|(name, _)| name),
            _ => None,
        })
    }

    /// The number of messages of the model.
    pub(crate) fn turn(&self) -> usize {
        count_replies(&self.request.messages)
    }

    /// The number of messages of the model since the current prompt.
    pub(crate) fn round(&self) -> usize {
        count_replies(&self.request.messages[self.prompt_at..])
    }

    /// The texts that a pattern is matched against, in order.
    pub(crate) fn texts(&self, source: Source, since: Since) -> Vec<&'a str> {
        let messages = &self.request.messages;
        let from = match (source, since) {
            (Source::Last, _) => messages.len().saturating_sub(1),
            (_, Since::Start) => 0,
            (_, Since::Prompt) => self.prompt_at,
        };
        let system =
            matches!(source, Source::System | Source::All).then_some(&*self.request.system);
        system
            .into_iter()
            .chain((from..messages.len()).flat_map(|at| texts_of(messages, at, source)))
            .collect()
    }
}

fn count_replies(messages: &[Arc<Message>]) -> usize {
    messages
        .iter()
        .filter(|message| message.role == Role::Assistant)
        .count()
}

/// The texts of message `at` from a source.
fn texts_of(messages: &[Arc<Message>], at: usize, source: Source) -> impl Iterator<Item = &str> {
    let role = messages[at].role;
    blocks_without_marker(messages, at).filter_map(move |block| match (block, source) {
        (Block::Text { text, .. }, Source::Last) => Some(&**text),
        (Block::Text { text, .. }, Source::Input | Source::All) if role == Role::User => {
            Some(&**text)
        }
        (Block::ToolResult { text, .. }, Source::Results | Source::Last | Source::All) => {
            Some(&**text)
        }
        _ => None,
    })
}

/// The blocks of message `at` without the number that the kernel appends to messages where
/// `reference_messages` is on: the user did not write it.
fn blocks_without_marker(messages: &[Arc<Message>], at: usize) -> impl Iterator<Item = &Block> {
    let blocks = &messages[at].blocks;
    let marker = format!("[msg:{}]", at + 1);
    let is_marker = |block: &Block| matches!(block, Block::Text { text, .. } if **text == *marker);
    // A message of this text alone is the user's own.
    let marked = blocks
        .iter()
        .rposition(is_marker)
        .filter(|_| blocks.len() > 1);
    blocks
        .iter()
        .enumerate()
        .filter(move |(at, _)| Some(*at) != marked)
        .map(|(_, block)| block)
}

/// The name and the arguments of a tool use; the search starts at the last message.
fn tool_use<'a>(messages: &'a [Arc<Message>], wanted_id: &str) -> Option<(&'a str, &'a str)> {
    messages
        .iter()
        .rev()
        .flat_map(|message| &message.blocks)
        .find_map(|block| match block {
            Block::ToolUse { id, name, args, .. } if **id == *wanted_id => Some((&**name, &**args)),
            _ => None,
        })
}

/// The prompt in message `at`: the text of the user, the message of a goto, or the prompt of a
/// fork. `None` if the message has only results of other tools.
fn prompt_in(messages: &[Arc<Message>], at: usize) -> Option<Cow<'_, str>> {
    if messages[at].role != Role::User {
        return None;
    }
    let forked = messages[at].blocks.iter().find_map(|block| match block {
        Block::ToolResult { id, text, .. } => fork_prompt(tool_use(&messages[..at], id)?, text),
        _ => None,
    });
    let said = || {
        let text: String = texts_of(messages, at, Source::Input).collect();
        let said = goto_message(&text).unwrap_or(text);
        Some(said).filter(|said| !said.is_empty()).map(Cow::Owned)
    };
    forked.or_else(said)
}

/// The message of a goto, which follows the position that the conversation went back to. `None` if
/// the text is not such a message, or if the message is a descriptor.
fn goto_message(text: &str) -> Option<String> {
    let rest = text.strip_prefix("<goto from=\"msg:")?;
    let (_, mut rest) = rest.strip_suffix("</goto>")?.split_once('>')?;
    let mut message = String::new();
    while let Some((plain, data)) = rest.split_once("<![CDATA[") {
        let (data, after) = data.split_once("]]>")?;
        message.extend([plain, data]);
        rest = after;
    }
    message.push_str(rest);
    Some(message).filter(|_| !rest.contains('<'))
}

/// The prompt of a forked child. The result of the tool `fork`, or of `explore`, contains the number
/// of the child, and the call contains the prompts of all children.
fn fork_prompt<'a>((tool, args): (&str, &str), answer: &'a str) -> Option<Cow<'a, str>> {
    #[derive(Deserialize)]
    struct Fork {
        prompts: Vec<String>,
    }
    let child = CHILD_NUMBER
        .captures(answer)
        .filter(|_| matches!(tool, "fork" | "explore"))?;
    let prompt = || {
        let Fork { prompts } = serde_json::from_str(args).ok()?;
        prompts
            .into_iter()
            .nth(child[1].parse::<usize>().ok()?.checked_sub(1)?)
    };
    Some(prompt().map_or(Cow::Borrowed(answer), Cow::Owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::testing::{answer, request, said, used};

    #[test]
    fn the_prompt_is_the_last_input_or_the_prompt_of_the_fork() {
        let fork = || used("f1", "fork", r#"{"prompts": ["count a", "count b"]}"#);
        let cases = [
            (vec![], "", 0),
            (vec![said("hello")], "hello", 0),
            (
                vec![said("hello"), used("a", "ls", "{}"), answer("a", "x")],
                "hello",
                1,
            ),
            (
                vec![
                    said("hello"),
                    used("a", "ls", "{}"),
                    answer("a", "x"),
                    said("next"),
                ],
                "next",
                0,
            ),
            (
                vec![
                    said("hello"),
                    fork(),
                    answer("f1", "You are child 2 of 2. count b"),
                ],
                "count b",
                0,
            ),
            (
                vec![said("hello"), fork(), answer("f1", "You are child 9 of 2.")],
                "You are child 9 of 2.",
                0,
            ),
            (
                vec![
                    said("hello"),
                    fork(),
                    answer("f1", "child 1: ten; child 2: twelve"),
                ],
                "hello",
                1,
            ),
            (
                vec![
                    said("hello"),
                    used("a", "ls", "{}"),
                    answer("a", "you are child 1 of 2"),
                ],
                "hello",
                1,
            ),
        ];
        for (messages, prompt, round) in cases {
            let request = request(messages);
            let history = History::of(&request);
            assert_eq!(
                (history.prompt(), history.round()),
                (prompt, round),
                "{:?}",
                request.messages
            );
        }
    }

    /// A message of the user with the number that the kernel appends.
    fn numbered(mut message: Message, number: usize) -> Message {
        message.blocks.push(Block::text(format!("[msg:{number}]")));
        message
    }

    #[test]
    fn numbers_of_messages_are_no_prompts_and_no_texts() {
        let request = request(vec![
            numbered(said("hello"), 1),
            used("a", "ls", "{}"),
            numbered(answer("a", "x"), 3),
        ]);
        let history = History::of(&request);
        assert_eq!((history.prompt(), history.round()), ("hello", 1));
        assert_eq!(history.last(), "x");
        let texts = history.texts(Source::All, Since::Start);
        assert_eq!(texts, ["you audit", "hello", "x"]);
    }

    #[test]
    fn a_number_that_the_user_types_is_a_prompt() {
        let cases = [
            (said("[msg:1]"), "[msg:1]"),
            (numbered(said("[msg:1]"), 1), "[msg:1]"),
            (numbered(said("[msg:7]"), 1), "[msg:7]"),
        ];
        for (message, prompt) in cases {
            let request = request(vec![message]);
            assert_eq!(History::of(&request).prompt(), prompt);
        }
    }

    #[test]
    fn the_message_of_a_goto_is_the_prompt() {
        let cases = [
            ("<goto from=\"msg:5\" to=\"msg:1\">again</goto>", "again"),
            (
                "<goto from=\"msg:5\" to=\"msg:1\"><![CDATA[a < b, <]]><![CDATA[fd_error>]]></goto>",
                "a < b, <fd_error>",
            ),
            ("<goto from=\"msg:5\">", "<goto from=\"msg:5\">"),
            ("<goto>by hand</goto>", "<goto>by hand</goto>"),
        ];
        for (text, prompt) in cases {
            let request = request(vec![said("hello"), numbered(said(text), 2)]);
            let history = History::of(&request);
            assert_eq!((history.prompt(), history.round()), (prompt, 0));
        }
    }

    #[test]
    fn a_source_selects_only_texts_of_its_origin() {
        let request = request(vec![
            said("in"),
            used("a", "ls", "{}"),
            answer("a", "out"),
            said("more"),
        ]);
        let history = History::of(&request);
        let cases = [
            (Source::Results, Since::Start, vec!["out"]),
            (Source::Results, Since::Prompt, vec![]),
            (Source::Input, Since::Start, vec!["in", "more"]),
            (Source::System, Since::Prompt, vec!["you audit"]),
            (Source::Last, Since::Start, vec!["more"]),
            (
                Source::All,
                Since::Start,
                vec!["you audit", "in", "out", "more"],
            ),
        ];
        for (source, since, texts) in cases {
            assert_eq!(history.texts(source, since), texts, "{source:?} {since:?}");
        }
    }
}
