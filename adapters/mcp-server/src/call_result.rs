//! Builds the result of a call: the text and the media that the model of a process would get.
//!
//! A result never has structured content. The structured content of an upstream server is part of
//! the text, or of the descriptor that replaces a long text. A schema of outputs would promise a
//! structure that the preview of a descriptor does not have.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_actors::View;
use dormouse_actors::handle::Process;
use dormouse_content::Content;
use dormouse_proto::message::Media;
use dormouse_proto::tool::Answer;
use rmcp::model::{
    CallToolResult, ContentBlock, EmbeddedResource, ImageContent, ResourceContents, TextContent,
};

use crate::resources;

/// The most bytes of media in one result, since a client puts all of them into a context. Media
/// over the limit are named and not sent.
const MAX_MEDIA_BYTES: u64 = 8 << 20;

/// Builds the result of a call. Media are read on a blocking thread, since that may read the disk.
pub(crate) async fn build_result(process: &Process, answer: Answer) -> CallToolResult {
    let Answer {
        text,
        is_error,
        media,
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

fn media_blocks(view: &View, media: &[Media]) -> Vec<ContentBlock> {
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
