//! References: parts of a reply that the model marked as `<ref id="plan">…</ref>`.
//!
//! The reply is not changed; the exact text between the tags becomes a descriptor. References may
//! nest; the outer one keeps the inner tags as text. If several references have the same id, the
//! one that starts last counts. Unmatched and malformed tags are ignored, since a model may write
//! about such tags.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

static TAG: LazyLock<Regex> = LazyLock::new(|| compile(r"<ref(?:\s[^<>]*)?>|</ref\s*>"));
static OPENING: LazyLock<Regex> =
    LazyLock::new(|| compile(&format!(r"^<ref(?:\s+{ATTRIBUTE})+\s*>$")));
static ID: LazyLock<Regex> = LazyLock::new(|| compile(r#"\sid\s*=\s*(?:"([^"]+)"|'([^']+)')"#));

const ATTRIBUTE: &str = r#"[A-Za-z_][\w.:-]*\s*=\s*(?:"[^"]*"|'[^']*')"#;

fn compile(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a constant")
}

/// Finds the references of a reply. Returns the byte range of the text of each reference, by id.
/// Reads the reply once; memory grows with the number of tags.
#[must_use]
pub fn references(reply: &str) -> BTreeMap<&str, Range<usize>> {
    // The id is `None` for a malformed opening tag, which still has to match a closing tag.
    let mut open: Vec<(Option<&str>, usize)> = Vec::new();
    let mut closed: Vec<(&str, Range<usize>)> = Vec::new();
    for tag in TAG.find_iter(reply) {
        if !tag.as_str().starts_with("</") {
            if !tag.as_str().ends_with("/>") {
                open.push((parse_id(tag.as_str()), tag.end()));
            }
        } else if let Some((Some(id), start)) = open.pop() {
            closed.push((id, start..tag.start()));
        }
    }
    // The reference that starts last wins, whichever closes first.
    closed.sort_by_key(|(_, range)| range.start);
    closed.into_iter().collect()
}

/// Parses the id of an opening tag. `None` if the tag is malformed or has no id.
fn parse_id(tag: &str) -> Option<&str> {
    let found = ID.captures(OPENING.find(tag)?.as_str())?;
    found.get(1).or_else(|| found.get(2)).map(|id| id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reply: &str, expected: &[(&str, &str)]) {
        let found: Vec<_> = references(reply)
            .into_iter()
            .map(|(id, range)| (id, &reply[range]))
            .collect();
        assert_eq!(found, expected, "{reply}");
    }

    #[test]
    fn the_text_between_the_tags_is_kept_exactly() {
        check("Intro <ref id=\"k\">body</ref> end", &[("k", "body")]);
        check("<ref id=\"k\">\nline\n</ref>", &[("k", "\nline\n")]);
        check(
            "<ref type=\"code\" id='k' >x = 1 < 2</ref>",
            &[("k", "x = 1 < 2")],
        );
        check("<ref\n  id = \"a b\"\n>é</ref >", &[("a b", "é")]);
        check("<ref id=\"k\"></ref>", &[("k", "")]);
    }

    #[test]
    fn the_last_of_several_references_with_one_id_counts() {
        check(
            "<ref id=\"a\">1</ref><ref id=\"b\">2</ref>",
            &[("a", "1"), ("b", "2")],
        );
        check(
            "<ref id=\"k\">1</ref> and <ref id=\"k\">2</ref>",
            &[("k", "2")],
        );
        let nested = "<ref id=\"a\">x <ref id=\"b\">y</ref> z</ref>";
        check(nested, &[("a", "x <ref id=\"b\">y</ref> z"), ("b", "y")]);
        check(
            "<ref id=\"k\">x <ref id=\"k\">y</ref> z</ref>",
            &[("k", "y")],
        );
    }

    #[test]
    fn malformed_references_are_ignored() {
        for reply in [
            "<ref id=\"k\">never closed",
            "closed only</ref>",
            "<ref>no id</ref>",
            "<ref id=\"\">empty id</ref>",
            "<ref id=k>no quotes</ref>",
            "<ref id=\"k\"/>",
            "<reference id=\"k\">another tag</reference>",
            "<ref id=\"k>open quote</ref>",
            "<ref identity=\"k\">another attribute</ref>",
        ] {
            check(reply, &[]);
        }
        check(
            "<ref id=\"a\">kept <ref>inner</ref> whole</ref>",
            &[("a", "kept <ref>inner</ref> whole")],
        );
        check(
            "<ref id=\"open\"> <ref id=\"b\">kept</ref>",
            &[("b", "kept")],
        );
    }

    #[test]
    fn the_mark_that_the_reference_of_programs_shows_is_found() {
        let schema = dormouse_proto::program::schema();
        let text = "/properties/file_descriptor/properties/enable_references/description";
        let text = schema.pointer(text).and_then(|text| text.as_str()).unwrap();
        assert_eq!(references(text).len(), 1, "{text}");
    }
}
