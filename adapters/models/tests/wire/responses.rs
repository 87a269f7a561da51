//! OpenAI's Responses API.

use dormouse_models::responses::Responses;
use serde_json::{Value, json};

use crate::check::{Recorded, check};
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

    const BEYOND: &'static [(&'static str, &'static str)] = &[(
        ".store: boolean",
        "documented: nothing is kept at the provider",
    )];
}

#[tokio::test]
async fn what_openai_sent_decodes_and_goes_back_as_it_came() {
    check::<OpenAi>().await;
}
