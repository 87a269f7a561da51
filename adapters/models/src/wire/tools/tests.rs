use std::sync::Arc;

use dormouse_proto::message::{Block, Role};
use dormouse_proto::model::Request;
use dormouse_proto::provider_tools::{ProviderTools, ToolForm};
use dormouse_proto::tool::ToolSpec;
use serde_json::{Map, Value, json};

use crate::anthropic::Messages;
use crate::chat::Completions;
use crate::gemini::GenerateContent;
use crate::responses::Responses;
use crate::testing::{decoded, message, request};
use crate::wire::{Codec, Delivery, Purpose, encode};

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// A request with the tools `a` and `b`, and a server tool.
fn with_tools(server: Value, forms: &[(&str, ToolForm)]) -> Request {
    let forms = forms.iter().cloned();
    Request {
        provider_tools: Arc::new(ProviderTools {
            server: vec![object(server)],
            forms: forms.map(|(name, form)| (name.to_owned(), form)).collect(),
        }),
        ..request(Vec::new(), json!({}))
    }
}

fn sent<C: Codec>(request: &Request) -> Value {
    let body = encode(
        &C::default(),
        request,
        Purpose::Reply(Delivery::Stream),
        None,
    )
    .unwrap();
    serde_json::from_str(&body).unwrap()
}

fn grammar() -> ToolForm {
    ToolForm {
        input_format: Some(object(
            json!({"type": "grammar", "syntax": "lark", "definition": "start: /a/"}),
        )),
        ..ToolForm::default()
    }
}

#[test]
fn tools_of_the_provider_follow_those_of_the_program_as_they_were_written() {
    let search = json!({"type": "web_search", "user_location": {"country": "NL"}, "max_uses": 3});
    let request = with_tools(search.clone(), &[]);
    for tools in [
        sent::<Messages>(&request),
        sent::<Responses>(&request),
        sent::<Completions>(&request),
    ] {
        let tools = tools["tools"].as_array().unwrap().clone();
        assert_eq!((tools.len(), &tools[2]), (3, &search));
    }
    let google = with_tools(json!({"google_search": {}}), &[]);
    let tools = &sent::<GenerateContent>(&google)["tools"];
    assert_eq!(
        tools[0]["functionDeclarations"].as_array().unwrap().len(),
        2
    );
    assert_eq!(tools[1], json!({"google_search": {}}));
    let alone = Request {
        tools: Arc::from([]),
        ..request
    };
    assert_eq!(sent::<Responses>(&alone)["tools"], json!([search]));
    let system_less = Request {
        system: "".into(),
        ..alone
    };
    let ttl = Some(dormouse_proto::program::CacheTtl::FiveMinutes);
    let body = encode(
        &Messages,
        &system_less,
        Purpose::Reply(Delivery::Whole),
        ttl,
    )
    .unwrap();
    assert!(
        body.contains(r#""max_uses":3,"cache_control":{"type":"ephemeral"}}]"#),
        "{body}"
    );
}

#[test]
fn a_tool_that_is_to_be_strict_where_that_is_expressible_is_else_a_plain_one() {
    let wanted = || ToolForm {
        strict_if_expressible: true,
        ..ToolForm::default()
    };
    let mut request = with_tools(json!({"type": "t"}), &[("a", wanted()), ("b", wanted())]);
    let mut tools = request.tools.to_vec();
    tools[1].schema = r#"{"type":"object"}"#.into();
    request.tools = tools.into();
    let expected = [true, false];
    let strict = |tools: &Value, of: fn(&Value) -> &Value| {
        let tools = tools.as_array().unwrap()[..2].iter();
        tools
            .map(|tool| *of(tool) == json!(true))
            .collect::<Vec<_>>()
    };
    let messages = sent::<Messages>(&request);
    assert_eq!(strict(&messages["tools"], |tool| &tool["strict"]), expected);
    let responses = sent::<Responses>(&request);
    assert_eq!(
        strict(&responses["tools"], |tool| &tool["strict"]),
        expected
    );
    let completions = sent::<Completions>(&request);
    let of_function = |tool: &Value| tool["function"]["strict"] == json!(true);
    let tools = completions["tools"].as_array().unwrap()[..2].iter();
    assert_eq!(tools.map(of_function).collect::<Vec<_>>(), expected);
}

#[test]
fn a_strict_tool_has_the_schema_that_its_provider_requires() {
    let strict = ToolForm {
        strict: true,
        fields: object(json!({"defer_loading": true})),
        ..ToolForm::default()
    };
    let request = with_tools(json!({"type": "t"}), &[("a", strict)]);
    let nullable = json!({"type": "object", "properties": {"n": {"type": ["integer", "null"]}}, "required": ["n"], "additionalProperties": false});
    let tool = &sent::<Messages>(&request)["tools"][0];
    assert_eq!(
        (&tool["strict"], &tool["defer_loading"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(tool["input_schema"]["additionalProperties"], false);
    assert_eq!(tool["input_schema"]["required"], Value::Null);
    let tools = &sent::<Responses>(&request)["tools"];
    assert_eq!(
        (&tools[0]["strict"], &tools[1]["strict"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(tools[0]["parameters"], nullable);
    let tools = &sent::<Completions>(&request)["tools"];
    let function = &tools[0]["function"];
    assert_eq!(
        (&function["strict"], &function["parameters"]),
        (&json!(true), &nullable)
    );
    assert_eq!(tools[1]["function"].get("strict"), None);
}

#[test]
fn a_tool_with_a_grammar_takes_a_text_and_its_answer_goes_to_it() {
    let spec = ToolSpec {
        name: "calc".into(),
        description: "d".into(),
        schema: r#"{"type":"object","properties":{"input":{"type":"string"}}}"#.into(),
    };
    let mut request = with_tools(
        json!({"type": "t"}),
        &[("calc", grammar()), ("a", grammar())],
    );
    let wrong = encode(&Responses, &request, Purpose::Reply(Delivery::Whole), None).unwrap_err();
    assert!(
        wrong.message.contains("the tool 'a' has an `input_format`"),
        "{wrong}"
    );
    request.tools = [spec].into();
    let format = json!({"type": "grammar", "syntax": "lark", "definition": "start: /a/"});
    let tool = json!({"type": "custom", "name": "calc", "description": "d", "format": format});
    assert_eq!(sent::<Responses>(&request)["tools"][0], tool);
    let nested =
        json!({"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /a/"}});
    let custom = json!({"name": "calc", "description": "d", "format": nested});
    assert_eq!(
        sent::<Completions>(&request)["tools"][0],
        json!({"type": "custom", "custom": custom})
    );

    let item =
        r#"{"type":"custom_tool_call","id":"i","call_id":"c","name":"calc","input":"a \"b\""}"#;
    let whole = format!(r#"{{"status":"completed","output":[{item}]}}"#);
    let events = [
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"custom_tool_call","id":"i","call_id":"c","name":"calc","input":""}}"#,
        r#"{"type":"response.custom_tool_call_input.delta","output_index":0,"delta":"a \"b"}"#,
        r#"{"type":"response.custom_tool_call_input.delta","output_index":0,"delta":"\""}"#,
        r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#,
    ];
    let (streamed, _) = decoded::<crate::responses::StreamDecoder>(&events);
    for reply in [Responses.decode(&whole).unwrap(), streamed.unwrap()] {
        let [Block::ToolUse { id, name, args, .. }] = &reply.blocks[..] else {
            panic!("{reply:?}")
        };
        assert_eq!(
            (&**id, &**name, &**args),
            ("c", "calc", r#"{"input":"a \"b\""}"#)
        );
        request.messages = answered(reply.blocks.clone(), "c");
        let input = &sent::<Responses>(&request)["input"];
        assert_eq!(input[0], serde_json::from_str::<Value>(item).unwrap());
        let output = json!({"type": "custom_tool_call_output", "call_id": "c", "output": "so"});
        assert_eq!(input[1], output);
    }
}

#[test]
fn the_call_of_a_custom_tool_is_decoded_from_chat_completions() {
    let call = r#"{"id":"c","type":"custom","custom":{"name":"calc","input":"ab"}}"#;
    let whole = format!(
        r#"{{"choices":[{{"message":{{"role":"assistant","tool_calls":[{call}]}},"finish_reason":"tool_calls"}}]}}"#
    );
    let events = [
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"c","type":"custom","custom":{"name":"calc","input":"a"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"custom":{"input":"b"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ];
    let (streamed, _) = decoded::<crate::chat::StreamDecoder>(&events);
    for reply in [
        Completions::default().decode(&whole).unwrap(),
        streamed.unwrap(),
    ] {
        let [Block::ToolUse { id, name, args, .. }] = &reply.blocks[..] else {
            panic!("{reply:?}")
        };
        assert_eq!(
            (&**id, &**name, &**args),
            ("c", "calc", r#"{"input":"ab"}"#)
        );
        let mut request = request(Vec::new(), json!({}));
        request.messages = answered(reply.blocks.clone(), "c");
        let messages = &sent::<Completions>(&request)["messages"];
        let called = &messages[1]["tool_calls"][0];
        assert_eq!(*called, serde_json::from_str::<Value>(call).unwrap());
    }
}

/// A reply and the answer to its call.
fn answered(reply: Vec<Block>, id: &str) -> Vec<Arc<dormouse_proto::message::Message>> {
    let answer = Block::ToolResult {
        id: id.into(),
        text: "so".into(),
        is_error: false,
    };
    vec![
        Arc::new(message(Role::Assistant, reply)),
        Arc::new(message(Role::User, vec![answer])),
    ]
}
