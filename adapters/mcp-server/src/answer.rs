//! What a call is answered with: the text that a model would read, and the media that it would be
//! shown.
//!
//! There is never structured content: what upstream sends of that is in the text, or in the
//! descriptor that the text became, and a schema of outputs would promise what a preview does not
//! keep.

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

/// Media beyond so many bytes together are named and not sent: a client would put all of it into a
/// context.
const MAX_MEDIA_BYTES: u64 = 8 << 20;

/// The result of a call. Reading media may touch the disk, and happens beside the runtime.
pub(crate) async fn result(process: &Process, answer: Answer) -> CallToolResult {
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
        let shown = tokio::task::spawn_blocking(move || show(&view, &media));
        content.extend(shown.await.unwrap_or_default());
    }
    if is_error {
        CallToolResult::error(content)
    } else {
        CallToolResult::success(content)
    }
}

fn show(view: &View, media: &[Media]) -> Vec<ContentBlock> {
    let mut left = MAX_MEDIA_BYTES;
    let blocks = media.iter().map(|media| {
        let content = view.content(&media.fd);
        let fitting = content.filter(|content| content.len_bytes() <= left);
        match fitting.map(|content| (content.len_bytes(), block(&content, media))) {
            Some((bytes, Ok(block))) => {
                left -= bytes;
                block
            }
            Some((_, Err(why))) => said(format!(
                "{} ({}) cannot be read: {why}",
                media.fd, media.media_type
            )),
            None => said(format!(
                "{} ({}) is too large to be shown here.",
                media.fd, media.media_type
            )),
        }
    });
    blocks.collect()
}

fn said(text: String) -> ContentBlock {
    ContentBlock::Text(TextContent::new(text))
}

fn block(content: &Content, media: &Media) -> Result<ContentBlock, dormouse_content::Unreadable> {
    let (data, kind) = (
        STANDARD.encode(content.unbounded().bytes()?),
        &*media.media_type,
    );
    Ok(if kind.starts_with("image/") {
        ContentBlock::Image(ImageContent::new(data, kind))
    } else {
        let resource = ResourceContents::blob(data, resources::uri(&media.fd)).with_mime_type(kind);
        ContentBlock::Resource(EmbeddedResource::new(resource))
    })
}
