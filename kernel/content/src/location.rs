//! The location of the bytes of a content (in memory or on disk), and reads of byte ranges.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use bytestring::ByteString;

use super::detection::is_utf16_by_content;
use super::{BlobReader, BlobStore, Content, ReadQuota, Reader, Unreadable};

/// Where the bytes are.
#[derive(Clone)]
pub(super) enum Location {
    /// In memory.
    Resident(Data),
    /// On disk, to be read from this store.
    OnDisk(Arc<dyn BlobStore>),
}

/// Bytes in memory. Cloning costs a pointer.
#[derive(Clone)]
pub(super) enum Data {
    /// UTF-8 text.
    Text(ByteString),
    /// Other bytes, which are shown decoded or as base64.
    Other(Bytes),
}

impl Data {
    /// Finds out whether the bytes are UTF-8. One pass.
    pub(super) fn new(bytes: Bytes) -> Self {
        match ByteString::try_from(bytes.clone()) {
            Ok(text) => Self::from_text(text),
            Err(_) => Self::Other(bytes),
        }
    }

    /// The same classification for bytes that are known to be UTF-8. O(1).
    pub(super) fn from_text(text: ByteString) -> Self {
        if is_utf16_by_content(text.as_bytes()) {
            Self::Other(text.into_bytes())
        } else {
            Self::Text(text)
        }
    }

    pub(super) fn bytes(&self) -> &Bytes {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Other(bytes) => bytes,
        }
    }
}

/// A content that is open for one operation.
pub(super) struct OpenContent<'q> {
    location: OpenLocation,
    quota: &'q ReadQuota,
}

/// Where the bytes of an open content are.
pub(super) enum OpenLocation {
    Resident(Data),
    OnDisk(Arc<dyn BlobReader>),
}

impl OpenContent<'_> {
    pub(super) fn location(&self) -> &OpenLocation {
        &self.location
    }

    /// Reads a byte range. Copies nothing.
    pub(super) fn read_bytes(&self, range: Range<usize>) -> Result<Bytes, Unreadable> {
        self.quota.charge(range.len())?;
        match &self.location {
            OpenLocation::Resident(data) => Ok(data.bytes().slice(range)),
            OpenLocation::OnDisk(blob) => {
                let requested_len = range.len();
                let bytes = blob.slice(range.start as u64..range.end as u64)?;
                if bytes.len() == requested_len {
                    Ok(bytes)
                } else {
                    Err(Unreadable::inconsistent())
                }
            }
        }
    }

    /// Reads a byte range of a text content. Both ends are at character boundaries.
    pub(super) fn read_text(&self, range: Range<usize>) -> Result<ByteString, Unreadable> {
        match &self.location {
            OpenLocation::Resident(Data::Text(text)) => {
                self.quota.charge(range.len())?;
                text.get(range)
                    .map(|part| text.slice_ref(part))
                    .ok_or_else(Unreadable::inconsistent)
            }
            _ => ByteString::try_from(self.read_bytes(range)?)
                .map_err(|_| Unreadable::inconsistent()),
        }
    }

    /// Reads a range of the base64 text of a binary content of `len` bytes.
    pub(super) fn read_base64(
        &self,
        range: Range<usize>,
        len: usize,
    ) -> Result<ByteString, Unreadable> {
        let first = range.start / 4;
        let bytes = self.read_bytes((first * 3).min(len)..(range.end.div_ceil(4) * 3).min(len))?;
        let text = ByteString::from(STANDARD.encode(bytes));
        let part = text
            .get(range.start - first * 4..range.end - first * 4)
            .map(|part| text.slice_ref(part));
        part.ok_or_else(Unreadable::inconsistent)
    }
}

impl Content {
    pub(super) fn location(&self) -> Location {
        self.inner
            .location
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The bytes, if they are in memory.
    pub(super) fn resident_data(&self) -> Option<Data> {
        match self.location() {
            Location::Resident(data) => Some(data),
            Location::OnDisk(_) => None,
        }
    }
}

impl<'q> Reader<'q> {
    /// Opens the content for one operation, and records the access.
    pub(super) fn open(&self) -> Result<OpenContent<'q>, Unreadable> {
        let content = self.content();
        let quota = self.quota();
        content.inner.access.record_read();
        let location = match content.location() {
            Location::Resident(data) => OpenLocation::Resident(data),
            Location::OnDisk(store) => {
                quota.require_pool()?;
                let blob = store.open(content.reference())?;
                if blob.length() != content.len_bytes() {
                    return Err(Unreadable::inconsistent());
                }
                OpenLocation::OnDisk(blob)
            }
        };
        Ok(OpenContent { location, quota })
    }
}
