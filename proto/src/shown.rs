//! Text as a model is shown it: the kernel's own elements, and text of others that cannot be taken for one.
//!
//! The one rule for all that is not the kernel's word, whichever way it comes (a tool, a server, a file, a child, another
//! process, an error that quotes any of them): text that holds neither an [imitation](crate::xml::imitation) of the kernel nor a
//! [control character](crate::xml::text::sanitize) is shown as it is, byte for byte. Any other is shown inside of one element,
//! `fd_text`, which names its source. The writer of XML makes that as it makes every element: an imitation is split in there,
//! an XML parser gives back the text, and `sanitized="true"` says that control characters are shown as what they are.
//!
//! So a tag of the kernel or a `[msg:N]` that a model reads literally is the kernel's word. A model's own replies and what a user
//! types are shown as they are: both know what they said.
//!
//! The rule is applied once, when something is admitted and before it is first sent. What a journal holds is sent as it is.

use std::fmt;
use std::sync::Arc;

use crate::xml::Element;
use crate::xml::imitation::imitates;
use crate::xml::text::is_carried;

/// Text that may enter a request. A plain string becomes one by the rule of this module; only an [`Element`], or what a user
/// [typed](Self::typed), goes by it.
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

/// Whether a text is shown as it is, although it is not the kernel's word. At memory bandwidth.
#[must_use]
pub fn is_plain(text: &str) -> bool {
    is_carried(text) && !imitates(text)
}

impl ShownText {
    /// Text that comes from `source`, such as `tool:grep`. Shared where it is shown as it is.
    #[must_use]
    pub fn outside(source: &str, text: impl Into<Arc<str>>) -> Self {
        Self::of(Some(source), text.into())
    }

    /// What a user typed: it stands as it is.
    #[must_use]
    pub fn typed(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// This text, and `next` behind it.
    #[must_use]
    pub fn then(&self, next: impl Into<Self>) -> Self {
        Self([&*self.0, &*next.into().0].concat().into())
    }

    fn of(source: Option<&str>, text: Arc<str>) -> Self {
        match is_plain(&text) {
            true => Self(text),
            false => Element::new("fd_text").attribute_if("source", source).text(&*text).into(),
        }
    }
}

impl From<Element> for ShownText {
    fn from(element: Element) -> Self {
        Self(element.to_xml().into())
    }
}

/// A sentence that may quote anything.
impl From<String> for ShownText {
    fn from(text: String) -> Self {
        Self::of(None, text.into())
    }
}

/// A sentence that may quote anything.
impl From<&str> for ShownText {
    fn from(text: &str) -> Self {
        Self::of(None, text.into())
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
    fn plain_text_is_shared_and_stands_as_it_is() {
        let texts =
            ["", "a < b && c > d", "<section>]]>&amp;</section>\r\n\t", "é 😀 ，＜b＞ \u{200d}\u{feff}", "[msg] [1]"];
        for text in texts {
            let text: Arc<str> = text.into();
            let shown: Arc<str> = ShownText::outside("tool:t", text.clone()).into();
            assert!(Arc::ptr_eq(&text, &shown), "{text:?}");
            assert_eq!(ShownText::from(&*text), ShownText(text));
        }
    }

    #[test]
    fn anything_else_stands_in_one_element_and_is_given_back_by_a_parser() {
        let texts = [
            "<fd_result fd=\"fd:9\">",
            "at [msg:1]",
            "a </preview>]]> \r\n b",
            "\u{1b}[31mred",
            "\u{202e}txt.exe",
            "<ref>",
        ];
        for text in texts {
            for (shown, source) in [(ShownText::outside("s\"<", text), Some("s\"<")), (text.into(), None)] {
                let document = roxmltree::Document::parse(&shown).unwrap();
                let root = document.root_element();
                let read: String = root.children().filter_map(|node| node.text()).collect();
                assert_eq!((root.tag_name().name(), root.attribute("source")), ("fd_text", source));
                assert_eq!(read, sanitize(text), "{shown}");
                assert_eq!(root.attribute("sanitized").is_some(), read != text);
            }
        }
    }

    #[test]
    fn what_the_kernel_adds_stands_beside_it() {
        let shown = ShownText::from("Ended: ").then(ShownText::outside("s", "<ref>")).then(Element::new("fd_list"));
        assert_eq!(&*shown, "Ended: <fd_text source=\"s\"><![CDATA[<]]><![CDATA[ref>]]></fd_text><fd_list/>");
        assert_eq!(&*ShownText::typed("<ref>"), "<ref>");
    }
}
