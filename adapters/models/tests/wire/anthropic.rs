//! Anthropic's Messages API.

use std::collections::BTreeMap;

use dormouse_models::anthropic::Messages;
use dormouse_proto::message::{Block, Role};
use serde_json::{Value, json};

use crate::asks::{BREAKPOINTS, Parts, Taken, result, text_of_parts};
use crate::check::{CLOUD, Recorded, check};
use crate::compare::each_object;
use crate::reader::Interaction;

struct Anthropic;

impl Recorded for Anthropic {
    type Codec = Messages;

    fn is_of(interaction: &Interaction) -> bool {
        interaction.path.contains("/messages") || interaction.path.ends_with("/invoke")
    }

    fn out_of_scope(interaction: &Interaction) -> Option<String> {
        let ends = ["/v1/messages", "/v1/messages/count_tokens", "/invoke"];
        let is_known = ends.iter().any(|end| interaction.path.ends_with(end));
        (!is_known).then(|| {
            format!(
                "no message call: {} {}",
                interaction.method, interaction.path
            )
        })
    }

    fn counts(interaction: &Interaction) -> bool {
        interaction.path.ends_with("/count_tokens")
    }

    fn parts(whole: &Value) -> Vec<Value> {
        let blank = |block: &&Value| {
            block["type"] == "text"
                && block["text"]
                    .as_str()
                    .is_some_and(|text| text.trim().is_empty())
        };
        whole["content"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|block| !blank(block))
            .cloned()
            .collect()
    }

    fn sent(request: &Value) -> Vec<Value> {
        request["messages"].get(0).map_or(vec![], |message| {
            message["content"].as_array().unwrap().clone()
        })
    }

    fn rebuilt(events: &[Value]) -> Value {
        let mut message = json!({});
        let mut inputs: BTreeMap<usize, String> = BTreeMap::new();
        for event in events {
            let index = event["index"]
                .as_u64()
                .map(|index| usize::try_from(index).unwrap());
            match event["type"].as_str().unwrap() {
                "message_start" => message = event["message"].clone(),
                "content_block_start" => message["content"]
                    .as_array_mut()
                    .unwrap()
                    .push(event["content_block"].clone()),
                "content_block_delta" => {
                    let block = &mut message["content"][index.unwrap()];
                    let delta = &event["delta"];
                    let grow = |field: &mut Value, by: &Value| {
                        *field =
                            json!(field.as_str().unwrap_or("").to_owned() + by.as_str().unwrap())
                    };
                    match delta["type"].as_str().unwrap() {
                        "text_delta" => grow(&mut block["text"], &delta["text"]),
                        "thinking_delta" => grow(&mut block["thinking"], &delta["thinking"]),
                        "signature_delta" => block["signature"] = delta["signature"].clone(),
                        "input_json_delta" => {
                            *inputs.entry(index.unwrap()).or_default() +=
                                delta["partial_json"].as_str().unwrap()
                        }
                        "citations_delta" => block["citations"]
                            .as_array_mut()
                            .unwrap()
                            .push(delta["citation"].clone()),
                        other => panic!("a delta that this test does not know: {other}"),
                    }
                }
                "message_delta" => {
                    message["stop_reason"] = event["delta"]["stop_reason"].clone();
                    message["container"] = event["delta"]["container"].clone();
                    for (name, count) in event["usage"].as_object().unwrap() {
                        message["usage"][name] = count.clone();
                    }
                }
                _ => {}
            }
        }
        for (index, input) in inputs.into_iter().filter(|(_, input)| !input.is_empty()) {
            message["content"][index]["input"] = serde_json::from_str(&input).unwrap();
        }
        message
    }

    fn ours(mut request: Value) -> Value {
        request["messages"]
            .as_array_mut()
            .unwrap()
            .retain(|message| message["role"] != "assistant");
        request
    }

    fn take(body: &Value, model: &str) -> Taken {
        asked(body, model, "anthropic")
    }

    fn prefix(path: &str) -> String {
        path.split("/messages")
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    /// The recorded client asks for a namespace of its own, which changes nothing.
    fn query(recorded: &str) -> &str {
        recorded.trim_start_matches("?beta=true")
    }

    fn canonical(mut body: Value) -> Value {
        let texts = |text: &str| json!([{"type": "text", "text": text}]);
        if let Some(system) = body["system"].as_str() {
            body["system"] = texts(system);
        }
        each_object(&mut body, &|fields| {
            fields.retain(|name, value| !value.is_null() && !BREAKPOINTS.contains(&name.as_str()));
            if fields.get("is_error") == Some(&json!(false)) {
                fields.remove("is_error");
            }
            if let Some(Value::String(text)) = fields.get("content") {
                let blocks = texts(text);
                fields.insert("content".to_owned(), blocks);
            }
        });
        let fields = body.as_object_mut().unwrap();
        fields.retain(|name, value| match name.as_str() {
            "stream" => *value == true,
            "system" => value[0]["text"] != "",
            _ => !value.is_null(),
        });
        body
    }

    fn is_cloud(interaction: &Interaction) -> bool {
        interaction.path.ends_with("/invoke")
    }

    const BEYOND: &'static [(&'static str, &'static str)] = &[(
        ".container: string",
        "documented: code goes on in the container of an earlier reply",
    )];

    const NOT_COMPARED: &'static [(&'static str, usize)] = &[
        (CLOUD, 3),
        // A process has one system prompt, which never changes.
        ("a message of the role system", 8),
        // The recorded client answers a search for tools itself. Our tools answer with texts.
        ("a part of type tool_reference", 11),
    ];
}

/// A request of ours that says what a recorded one says.
fn asked(body: &Value, model: &str, provider: &str) -> Taken {
    let own = [
        "model",
        "messages",
        "system",
        "tools",
        "stream",
        "anthropic_version",
    ];
    let mut parts = Parts::with_parameters(body, &own);
    let system = text_of_parts(&body["system"], &["text"])?;
    match &system[..] {
        [] => {}
        [one] => parts.system = one.clone(),
        _ => return Err("the system prompt has several blocks".to_owned()),
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        let mut tool = tool.clone();
        if let Some(fields) = tool.as_object_mut() {
            fields.remove("cache_control");
        }
        match tool["type"].is_string() {
            true => parts.add_server_tool(&tool),
            false => parts.add_tool(&tool, "input_schema")?,
        }
    }
    for message in body["messages"].as_array().into_iter().flatten() {
        let content = &message["content"];
        match message["role"].as_str() {
            Some("assistant") => {
                let content = match content {
                    Value::String(text) => json!([{"type": "text", "text": text}]),
                    blocks => blocks.clone(),
                };
                let reply = json!({"content": content, "stop_reason": "end_turn", "usage": {}});
                parts.add_reply::<Messages>(&reply)?;
            }
            Some("user") => {
                let blocks = match content {
                    Value::String(text) => vec![Block::text(text.as_str())],
                    blocks => {
                        let blocks = blocks.as_array().into_iter().flatten();
                        blocks.map(block_of_user).collect::<Result<_, _>>()?
                    }
                };
                parts.add(Role::User, blocks);
            }
            other => return Err(format!("a message of the role {}", other.unwrap_or("none"))),
        }
    }
    parts.into_request(model, provider)
}

fn block_of_user(block: &Value) -> Result<Block, String> {
    match block["type"].as_str() {
        Some("text") => Ok(Block::text(block["text"].as_str().unwrap_or_default())),
        Some("tool_result") => {
            let text = text_of_parts(&block["content"], &["text"])?;
            let is_error = block["is_error"] == true;
            match &text[..] {
                [text] => Ok(result(&block["tool_use_id"], text, is_error)),
                _ => Err("a result of several parts".to_owned()),
            }
        }
        other => Err(format!("a block of type {}", other.unwrap_or("none"))),
    }
}

#[tokio::test]
async fn what_anthropic_sent_decodes_and_goes_back_as_it_came() {
    check::<Anthropic>().await;
}

#[cfg(feature = "bedrock")]
#[test]
fn what_bedrock_accepted_is_what_we_send() {
    use dormouse_models::bedrock::BedrockMessages;
    use dormouse_models::wire::CloudLocation;

    let taken = |interaction: &Interaction| {
        let model = interaction.path.split('/').nth(2).unwrap();
        asked(&interaction.asked, model, "anthropic_bedrock")
    };
    // One has a message of the role system.
    crate::clouds::check::<Anthropic, BedrockMessages>(CloudLocation::default(), taken, 1);
}
