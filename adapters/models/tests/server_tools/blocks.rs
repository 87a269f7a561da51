//! Blocks of the provider's tools as JSON values, found without the decoders.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::recordings::{Answer, Format, Interaction};

/// The tables of the provider's tools in a request, without the nulls that the recorded client
/// adds.
pub(crate) fn server_tools(format: Format, asked: &Value) -> Vec<Map<String, Value>> {
    let tools = asked["tools"].as_array().into_iter().flatten();
    let is_server = |tool: &&Value| match format {
        Format::Gemini => tool.get("functionDeclarations").is_none(),
        _ => tool["type"]
            .as_str()
            .is_some_and(|kind| !matches!(kind, "function" | "custom")),
    };
    let without_nulls = |tool: &Value| -> Map<String, Value> {
        let fields = tool.as_object().unwrap().iter();
        fields
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    tools.filter(is_server).map(without_nulls).collect()
}

/// The blocks of the provider's tools in an answer.
pub(crate) fn of_answer(format: Format, interaction: &Interaction) -> Vec<Value> {
    if !interaction.is_reply() {
        return Vec::new();
    }
    let parts = match &interaction.answer {
        Answer::Nothing => Vec::new(),
        Answer::Whole(body) => parts(format, body),
        Answer::Events(events) => match format {
            Format::Anthropic => streamed_blocks(events),
            Format::Responses => {
                let mut done: Vec<_> = events
                    .iter()
                    .filter(|event| event["type"] == "response.output_item.done")
                    .collect();
                done.sort_by_key(|event| event["output_index"].as_u64());
                done.iter().map(|event| event["item"].clone()).collect()
            }
            Format::Gemini | Format::Chat => events
                .iter()
                .flat_map(|event| parts(format, event))
                .collect(),
        },
    };
    parts
        .into_iter()
        .filter(|part| is_server(format, part))
        .collect()
}

fn parts(format: Format, body: &Value) -> Vec<Value> {
    let list = match format {
        Format::Anthropic => &body["content"],
        Format::Responses => &body["output"],
        Format::Gemini => &body["candidates"][0]["content"]["parts"],
        Format::Chat => &Value::Null,
    };
    list.as_array().cloned().unwrap_or_default()
}

/// The blocks of a streamed message, put together from their deltas.
fn streamed_blocks(events: &[Value]) -> Vec<Value> {
    let mut blocks: BTreeMap<u64, Value> = BTreeMap::new();
    let mut inputs: BTreeMap<u64, String> = BTreeMap::new();
    for event in events {
        let Some(index) = event["index"].as_u64() else {
            continue;
        };
        if event["type"] == "content_block_start" {
            blocks.insert(index, event["content_block"].clone());
        }
        if let Some(part) = event["delta"]["partial_json"].as_str() {
            inputs.entry(index).or_default().push_str(part);
        }
    }
    for (index, input) in inputs.into_iter().filter(|(_, input)| !input.is_empty()) {
        blocks.get_mut(&index).unwrap()["input"] = serde_json::from_str(&input).unwrap();
    }
    blocks.into_values().collect()
}

fn is_server(format: Format, block: &Value) -> bool {
    let kind = block["type"].as_str().unwrap_or_default();
    match format {
        Format::Anthropic => {
            matches!(kind, "server_tool_use" | "mcp_tool_use") || kind.ends_with("_tool_result")
        }
        Format::Responses => {
            matches!(kind, "mcp_list_tools" | "mcp_approval_request")
                || kind.ends_with("_call") && kind != "function_call"
        }
        Format::Gemini => [
            "toolCall",
            "toolResponse",
            "executableCode",
            "codeExecutionResult",
            "inlineData",
        ]
        .iter()
        .any(|name| block.get(*name).is_some()),
        Format::Chat => false,
    }
}

/// Whether a block shows a call or a result, and not what a tool server offers.
pub(crate) fn is_shown(format: Format, block: &Value) -> bool {
    is_server(format, block) && block["type"] != "mcp_list_tools"
}

/// The number of calls in these blocks.
pub(crate) fn calls(format: Format, blocks: &[Value]) -> usize {
    let is_call = |block: &&Value| {
        let kind = block["type"].as_str().unwrap_or_default();
        match format {
            Format::Anthropic => !kind.ends_with("_tool_result"),
            Format::Responses => kind.ends_with("_call"),
            Format::Gemini => ["toolCall", "executableCode"]
                .iter()
                .any(|name| block.get(*name).is_some()),
            Format::Chat => false,
        }
    };
    blocks.iter().filter(is_call).count()
}

/// Whether a result of this tool may hold nothing to be read: a command without output, a file that
/// was written.
pub(crate) fn may_be_silent(tool: &str) -> bool {
    tool.contains("code_execution")
}

/// The blocks of the provider's tools in the conversation of a request.
pub(crate) fn within(format: Format, request: &Value) -> Vec<Value> {
    let messages = match format {
        Format::Anthropic | Format::Chat => &request["messages"],
        Format::Responses => &request["input"],
        Format::Gemini => &request["contents"],
    };
    let messages = messages.as_array().into_iter().flatten();
    let blocks = messages.flat_map(|message| match format {
        Format::Anthropic => message["content"].as_array().cloned().unwrap_or_default(),
        Format::Gemini => message["parts"].as_array().cloned().unwrap_or_default(),
        Format::Responses => vec![message.clone()],
        Format::Chat => Vec::new(),
    });
    // An answer to a call of the program is a block of the user.
    blocks
        .filter(|block| is_server(format, block) && block["type"] != "tool_result")
        .collect()
}

/// The id of a block: its own, or that of the call which it answers.
pub(crate) fn id(block: &Value) -> Option<&str> {
    let places = [
        &block["id"],
        &block["tool_use_id"],
        &block["toolCall"]["id"],
        &block["toolResponse"]["id"],
    ];
    places.into_iter().find_map(Value::as_str)
}

/// The kind of a block.
pub(crate) fn kind(block: &Value) -> String {
    let named = block["type"].as_str().map(str::to_owned);
    let parts = [
        "toolCall",
        "toolResponse",
        "executableCode",
        "codeExecutionResult",
    ];
    let part = || parts.iter().find(|name| block.get(**name).is_some());
    named
        .or_else(|| part().map(|name| (*name).to_owned()))
        .unwrap_or_default()
}

/// Asserts that two blocks say the same where both say something.
pub(crate) fn agree(name: &str, ours: &Value, recorded: &Value) {
    match (ours, recorded) {
        (Value::Null, _) | (_, Value::Null) => {}
        (Value::Object(ours), Value::Object(recorded)) => {
            for (field, value) in recorded {
                agree(name, ours.get(field).unwrap_or(&Value::Null), value);
            }
        }
        // It leaves out what a tool server offers.
        (Value::Array(_), Value::Array(recorded)) if recorded.is_empty() => {}
        (Value::Array(ours), Value::Array(recorded)) => {
            assert_eq!(ours.len(), recorded.len(), "{name}");
            ours.iter()
                .zip(recorded)
                .for_each(|(ours, recorded)| agree(name, ours, recorded));
        }
        // The recorded client writes arguments anew.
        (Value::String(ours), Value::String(recorded)) if ours != recorded => {
            // It also writes base64 in its other alphabet.
            let standard = recorded.replace('-', "+").replace('_', "/");
            if *ours == standard {
                return;
            }
            let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
            assert!(
                parsed(ours).is_some(),
                "{name}: {ours:?} is not {recorded:?}"
            );
            assert_eq!(parsed(ours), parsed(recorded), "{name}");
        }
        (ours, recorded) => assert_eq!(ours, recorded, "{name}"),
    }
}

/// The number of searches that the provider charges for, if it says so.
pub(crate) fn searches_by_usage(interaction: &Interaction) -> Option<u64> {
    let count = |usage: &Value| usage["server_tool_use"]["web_search_requests"].as_u64();
    match &interaction.answer {
        Answer::Whole(body) => count(&body["usage"]),
        Answer::Events(events) => events.iter().rev().find_map(|event| count(&event["usage"])),
        Answer::Nothing => None,
    }
}

/// The addresses that an answer cites, each once.
pub(crate) fn cited_addresses(format: Format, interaction: &Interaction) -> Vec<String> {
    let values: Vec<&Value> = match &interaction.answer {
        Answer::Whole(body) => vec![body],
        Answer::Events(events) => events.iter().collect(),
        Answer::Nothing => Vec::new(),
    };
    let mut found = Vec::new();
    values
        .iter()
        .for_each(|value| add_addresses(format, value, &mut found));
    let mut once = Vec::new();
    for address in found {
        let address = address.split_whitespace().collect::<Vec<_>>().join(" ");
        if !once.contains(&address) {
            once.push(address);
        }
    }
    once
}

fn add_addresses(format: Format, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items
            .iter()
            .for_each(|item| add_addresses(format, item, found)),
        Value::Object(fields) => {
            let kind = value["type"].as_str().unwrap_or_default();
            let address = match format {
                Format::Anthropic if kind == "web_search_result_location" => &value["url"],
                Format::Responses if kind == "url_citation" => &value["url"],
                Format::Chat if kind == "url_citation" => &value["url_citation"]["url"],
                Format::Gemini if fields.contains_key("web") => &value["web"]["uri"],
                Format::Gemini if fields.contains_key("retrievedUrl") => &value["retrievedUrl"],
                _ => &Value::Null,
            };
            found.extend(address.as_str().map(str::to_owned));
            fields
                .values()
                .for_each(|field| add_addresses(format, field, found));
        }
        _ => {}
    }
}
