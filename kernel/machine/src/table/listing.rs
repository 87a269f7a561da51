//! Describes descriptors for lists, such as the answer of `list_fds`.

use std::borrow::Cow;
use std::sync::Arc;

use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::descriptor::view::{ContentSummary, ListedFd};
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use time::OffsetDateTime;

use super::in_default_form;
use dormouse_content::{Content, ReadQuota};

/// The extent of a descriptor for a list: its numbers of pages, lines and characters.
///
/// # Errors
/// The reason why the content cannot be read, as text for the model.
pub fn extent(
    entry: &Entry<Content>,
    settings: &DescriptorSettings,
    quota: &ReadQuota,
) -> Result<ContentSummary, Arc<str>> {
    in_default_form(Cow::Borrowed(entry), settings, quota)
        .and_then(|view| view.extent())
        .map_err(|error| error.message)
}

/// Creates the list entry of a descriptor. `summary` is the part of its summary to show.
#[must_use]
pub fn list_entry<'a>(
    id: &FdId,
    entry: &'a Entry<Content>,
    summary: Option<&'a str>,
    extent: Result<ContentSummary, Arc<str>>,
) -> ListedFd<'a> {
    ListedFd {
        fd: id.clone(),
        name: entry.notes.name.as_deref(),
        source: &entry.source,
        extent,
        page_chars: entry.page_chars,
        opened: format_time(entry.opened_ms),
        sections: entry.notes.sections.len(),
        cut_bytes: entry.cut_bytes,
        summary,
    }
}

/// Formats a time as RFC 3339, in UTC and seconds. `None` for 0, which means an unknown time, and
/// for times after the year 9999.
fn format_time(ms: u64) -> Option<String> {
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
