//! Chat completions, of OpenAI and of compatible servers.

use std::collections::BTreeMap;

use dormouse_models::chat::Completions;
use serde_json::{Value, json};

use crate::check::{Recorded, check};
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

    const BEYOND: &'static [(&'static str, &'static str)] = &[(
        ".stream_options.include_usage: boolean",
        "documented: the only way to usage in a stream",
    )];
}

#[tokio::test]
async fn what_chat_servers_sent_decodes_and_goes_back_as_it_came() {
    check::<Chat>().await;
}
