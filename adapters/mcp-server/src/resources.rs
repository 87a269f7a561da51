//! Offers descriptors as resources, for clients whose users attach resources by hand. `fd://1` is
//! the first page of the descriptor `fd:1`, and `fd://1?page=3` is its third page. One read returns
//! one page.

use crate::kept_outputs::OutputName;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_actors::ProcessView;
use dormouse_content::{Content, Unreadable};
use dormouse_proto::id::FdId;
use rmcp::model::{Resource, ResourceContents, ResourceTemplate};

const SCHEME: &str = "fd://";

/// The largest binary content that a read returns. Binary content has no pages; the tool fd_to_file
/// writes larger ones to a file.
const MAX_BLOB_BYTES: u64 = 1 << 20;

/// Why a resource cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResourceError {
    #[error("there is no resource {0}. resources/list shows those there are")]
    Unknown(String),
    #[error("{uri} has pages 1 to {pages}")]
    Page { uri: String, pages: u64 },
    #[error(
        "{0} is binary and has {1} bytes: a resource gives {MAX_BLOB_BYTES} at most. fd_to_file \
         writes all of it"
    )]
    TooLarge(String, u64),
    #[error("{0} cannot be read: {1}")]
    Unreadable(String, String),
}

/// The URI of a descriptor.
pub(crate) fn format_uri(id: &FdId) -> String {
    match id {
        FdId::Fd(number) => format!("{SCHEME}{number}"),
        other => format!("{SCHEME}{other}"),
    }
}

/// Whether this URI is that of a descriptor, and not of a resource of a tool server.
pub(crate) fn is_descriptor(uri: &str) -> bool {
    uri.starts_with(SCHEME)
}

/// The descriptor and the page (from 1) that a URI names.
fn parse_uri(uri: &str) -> Option<(FdId, u64)> {
    let rest = uri.strip_prefix(SCHEME)?;
    let (id, page) = match rest.split_once("?page=") {
        Some((id, page)) => (id, page.parse().ok()?),
        None => (rest, 1),
    };
    let id = if id.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("fd:{id}").parse()
    } else {
        id.parse()
    };
    Some((id.ok()?, page))
}

/// The descriptors of a process. O(descriptors).
pub(crate) fn list(view: &ProcessView) -> Vec<Resource> {
    let resources = view.list_descriptors().into_iter().map(|descriptor| {
        let name = descriptor
            .name
            .map_or_else(|| descriptor.id.to_string(), |name| name.to_string());
        let size = descriptor
            .chars
            .map_or_else(String::new, |chars| format!(", {chars} characters"));
        let description = format!(
            "{}{size}. Add ?page=N for a page; without it, the first.",
            descriptor.source
        );
        Resource::new(format_uri(&descriptor.id), name)
            .with_description(description)
            .with_size(descriptor.bytes)
    });
    resources.collect()
}

/// The template of the URIs of all pages of all descriptors.
pub(crate) fn page_template() -> ResourceTemplate {
    ResourceTemplate::new("fd://{descriptor}?page={page}", "page").with_description(
        "A page of a descriptor: the number of the descriptor and of the page, both from 1.",
    )
}

/// The kept output that a URI names in the place of a descriptor: one that outlives its session
/// (`kept_outputs.rs`).
pub(crate) fn kept_name(uri: &str) -> Option<OutputName> {
    let rest = uri.strip_prefix(SCHEME)?;
    OutputName::parse(rest.split_once('?').map_or(rest, |(name, _)| name))
}

/// Reads one page of at most `page_chars` characters of the resource `uri`, which the answer calls
/// by the URI that was `requested`. Binary content is returned as a whole, if it
/// is not too large. This may read the disk.
pub(crate) fn read(
    view: &ProcessView,
    uri: &str,
    requested: &str,
    page_chars: u32,
) -> Result<ResourceContents, ResourceError> {
    let unknown = || ResourceError::Unknown(requested.to_owned());
    let (id, page) = parse_uri(uri).ok_or_else(unknown)?;
    let content = view.content(&id).ok_or_else(unknown)?;
    let unreadable = |Unreadable { message }| {
        ResourceError::Unreadable(requested.to_owned(), message.to_string())
    };
    if content.unlimited_reader().is_binary().map_err(unreadable)? {
        return read_blob(&content, requested).map_err(unreadable)?;
    }
    match content
        .unlimited_reader()
        .page(page_chars, page)
        .map_err(unreadable)?
    {
        Some(slice) => Ok(ResourceContents::text(&*slice.text, requested)),
        None => {
            let pages = content
                .unlimited_reader()
                .total_pages(page_chars)
                .map_err(unreadable)?;
            Err(ResourceError::Page {
                uri: format_uri(&id),
                pages,
            })
        }
    }
}

fn read_blob(
    content: &Content,
    requested: &str,
) -> Result<Result<ResourceContents, ResourceError>, Unreadable> {
    if content.len_bytes() > MAX_BLOB_BYTES {
        return Ok(Err(ResourceError::TooLarge(
            requested.to_owned(),
            content.len_bytes(),
        )));
    }
    let data = STANDARD.encode(content.unlimited_reader().bytes()?);
    Ok(Ok(
        ResourceContents::blob(data, requested).with_mime_type("application/octet-stream")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_a_descriptor_and_a_page() {
        assert_eq!(parse_uri("fd://7"), Some((FdId::Fd(7), 1)));
        assert_eq!(parse_uri("fd://7?page=12"), Some((FdId::Fd(7), 12)));
        let named = FdId::Ref("plan".to_owned());
        assert_eq!(parse_uri(&format_uri(&named)), Some((named, 1)));
        for wrong in [
            "fd:7",
            "fd://",
            "fd://0",
            "fd://07",
            "fd://7?page=x",
            "fd://7?lines=1",
            "file:///etc/passwd",
        ] {
            assert_eq!(parse_uri(wrong), None, "{wrong}");
        }
    }
}
