//! The OpenAPI document: it lists what there is, and says what is answered.

use std::collections::BTreeMap;

use dormouse_api::openapi;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::*;

/// Every operation: method, path, the operation.
fn operations(document: &Value) -> Vec<(Method, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter();
        methods.filter_map(move |(method, operation)| {
            let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes()).unwrap();
            operation
                .is_object()
                .then(|| (method, path.clone(), operation.clone()))
        })
    });
    operations.collect()
}

/// A schema of the document, with everything that it may refer to.
fn whole_schema(document: &Value, schema: &Value) -> Value {
    let mut schema = schema.clone();
    schema["components"] = document["components"].clone();
    schema
}

/// Fields that an answer has and its schema does not name would not be stable.
fn refuse_unknown(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let is_plain = fields.contains_key("properties")
                && !fields.contains_key("oneOf")
                && !fields.contains_key("anyOf")
                && !fields.contains_key("allOf")
                && !fields.contains_key("$ref");
            if is_plain && !fields.contains_key("additionalProperties") {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
            fields.values_mut().for_each(refuse_unknown);
        }
        Value::Array(items) => items.iter_mut().for_each(refuse_unknown),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_answered_is_what_the_document_says() {
    let world = World::new().await;
    let process = world.session("big").await;
    let pid = process.pid().0.to_string();
    process.checkpoint("here").await.unwrap();
    let label = json!({ "per": "month", "output_tokens": 5 });
    let request = world
        .request(Method::PUT, "/v1/labels/a=b", CONTROL)
        .json(&label);
    assert_eq!(world.send(request).await.0, StatusCode::OK);
    world.task("ask").await;
    world.task("question").await;
    world
        .wait_for("/v1/pending", |pending| {
            pending["calls"].as_array().unwrap().len() == 2
        })
        .await;

    let document = world.get("/v1/openapi.json").await;
    assert_eq!(document, openapi());
    let fill = |path: &str| {
        let path = path
            .replace("{pid}", &pid)
            .replace("{fd}", "fd:1")
            .replace("{page}", "2");
        let path = path
            .replace("{checkpoint}", "cp:1")
            .replace("{label}", "a=b");
        match path.rsplit_once('/').map_or("", |(_, last)| last) {
            "search" => format!("{path}?query=many"),
            "diff" => format!("{path}?left={pid}@0&right={pid}"),
            _ => path,
        }
    };
    let mut answered = BTreeMap::new();
    for (method, path, operation) in operations(&document) {
        if method != Method::GET || ["/v1/events", "/v1/openapi.json"].contains(&&*path) {
            continue;
        }
        let answer = world.get(&fill(&path)).await;
        let content = &operation["responses"]["200"]["content"]["application/json"];
        let mut schema = whole_schema(&document, &content["schema"]);
        refuse_unknown(&mut schema);
        let validator = jsonschema::validator_for(&schema).unwrap();
        let errors: Vec<_> = validator
            .iter_errors(&answer)
            .map(|error| error.to_string())
            .collect();
        assert!(errors.is_empty(), "{path}: {errors:?}\n{answer}");
        answered.insert(path, answer);
    }
    assert!(answered.len() >= 18, "{:?}", answered.keys());
    // The check can fail: another answer is refused.
    let schema = &document["paths"]["/v1/processes"]["get"]["responses"]["200"]["content"];
    let schema = whole_schema(&document, &schema["application/json"]["schema"]);
    let validator = jsonschema::validator_for(&schema).unwrap();
    assert!(!validator.is_valid(&answered["/v1/pending"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_has_a_scope_and_a_smaller_one_does_not_suffice() {
    let world = World::new().await;
    let document = openapi();
    let operations = operations(&document);
    assert!(operations.len() > 35, "{}", operations.len());
    let mut counts = BTreeMap::<String, usize>::new();
    for (method, path, operation) in operations {
        let scope = operation["security"][0]["token"][0].as_str();
        let scope = scope
            .unwrap_or_else(|| panic!("{path} has no scope"))
            .to_owned();
        let path = path
            .replace("{pid}", "1")
            .replace("{fd}", "fd:1")
            .replace("{call}", "0.1")
            .replace("{checkpoint}", "cp:1")
            .replace("{label}", "a=b")
            .replace("{page}", "1")
            .replace("{question}", "1");
        let status = async |token: Option<&str>| {
            let url = format!("http://{}{path}", world.address);
            let mut request = world.client.request(method.clone(), url);
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            within(request.send()).await.unwrap().status().as_u16()
        };
        assert_eq!(status(None).await, 401, "{method} {path}");
        assert_eq!(
            status(Some("look-look-look-loo")).await,
            401,
            "{method} {path}"
        );
        let sufficient = match &*scope {
            "look" => vec![LOOK, SPEAK, CONTROL],
            "speak" => vec![SPEAK, CONTROL],
            "control" => vec![CONTROL],
            other => panic!("{path}: {other}"),
        };
        for token in [LOOK, SPEAK, CONTROL] {
            let is_refused = [401, 403].contains(&status(Some(token)).await);
            assert_eq!(
                is_refused,
                !sufficient.contains(&token),
                "{method} {path} {token}"
            );
        }
        if scope == "look" {
            assert_eq!(method, Method::GET, "{path}: looking changes nothing");
        }
        *counts.entry(scope).or_default() += 1;
    }
    assert_eq!(counts.len(), 3, "{counts:?}");
}
