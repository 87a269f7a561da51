//! Descriptors as lists show them.

use std::borrow::Cow;
use std::sync::Arc;

use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::descriptor::view::{Extent, ListedFd};
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use time::OffsetDateTime;

use super::default_view;
use dormouse_content::{Content, ReadQuota};

/// The extent of a descriptor for a list, or why it cannot be read.
///
/// # Errors
/// The reason, as text for the model.
pub fn extent(
    entry: &Entry<Content>,
    settings: &DescriptorSettings,
    quota: &ReadQuota,
) -> Result<Extent, Arc<str>> {
    default_view(Cow::Borrowed(entry), settings, quota)
        .and_then(|view| view.extent())
        .map_err(|lost| lost.message)
}

/// A descriptor as it is listed, with as much of its summary as is to be shown.
#[must_use]
pub fn listed<'a>(
    id: &FdId,
    entry: &'a Entry<Content>,
    summary: Option<&'a str>,
    extent: Result<Extent, Arc<str>>,
) -> ListedFd<'a> {
    ListedFd {
        fd: id.clone(),
        name: entry.notes.name.as_deref(),
        source: &entry.source,
        extent,
        page_chars: entry.page_chars,
        opened: opened(entry.opened_ms),
        sections: entry.notes.sections.len(),
        cut_bytes: entry.cut_bytes,
        summary,
    }
}

/// A time in UTC, in seconds, as in RFC 3339. `None` for 0, which means that it is unknown, and
/// after the year 9999.
fn opened(ms: u64) -> Option<String> {
    let seconds = i64::try_from(ms / 1000).ok().filter(|_| ms > 0)?;
    let time = OffsetDateTime::from_unix_timestamp(seconds).ok()?;
    Some(format!(
        "{}T{:02}:{:02}:{:02}Z",
        time.date(),
        time.hour(),
        time.minute(),
        time.second()
    ))
}
