//! Requests of ours that say what recorded ones say, in each format.
//!
//! A recorded request is taken apart into what a process has (a system prompt, tools, messages,
//! parameters), from which our encoder builds a body of its own. Replies in it are decoded, as they
//! were when they came.

use std::sync::Arc;

use dormouse_models::wire::Codec;
use dormouse_proto::id::Pid;
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::model::Request;
use dormouse_proto::tool::ToolSpec;
use serde_json::{Map, Value, json};

/// A request, or why none of ours says the same.
pub(crate) type Taken = Result<Request, String>;

/// What a recorded request consists of.
#[derive(Default)]
pub(crate) struct Parts {
    system: String,
    tools: Vec<ToolSpec>,
    messages: Vec<Message>,
    parameters: Map<String, Value>,
}

impl Parts {
    /// The parts with these fields of `body` as parameters: all but `others`.
    fn with_parameters(body: &Value, others: &[&str]) -> Self {
        let fields = body.as_object().into_iter().flatten();
        let parameters = fields
            .filter(|(name, _)| !others.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        Self {
            parameters,
            ..Self::default()
        }
    }

    fn into_request(self, model: &str) -> Request {
        Request {
            pid: Pid(1),
            program: "p".into(),
            model: model.into(),
            system: self.system.into(),
            tools: self.tools.into(),
            messages: self.messages.into_iter().map(Arc::new).collect(),
            provider_tools: Arc::default(),
            parameters: Arc::new(self.parameters),
            forked_at: Vec::new(),
            media: Default::default(),
        }
    }

    /// A tool that has these fields and no others, of which `schema` is one.
    fn add_tool(&mut self, tool: &Value, schema: &str) -> Result<(), String> {
        let fields = tool.as_object().ok_or("a tool is no object")?;
        let known = ["name", "description", schema];
        let unknown = fields.keys().find(|name| !known.contains(&name.as_str()));
        if let Some(unknown) = unknown {
            return Err(format!("a tool has the field `{unknown}`"));
        }
        let text = |name: &str| tool[name].as_str().unwrap_or_default().into();
        self.tools.push(ToolSpec {
            name: text("name"),
            description: text("description"),
            schema: tool[schema].to_string().into(),
        });
        Ok(())
    }

    /// What the model said, decoded by its format from a whole reply.
    fn add_reply<C: Codec>(&mut self, whole: &Value) -> Result<(), String> {
        let reply = C::default().decode(&whole.to_string());
        let blocks = reply.map_err(|error| error.to_string())?.blocks;
        self.add(Role::Assistant, blocks);
        Ok(())
    }

    fn add(&mut self, role: Role, blocks: Vec<Block>) {
        self.messages.push(Message { role, blocks });
    }

    /// Adds blocks to the last message if it is one of results, as a process has them.
    fn add_result(&mut self, result: Block) {
        match self.messages.last_mut() {
            Some(last) if matches!(last.blocks.last(), Some(Block::ToolResult { .. })) => {
                last.blocks.push(result);
            }
            _ => self.add(Role::User, vec![result]),
        }
    }
}

fn text_of_parts(content: &Value, kinds: &[&str]) -> Result<Vec<String>, String> {
    if let Some(text) = content.as_str() {
        return Ok(vec![text.to_owned()]);
    }
    let parts = content.as_array().into_iter().flatten();
    let known = ["type", "text", "cache_control", "citations"];
    let mut fields = parts
        .clone()
        .flat_map(|part| part.as_object().into_iter().flatten());
    if let Some((other, _)) = fields.find(|(name, _)| !known.contains(&name.as_str())) {
        return Err(format!("a part has the field `{other}`"));
    }
    parts
        .map(
            |part| match (part["type"].as_str(), part["text"].as_str()) {
                (Some(kind), Some(text)) if kinds.contains(&kind) => Ok(text.to_owned()),
                (kind, _) => Err(format!("a part of type {kind:?}")),
            },
        )
        .collect()
}

fn result(id: &Value, text: &str, is_error: bool) -> Block {
    Block::ToolResult {
        id: id.as_str().unwrap_or_default().into(),
        text: text.into(),
        is_error,
    }
}

/// Anthropic's Messages API.
pub(crate) fn of_anthropic<C: Codec>(body: &Value) -> Taken {
    let own = ["model", "messages", "system", "tools", "stream"];
    let mut parts = Parts::with_parameters(body, &own);
    let system = text_of_parts(&body["system"], &["text"])?;
    match &system[..] {
        [] => {}
        [one] => parts.system = one.clone(),
        _ => return Err("the system prompt has several blocks".to_owned()),
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        if let Some(kind) = tool["type"].as_str().filter(|kind| *kind != "custom") {
            return Err(format!("a tool of the server: {kind}"));
        }
        let mut tool = tool.clone();
        tool.as_object_mut()
            .map(|tool| tool.remove("cache_control"));
        parts.add_tool(&tool, "input_schema")?;
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
                parts.add_reply::<C>(&reply)?;
            }
            Some("user") => {
                let blocks = match content {
                    Value::String(text) => vec![Block::text(text.as_str())],
                    blocks => {
                        let blocks = blocks.as_array().into_iter().flatten();
                        blocks.map(anthropic_block).collect::<Result<_, _>>()?
                    }
                };
                parts.add(Role::User, blocks);
            }
            other => return Err(format!("a message of the role {other:?}")),
        }
    }
    Ok(parts.into_request(body["model"].as_str().unwrap_or_default()))
}

fn anthropic_block(block: &Value) -> Result<Block, String> {
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
        other => Err(format!("a block of type {other:?}")),
    }
}

/// Chat completions.
pub(crate) fn of_chat<C: Codec>(body: &Value) -> Taken {
    let own = [
        "model",
        "messages",
        "tools",
        "stream",
        "stream_options",
        "n",
    ];
    let mut parts = Parts::with_parameters(body, &own);
    for tool in body["tools"].as_array().into_iter().flatten() {
        parts.add_tool(&tool["function"], "parameters")?;
    }
    let messages = body["messages"].as_array().into_iter().flatten();
    for (message, index) in messages.zip(0..) {
        let content = || text_of_parts(&message["content"], &["text"]);
        match message["role"].as_str() {
            Some("system") if index == 0 => parts.system = content()?.concat(),
            Some("assistant") => {
                let choice = json!({"message": message, "finish_reason": "stop"});
                parts.add_reply::<C>(&json!({"choices": [choice]}))?;
            }
            Some("tool") => {
                parts.add_result(result(
                    &message["tool_call_id"],
                    &content()?.concat(),
                    false,
                ));
            }
            Some("user") => {
                let texts = content()?;
                let blocks = texts.iter().map(|text| Block::text(text.as_str()));
                parts.add(Role::User, blocks.collect());
            }
            other => return Err(format!("a message of the role {other:?}")),
        }
    }
    Ok(parts.into_request(body["model"].as_str().unwrap_or_default()))
}

/// The Responses API.
pub(crate) fn of_responses<C: Codec>(body: &Value) -> Taken {
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
            return Err(format!("a tool of the server: {}", tool["type"]));
        }
        let mut tool = tool.clone();
        let fields = tool.as_object_mut().ok_or("a tool is no object")?;
        fields.remove("type");
        if fields.remove("strict") == Some(json!(true)) {
            return Err("a strict tool".to_owned());
        }
        parts.add_tool(&tool, "parameters")?;
    }
    if let Some(text) = body["input"].as_str() {
        parts.add(Role::User, vec![Block::text(text)]);
    }
    let items = body["input"].as_array().map_or(&[][..], |items| items);
    for items in items.chunk_by(|one, other| is_of_model(one) && is_of_model(other)) {
        let item = &items[0];
        if is_of_model(item) {
            let items = items.iter().map(completed_item).collect::<Vec<_>>();
            let reply = json!({"status": "completed", "output": items, "usage": {}});
            parts.add_reply::<C>(&reply)?;
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
    Ok(parts.into_request(body["model"].as_str().unwrap_or_default()))
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

/// The Gemini API.
pub(crate) fn of_gemini<C: Codec>(body: &Value, model: &str) -> Taken {
    let body = super::compare::camel_case(body.clone());
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
    if body["tools"].is_object() {
        return Err("tools that are no list".to_owned());
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        let fields = tool.as_object().ok_or("a tool is no object")?;
        if let Some(other) = fields.keys().find(|name| *name != "functionDeclarations") {
            return Err(format!("a tool of the server: {other}"));
        }
        for function in tool["functionDeclarations"]
            .as_array()
            .into_iter()
            .flatten()
        {
            parts.add_tool(function, "parametersJsonSchema")?;
        }
    }
    for content in body["contents"].as_array().into_iter().flatten() {
        if content["role"] == "model" {
            let candidate = json!({"content": content, "finishReason": "STOP"});
            let reply = json!({"candidates": [candidate], "usageMetadata": {}});
            parts.add_reply::<C>(&reply)?;
            continue;
        }
        let mut blocks = Vec::new();
        for part in content["parts"].as_array().into_iter().flatten() {
            if part["text"] == "" {
                return Err("an empty text, which we never send".to_owned());
            }
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
    Ok(parts.into_request(model))
}

/// The id of a call in a message, by its position among the calls.
fn nth_call(message: Option<&Message>, position: usize) -> Option<String> {
    let mut calls = message?.blocks.iter().filter_map(|block| match block {
        Block::ToolUse { id, .. } => Some(id.to_string()),
        _ => None,
    });
    calls.nth(position)
}
