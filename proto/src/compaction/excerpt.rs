//! A summary without a model: for each message its first and last words, the tools that it calls
//! and the descriptors that it opens.

use super::{NumberedMessages, role_word};
use crate::message::Block;

/// The most characters of a line, which stands for one message.
const LINE_CHARS: usize = 200;
/// The most characters of each end of a text.
const END_CHARS: usize = 60;
/// The most descriptors that one line names.
const MAX_DESCRIPTORS: usize = 4;

/// Summarizes messages in at most `max_chars` characters. Of more messages than fit, the first ones
/// and the last ones are shown. A summary of earlier messages is not repeated. O(n).
#[must_use]
pub fn excerpts(messages: NumberedMessages<'_>, max_chars: usize) -> String {
    let lines: Vec<_> = messages
        .iter()
        .filter_map(|(number, message)| match number {
            Some(number) => {
                let marker = format!("[msg:{number}]");
                let is_marker =
                    |block: &&Block| matches!(block, Block::Text { text, .. } if **text == *marker);
                let blocks = message.blocks.iter().filter(|block| !is_marker(block));
                let name = format!("{number} {}", role_word(message.role));
                Some(line(&name, blocks.collect()))
            }
            // Recent messages that a summary showed as text.
            None => {
                let recent: Vec<_> = message.blocks.iter().skip(1).collect();
                (!recent.is_empty()).then(|| line("before that", recent))
            }
        })
        .collect();
    fit(&lines, max_chars)
}

/// Joins as many of the first and last lines as fit: a quarter of the characters for the first.
fn fit(lines: &[String], max_chars: usize) -> String {
    /// The most characters of the line that says how many are left out.
    const NOTE_CHARS: usize = 50;
    let len = |line: &String| line.chars().count() + 1;
    if lines.iter().map(len).sum::<usize>() <= max_chars + 1 {
        return lines.join("\n");
    }
    let count = |max: usize, lines: &mut dyn Iterator<Item = &String>| {
        let mut left = max;
        lines
            .take_while(|line| {
                let fits = len(line) <= left;
                left = left.saturating_sub(len(line));
                fits
            })
            .count()
    };
    let head = count(max_chars / 4, &mut lines.iter());
    let used: usize = lines[..head].iter().map(len).sum();
    let left = max_chars.saturating_sub(used + NOTE_CHARS);
    let tail = count(left, &mut lines[head..].iter().rev());
    let omitted = lines.len() - head - tail;
    let note = format!("… {omitted} messages are left out here …");
    let shown = lines[..head].iter().chain([&note]);
    let shown = shown.chain(&lines[lines.len() - tail..]);
    shown.map(String::as_str).collect::<Vec<_>>().join("\n")
}

fn line(name: &str, blocks: Vec<&Block>) -> String {
    let parts = blocks.iter().copied().filter_map(block_excerpt);
    let text = parts.collect::<Vec<_>>().join(" | ");
    let opened = opened_descriptors(&blocks);
    let opened = match opened.is_empty() {
        true => String::new(),
        false => format!(" [opened {}]", opened.join(", ")),
    };
    truncate_to_fit(
        &format!("{name}: {text}"),
        LINE_CHARS - opened.chars().count(),
    ) + &opened
}

fn block_excerpt(block: &Block) -> Option<String> {
    match block {
        Block::Text { text, .. } => Some(ends(text)).filter(|ends| !ends.is_empty()),
        Block::ToolUse { name, args, .. } => Some(format!("calls {name}({})", ends(args))),
        Block::ToolResult { text, is_error, .. } => {
            let kind = if *is_error { "error" } else { "answer" };
            Some(format!("{kind}: {}", ends(text)))
        }
        Block::Media { media, .. } => Some(format!("{} {}", media.media_type, media.fd)),
        Block::Opaque(_) => None,
    }
}

/// The first and last words of a text, on one line.
fn ends(text: &str) -> String {
    // Whatever is shown is within so many bytes of an end: white space within it is rare.
    const END_BYTES: usize = 16 * END_CHARS;
    let start = &text[..text.floor_char_boundary(END_BYTES)];
    let end = &text[text.ceil_char_boundary(text.len().saturating_sub(END_BYTES))..];
    if text.len() <= 2 * END_BYTES {
        let line = one_line(text);
        let chars = line.chars().count();
        if chars <= 2 * END_CHARS {
            return line;
        }
    }
    let first: String = one_line(start).chars().take(END_CHARS).collect();
    let last: Vec<char> = one_line(end).chars().rev().take(END_CHARS).collect();
    let last: String = last.into_iter().rev().collect();
    format!("{} … {}", first.trim_end(), last.trim_start())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The text in at most `max_chars` characters, the ellipsis included.
fn truncate_to_fit(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars.saturating_sub(1)) {
        Some((end, last)) if end + last.len_utf8() < text.len() => format!("{}…", &text[..end]),
        _ => text.to_owned(),
    }
}

/// The descriptors that the answers in a message opened, as the kernel announced them.
fn opened_descriptors(blocks: &[&Block]) -> Vec<String> {
    const ANNOUNCEMENTS: [&str; 3] = ["<fd_result fd=\"", "new_fd=\"", "<fd_attachment fd=\""];
    let mut opened = Vec::new();
    for block in blocks {
        let (Block::ToolResult { text, .. } | Block::Text { text, .. }) = block else {
            continue;
        };
        for announcement in ANNOUNCEMENTS {
            let ids = text.match_indices(announcement).filter_map(|(at, _)| {
                let id = &text[at + announcement.len()..];
                id.split_once('"').map(|(id, _)| id.to_owned())
            });
            opened.extend(ids.filter(|id| id.chars().count() <= 20));
        }
    }
    opened.truncate(MAX_DESCRIPTORS);
    opened
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::message::{Message, Role};

    fn conversation(count: usize) -> Vec<Arc<Message>> {
        let message = |index: usize| Message::user(format!("message {index} is about something"));
        (1..=count).map(|index| Arc::new(message(index))).collect()
    }

    #[test]
    fn a_line_shows_both_ends_tools_and_descriptors() {
        let reply = Message {
            role: Role::Assistant,
            blocks: vec![
                Block::text(format!("I begin {} and end.\n", "on and ".repeat(100))),
                Block::ToolUse {
                    id: "a".into(),
                    name: "grep".into(),
                    args: "{\"p\": \"x\"}".into(),
                    raw: None,
                },
            ],
        };
        let answer = Message {
            role: Role::User,
            blocks: vec![Block::ToolResult {
                id: "a".into(),
                text: "<fd_result fd=\"fd:3\" source=\"tool:grep\">".into(),
                is_error: false,
            }],
        };
        let text = excerpts(
            NumberedMessages {
                compacted: 0,
                messages: &[reply, answer].map(Arc::new),
            },
            4000,
        );
        for words in [
            "1 assistant: I begin on",
            "… ",
            "and end. | calls grep({\"p\": \"x\"})",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(text.contains("2 user: answer: <fd_result"), "{text}");
        assert!(text.ends_with("[opened fd:3]"), "{text}");
    }

    #[test]
    fn the_size_is_bounded_for_any_number_of_messages_of_any_size() {
        for count in [1, 5, 500] {
            for max_chars in [200, 4000] {
                let mut messages = conversation(count);
                messages[0] = Arc::new(Message::user("é ".repeat(50_000)));
                let numbered = NumberedMessages {
                    compacted: 0,
                    messages: &messages,
                };
                let text = excerpts(numbered, max_chars);
                assert!(text.chars().count() <= max_chars, "{count}: {text}");
                let last = format!("message {count} is");
                assert!(count == 1 || text.contains(&last), "{count}: {text}");
            }
        }
    }

    #[test]
    fn an_earlier_summary_is_not_repeated() {
        let summary = Message {
            role: Role::User,
            blocks: vec![Block::text("<compacted_messages>"), Block::text("recent")],
        };
        let messages = [summary, Message::user("next")].map(Arc::new);
        let text = excerpts(
            NumberedMessages {
                compacted: 9,
                messages: &messages,
            },
            4000,
        );
        assert_eq!(text, "before that: recent\n10 user: next");
    }
}
