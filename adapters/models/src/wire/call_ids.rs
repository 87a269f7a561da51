//! Ids of tool uses: converts the ids of one provider for another provider that would refuse them.

use std::borrow::Cow;

use dormouse_proto::message::{Block, Message};

/// The id that is sent for a call of another provider: the call's own id if it is not too long and
/// consists of letters, digits, `_` and `-`, otherwise an id that is derived from it.
pub(crate) fn accepted_id(id: &str, max_chars: usize) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !id.is_empty() && id.len() <= max_chars && id.chars().all(is_plain) {
        return id.into();
    }
    format!("call_{}", &blake3::hash(id.as_bytes()).to_hex()[..32]).into()
}

/// The id that is sent for a tool result: the id that is sent for its call, which is in the
/// `previous` message.
pub(crate) fn id_of_result<'a>(
    id: &'a str,
    previous: Option<&Message>,
    format: &str,
    max_chars: usize,
) -> Cow<'a, str> {
    let is_original = |block: &Block| match block {
        Block::Text { raw: Some(raw), .. }
        | Block::ToolUse { raw: Some(raw), .. }
        | Block::Opaque(raw) => *raw.format == *format,
        _ => false,
    };
    // A message that was received in this format is sent back unchanged, including its ids.
    if previous.is_some_and(|previous| previous.blocks.iter().any(is_original)) {
        id.into()
    } else {
        accepted_id(id, max_chars)
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::message::Role;

    use super::*;
    use crate::testing::{kept, message, used};

    #[test]
    fn an_id_is_unchanged_unless_the_provider_refuses_it() {
        assert_eq!(accepted_id("toolu_01-A", 40), "toolu_01-A");
        for strange in ["functions.ls:0", "", "é", &"x".repeat(41)] {
            let sent = accepted_id(strange, 40);
            assert!(sent.starts_with("call_") && sent.len() == 37, "{sent}");
            assert_eq!(accepted_id(&sent, 40), sent, "one that is made fits");
            assert_eq!(accepted_id(strange, 40), sent);
        }
        assert_ne!(
            accepted_id("functions.ls:0", 40),
            accepted_id("functions.ls:1", 40)
        );
    }

    #[test]
    fn an_answer_has_the_id_of_its_call() {
        let theirs = message(Role::Assistant, vec![used("a.b", "ls", "{}")]);
        assert_eq!(
            id_of_result("a.b", Some(&theirs), "x", 40),
            accepted_id("a.b", 40)
        );
        let came = Block::ToolUse {
            id: "a.b".into(),
            name: "ls".into(),
            args: "{}".into(),
            raw: Some(kept("{}", "x")),
        };
        let ours = message(Role::Assistant, vec![came]);
        assert_eq!(id_of_result("a.b", Some(&ours), "x", 40), "a.b");
        assert_eq!(
            id_of_result("a.b", Some(&ours), "y", 40),
            accepted_id("a.b", 40)
        );
    }
}
