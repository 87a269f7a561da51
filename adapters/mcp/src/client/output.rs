//! Calls a tool, and converts its result for a model: each text appears once, and all other content
//! becomes an attachment.

use bytes::Bytes;
use dormouse_actors::ports::{OutputFull, OutputSink, ToolError};
use dormouse_proto::base64;
use dormouse_proto::tool::Attachment;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ContentBlock,
    JsonObject, Resource, ResourceContents, ServerResult,
};
use serde_json::Value;

use super::request_error::RequestError;
use super::session::Session;

/// Calls a tool once.
///
/// # Errors
/// The call was not made, or failed; the text names the tool.
pub(super) async fn call(
    session: &Session,
    tool: &str,
    args: &str,
    out: &OutputSink,
) -> Result<(), ToolError> {
    let arguments = parse_arguments(args).map_err(|why| format!("{tool}: {why}"))?;
    let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let call_error = |error: RequestError| error.call_error(&session.server().name, tool);
    match session.call(request, out).await.map_err(call_error)? {
        ServerResult::CallToolResult(result) => {
            out.report_server_result(|| serde_json::to_value(&result).unwrap_or_default());
            write_result(result, out).map_err(|error| format!("{tool}: {error}").into())
        }
        ServerResult::InputRequiredResult(_) => Err(format!(
            "{tool}: the server asks for input from a user, which is not supported. Nothing was \
             sent."
        )
        .into()),
        ServerResult::CustomResult(result) => {
            out.report_server_result(|| result.0.clone());
            write_unknown_result(&result.0, out).map_err(|error| format!("{tool}: {error}").into())
        }
        _ => Err(call_error(RequestError::UnexpectedResult)),
    }
}

/// Parses the arguments that a model wrote.
pub(super) fn parse_arguments(args: &str) -> Result<JsonObject, ToolError> {
    if args.trim().is_empty() {
        return Ok(JsonObject::new());
    }
    match serde_json::from_str(args) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err("the arguments must be a JSON object.".into()),
        Err(error) => Err(format!("the arguments are not JSON: {error}.").into()),
    }
}

/// Writes a result to the output of the call.
fn write_result(result: CallToolResult, out: &OutputSink) -> Result<(), ToolError> {
    let mut model_result = ModelResult::default();
    let texts: Vec<&str> = result.content.iter().filter_map(block_text).collect();
    let structured = result
        .structured_content
        .as_ref()
        .filter(|value| !is_in_texts(value, &texts))
        .map(Value::to_string);
    result
        .content
        .iter()
        .for_each(|block| model_result.add_block(block));
    model_result.texts.extend(structured);
    if result.is_error == Some(true) {
        model_result.write_error_to(out)
    } else {
        model_result.write_to(out)
    }
}

/// Writes a result of an unknown type: known parts as usual, all others as JSON.
fn write_unknown_result(result: &Value, out: &OutputSink) -> Result<(), ToolError> {
    let mut model_result = ModelResult::default();
    let parts = result.get("content").and_then(Value::as_array);
    for part in parts.into_iter().flatten() {
        match serde_json::from_value::<ContentBlock>(part.clone()) {
            Ok(block) => model_result.add_block(&block),
            Err(_) => model_result.texts.push(part.to_string()),
        }
    }
    if parts.is_none() {
        model_result.texts.push(result.to_string());
    }
    if result["isError"] == true {
        model_result.write_error_to(out)
    } else {
        model_result.write_to(out)
    }
}

fn block_text(block: &ContentBlock) -> Option<&str> {
    if let ContentBlock::Text(text) = block {
        Some(&text.text)
    } else {
        None
    }
}

/// Whether the texts already contain the structured `value`. Servers repeat a text in structured
/// content in three ways: the content is the same JSON, or an object whose only value is the text,
/// or an object whose only value is the list of the texts.
fn is_in_texts(value: &Value, texts: &[&str]) -> bool {
    let is_json = |text: &str, value: &Value| {
        serde_json::from_str::<Value>(text).is_ok_and(|parsed| parsed == *value)
    };
    let is_same = |text: &&str, value: &Value| match value {
        Value::String(string) => text == string || is_json(text, value),
        value => is_json(text, value),
    };
    if texts.iter().any(|text| is_same(text, value)) {
        return true;
    }
    let only_value = value
        .as_object()
        .filter(|object| object.len() == 1)
        .and_then(|object| object.values().next());
    match only_value {
        // Without texts there is nothing that an empty list could repeat.
        Some(Value::Array(items)) if items.len() == texts.len() && !texts.is_empty() => items
            .iter()
            .zip(texts)
            .all(|(item, text)| is_same(text, item)),
        Some(value) => texts.iter().any(|text| is_same(text, value)),
        None => false,
    }
}

/// The longest text that is reported as an error. A longer text is written as output.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// The parts of a result that a model reads.
#[derive(Default)]
pub(super) struct ModelResult {
    texts: Vec<String>,
    attached: Vec<Attachment>,
}

impl ModelResult {
    fn add_block(&mut self, block: &ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.texts.push(text.text.clone()),
            ContentBlock::Image(image) => self.attach(None, &image.mime_type, &image.data),
            ContentBlock::Audio(audio) => self.attach(None, &audio.mime_type, &audio.data),
            ContentBlock::Resource(resource) => self.add_resource(&resource.resource),
            ContentBlock::ResourceLink(link) => self.texts.push(format_link(link)),
            // A later version of the library may know more types of content.
            other => self.texts.extend(serde_json::to_string(other).ok()),
        }
    }

    pub(super) fn add_text(&mut self, text: String) {
        self.texts.push(text);
    }

    /// Adds a text under its URI, or attaches bytes.
    pub(super) fn add_resource(&mut self, resource: &ResourceContents) {
        match resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                self.texts.push(format!("[{uri}]\n{text}"))
            }
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                ..
            } => {
                self.attach(
                    Some(uri),
                    mime_type.as_deref().unwrap_or("application/octet-stream"),
                    blob,
                );
            }
            other => self.texts.extend(serde_json::to_string(other).ok()),
        }
    }

    fn attach(&mut self, name: Option<&str>, media_type: &str, data: &str) {
        match base64::decode(data) {
            Some(bytes) => self.attached.push(Attachment {
                name: name.map(Into::into),
                media_type: media_type.into(),
                bytes: Bytes::from(bytes),
            }),
            None => self
                .texts
                .push(format!("[{media_type}: not shown, it is not base64]")),
        }
    }

    fn text(&self) -> String {
        self.texts.join("\n\n")
    }

    /// Writes the result to the output of the call.
    ///
    /// # Errors
    /// The result is larger than the output may be.
    pub(super) fn write_to(self, out: &OutputSink) -> Result<(), ToolError> {
        let pushed = out.push(self.text().as_bytes());
        let attached = self
            .attached
            .into_iter()
            .try_for_each(|attachment| out.attach(attachment));
        pushed
            .and(attached)
            .map_err(|OutputFull| "the output is larger than is taken.".into())
    }

    /// Reports the result as an error.
    fn write_error_to(self, out: &OutputSink) -> Result<(), ToolError> {
        let text = self.text();
        if !self.attached.is_empty() || text.len() > MAX_ERROR_BYTES {
            self.write_to(out)?;
            return Err("the tool failed.".into());
        }
        if text.trim().is_empty() {
            return Err("the tool failed, and the server does not say why.".into());
        }
        Err(text.into())
    }
}

/// Formats a resource that the server links to as a line of text.
pub(super) fn format_link(link: &Resource) -> String {
    let title = link.title.as_deref().unwrap_or(&link.name);
    let details = [
        link.description.clone(),
        link.mime_type.clone(),
        link.size.map(|size| format!("{size} bytes")),
    ];
    let details: Vec<String> = details.into_iter().flatten().collect();
    let details = if details.is_empty() {
        String::new()
    } else {
        format!(": {}", details.join(", "))
    };
    format!("[resource {}] {title}{details}", link.uri)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn convert(result: Value) -> (String, Vec<Attachment>, Result<(), ToolError>) {
        let out = OutputSink::with_cap(1 << 20);
        let end = match serde_json::from_value::<CallToolResult>(result.clone()) {
            Ok(result) => write_result(result, &out),
            Err(_) => write_unknown_result(&result, &out),
        };
        let text = String::from_utf8(out.take().bytes.to_vec()).unwrap();
        (text, out.take_attached(), end)
    }

    #[test]
    fn structured_content_that_repeats_a_text_is_left_out() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let cases = [
            (json!({"content": [text("a"), text("b")]}), "a\n\nb"),
            (
                json!({"content": [text("{\"a\": 1}")], "structuredContent": {"a": 1}}),
                "{\"a\": 1}",
            ),
            (
                json!({"content": [text("long")], "structuredContent": {"content": "long"}}),
                "long",
            ),
            (
                json!({"content": [text("5")], "structuredContent": {"result": 5}}),
                "5",
            ),
            (
                json!({"content": [text("x"), text("{\"y\":1}")], "structuredContent": {"result": ["x", {"y": 1}]}}),
                "x\n\n{\"y\":1}",
            ),
            (
                json!({"content": [text("see")], "structuredContent": {"a": 1, "b": "see"}}),
                "see\n\n{\"a\":1,\"b\":\"see\"}",
            ),
            (
                json!({"content": [], "structuredContent": {"a": null}}),
                "{\"a\":null}",
            ),
            (
                json!({"content": [], "structuredContent": {"result": []}}),
                "{\"result\":[]}",
            ),
            (
                json!({"content": [{"type": "hologram", "of": "x"}, text("t")]}),
                "{\"type\":\"hologram\",\"of\":\"x\"}\n\nt",
            ),
        ];
        for (result, expected) in cases {
            let (text, attached, end) = convert(result.clone());
            assert_eq!(
                (text.as_str(), attached.len(), end),
                (expected, 0, Ok(())),
                "{result}"
            );
        }
    }

    #[test]
    fn media_are_attached_and_links_are_named() {
        let result = json!({"content": [
            {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
            {"type": "audio", "data": "AAEC", "mimeType": "audio/wav"},
            {"type": "image", "data": "?", "mimeType": "image/gif"},
            {"type": "resource", "resource": {"uri": "r://t", "text": "words"}},
            {"type": "resource", "resource": {"uri": "r://b", "blob": "AAEC", "mimeType": "a/b"}},
            {"type": "resource_link", "uri": "r://l", "name": "l", "description": "A link", "size": 9},
        ]});
        let (text, attached, end) = convert(result);
        assert_eq!(
            text,
            "[image/gif: not shown, it is not base64]\n\n[r://t]\nwords\n\n[resource r://l] l: A \
             link, 9 bytes"
        );
        let attached: Vec<_> = attached
            .iter()
            .map(|one| (one.name.as_deref(), &*one.media_type, one.bytes.len()))
            .collect();
        assert_eq!(
            attached,
            [
                (None, "image/png", 4),
                (None, "audio/wav", 3),
                (Some("r://b"), "a/b", 3)
            ]
        );
        assert_eq!(end, Ok(()));
    }

    #[test]
    fn an_error_result_is_reported_as_an_error() {
        let (text, _, end) = convert(
            json!({"content": [{"type": "text", "text": "no such file"}], "isError": true}),
        );
        assert_eq!((text.as_str(), end), ("", Err("no such file".into())));
        assert!(convert(json!({"content": [], "isError": true})).2.is_err());
    }
}
