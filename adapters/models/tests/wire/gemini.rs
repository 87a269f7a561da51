//! Google's Gemini API.

use dormouse_models::gemini::GenerateContent;
use dormouse_proto::message::{Block, Message, Role};
use serde_json::{Value, json};

use crate::asks::{Parts, Taken, result};
use crate::check::{CLOUD, NO_BODY, Recorded, check};
use crate::compare::{camel_case, each_object};
use crate::reader::Interaction;

struct Gemini;

impl Recorded for Gemini {
    type Codec = GenerateContent;

    fn is_of(interaction: &Interaction) -> bool {
        interaction.host.ends_with(".googleapis.com")
    }

    fn out_of_scope(interaction: &Interaction) -> Option<String> {
        let verbs = [":generateContent", ":streamGenerateContent", ":countTokens"];
        let is_known = verbs.iter().any(|verb| interaction.path.ends_with(verb));
        (!is_known).then(|| {
            format!(
                "no call of a model: {} {}",
                interaction.method, interaction.path
            )
        })
    }

    fn counts(interaction: &Interaction) -> bool {
        interaction.path.ends_with(":countTokens")
    }

    fn parts(whole: &Value) -> Vec<Value> {
        let parts = whole["candidates"][0]["content"]["parts"].as_array();
        parts
            .into_iter()
            .flatten()
            .filter(|part| **part != json!({"text": ""}))
            .cloned()
            .collect()
    }

    fn sent(request: &Value) -> Vec<Value> {
        request["contents"].get(0).map_or(vec![], |content| {
            content["parts"].as_array().unwrap().clone()
        })
    }

    /// Texts that carry nothing else go on in each other.
    fn rebuilt(events: &[Value]) -> Value {
        let plain = |part: &Value| {
            let fields = part.as_object().unwrap();
            fields.contains_key("text")
                && fields
                    .keys()
                    .all(|name| name == "text" || name == "thought")
        };
        let mut parts: Vec<Value> = Vec::new();
        let mut whole = json!({});
        for event in events {
            for part in event["candidates"][0]["content"]["parts"]
                .as_array()
                .into_iter()
                .flatten()
            {
                match parts.last_mut() {
                    _ if *part == json!({"text": ""}) => {}
                    Some(last)
                        if plain(last) && plain(part) && last["thought"] == part["thought"] =>
                    {
                        last["text"] = json!(
                            last["text"].as_str().unwrap().to_owned()
                                + part["text"].as_str().unwrap()
                        );
                    }
                    _ => parts.push(part.clone()),
                }
            }
            for (name, value) in event.as_object().unwrap() {
                whole[name] = value.clone();
            }
        }
        let mut candidates = events.iter().map(|event| &event["candidates"][0]);
        whole["candidates"] = json!([candidates
            .rfind(|candidate| candidate["finishReason"].is_string())
            .unwrap()]);
        whole["candidates"][0]["content"] = json!({"role": "model", "parts": parts});
        whole
    }

    fn ours(mut request: Value) -> Value {
        request["contents"]
            .as_array_mut()
            .unwrap()
            .retain(|content| content["role"] != "model");
        request
    }

    fn model(interaction: &Interaction) -> String {
        let model = interaction.path.rsplit("/models/").next();
        let model = model.and_then(|model| model.split(':').next());
        model.unwrap_or_default().to_owned()
    }

    fn take(body: &Value, model: &str) -> Taken {
        asked(body, model, "gemini")
    }

    fn prefix(path: &str) -> String {
        path.split("/models/").next().unwrap_or_default().to_owned()
    }

    /// How a program's result is wrapped in an object is its own. Empty texts, which we never send,
    /// say nothing. Tools may be written as a list or as one, in any order, and schemas in Google's
    /// words or in those of JSON Schema.
    fn canonical(body: Value) -> Value {
        let mut body = camel_case(body);
        if let Some(counted) = body.get("generateContentRequest") {
            body = counted.clone();
        }
        each_object(&mut body, &|fields| {
            fields.retain(|_, value| !value.is_null());
            if let Some(parts) = fields.get_mut("parts").and_then(Value::as_array_mut) {
                parts.retain(|part| *part != json!({"text": ""}));
            }
            if let Some(schema) = fields.remove("parameters") {
                fields.insert("parametersJsonSchema".to_owned(), json_schema(schema));
            }
            if fields.contains_key("response") {
                fields.insert("response".to_owned(), json!("a result"));
            }
        });
        if body["tools"].is_object() {
            body["tools"] = json!([body["tools"]]);
        }
        if let Some(tools) = body["tools"].as_array_mut() {
            tools.sort_by_key(|tool| tool["functionDeclarations"].is_null());
        }
        let fields = body.as_object_mut().unwrap();
        if let Some(contents) = fields.get_mut("contents").and_then(Value::as_array_mut) {
            contents.retain(|content| content["parts"] != json!([]));
        }
        if let Some(system) = fields.get_mut("systemInstruction") {
            system.as_object_mut().unwrap().remove("role");
        }
        fields.remove("model");
        fields.retain(|_, value| *value != json!({}));
        body
    }

    fn is_cloud(interaction: &Interaction) -> bool {
        interaction.host.contains("aiplatform.")
    }

    const BEYOND: &'static [(&'static str, &'static str)] = &[];

    const NOT_COMPARED: &'static [(&'static str, usize)] = &[(CLOUD, 1), (NO_BODY, 1)];
}

/// A request of ours that says what a recorded one says.
fn asked(body: &Value, model: &str, provider: &str) -> Taken {
    let body = Gemini::canonical(body.clone());
    let own = ["contents", "systemInstruction", "tools", "model"];
    let mut parts = Parts::with_parameters(&body, &own);
    let texts = body["systemInstruction"]["parts"].as_array();
    let texts = texts.into_iter().flatten();
    let texts: Vec<_> = texts.filter_map(|part| part["text"].as_str()).collect();
    match &texts[..] {
        [] => {}
        [one] => parts.system = (*one).to_owned(),
        _ => return Err("the system prompt has several parts".to_owned()),
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        let functions = tool["functionDeclarations"].as_array();
        if functions.is_none() {
            parts.add_server_tool(tool);
        }
        for function in functions.into_iter().flatten() {
            parts.add_tool(function, "parametersJsonSchema")?;
        }
    }
    for content in body["contents"].as_array().into_iter().flatten() {
        if content["role"] == "model" {
            let candidate = json!({"content": content, "finishReason": "STOP"});
            let reply = json!({"candidates": [candidate], "usageMetadata": {}});
            parts.add_reply::<GenerateContent>(&reply)?;
            continue;
        }
        let mut blocks = Vec::new();
        for part in content["parts"].as_array().into_iter().flatten() {
            if let Some(text) = part["text"].as_str() {
                blocks.push(Block::text(text));
            } else if part["functionResponse"].is_object() {
                let answered = blocks
                    .iter()
                    .filter(|block| matches!(block, Block::ToolResult { .. }))
                    .count();
                let id = nth_call(parts.messages.last(), answered).ok_or("no such call")?;
                blocks.push(result(&json!(id), "", false));
            } else {
                return Err("a part that is neither text nor response".to_owned());
            }
        }
        parts.add(Role::User, blocks);
    }
    parts.into_request(model, provider)
}

/// The id of a call in a message, by its position among the calls.
fn nth_call(message: Option<&Message>, position: usize) -> Option<String> {
    let mut calls = message?.blocks.iter().filter_map(|block| match block {
        Block::ToolUse { id, .. } => Some(id.to_string()),
        _ => None,
    });
    calls.nth(position)
}

/// A schema whose types are written in lower case.
fn json_schema(mut schema: Value) -> Value {
    each_object(&mut schema, &|fields| {
        if let Some(Value::String(kind)) = fields.get_mut("type") {
            *kind = kind.to_lowercase();
        }
    });
    schema
}

#[tokio::test]
async fn what_google_sent_decodes_and_goes_back_as_it_came() {
    check::<Gemini>().await;
}

#[cfg(feature = "vertex")]
#[test]
fn what_vertex_accepted_is_what_we_send() {
    use dormouse_models::vertex::VertexGenerateContent;
    use dormouse_models::wire::CloudLocation;

    let location = CloudLocation {
        project: Some("pydantic-ai".to_owned()),
        region: Some("global".to_owned()),
    };
    let taken = |interaction: &Interaction| {
        asked(
            &interaction.asked,
            &Gemini::model(interaction),
            "gemini_vertex",
        )
    };
    crate::clouds::check::<Gemini, VertexGenerateContent>(location, taken, 0);
}
