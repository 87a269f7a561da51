//! OpenAI's Responses API.

use dormouse_models::responses::Responses;
use serde_json::{Value, json};

use crate::asks::{self, Taken};
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
        asks::of_responses::<Responses>(body)
    }

    fn prefix(path: &str) -> String {
        path.split("/responses")
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    /// Nothing is kept at the provider, so reasoning is asked for in a form that can go back; texts
    /// may be written as texts or as parts.
    fn canonical(mut body: Value) -> Value {
        if let Some(text) = body["input"].as_str() {
            body["input"] = json!([{"role": "user", "content": text}]);
        }
        each_object(&mut body, &|fields| {
            fields.retain(|_, value| !value.is_null());
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
}

#[tokio::test]
async fn what_openai_sent_decodes_and_goes_back_as_it_came() {
    check::<OpenAi>().await;
}
