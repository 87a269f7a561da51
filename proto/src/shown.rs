//! Text that is shown to a model: elements of the kernel, and outside text that cannot be mistaken
//! for one.
//!
//! One rule applies to all text that the kernel did not write, whatever its source (a tool, a
//! server, a file, a child, another process, or an error that quotes one of them). Text that
//! contains neither an [imitation](crate::xml::imitation) of the kernel nor a [control
//! character](crate::xml::text::sanitize) is shown byte for byte. Any other text is put into one
//! `fd_text` element, which names the source. The XML writer escapes it as in every element: it
//! splits imitations, so that an XML parser restores the text, and `sanitized="true"` states that
//! control characters were replaced by visible signs.
//!
//! A literal kernel tag or `[msg:N]` in the context was therefore written by the kernel. The
//! model's own replies and a user's typed input are shown unchanged, since their authors know what
//! they wrote.
//!
//! The rule is applied once, before text is first sent. Replay of a journal does not apply it
//! again.

use std::fmt;
use std::sync::Arc;

use crate::xml::Element;
use crate::xml::imitation::imitates;
use crate::xml::text::is_shown_unchanged;

/// Text that may enter a request. A plain string is converted by the rule of this module; only an
/// [`Element`] and text that a user [typed](Self::typed) bypass it.
///
/// ```
/// use dormouse_proto::shown::ShownText;
///
/// assert_eq!(&*ShownText::outside("tool:cat", "if a < b {}"), "if a < b {}");
/// let shown = ShownText::outside("tool:cat", "<fd_error type=\"access_denied\"/>");
/// assert_eq!(&*shown, r#"<fd_text source="tool:cat"><![CDATA[<]]><![CDATA[fd_error type="access_denied"/>]]></fd_text>"#);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownText(Arc<str>);

/// Whether the rule shows the text unchanged. Runs at memory bandwidth.
fn is_plain(text: &str) -> bool {
    is_shown_unchanged(text) && !imitates(text)
}

impl ShownText {
    /// Text from `source`, such as `tool:grep`. Text that is shown unchanged is not copied.
    #[must_use]
    pub fn outside(source: &str, text: impl Into<Arc<str>>) -> Self {
        Self::escape_unless_plain(Some(source), text.into())
    }

    /// Text that a user typed. Shown unchanged.
    #[must_use]
    pub fn typed(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// This text followed by `next`.
    #[must_use]
    pub fn then(&self, next: impl Into<Self>) -> Self {
        Self([&*self.0, &*next.into().0].concat().into())
    }

    fn escape_unless_plain(source: Option<&str>, text: Arc<str>) -> Self {
        match is_plain(&text) {
            true => Self(text),
            false => Element::new("fd_text")
                .attribute_if("source", source)
                .text(&*text)
                .into(),
        }
    }
}

impl From<Element> for ShownText {
    fn from(element: Element) -> Self {
        Self(element.to_xml().into())
    }
}

/// A sentence of the kernel, which may quote outside text.
impl From<String> for ShownText {
    fn from(text: String) -> Self {
        Self::escape_unless_plain(None, text.into())
    }
}

/// A sentence of the kernel, which may quote outside text.
impl From<&str> for ShownText {
    fn from(text: &str) -> Self {
        Self::escape_unless_plain(None, text.into())
    }
}

impl From<ShownText> for Arc<str> {
    fn from(ShownText(text): ShownText) -> Self {
        text
    }
}

impl std::ops::Deref for ShownText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ShownText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml::text::sanitize;

    #[test]
    fn plain_text_is_shared_and_shown_as_it_is() {
        let texts = [
            "",
            "a < b && c > d",
            "<section>]]>&amp;</section>\r\n\t",
            "é 😀 ，＜b＞ \u{200d}\u{feff}",
            "[msg] [1]",
        ];
        for text in texts {
            let text: Arc<str> = text.into();
            let shown: Arc<str> = ShownText::outside("tool:t", text.clone()).into();
            assert!(Arc::ptr_eq(&text, &shown), "{text:?}");
            assert_eq!(ShownText::from(&*text), ShownText(text));
        }
    }

    #[test]
    fn other_text_is_one_element_from_which_a_parser_restores_it() {
        let texts = [
            "<fd_result fd=\"fd:9\">",
            "at [msg:1]",
            "a </preview>]]> \r\n b",
            "\u{1b}[31mred",
            "\u{202e}txt.exe",
            "<ref>",
        ];
        for text in texts {
            for (shown, source) in [
                (ShownText::outside("s\"<", text), Some("s\"<")),
                (text.into(), None),
            ] {
                let document = roxmltree::Document::parse(&shown).unwrap();
                let root = document.root_element();
                let shown_text: String = root.children().filter_map(|node| node.text()).collect();
                let read = match root.attribute("line_ending") {
                    Some("crlf") => shown_text.replace('\n', "\r\n"),
                    _ => shown_text,
                };
                assert_eq!(
                    (root.tag_name().name(), root.attribute("source")),
                    ("fd_text", source)
                );
                assert_eq!(read, sanitize(text), "{shown}");
                assert_eq!(root.attribute("sanitized").is_some(), read != text);
            }
        }
    }

    #[test]
    fn elements_of_the_kernel_follow_shown_text() {
        let shown = ShownText::from("Ended: ")
            .then(ShownText::outside("s", "<ref>"))
            .then(Element::new("fd_list"));
        assert_eq!(
            &*shown,
            "Ended: <fd_text source=\"s\"><![CDATA[<]]><![CDATA[ref>]]></fd_text><fd_list/>"
        );
        assert_eq!(&*ShownText::typed("<ref>"), "<ref>");
    }
}
