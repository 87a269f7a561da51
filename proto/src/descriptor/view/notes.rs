//! `fd_renamed`, `fd_section` and `fd_sections`: answers about notes on a descriptor.

use super::{ContentSummary, Part, Shown, ShownPart, content_answer, with_next_start};
use crate::id::FdId;
use crate::record::Section;
use crate::tool::Answer;
use crate::xml::Element;

impl Section {
    fn lines(self) -> String {
        format!("{}-{}", self.start_line, self.end_line)
    }
}

/// `fd_renamed`: the descriptor has the name `name`, or none; before, it had `previous`.
#[must_use]
pub fn renamed(fd: &FdId, name: Option<&str>, previous: Option<&str>) -> Answer {
    let element = Element::new("fd_renamed").attribute("fd", fd);
    Answer::shown(
        element
            .attribute_if("name", name)
            .attribute_if("previous", previous),
    )
}

/// `fd_section`: these lines are marked. `replaced` are the lines that the same id marked before.
#[must_use]
pub fn marked(
    fd: &FdId,
    extent: ContentSummary,
    ref_id: &str,
    section: Section,
    replaced: Option<Section>,
) -> Answer {
    let element = section_element(fd, ref_id, section)
        .attribute("total_lines", extent.total_lines)
        .attribute_if("pretty", extent.pretty)
        .attribute_if("replaced", replaced.map(Section::lines));
    Answer::shown(element)
}

/// `fd_section`: these lines are no longer marked.
#[must_use]
pub fn unmarked(fd: &FdId, ref_id: &str, section: Section) -> Answer {
    Answer::shown(section_element(fd, ref_id, section).attribute("deleted", true))
}

fn section_element(fd: &FdId, ref_id: &str, section: Section) -> Element {
    Element::new("fd_section")
        .attribute("fd", fd)
        .attribute("ref_id", ref_id)
        .attribute("lines", section.lines())
}

/// `fd_content` of a section. If the answer was limited, `rest` is the rest of the section.
#[must_use]
pub fn section(
    fd: &FdId,
    extent: ContentSummary,
    ref_id: &str,
    shown_part: &ShownPart,
    part: Part<'_>,
    rest: Option<&ShownPart>,
) -> Answer {
    let element = Element::new("fd_content")
        .attribute("fd", fd)
        .attribute("section", ref_id);
    content_answer(element, extent, shown_part, part, rest)
}

/// A section in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSection<'a> {
    /// Id of the section.
    pub ref_id: &'a str,
    /// Lines of the section.
    pub section: Section,
    /// Beginning of the first line.
    pub text: String,
}

/// `fd_sections`: one `section` element for each, with the beginning of its first line as text.
#[must_use]
pub fn sections(
    fd: &FdId,
    extent: ContentSummary,
    shown: Shown,
    listed: &[ListedSection<'_>],
) -> Answer {
    let element = Element::new("fd_sections")
        .attribute("fd", fd)
        .attribute("total", shown.total)
        .attribute("shown", shown.range())
        .attribute("total_lines", extent.total_lines)
        .attribute_if("pretty", extent.pretty);
    let element = with_next_start(element, shown, "sections", "list_fd_sections");
    let sections = listed.iter().map(|listed| {
        let element = Element::new("section").attribute("ref_id", listed.ref_id);
        element
            .attribute("lines", listed.section.lines())
            .text(listed.text.as_str())
    });
    Answer::shown(sections.fold(element, Element::child))
}
