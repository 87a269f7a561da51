//! `fd_list`: the descriptors of a table.

use std::sync::Arc;

use super::{ContentSummary, with_next_start};
use crate::descriptor::FdErrorKind;
use crate::id::FdId;
use crate::tool::Answer;
use crate::xml::Element;

/// The items of a list that one answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Number of all items.
    pub total: u64,
    /// First shown item, from 1.
    pub start: u64,
    /// Number of shown items.
    pub count: u64,
}

impl Shown {
    /// The shown range, such as `1-50`; `0` if nothing is shown.
    #[must_use]
    pub fn range(self) -> String {
        match self.count {
            0 => "0".to_owned(),
            count => format!("{}-{}", self.start, self.start + count - 1),
        }
    }

    /// The first item after the shown ones, if any.
    #[must_use]
    pub fn next(self) -> Option<u64> {
        let next = self.start + self.count;
        (self.count > 0 && next <= self.total).then_some(next)
    }
}

/// A descriptor in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFd<'a> {
    /// Its id.
    pub fd: FdId,
    /// Name that the process assigned.
    pub name: Option<&'a str>,
    /// Source of the content.
    pub source: &'a str,
    /// Size and encoding of the content, or why it cannot be read.
    pub extent: Result<ContentSummary, Arc<str>>,
    /// Characters per page.
    pub page_chars: u32,
    /// Opening time in UTC, as in RFC 3339. `None` for messages, which were never opened.
    pub opened: Option<String>,
    /// Number of marked sections.
    pub sections: usize,
    /// Bytes that were dropped at the cap.
    pub cut_bytes: u64,
    /// Summary of the content.
    pub summary: Option<&'a str>,
}

/// `fd_list`: one `descriptor` element for each, with its summary as text.
#[must_use]
pub fn list(shown: Shown, listed: &[ListedFd<'_>]) -> Answer {
    let element = Element::new("fd_list")
        .attribute("total", shown.total)
        .attribute("shown", shown.range());
    let element = with_next_start(element, shown, "descriptors", "list_fds");
    Answer::shown(
        listed
            .iter()
            .fold(element, |element, listed| element.child(listed.element())),
    )
}

impl ListedFd<'_> {
    /// The `descriptor` element, with the summary as text.
    #[must_use]
    pub fn element(&self) -> Element {
        let element = Element::new("descriptor")
            .attribute("fd", &self.fd)
            .attribute_if("name", self.name)
            .attribute("source", self.source);
        let element = match &self.extent {
            Ok(extent) => element
                .attribute("pages", extent.pages)
                .attribute("total_lines", extent.total_lines)
                .attribute("total_chars", extent.total_chars)
                .attribute_if("encoding", extent.encoding.word())
                .attribute_if("replaced_bytes", extent.encoding.replaced_bytes())
                .attribute_if("pretty", extent.pretty),
            Err(why) => element
                .attribute("error", FdErrorKind::ContentUnreadable.word())
                .attribute("message", why),
        };
        let element = element
            .attribute("page_size", self.page_chars)
            .attribute_if("opened", self.opened.as_ref())
            .attribute_if("sections", (self.sections > 0).then_some(self.sections))
            .attribute_if("cut_bytes", (self.cut_bytes > 0).then_some(self.cut_bytes));
        match self.summary {
            Some(summary) => element.text(summary),
            None => element,
        }
    }
}
