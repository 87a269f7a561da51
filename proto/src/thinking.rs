//! Blocks of replies that their provider binds to the messages before them: signed or encrypted
//! thinking.
//!
//! A provider checks such a block against the conversation in which it was made, or pairs it with
//! the blocks next to it. If the messages before it change, a request with it may be refused, and
//! so may a request that leaves it out of an unfinished turn. So a message that has one can only be
//! sent whole, in the same conversation, or as text.

use serde_json::Value;

use crate::message::{Block, Message, Raw};

/// Whether a message has a block that is bound to the messages before it. O(n) in its raw JSON.
#[must_use]
pub fn is_bound_to_history(message: &Message) -> bool {
    message.blocks.iter().any(|block| match block {
        Block::Opaque(raw) => is_bound(raw, Unknown::Bound),
        Block::Text { raw: Some(raw), .. } | Block::ToolUse { raw: Some(raw), .. } => {
            is_bound(raw, Unknown::Free)
        }
        Block::Text { raw: None, .. }
        | Block::ToolUse { raw: None, .. }
        | Block::ToolResult { .. }
        | Block::Media { .. } => false,
    })
}

/// What holds of a block in a format that is not known here. Of a provider of an embedder, only a
/// block without a text or a call may be thinking.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unknown {
    Bound,
    Free,
}

fn is_bound(raw: &Raw, unknown: Unknown) -> bool {
    let Ok(json) = serde_json::from_str::<Value>(&raw.json) else {
        return unknown == Unknown::Bound;
    };
    let kind = json["type"].as_str().unwrap_or_default();
    match &*raw.format {
        "anthropic" => matches!(kind, "thinking" | "redacted_thinking"),
        // A call or a message of a reply with reasoning is refused without its reasoning item, and
        // the other way round.
        "openai-responses" => kind == "reasoning",
        "gemini" => json.get("thoughtSignature").is_some() || json["thought"] == true,
        "openai-chat" => has_signature(&json),
        Raw::ADAPTER_BLOCK => false,
        _ => unknown == Unknown::Bound,
    }
}

/// Whether a message of a compatible server holds signed thinking of the model behind it. Arguments
/// of calls are text there, so that no field of theirs is taken for one.
fn has_signature(json: &Value) -> bool {
    const NAMES: [&str; 5] = [
        "signature",
        "thought_signature",
        "thoughtSignature",
        "thinking_blocks",
        "reasoning_details",
    ];
    match json {
        Value::Object(fields) => fields.iter().any(|(name, value)| {
            (NAMES.contains(&name.as_str()) && !value.is_null()) || has_signature(value)
        }),
        Value::Array(items) => items.iter().any(has_signature),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Role;

    fn raw(format: &str, json: &str) -> Raw {
        Raw::new(format, json)
    }

    fn is_bound_block(block: Block) -> bool {
        is_bound_to_history(&Message {
            role: Role::Assistant,
            blocks: vec![Block::text("Well."), block],
        })
    }

    #[test]
    fn signed_and_encrypted_thinking_is_bound_and_other_blocks_are_not() {
        let cases = [
            (
                "anthropic",
                r#"{"type":"thinking","thinking":"","signature":"x"}"#,
                true,
            ),
            (
                "anthropic",
                r#"{"type":"redacted_thinking","data":"x"}"#,
                true,
            ),
            ("anthropic", r#"{"type":"server_tool_use","id":"a"}"#, false),
            (
                "openai-responses",
                r#"{"type":"reasoning","encrypted_content":"x"}"#,
                true,
            ),
            (
                "openai-responses",
                r#"{"type":"web_search_call","id":"ws_1"}"#,
                false,
            ),
            ("gemini", r#"{"text":"x","thoughtSignature":"s"}"#, true),
            ("gemini", r#"{"text":"x","thought":true}"#, true),
            ("gemini", r#"{"executableCode":{"code":"1"}}"#, false),
            (
                "openai-chat",
                r#"{"content":"x","reasoning_content":"y"}"#,
                false,
            ),
            (
                "openai-chat",
                r#"{"content":"x","thinking_blocks":[]}"#,
                true,
            ),
            (
                "openai-chat",
                r#"{"tool_calls":[{"extra_content":{"google":{"thought_signature":"s"}}}]}"#,
                true,
            ),
            (
                "openai-chat",
                r#"{"tool_calls":[{"function":{"arguments":"{\"signature\":1}"}}]}"#,
                false,
            ),
            (Raw::ADAPTER_BLOCK, r#"{"container":"c"}"#, false),
            ("mine", r#"{"any":1}"#, true),
            ("anthropic", "{", true),
        ];
        for (format, json, is_bound) in cases {
            let block = Block::Opaque(raw(format, json));
            assert_eq!(is_bound_block(block), is_bound, "{format}: {json}");
        }
    }

    #[test]
    fn a_signature_can_be_part_of_a_text_or_a_call() {
        let call = |format, json| Block::ToolUse {
            id: "a".into(),
            name: "t".into(),
            args: "{}".into(),
            raw: Some(raw(format, json)),
        };
        let signed = r#"{"functionCall":{"name":"t"},"thoughtSignature":"s"}"#;
        assert!(is_bound_block(call("gemini", signed)));
        assert!(!is_bound_block(call("gemini", r#"{"functionCall":{}}"#)));
        let named_so = r#"{"type":"tool_use","input":{"thinking":1,"signature":2}}"#;
        assert!(!is_bound_block(call("anthropic", named_so)));
        assert!(!is_bound_block(call("mine", r#"{"any":1}"#)));
    }
}
