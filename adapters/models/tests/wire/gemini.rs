//! Google's Gemini API.

use dormouse_models::gemini::GenerateContent;
use serde_json::{Value, json};

use crate::asks::{self, Taken};
use crate::check::{Recorded, check};
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
        asks::of_gemini::<GenerateContent>(body, model)
    }

    fn prefix(path: &str) -> String {
        path.split("/models/").next().unwrap_or_default().to_owned()
    }

    /// How a program's result is wrapped in an object is its own.
    fn canonical(body: Value) -> Value {
        let mut body = camel_case(body);
        if let Some(counted) = body.get("generateContentRequest") {
            body = counted.clone();
        }
        each_object(&mut body, &|fields| {
            fields.retain(|_, value| !value.is_null());
            if fields.contains_key("response") {
                fields.insert("response".to_owned(), json!("a result"));
            }
        });
        let fields = body.as_object_mut().unwrap();
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
}

#[tokio::test]
async fn what_google_sent_decodes_and_goes_back_as_it_came() {
    check::<Gemini>().await;
}
