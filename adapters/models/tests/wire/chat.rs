//! Chat completions, of OpenAI and of compatible servers.

use std::collections::BTreeMap;

use dormouse_models::chat::Completions;
use dormouse_proto::message::{Block, Role};
use serde_json::{Value, json};

use crate::asks::{BREAKPOINTS, Parts, Taken, result, text_of_parts};
use crate::check::{Recorded, check};
use crate::compare::each_object;
use crate::reader::Interaction;

struct Chat;

impl Recorded for Chat {
    type Codec = Completions;

    fn is_of(interaction: &Interaction) -> bool {
        interaction.path.contains("/chat/completions")
    }

    fn out_of_scope(interaction: &Interaction) -> Option<String> {
        (interaction.method != "POST")
            .then(|| format!("no call of a model: {}", interaction.method))
    }

    fn counts(_interaction: &Interaction) -> bool {
        false
    }

    fn parts(whole: &Value) -> Vec<Value> {
        vec![whole["choices"][0]["message"].clone()]
    }

    fn sent(request: &Value) -> Vec<Value> {
        request["messages"].as_array().unwrap().clone()
    }

    fn rebuilt(events: &[Value]) -> Value {
        let mut message = json!({"role": "assistant"});
        let mut calls: BTreeMap<u64, Value> = BTreeMap::new();
        let named = |name: &str| {
            events
                .iter()
                .map(|event| &event[name])
                .find(|value| !value.is_null())
                .cloned()
        };
        let (mut stop, mut usage) = (Value::Null, Value::Null);
        let grow = |field: &mut Value, by: &Value| match by {
            Value::String(text) => *field = json!(field.as_str().unwrap_or("").to_owned() + text),
            Value::Null => {}
            other => *field = other.clone(),
        };
        for event in events {
            for choice in event["choices"].as_array().into_iter().flatten() {
                for (name, value) in choice["delta"].as_object().into_iter().flatten() {
                    match name.as_str() {
                        "role" => {}
                        "tool_calls" => {
                            for call in value.as_array().into_iter().flatten() {
                                let known = calls
                                    .entry(call["index"].as_u64().unwrap_or(0))
                                    .or_insert(json!({}));
                                for name in ["id", "type"]
                                    .into_iter()
                                    .filter(|name| call[*name].is_string())
                                {
                                    known[name] = call[name].clone();
                                }
                                for name in ["name", "arguments"] {
                                    grow(&mut known["function"][name], &call["function"][name]);
                                }
                            }
                        }
                        name => grow(&mut message[name], value),
                    }
                }
                if choice["finish_reason"].is_string() {
                    stop = choice["finish_reason"].clone();
                }
            }
            if event["usage"].is_object() {
                usage = event["usage"].clone();
            }
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into_values().collect();
        }
        let (id, created) = (named("id"), named("created"));
        json!({"id": id, "created": created, "choices": [{"message": message, "finish_reason": stop}], "usage": usage})
    }

    fn ours(mut request: Value) -> Value {
        request["messages"]
            .as_array_mut()
            .unwrap()
            .retain(|message| message["role"] != "assistant");
        request
    }

    fn take(body: &Value, _model: &str) -> Taken {
        asked(body)
    }

    fn prefix(path: &str) -> String {
        path.split("/chat/completions")
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    fn canonical(mut body: Value) -> Value {
        each_object(&mut body, &|fields| {
            fields.retain(|name, value| !value.is_null() && !BREAKPOINTS.contains(&name.as_str()));
            let single = match fields.get("content").and_then(Value::as_array) {
                Some(parts) if parts.len() == 1 => parts[0]["text"].as_str().map(str::to_owned),
                _ => None,
            };
            if let Some(text) = single {
                fields.insert("content".to_owned(), json!(text));
            }
        });
        let fields = body.as_object_mut().unwrap();
        fields.retain(|name, value| match name.as_str() {
            "stream" => *value == true,
            "stream_options" | "n" => false,
            _ => true,
        });
        body
    }

    /// As OpenAI streams: the role, texts in pieces, calls by their index, the reason of the end,
    /// and the usage after it.
    fn events_of(whole: &Value) -> Option<String> {
        let message = whole["choices"][0]["message"].as_object()?;
        let mut deltas = vec![json!({"role": "assistant"})];
        let pieces = |text: &str| -> Vec<String> {
            let chars: Vec<char> = text.chars().collect();
            chars.chunks(40).map(String::from_iter).collect()
        };
        for (name, value) in message.iter().filter(|(name, _)| *name != "role") {
            match value {
                Value::Null => {}
                Value::String(text) => {
                    deltas.extend(pieces(text).iter().map(|piece| json!({ name: piece })));
                }
                Value::Array(calls) if name == "tool_calls" => {
                    for (call, index) in calls.iter().zip(0..) {
                        let arguments = call["function"]["arguments"].as_str()?;
                        let mut first = call.clone();
                        first["index"] = json!(index);
                        first["function"]["arguments"] = json!("");
                        deltas.push(json!({ "tool_calls": [first] }));
                        deltas.extend(pieces(arguments).iter().map(|piece| {
                            let function = json!({ "arguments": piece });
                            json!({ "tool_calls": [{ "index": index, "function": function }] })
                        }));
                    }
                }
                other => deltas.push(json!({ name: other })),
            }
        }
        let chunk = |choices: Value, usage: &Value| {
            let mut chunk = json!({"object": "chat.completion.chunk", "choices": choices});
            for name in ["id", "created", "model"] {
                chunk[name] = whole[name].clone();
            }
            chunk["usage"] = usage.clone();
            format!("data: {chunk}\n\n")
        };
        let reason = &whole["choices"][0]["finish_reason"];
        let choice = |delta: &Value, reason: &Value| json!([{"index": 0, "delta": delta, "finish_reason": reason}]);
        let mut events: String = deltas
            .iter()
            .map(|delta| chunk(choice(delta, &Value::Null), &Value::Null))
            .collect();
        events += &chunk(choice(&json!({}), reason), &Value::Null);
        events += &chunk(json!([]), &whole["usage"]);
        Some(events + "data: [DONE]\n\n")
    }

    const BEYOND: &'static [(&'static str, &'static str)] = &[(
        ".stream_options.include_usage: boolean",
        "documented: the only way to usage in a stream",
    )];

    const NOT_COMPARED: &'static [(&'static str, usize)] = &[];
}

/// A request of ours that says what a recorded one says.
fn asked(body: &Value) -> Taken {
    let own = [
        "model",
        "messages",
        "tools",
        "stream",
        "stream_options",
        "n",
    ];
    let mut parts = Parts::with_parameters(body, &own);
    for tool in body["tools"].as_array().into_iter().flatten() {
        parts.add_tool(&tool["function"], "parameters")?;
    }
    let messages = body["messages"].as_array().into_iter().flatten();
    for (message, index) in messages.zip(0..) {
        let content = || text_of_parts(&message["content"], &["text"]);
        match message["role"].as_str() {
            Some("system") if index == 0 => parts.system = content()?.concat(),
            Some("assistant") => {
                let choice = json!({"message": message, "finish_reason": "stop"});
                parts.add_reply::<Completions>(&json!({"choices": [choice]}))?;
            }
            Some("tool") => {
                parts.add_result(result(
                    &message["tool_call_id"],
                    &content()?.concat(),
                    false,
                ));
            }
            Some("user") => {
                let texts = content()?;
                let blocks = texts.iter().map(|text| Block::text(text.as_str()));
                parts.add(Role::User, blocks.collect());
            }
            other => return Err(format!("a message of the role {}", other.unwrap_or("none"))),
        }
    }
    parts.into_request(body["model"].as_str().unwrap_or_default(), "openai-chat")
}

#[tokio::test]
async fn what_chat_servers_sent_decodes_and_goes_back_as_it_came() {
    check::<Chat>().await;
}
