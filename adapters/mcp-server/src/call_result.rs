//! Builds the result of a call: the text and the media that the model of a process would get, and
//! whatever else the server of the tool wrote.
//!
//! A result of a server that is small enough passes as the server wrote it. A result whose text
//! became a descriptor, or is not shown as it is, has the text for the model instead, once. If the
//! tool has an output schema, the structured content is that text too, as the schema that clients
//! get ([`crate::tool_descriptions`]) admits. A call that the kernel made an error is one for the
//! client too, whatever the server answered.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_actors::ProcessView;
use dormouse_actors::handle::Process;
use dormouse_content::Content;
use dormouse_proto::message::Media;
use dormouse_proto::tool::Answer;
use rmcp::model::{
    CallToolResult, ContentBlock, EmbeddedResource, ImageContent, ResourceContents, TextContent,
};
use serde_json::json;

use crate::resources;
use crate::tool_descriptions::TEXT_KEY;

/// The most bytes of media in one result, since a client puts all of them into a context. Media
/// over the limit are named and not sent.
const MAX_MEDIA_BYTES: u64 = 8 << 20;

/// Whether the schema of a tool's results is known to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputSchema {
    Declared,
    Absent,
}

/// Builds the result of a call. `server_result` is what the server answered, if the tool belongs to
/// one and the server answered.
pub(crate) async fn build_result(
    process: &Process,
    answer: Answer,
    server_result: Option<CallToolResult>,
    output_schema: OutputSchema,
) -> CallToolResult {
    let Some(server_result) = server_result else {
        return build_own_result(process, answer).await;
    };
    if answer.is_error && server_result.is_error != Some(true) {
        return build_own_result(process, answer).await;
    }
    let media = server_result.content.iter().filter_map(media_bytes);
    let fits = media.sum::<usize>() as u64 <= MAX_MEDIA_BYTES;
    if fits && is_shown_whole(&answer, &server_result) {
        return server_result;
    }
    let text = answer.text.clone();
    let mut result = if fits {
        let mut result = CallToolResult::success(vec![ContentBlock::text(&*text)]);
        let media = server_result.content.into_iter();
        result
            .content
            .extend(media.filter(|block| media_bytes(block).is_some()));
        result
    } else {
        build_own_result(process, answer.clone()).await
    };
    result.is_error = server_result.is_error;
    result.meta = server_result.meta;
    if output_schema == OutputSchema::Declared && result.is_error != Some(true) {
        result.structured_content = Some(json!({ TEXT_KEY: &*text }));
    }
    result
}

/// Whether the text of a result entered the answer as the server wrote it. An element of the kernel
/// stands for any other text, and no such text begins like one.
fn is_shown_whole(answer: &Answer, result: &CallToolResult) -> bool {
    let is_text = |block: &ContentBlock| media_bytes(block).is_none();
    let has_text = result.structured_content.is_some() || result.content.iter().any(is_text);
    !has_text || !answer.text.starts_with("<fd_")
}

/// The bytes of a block that is not text, in base64; `None` for text.
fn media_bytes(block: &ContentBlock) -> Option<usize> {
    match block {
        ContentBlock::Image(image) => Some(image.data.len()),
        ContentBlock::Audio(audio) => Some(audio.data.len()),
        ContentBlock::Resource(EmbeddedResource {
            resource: ResourceContents::BlobResourceContents { blob, .. },
            ..
        }) => Some(blob.len()),
        _ => None,
    }
}

/// The result of a tool that belongs to no server. Media are read on a blocking thread, since that
/// may read the disk.
async fn build_own_result(process: &Process, answer: Answer) -> CallToolResult {
    let Answer {
        text,
        is_error,
        media,
        opened: _,
    } = answer;
    let mut content = Vec::with_capacity(1 + media.len());
    if !text.is_empty() || media.is_empty() {
        content.push(ContentBlock::Text(TextContent::new(&*text)));
    }
    if let Some(view) = process.view().filter(|_| !media.is_empty()) {
        let blocks = tokio::task::spawn_blocking(move || media_blocks(&view, &media));
        content.extend(blocks.await.unwrap_or_default());
    }
    if is_error {
        CallToolResult::error(content)
    } else {
        CallToolResult::success(content)
    }
}

fn media_blocks(view: &ProcessView, media: &[Media]) -> Vec<ContentBlock> {
    let mut bytes_left = MAX_MEDIA_BYTES;
    let mut blocks = Vec::with_capacity(media.len());
    for media in media {
        let content = view.content(&media.fd);
        let Some(content) = content.filter(|content| content.len_bytes() <= bytes_left) else {
            blocks.push(text_block(format!(
                "{} ({}) is too large to be shown here.",
                media.fd, media.media_type
            )));
            continue;
        };
        match media_block(&content, media) {
            Ok(block) => {
                bytes_left -= content.len_bytes();
                blocks.push(block);
            }
            Err(why) => blocks.push(text_block(format!(
                "{} ({}) cannot be read: {why}",
                media.fd, media.media_type
            ))),
        }
    }
    blocks
}

fn text_block(text: String) -> ContentBlock {
    ContentBlock::Text(TextContent::new(text))
}

fn media_block(
    content: &Content,
    media: &Media,
) -> Result<ContentBlock, dormouse_content::Unreadable> {
    let data = STANDARD.encode(content.unlimited_reader().bytes()?);
    let media_type = &*media.media_type;
    Ok(if media_type.starts_with("image/") {
        ContentBlock::Image(ImageContent::new(data, media_type))
    } else {
        let resource = ResourceContents::blob(data, resources::format_uri(&media.fd))
            .with_mime_type(media_type);
        ContentBlock::Resource(EmbeddedResource::new(resource))
    })
}
