//! Tools that a provider runs itself, as the blocks of its replies show them.
//!
//! The blocks are kept and sent back as they came; what is read from them here is for people, for
//! counts and for descriptors. Each format has its own words: Anthropic's `server_tool_use` and
//! `*_tool_result`, the `*_call` items of OpenAI's Responses, and the parts and metadata of Gemini.
//! A block that no rule knows is no part of a server tool.

mod output;
mod summary;

use serde_json::Value;

pub use self::output::{Media, Output};
pub(crate) use self::summary::SummaryCell;
pub use self::summary::{MediaSummary, ServerBlockSummary, server_summaries};
use crate::message::{Block, Message, Raw};

/// The fields of a kept Gemini part that hold what the response says next to its parts. They are
/// not part of what is sent back.
pub const GEMINI_METADATA: [&str; 2] = ["groundingMetadata", "urlContextMetadata"];

/// The name that stands for a tool where the model itself made a file of its reply, without a tool,
/// as models of Gemini do.
pub const REPLY_TOOL: &str = "reply";

/// The type of the adapter block ([`Raw::ADAPTER_BLOCK`]) that keeps a file which the provider's
/// tools made: `tool`, `id`, perhaps `name`, and `media_type` with `data` (base64), or else `error`.
pub const FILE_BLOCK: &str = "file";

/// The type of the adapter block ([`Raw::ADAPTER_BLOCK`]) that names the container in which tools of
/// Anthropic run code: `id`, perhaps `expires_at`. Requests name the latest one, so it concerns the
/// conversation, and stays in it when the reply that brought it leaves.
pub const CONTAINER_BLOCK: &str = "container";

/// The JSON text of the adapter block that names a container; none if the block is another one.
/// O(1).
#[must_use]
pub fn container_block(block: &Block) -> Option<&str> {
    // Other adapter blocks can be large, and `type` is the first field of each.
    let is_container = |json: &&str| {
        let kind = json.strip_prefix("{\"type\":\"");
        kind.and_then(|json| json.strip_prefix(CONTAINER_BLOCK))
            .is_some_and(|rest| rest.starts_with('"'))
    };
    Raw::adapter_block_in(block).filter(is_container)
}

/// The adapter block of the latest container that `messages` name, if they name one. O(blocks).
#[must_use]
pub fn latest_container_block<'a>(
    messages: impl DoubleEndedIterator<Item = &'a Message>,
) -> Option<&'a Block> {
    messages
        .rev()
        .flat_map(|message| message.blocks.iter().rev())
        .find(|block| container_block(block).is_some())
}

/// What one block says about a tool that the provider ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerBlock {
    /// The name of the tool, such as `web_search`; `server/tool` for a tool of a tool server.
    pub tool: String,
    /// The number of calls that the block stands for. A block that only holds a result has none.
    pub calls: u32,
    /// The arguments of the call, as JSON or as text; may be empty.
    pub input: String,
    /// What the tool returned, if the block holds it.
    pub output: Option<Output>,
}

impl ServerBlock {
    fn called(tool: impl Into<String>, input: impl Into<String>) -> Self {
        Self {
            tool: tool.into(),
            calls: 1,
            input: input.into(),
            output: None,
        }
    }

    fn returned(tool: impl Into<String>, output: Output) -> Self {
        Self {
            tool: tool.into(),
            output: Some(output),
            ..Self::default()
        }
    }
}

/// What a block of a reply says about tools of the provider. O(n) in the block.
#[must_use]
pub fn server_blocks(block: &Block) -> Vec<ServerBlock> {
    raw_of(block).map(of_raw).unwrap_or_default()
}

/// The raw JSON of a block that may say something about tools of the provider. O(1).
#[must_use]
pub fn raw_of(block: &Block) -> Option<&Raw> {
    match block {
        Block::Opaque(raw) => Some(raw),
        // The metadata of a Gemini reply is kept with a text.
        Block::Text { raw, .. } => raw.as_ref().filter(|raw| *raw.format == *"gemini"),
        Block::ToolUse { .. } | Block::ToolResult { .. } | Block::Media { .. } => None,
    }
}

/// The calls of the provider's tools in these blocks, by tool, in the order of the first call.
/// Costs what [`server_summaries`] costs.
#[must_use]
pub fn count_calls(blocks: &[Block]) -> Vec<(String, u32)> {
    let mut counts: Vec<(String, u32)> = Vec::new();
    let found = blocks.iter().flat_map(server_summaries);
    for ServerBlockSummary { tool, calls, .. } in found.filter(|found| found.calls > 0) {
        match counts.iter_mut().find(|(known, _)| known == tool) {
            Some((_, count)) => *count = count.saturating_add(*calls),
            None => counts.push((tool.clone(), *calls)),
        }
    }
    counts
}

fn of_raw(raw: &Raw) -> Vec<ServerBlock> {
    let Ok(json) = serde_json::from_str::<Value>(&raw.json) else {
        return Vec::new();
    };
    match &*raw.format {
        "anthropic" => of_anthropic(&json).into_iter().collect(),
        "openai-responses" => of_responses(&json).into_iter().collect(),
        "gemini" => of_gemini(&json),
        Raw::ADAPTER_BLOCK => of_adapter_block(&json).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn of_anthropic(block: &Value) -> Option<ServerBlock> {
    let name = || text(&block["name"]);
    match block["type"].as_str()? {
        "server_tool_use" => Some(ServerBlock::called(name(), arguments(&block["input"]))),
        "mcp_tool_use" => {
            let tool = format!("{}/{}", text(&block["server_name"]), name());
            Some(ServerBlock::called(tool, arguments(&block["input"])))
        }
        kind => {
            let tool = kind.strip_suffix("_tool_result")?;
            let output = Output::of(&block["content"]);
            let is_error = output.is_error || block["is_error"] == true;
            Some(ServerBlock::returned(tool, Output { is_error, ..output }))
        }
    }
}

fn of_responses(item: &Value) -> Option<ServerBlock> {
    let kind = item["type"].as_str()?;
    let tool = match kind {
        "mcp_call" => format!("{}/{}", text(&item["server_label"]), text(&item["name"])),
        // A call with an id to answer it by is for the client.
        _ if item["call_id"].is_string() => return None,
        _ => kind.strip_suffix("_call")?.to_owned(),
    };
    let input = ["arguments", "action", "code", "queries", "revised_prompt"]
        .iter()
        .find_map(|field| Some(&item[*field]).filter(|value| !value.is_null()));
    let mut block = ServerBlock::called(tool, input.map(arguments).unwrap_or_default());
    let returned = ["output", "outputs", "results", "error"];
    let is_error = !item["error"].is_null() || item["status"] == "failed";
    let mut output = Output::default();
    for field in returned {
        output = output.and(Output::of(&item[field]));
    }
    if kind == "image_generation_call"
        && let Some(base64) = item["result"].as_str()
    {
        let format = item["output_format"].as_str().unwrap_or("png");
        output.media.push(Media {
            name: None,
            media_type: format!("image/{format}"),
            base64: base64.to_owned(),
        });
    }
    if output != Output::default() || is_error {
        block.output = Some(Output { is_error, ..output });
    }
    Some(block)
}

fn of_gemini(part: &Value) -> Vec<ServerBlock> {
    let mut blocks = Vec::new();
    let tool_of = |call: &Value| text(&call["toolType"]).to_ascii_lowercase();
    let call = &part["toolCall"];
    if call.is_object() {
        blocks.push(ServerBlock::called(tool_of(call), arguments(&call["args"])));
    }
    let response = &part["toolResponse"];
    if response.is_object() {
        let output = Output::of(&response["response"]);
        blocks.push(ServerBlock::returned(tool_of(response), output));
    }
    if let Some(code) = part["executableCode"]["code"].as_str() {
        blocks.push(ServerBlock::called("code_execution", code));
    }
    let result = &part["codeExecutionResult"];
    if result.is_object() {
        let output = Output {
            is_error: result["outcome"].as_str() != Some("OUTCOME_OK"),
            ..Output::of(&result["output"])
        };
        blocks.push(ServerBlock::returned("code_execution", output));
    }
    if part["thought"] != true
        && let Some(media) = output::inline_data(&part["inlineData"])
    {
        let output = Output {
            media: vec![media],
            ..Output::default()
        };
        blocks.push(ServerBlock::returned(REPLY_TOOL, output));
    }
    let queries = strings(&part["groundingMetadata"]["webSearchQueries"]);
    if !queries.is_empty() {
        blocks.push(ServerBlock {
            calls: u32::try_from(queries.len()).unwrap_or(u32::MAX),
            ..ServerBlock::called("google_search", queries.join("\n"))
        });
    }
    let pages = &part["urlContextMetadata"]["urlMetadata"];
    let pages: Vec<_> = pages
        .as_array()
        .into_iter()
        .flatten()
        .map(|page| text(&page["retrievedUrl"]))
        .collect();
    if !pages.is_empty() {
        blocks.push(ServerBlock {
            calls: u32::try_from(pages.len()).unwrap_or(u32::MAX),
            ..ServerBlock::called("url_context", pages.join("\n"))
        });
    }
    blocks
}

/// A file that an adapter fetched, or could not fetch.
fn of_adapter_block(block: &Value) -> Option<ServerBlock> {
    if block["type"] != FILE_BLOCK {
        return None;
    }
    // A name comes from outside, and is shown to people on one line.
    let one_line = |value: &Value| {
        let words: Vec<_> = value.as_str()?.split_whitespace().collect();
        Some(words.join(" ")).filter(|text| !text.is_empty())
    };
    let (id, name) = (
        one_line(&block["id"]).unwrap_or_default(),
        one_line(&block["name"]),
    );
    let mut output = Output::default();
    match (block["data"].as_str(), block["media_type"].as_str()) {
        (Some(base64), Some(media_type)) => output.media.push(Media {
            name: Some(name.unwrap_or(id)),
            media_type: media_type.to_owned(),
            base64: base64.to_owned(),
        }),
        _ => output.missing.push(format!(
            "{} is at the provider and could not be fetched: {}",
            name.map_or_else(|| id.clone(), |name| format!("{name} ({id})")),
            one_line(&block["error"]).unwrap_or_else(|| "why is not known".to_owned())
        )),
    }
    Some(ServerBlock::returned(text(&block["tool"]), output))
}

/// The arguments of a call: a text as it is, another value as JSON.
fn arguments(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn strings(list: &Value) -> Vec<&str> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests;
