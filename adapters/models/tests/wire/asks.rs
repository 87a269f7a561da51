//! Requests of ours that say what recorded ones say, in each format.
//!
//! A recorded request is taken apart into what a program says (tools, parameters) and what a
//! process has (a system prompt, messages). The program is written to TOML and compiled, as a
//! user's program is, and our encoder builds a body from both. Replies in the recorded request are
//! decoded, as they were when they came.

use std::path::Path;
use std::sync::Arc;

use dormouse_kernel::program::{KnownProviders, Registered, compile};
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
    pub(crate) system: String,
    /// The tools of the program, as requests describe them.
    tools: Vec<ToolSpec>,
    /// The entries of `[tools] enabled`: a form for each tool of the program.
    enabled: Vec<Value>,
    /// The tables `[[tools.server]]`.
    server: Vec<Value>,
    pub(crate) messages: Vec<Message>,
    parameters: Map<String, Value>,
}

impl Parts {
    /// The parts with these fields of `body` as parameters: all but `others`.
    pub(crate) fn with_parameters(body: &Value, others: &[&str]) -> Self {
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

    /// A request of a process that has these parts and whose program says the rest.
    pub(crate) fn into_request(self, model: &str, provider: &str) -> Taken {
        let program = self.program(model, provider)?;
        let mut read = |_: &Path| Ok(bytes::Bytes::from(program.clone()));
        // The tools of the program are the host's: how they are described is in the request.
        let names: Vec<_> = self.tools.iter().map(|tool| &*tool.name).collect();
        let registered = Registered {
            tools: &names,
            // Those of clouds are parts of some builds only.
            providers: KnownProviders::Any,
        };
        let compiled = compile(Path::new("p.toml"), &mut read, registered);
        let program = compiled
            .map_err(|errors| format!("no program says it: {errors}"))?
            .program;
        Ok(Request {
            pid: Pid(1),
            program: "p".into(),
            model: program.model().name.as_str().into(),
            system: self.system.into(),
            tools: self.tools.into(),
            messages: self.messages.into_iter().map(Arc::new).collect(),
            provider_tools: program.provider_tools(program.model()),
            parameters: program.parameters(),
            forked_at: Vec::new(),
            media: Default::default(),
        })
    }

    /// The program file.
    fn program(&self, model: &str, provider: &str) -> Result<String, String> {
        // A recorded request of which only the address is looked at may name no model.
        let model = if model.is_empty() { "m" } else { model };
        let program = json!({
            "model": {"name": model, "provider": provider},
            "parameters": self.parameters,
            "tools": {"enabled": self.enabled, "server": self.server},
        });
        toml::to_string(&without_nulls(program)).map_err(|error| error.to_string())
    }

    /// A tool of the program. Fields that are not named here are fields in the provider's syntax.
    pub(crate) fn add_tool(&mut self, tool: &Value, schema: &str) -> Result<(), String> {
        let mut fields = tool.as_object().ok_or("a tool is no object")?.clone();
        let mut take = |name: &str| fields.remove(name).unwrap_or_default();
        let (name, description, schema) = (take("name"), take("description"), take(schema));
        let is_strict = take("strict") == true;
        let text = |value: &Value| value.as_str().unwrap_or_default().into();
        self.tools.push(ToolSpec {
            name: text(&name),
            description: text(&description),
            schema: schema.to_string().into(),
        });
        let mut entry = json!({"name": name, "provider_fields": fields});
        if is_strict {
            entry["strict"] = json!(true);
        }
        self.enabled.push(entry);
        Ok(())
    }

    /// A tool that the provider runs, as it was sent.
    pub(crate) fn add_server_tool(&mut self, tool: &Value) {
        self.server.push(tool.clone());
    }

    /// What the model said, decoded by its format from a whole reply.
    pub(crate) fn add_reply<C: Codec>(&mut self, whole: &Value) -> Result<(), String> {
        let reply = C::default().decode(&whole.to_string());
        let blocks = reply.map_err(|error| error.to_string())?.blocks;
        self.add(Role::Assistant, blocks);
        Ok(())
    }

    pub(crate) fn add(&mut self, role: Role, blocks: Vec<Block>) {
        self.messages.push(Message { role, blocks });
    }

    /// Adds blocks to the last message if it is one of results, as a process has them.
    pub(crate) fn add_result(&mut self, result: Block) {
        match self.messages.last_mut() {
            Some(last) if matches!(last.blocks.last(), Some(Block::ToolResult { .. })) => {
                last.blocks.push(result);
            }
            _ => self.add(Role::User, vec![result]),
        }
    }
}

/// A value without the nulls that the recorded clients write for what is not set.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                fields
                    .map(|(name, value)| (name, without_nulls(value)))
                    .collect(),
            )
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        leaf => leaf,
    }
}

/// The texts of a content that has only texts. Cache breakpoints are no part of what is said: ours
/// are placed by rules of our own.
pub(crate) fn text_of_parts(content: &Value, kinds: &[&str]) -> Result<Vec<String>, String> {
    if let Some(text) = content.as_str() {
        return Ok(vec![text.to_owned()]);
    }
    let parts = content.as_array().into_iter().flatten();
    parts
        .map(
            |part| match (part["type"].as_str(), part["text"].as_str()) {
                (Some(kind), Some(text)) if kinds.contains(&kind) => Ok(text.to_owned()),
                (kind, _) => Err(format!("a part of type {}", kind.unwrap_or("none"))),
            },
        )
        .collect()
}

pub(crate) fn result(id: &Value, text: &str, is_error: bool) -> Block {
    Block::ToolResult {
        id: id.as_str().unwrap_or_default().into(),
        text: text.into(),
        is_error,
    }
}

/// Fields of a body by which a cache breakpoint is placed.
pub(crate) const BREAKPOINTS: [&str; 2] = ["cache_control", "prompt_cache_breakpoint"];
