//! What is true of every answer: one element that parses, that says by its flag whether it is an
//! error, and contains no tag of the kernel that the kernel did not write.

use dormouse_proto::tool::Answer;
use dormouse_proto::xml::imitation::ELEMENT_PREFIXES;
use dormouse_proto::xml::text::is_shown_unchanged;
use roxmltree::{Document, Node};

/// Parses an answer.
///
/// # Panics
/// XML-1 is broken, a text contains a tag of the kernel, or the error flag contradicts the
/// element.
#[must_use]
pub fn parse(answer: &Answer) -> Document<'_> {
    let document = parse_xml(&answer.text);
    let is_error = document.root_element().has_tag_name("fd_error");
    assert_eq!(
        answer.is_error, is_error,
        "the flag contradicts the element: {}",
        answer.text
    );
    document
}

/// Parses the XML of an answer.
///
/// # Panics
/// As [`parse`], except for the flag.
#[must_use]
pub fn parse_xml(xml: &str) -> Document<'_> {
    let document = Document::parse(xml).unwrap_or_else(|error| panic!("XML-1: {error}: {xml:?}"));
    assert!(is_shown_unchanged(xml), "XML cannot carry {xml:?}");
    let elements = document.root().descendants().filter(Node::is_element);
    let written = elements
        .filter(|node| is_kernel_name(node.tag_name().name()))
        .count();
    let tags = || xml.split('<').skip(1);
    let opening = tags().filter(|after| is_kernel_name(after)).count();
    let closing = tags()
        .filter_map(|after| after.strip_prefix('/'))
        .filter(|after| is_kernel_name(after))
        .count();
    assert!(
        opening == written && closing <= written,
        "a tag of the kernel stands in a text: {xml:?}"
    );
    document
}

fn is_kernel_name(text: &str) -> bool {
    let text = text.as_bytes();
    ELEMENT_PREFIXES.iter().any(|name| {
        text.get(..name.len())
            .is_some_and(|n| n.eq_ignore_ascii_case(name.as_bytes()))
    })
}

/// The text of an element, as a reader of the answer sees it.
#[must_use]
pub fn text(node: Node<'_, '_>) -> String {
    let text: String = node
        .children()
        .filter(Node::is_text)
        .filter_map(|child| child.text())
        .collect();
    match node.attribute("line_ending") {
        Some("crlf") => text.replace('\n', "\r\n"),
        _ => text,
    }
}

/// The elements inside of an element.
pub fn elements<'a, 'input>(node: Node<'a, 'input>) -> impl Iterator<Item = Node<'a, 'input>> {
    node.children().filter(Node::is_element)
}

/// An attribute that is a number.
///
/// # Panics
/// It is there and no number.
#[must_use]
pub fn number(node: Node<'_, '_>, attribute: &str) -> Option<usize> {
    let value = node.attribute(attribute)?;
    Some(
        value
            .parse()
            .unwrap_or_else(|error| panic!("{attribute}={value:?}: {error}")),
    )
}
