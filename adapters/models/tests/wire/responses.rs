//! OpenAI's Responses API.

use dormouse_models::responses::Responses;
use dormouse_proto::message::{Block, Role};
use serde_json::{Value, json};

use crate::asks::{BREAKPOINTS, Parts, Taken, result, text_of_parts};
use crate::check::{Recorded, check};
use crate::compare::each_object;
use crate::reader::Interaction;

struct OpenAi;

impl Recorded for OpenAi {
    type Codec = Responses;

    fn is_of(interaction: &Interaction) -> bool {
        interaction.path.contains("/responses") || interaction.path.contains("/v1/conversations")
    }

    fn out_of_scope(interaction: &Interaction) -> Option<String> {
        let is_known = ["/responses", "/responses/input_tokens"]
            .iter()
            .any(|end| interaction.path.ends_with(end));
        if interaction.method != "POST" || !is_known {
            return Some(format!(
                "no call of a model: {} {}",
                interaction.method, interaction.path
            ));
        }
        (interaction.asked["background"] == true)
            .then(|| "in the background, which is not asked for".to_owned())
    }

    fn counts(interaction: &Interaction) -> bool {
        interaction.path.ends_with("/input_tokens")
    }

    fn parts(whole: &Value) -> Vec<Value> {
        whole["output"].as_array().unwrap().clone()
    }

    fn sent(request: &Value) -> Vec<Value> {
        request["input"].as_array().unwrap().clone()
    }

    fn rebuilt(events: &[Value]) -> Value {
        let mut items: Vec<_> = events
            .iter()
            .filter(|event| event["type"] == "response.output_item.done")
            .collect();
        items.sort_by_key(|event| event["output_index"].as_u64());
        let items: Vec<_> = items.iter().map(|event| event["item"].clone()).collect();
        let last = events
            .iter()
            .rfind(|event| event["response"]["status"].is_string())
            .unwrap();
        let mut response = last["response"].clone();
        let shown: Vec<_> = response["output"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["type"].clone())
            .collect();
        let came: Vec<_> = items.iter().map(|item| item["type"].clone()).collect();
        assert!(
            shown.is_empty() || shown == came,
            "the last event shows {shown:?}, what came is {came:?}"
        );
        response["output"] = json!(items);
        response
    }

    fn ours(mut request: Value) -> Value {
        let is_ours =
            |item: &Value| item["role"] == "user" || item["type"] == "function_call_output";
        request["input"].as_array_mut().unwrap().retain(is_ours);
        request
    }

    fn take(body: &Value, _model: &str) -> Taken {
        asked(body)
    }

    fn prefix(path: &str) -> String {
        path.split("/responses")
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    /// Nothing is kept at the provider, so reasoning is asked for in a form that can go back. Texts
    /// may be written as texts or as parts, and instructions as a first item.
    fn canonical(mut body: Value) -> Value {
        if let Some(text) = body["input"].as_str() {
            body["input"] = json!([{"role": "user", "content": text}]);
        }
        if body["input"][0]["role"] == "system" && body["instructions"].is_null() {
            let first = body["input"].as_array_mut().unwrap().remove(0);
            body["instructions"] = first["content"].clone();
        }
        each_object(&mut body, &|fields| {
            fields.retain(|name, value| !value.is_null() && !BREAKPOINTS.contains(&name.as_str()));
            if fields.get("description") == Some(&json!("")) {
                fields.remove("description");
            }
            let parts = fields.get("content").and_then(Value::as_array);
            let texts = parts.and_then(|parts| {
                let texts = parts.iter().map(|part| part["text"].as_str());
                texts.collect::<Option<Vec<_>>>()
            });
            let is_message = fields.contains_key("role");
            if let Some(texts) = texts.filter(|_| is_message) {
                let text = texts.join("\n");
                fields.insert("content".to_owned(), json!(text));
                fields.remove("type");
                fields.remove("id");
                fields.remove("status");
                fields.remove("phase");
            }
        });
        let fields = body.as_object_mut().unwrap();
        fields.retain(|name, value| match name.as_str() {
            "stream" => *value == true,
            "store" | "include" => false,
            "instructions" => value != "",
            _ => true,
        });
        body
    }

    const BEYOND: &'static [(&'static str, &'static str)] = &[(
        ".store: boolean",
        "documented: nothing is kept at the provider",
    )];

    // Nothing is kept at the provider.
    const NOT_COMPARED: &'static [(&'static str, usize)] = &[
        ("a history that is kept at the provider: conversation", 3),
        (
            "a history that is kept at the provider: previous_response_id",
            1,
        ),
    ];
}

/// A request of ours that says what a recorded one says.
fn asked(body: &Value) -> Taken {
    let own = [
        "model",
        "input",
        "instructions",
        "tools",
        "stream",
        "store",
        "background",
        "conversation",
        "previous_response_id",
    ];
    let mut parts = Parts::with_parameters(body, &own);
    for kept in ["conversation", "previous_response_id"] {
        if !body[kept].is_null() {
            return Err(format!("a history that is kept at the provider: {kept}"));
        }
    }
    parts.system = body["instructions"].as_str().unwrap_or_default().to_owned();
    for tool in body["tools"].as_array().into_iter().flatten() {
        if tool["type"] != "function" {
            parts.add_server_tool(tool);
            continue;
        }
        let mut tool = tool.clone();
        tool.as_object_mut()
            .ok_or("a tool is no object")?
            .remove("type");
        parts.add_tool(&tool, "parameters")?;
    }
    if let Some(text) = body["input"].as_str() {
        parts.add(Role::User, vec![Block::text(text)]);
    }
    let mut items = body["input"].as_array().map_or(&[][..], |items| items);
    // It says the same as `instructions`.
    if let Some((first, rest)) = items.split_first()
        && first["role"] == "system"
        && parts.system.is_empty()
    {
        parts.system = text_of_parts(&first["content"], &["input_text"])?.concat();
        items = rest;
    }
    for items in items.chunk_by(|one, other| is_of_model(one) && is_of_model(other)) {
        let item = &items[0];
        if is_of_model(item) {
            let items = items.iter().map(completed_item).collect::<Vec<_>>();
            let reply = json!({"status": "completed", "output": items, "usage": {}});
            parts.add_reply::<Responses>(&reply)?;
        } else if item["type"] == "function_call_output" {
            let text = item["output"]
                .as_str()
                .ok_or("an output of several parts")?;
            parts.add_result(result(&item["call_id"], text, false));
        } else if item["role"] == "user" {
            let texts = text_of_parts(&item["content"], &["input_text"])?;
            let blocks = texts.iter().map(|text| Block::text(text.as_str()));
            parts.add(Role::User, blocks.collect());
        } else {
            return Err(format!("an item of {} {}", item["type"], item["role"]));
        }
    }
    parts.into_request(body["model"].as_str().unwrap_or_default(), "openai")
}

fn is_of_model(item: &Value) -> bool {
    item["role"] == "assistant"
        || (item["role"].is_null() && item["type"] != "function_call_output")
}

/// An item as the provider sends it. A message of the model may be written shorter.
fn completed_item(item: &Value) -> Value {
    match item["content"].as_str() {
        Some(text) => json!({
            "type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": text}],
        }),
        None => item.clone(),
    }
}

#[tokio::test]
async fn what_openai_sent_decodes_and_goes_back_as_it_came() {
    check::<OpenAi>().await;
}
