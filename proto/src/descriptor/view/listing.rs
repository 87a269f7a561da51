//! `fd_list`: the descriptors of a table.

use std::sync::Arc;

use super::{Extent, go_on_listing};
use crate::descriptor::FdErrorKind;
use crate::id::FdId;
use crate::tool::Answer;
use crate::xml::Element;

/// Which items of a list one answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// How many there are in all.
    pub total: u64,
    /// The first that is shown, from 1.
    pub start: u64,
    /// How many are shown.
    pub count: u64,
}

impl Shown {
    /// The first and last one shown, as `1-50`; `0` where there is none.
    #[must_use]
    pub fn range(self) -> String {
        match self.count {
            0 => "0".to_owned(),
            count => format!("{}-{}", self.start, self.start + count - 1),
        }
    }

    /// The first one that is left to be asked for.
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
    /// The name that the process gave it.
    pub name: Option<&'a str>,
    /// Where its content comes from.
    pub source: &'a str,
    /// Its content; why it cannot be read where it cannot.
    pub extent: Result<Extent, Arc<str>>,
    /// Characters per page.
    pub page_chars: u32,
    /// When it was opened: UTC, as in RFC 3339. None of what was never opened, such as a message.
    pub opened: Option<String>,
    /// How many sections are marked in it.
    pub sections: usize,
    /// Bytes that were cut off at the cap.
    pub cut_bytes: u64,
    /// What it is about.
    pub summary: Option<&'a str>,
}

/// `fd_list`: one `descriptor` each, with its summary as the text.
#[must_use]
pub fn list(shown: Shown, listed: &[ListedFd<'_>]) -> Answer {
    let element = Element::new("fd_list")
        .attribute("total", shown.total)
        .attribute("shown", shown.range());
    let element = go_on_listing(element, shown, "descriptors", "list_fds");
    Answer::shown(
        listed
            .iter()
            .fold(element, |element, listed| element.child(listed.element())),
    )
}

impl ListedFd<'_> {
    /// `descriptor`, with its summary as the text.
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
