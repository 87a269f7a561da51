//! Files that a provider's tools made and that a reply only names: they are fetched from the
//! provider, so that the process gets them as descriptors, as it gets images.
//!
//! A file is kept in the reply as a *note*, with its bytes or with the reason why they are not
//! there. A note is an opaque block that this crate adds, which is stored with the conversation and
//! sent to no provider ([`Raw::note`]). The reply is complete before, so a file that cannot be
//! fetched is no failure of the call.

use std::time::Duration;

use dormouse_proto::message::{Block, Raw};
use dormouse_proto::model::{ModelError, Reply};
use dormouse_proto::server_tool::FILE_NOTE;
use futures_util::StreamExt;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Response, StatusCode};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::body::{BodyError, limit_size};
use super::client::Client;
use super::codec::Codec;
use super::excerpt::redact_secret;
use super::json_fields::Fields;
use super::media::base64;

/// The most files of one reply that are kept.
const MAX_FILES: usize = 16;
/// The most bytes of the files of one reply: they are stored with the conversation.
const MAX_BYTES: u64 = 16 << 20;
/// The most bytes of the description of a file.
const MAX_DESCRIPTION_BYTES: u64 = 64 << 10;
/// The longest time for all files of one reply. The reply is not stored before, so a longer wait
/// could cost it.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest id of a file or a container.
const MAX_ID_BYTES: usize = 128;

/// A file that a reply names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLink {
    /// The tool that made the file, such as `code_execution`.
    pub tool: String,
    /// The id of the file at its provider.
    pub id: String,
    /// The name of the file, if the reply says it.
    pub name: Option<String>,
    /// The path of its bytes, after the base URL; none if the ids that lead there are not valid.
    pub path: Option<String>,
    /// The path of a JSON object with `filename` and `mime_type`, if the provider has one.
    pub description_path: Option<String>,
    /// A header that the provider needs.
    pub header: Option<(&'static str, &'static str)>,
}

/// Whether an id can be a part of a path. Ids come from outside.
pub(crate) fn is_path_segment(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(is_plain)
}

/// The bytes of a file, with what is known of them.
struct FetchedFile {
    name: Option<String>,
    media_type: String,
    bytes: Vec<u8>,
}

/// Why a file that a reply names could not be fetched.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("it took too long")]
    Late,
    #[error("the reply names more than {MAX_FILES} files")]
    TooMany,
    #[error("its id is not valid")]
    Id,
    #[error("{}", _0.message)]
    Address(ModelError),
    #[error("{0}")]
    Transport(reqwest::Error),
    #[error("status {}", _0.as_u16())]
    Status(StatusCode),
    #[error("it has more than {0} bytes")]
    TooLong(u64),
}

impl From<reqwest::Error> for FileError {
    fn from(error: reqwest::Error) -> Self {
        Self::Transport(error.without_url())
    }
}

impl<C: Codec> Client<C> {
    /// The reply with the files that it names.
    pub(super) async fn with_files(&self, mut reply: Reply) -> Reply {
        let mut links: Vec<FileLink> = Vec::new();
        for link in self.codec.files(&reply) {
            if !links.iter().any(|known| known.id == link.id) {
                links.push(link);
            }
        }
        let deadline = Instant::now() + TIMEOUT;
        let mut bytes_left = MAX_BYTES;
        for (number, link) in links.iter().enumerate() {
            let fetched = match &link.path {
                Some(path) if number < MAX_FILES => {
                    let fetching = self.fetch_file(link, path, bytes_left);
                    let fetched = timeout_at(deadline, fetching).await;
                    fetched.unwrap_or(Err(FileError::Late))
                }
                Some(_) => Err(FileError::TooMany),
                None => Err(FileError::Id),
            };
            if let Ok(file) = &fetched {
                bytes_left = bytes_left.saturating_sub(file.bytes.len() as u64);
            }
            reply.blocks.push(self.file_note(link, fetched));
        }
        reply
    }

    async fn fetch_file(
        &self,
        link: &FileLink,
        path: &str,
        max_bytes: u64,
    ) -> Result<FetchedFile, FileError> {
        let described = match &link.description_path {
            Some(path) => self.describe_file(link, path).await,
            None => Value::Null,
        };
        let (headers, bytes) = self.get(link, path, max_bytes).await?;
        let of_header = headers
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let media_type = described["mime_type"].as_str().or(of_header);
        let name = described["filename"].as_str().map(str::to_owned);
        Ok(FetchedFile {
            name: name.or_else(|| link.name.clone()),
            media_type: media_type.unwrap_or("application/octet-stream").to_owned(),
            bytes,
        })
    }

    /// What the provider says of a file; null if it does not answer, since the bytes matter more.
    async fn describe_file(&self, link: &FileLink, path: &str) -> Value {
        match self.get(link, path, MAX_DESCRIPTION_BYTES).await {
            Ok((_, json)) => serde_json::from_slice(&json).unwrap_or_default(),
            Err(_) => Value::Null,
        }
    }

    async fn get(
        &self,
        link: &FileLink,
        path: &str,
        max_bytes: u64,
    ) -> Result<(HeaderMap, Vec<u8>), FileError> {
        let url = self.address.join(path).map_err(FileError::Address)?;
        let mut request = self.http.get(url);
        if let Some((name, value)) = link.header {
            request = request.header(name, value);
        }
        let response = request.send().await?;
        if !response.status().is_success() {
            return Err(FileError::Status(response.status()));
        }
        let headers = response.headers().clone();
        Ok((headers, read(response, max_bytes).await?))
    }

    fn file_note(&self, link: &FileLink, fetched: Result<FetchedFile, FileError>) -> Block {
        let note = Fields::of_type(FILE_NOTE)
            .with("tool", &link.tool)
            .with("id", &link.id);
        let note = match fetched {
            Ok(file) => note
                .with_some("name", file.name.as_ref())
                .with("media_type", &file.media_type)
                .with("data", &base64(&file.bytes.into())),
            Err(error) => {
                let secrets = self.secrets.iter();
                let text = secrets.fold(error.to_string(), |text, secret| {
                    redact_secret(&text, secret)
                });
                note.with_some("name", link.name.as_ref())
                    .with("error", &text)
            }
        };
        Block::Opaque(Raw::note(note.to_json()))
    }
}

async fn read(response: Response, max_bytes: u64) -> Result<Vec<u8>, FileError> {
    let mut body = limit_size(response, max_bytes);
    let mut bytes = Vec::new();
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|error| match error {
            BodyError::Cut(error) => error.into(),
            BodyError::TooLong(_) => FileError::TooLong(max_bytes),
        })?;
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
