//! Ids of tool uses: converts the ids of one provider for another provider that would refuse them
//! ([`accepted_id`]), and gives the calls of a new reply ids that no other call of the conversation
//! has ([`with_unique_ids`]).

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use dormouse_proto::message::{Block, Message, Raw};
use dormouse_proto::model::{Reply, Request};

use super::codec::Codec;
use super::json_fields::{Fields, to_raw};

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

/// The reply with an id of its own for each call. Some servers count their calls anew in each
/// reply, or give several calls of one reply the same id, and an answer could not be told from
/// another one's. The first call with an id keeps it. Costs a pass over the conversation if the
/// reply has calls.
pub(crate) fn with_unique_ids<C: Codec>(codec: &C, request: &Request, mut reply: Reply) -> Reply {
    let id_of = |block: &Block| match block {
        Block::ToolUse { id, .. } => Some(id.clone()),
        _ => None,
    };
    if !reply.blocks.iter().any(|block| id_of(block).is_some()) {
        return reply;
    }
    let sent = request.messages.iter().flat_map(|message| &message.blocks);
    let mut known: HashSet<Arc<str>> = sent.filter_map(id_of).collect();
    let mut index = 0;
    for at in 0..reply.blocks.len() {
        let Some(id) = id_of(&reply.blocks[at]) else {
            continue;
        };
        if !known.insert(id.clone()) {
            let new = unused_id::<C>(&id, &known);
            known.insert(new.clone());
            rename_call(codec, &mut reply.blocks, (at, index), &new);
        }
        index += 1;
    }
    reply
}

/// An id that is derived from `id` and not among those that are known.
fn unused_id<C: Codec>(id: &str, known: &HashSet<Arc<str>>) -> Arc<str> {
    let mut number = 2;
    loop {
        let numbered = format!("{id}_{number}");
        let new = match numbered.len() <= C::MAX_CALL_ID_CHARS {
            true => numbered.into(),
            // No id has at most 0 characters, so that it is derived.
            false => Arc::from(&*accepted_id(&numbered, 0)),
        };
        if !known.contains(&new) {
            return new;
        }
        number += 1;
    }
}

/// Gives the call in block `at` another id, also in its original form. In a format that keeps the
/// original of a whole message, the first block that has one is changed, which has call `index`.
fn rename_call<C: Codec>(
    codec: &C,
    blocks: &mut [Block],
    (at, index): (usize, usize),
    new: &Arc<str>,
) {
    let Block::ToolUse { id, raw, .. } = &mut blocks[at] else {
        return;
    };
    *id = new.clone();
    let renamed = |raw: &mut Option<Raw>| {
        if let Some(raw) = raw
            && let Some(json) = codec.with_call_id(&raw.json, index, new)
        {
            *raw = Raw::new(raw.format.clone(), json);
        }
    };
    if raw.is_some() {
        return renamed(raw);
    }
    let first = blocks.iter_mut().find_map(|block| match block {
        Block::Text { raw, .. } | Block::ToolUse { raw, .. } => raw.is_some().then_some(raw),
        _ => None,
    });
    first.into_iter().for_each(renamed);
}

/// The object with another value of a field that it has; none if it does not have it.
pub(crate) fn with_field(object: &str, name: &str, value: &str) -> Option<String> {
    let mut fields: Fields = serde_json::from_str(object).ok()?;
    fields.get(name)?;
    fields.set(name, to_raw(value));
    Some(fields.to_json())
}

#[cfg(test)]
mod tests {
    use dormouse_proto::message::Role;

    use super::*;
    use crate::anthropic::Messages;
    use crate::chat::Completions;
    use crate::gemini::GenerateContent;
    use crate::responses::Responses;
    use crate::testing::{kept, message, request, used};
    use crate::wire::{Delivery, Purpose, encode};
    use serde_json::{Value, json};

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

    /// Two replies whose calls all have the same id: each call keeps its arguments under an id of
    /// its own, and each answer is sent for its call.
    fn check_unique<C: Codec>(reply: &str, ids_sent: &[&str], path: fn(&Value) -> Vec<String>) {
        let codec = C::default();
        let mut messages = vec![Message::user("go")];
        for _ in 0..2 {
            let request = request(messages.clone(), json!({}));
            let decoded = codec.decode(reply).unwrap();
            let unique = with_unique_ids(&codec, &request, decoded);
            let ids = unique.blocks.iter().filter_map(|block| match block {
                Block::ToolUse { id, .. } => Some(id.clone()),
                _ => None,
            });
            let ids: Vec<_> = ids.collect();
            let results = ids.iter().map(|id| Block::ToolResult {
                id: id.clone(),
                text: format!("answer to {id}").into(),
                is_error: false,
            });
            let results = results.collect();
            messages.push(message(Role::Assistant, unique.blocks));
            messages.push(message(Role::User, results));
        }
        let purpose = Purpose::Reply(Delivery::Whole);
        let body = encode(&codec, &request(messages, json!({})), purpose, None).unwrap();
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(path(&body), ids_sent, "{body}");
    }

    const FOUR: [&str; 4] = ["c", "c_2", "c_3", "c_4"];

    /// The ids in calls and in answers, in the order of the conversation.
    fn twice_two(ids: [&'static str; 4]) -> Vec<&'static str> {
        let [a, b, c, d] = ids;
        vec![a, b, a, b, c, d, c, d]
    }

    fn strings(values: &[&Value]) -> Vec<String> {
        let texts = values.iter().filter_map(|value| value.as_str());
        texts.map(str::to_owned).collect()
    }

    #[test]
    fn calls_with_the_same_id_get_ids_of_their_own_in_every_format() {
        let call = r#"{"type":"tool_use","id":"c","name":"ls","input":{}}"#;
        let reply = format!(r#"{{"content":[{call},{call}],"stop_reason":"tool_use"}}"#);
        check_unique::<Messages>(&reply, &twice_two(FOUR), |body| {
            let content = body["messages"].as_array().unwrap().iter();
            let blocks = content.flat_map(|message| message["content"].as_array().unwrap());
            blocks
                .flat_map(|block| strings(&[&block["id"], &block["tool_use_id"]]))
                .collect()
        });
        let call = r#"{"type":"function_call","call_id":"c","name":"ls","arguments":"{}"}"#;
        let reply = format!(r#"{{"status":"completed","output":[{call},{call}]}}"#);
        check_unique::<Responses>(&reply, &twice_two(FOUR), |body| {
            let items = body["input"].as_array().unwrap().iter();
            items
                .flat_map(|item| strings(&[&item["call_id"]]))
                .collect()
        });
        let call = r#"{"id":"c","type":"function","function":{"name":"ls","arguments":"{}"}}"#;
        for content in ["null", "\"so\""] {
            let reply = format!(
                r#"{{"choices":[{{"message":{{"role":"assistant","content":{content},"tool_calls":[{call},{call}]}},"finish_reason":"tool_calls"}}]}}"#
            );
            check_unique::<Completions>(&reply, &twice_two(FOUR), |body| {
                let messages = body["messages"].as_array().unwrap().iter();
                messages
                    .flat_map(|message| {
                        let calls = message["tool_calls"].as_array().into_iter().flatten();
                        let mut ids: Vec<_> = calls.map(|call| &call["id"]).collect();
                        ids.push(&message["tool_call_id"]);
                        strings(&ids)
                    })
                    .collect()
            });
        }
        let reply = |id: &str| {
            let call = format!(r#"{{"functionCall":{{{id}"name":"ls","args":{{}}}}}}"#);
            format!(
                r#"{{"candidates":[{{"content":{{"parts":[{call},{call}]}},"finishReason":"STOP"}}]}}"#
            )
        };
        let ids = |body: &Value| -> Vec<String> {
            let contents = body["contents"].as_array().unwrap().iter();
            let parts = contents.flat_map(|content| content["parts"].as_array().unwrap());
            parts
                .flat_map(|part| {
                    strings(&[&part["functionCall"]["id"], &part["functionResponse"]["id"]])
                })
                .collect()
        };
        check_unique::<GenerateContent>(&reply("\"id\":\"c\","), &twice_two(FOUR), ids);
        // Calls without an id have none in the next request either.
        check_unique::<GenerateContent>(&reply(""), &[], ids);
    }
}
