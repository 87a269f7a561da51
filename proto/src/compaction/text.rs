//! The text of messages: complete for a descriptor, or readable within a message.

use std::fmt::Write;

use super::{NumberedMessages, role_word};
use crate::message::{Block, Message};

/// The complete text of messages. Each message has a line `## msg:N role`, each of its blocks a
/// line that says its kind and its characters, and then its exact text:
///
/// ```text
/// ## msg:2 assistant
/// # text, 7 characters
/// I look.
/// # calls grep as toolu_1, 13 characters
/// {"find":"it"}
/// ```
///
/// Since the lengths are stated, no text can be mistaken for such a line. O(n).
#[must_use]
pub fn history_text(messages: NumberedMessages<'_>) -> String {
    let mut text = String::new();
    for (number, message) in messages.iter() {
        let role = role_word(message.role);
        match number {
            Some(number) => writeln!(text, "## msg:{number} {role}"),
            None => writeln!(text, "## summary of messages 1-{}", messages.compacted),
        }
        .expect("writing to a string cannot fail");
        for block in &message.blocks {
            write_block(&mut text, block);
        }
        text.push('\n');
    }
    text
}

fn write_block(text: &mut String, block: &Block) {
    let (kind, content) = match block {
        Block::Text { text, .. } => ("text".to_owned(), &**text),
        Block::ToolUse { id, name, args, .. } => (format!("calls {name} as {id}"), &**args),
        Block::ToolResult { id, text, is_error } => {
            let kind = if *is_error { "error" } else { "answer" };
            (format!("{kind} of {id}"), &**text)
        }
        Block::Media { media, .. } => (format!("{} {}", media.media_type, media.fd), ""),
        Block::Opaque(raw) => (format!("{} only", raw.format), &*raw.json),
    };
    let chars = content.chars().count();
    writeln!(text, "# {kind}, {chars} characters\n{content}")
        .expect("writing to a string cannot fail");
}

/// The text of a message for a model that reads it as part of another message. Blocks that only
/// their provider understands are left out. O(n).
#[must_use]
pub fn readable_text(message: &Message) -> String {
    let parts = message.blocks.iter().filter_map(|block| match block {
        Block::Text { text, .. } => Some(text.to_string()),
        Block::ToolUse { id, name, args, .. } => Some(format!("[calls {name} as {id}] {args}")),
        Block::ToolResult { id, text, is_error } => {
            let kind = if *is_error { "error" } else { "answer" };
            Some(format!("[{kind} of {id}] {text}"))
        }
        Block::Media { media, .. } => Some(format!("[{} {}]", media.media_type, media.fd)),
        Block::Opaque(_) => None,
    });
    parts.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::message::{Raw, Role};

    #[test]
    fn the_text_of_a_history_holds_every_block() {
        let raw = |json: &str| Raw::new("anthropic", json);
        let reply = Message {
            role: Role::Assistant,
            blocks: vec![
                Block::Opaque(raw(r#"{"type":"thinking"}"#)),
                Block::text("é\nlook"),
                Block::ToolUse {
                    id: "a".into(),
                    name: "grep".into(),
                    args: "{}".into(),
                    raw: Some(raw("{}")),
                },
            ],
        };
        let answer = Message {
            role: Role::User,
            blocks: vec![Block::ToolResult {
                id: "a".into(),
                text: "## msg:9 user".into(),
                is_error: true,
            }],
        };
        let messages = [Message::user("so far"), reply, answer].map(Arc::new);
        let text = history_text(NumberedMessages {
            compacted: 4,
            messages: &messages,
        });
        let expected = "## summary of messages 1-4\n# text, 6 characters\nso far\n\n\
            ## msg:5 assistant\n# anthropic only, 19 characters\n{\"type\":\"thinking\"}\n\
            # text, 6 characters\né\nlook\n# calls grep as a, 2 characters\n{}\n\n\
            ## msg:6 user\n# error of a, 13 characters\n## msg:9 user\n\n";
        assert_eq!(text, expected);
        assert_eq!(readable_text(&messages[1]), "é\nlook\n[calls grep as a] {}");
    }
}
