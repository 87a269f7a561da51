//! Any text in any element: an XML parser gives back exactly what is shown (XML-1), and no text
//! looks like the kernel.

#![no_main]

use dormouse_fuzz::answer::{elements, parse, parse_xml, text};
use dormouse_proto::descriptor::view::{
    self, ContentSummary, Encoding, Excerpt, Found, Omitted, Part, Previewed, QueryKind, Shown,
    ShownPart, Tail, Written,
};
use dormouse_proto::descriptor::{FdError, FdErrorKind};
use dormouse_proto::id::FdId;
use dormouse_proto::xml::Element;
use dormouse_proto::xml::text::sanitize;
use libfuzzer_sys::fuzz_target;
use roxmltree::{Document, Node};

const ROOM: ContentSummary = ContentSummary {
    pages: 3,
    total_lines: 9,
    total_chars: 99,
    encoding: Encoding::Text,
    cut_bytes: 0,
    pretty: None,
};

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (kind, cut, bytes) = input;
    let all = String::from_utf8_lossy(bytes);
    let (a, b) = all.split_at(all.floor_char_boundary(all.len() * usize::from(cut) / 255));
    match kind % 7 {
        0 => an_element(a, b),
        1 => content(a),
        2 => result(a, b),
        3 => write(a, b),
        4 => search(a, b),
        5 => error(a, b),
        _ => rendered(a, b),
    }
});

fn part(text: &str) -> Part<'_> {
    Part {
        text,
        first_line: 1,
        last_line: 2,
        continued: false,
        truncated: true,
        is_numbered: false,
    }
}

fn shows(node: Node<'_, '_>, expected: &str) {
    assert_eq!(text(node), sanitize(expected));
}

fn says(node: Node<'_, '_>, attribute: &str, expected: &str) {
    assert_eq!(node.attribute(attribute), Some(&*sanitize(expected)));
}

/// Only the outermost element says whether any character was replaced, and only if one was.
fn is_marked(document: &Document<'_>, texts: &[&str]) {
    let replaced = texts.iter().any(|text| sanitize(text) != *text);
    assert_eq!(
        document.root_element().attribute("sanitized"),
        replaced.then_some("true")
    );
}

fn an_element(a: &str, b: &str) {
    let (one, other) = (
        Element::new("fd_a").attribute("x", b).text(a),
        Element::new("fd_b").text(b),
    );
    let xml = Element::new("fd_list")
        .attribute("source", a)
        .child(one)
        .child(other)
        .child(Element::new("c"))
        .to_xml();
    let document = parse_xml(&xml);
    let root = document.root_element();
    let children: Vec<_> = elements(root).collect();
    assert_eq!(
        children
            .iter()
            .map(|node| node.tag_name().name())
            .collect::<Vec<_>>(),
        ["fd_a", "fd_b", "c"]
    );
    says(root, "source", a);
    says(children[0], "x", b);
    shows(children[0], a);
    shows(children[1], b);
    is_marked(&document, &[a, b]);
}

fn rendered(a: &str, b: &str) {
    let inner = Element::new("child").attribute("x", b).text(a).to_xml();
    let xml = Element::new("fork").rendered(inner.as_str()).to_xml();
    let document = parse_xml(&xml);
    let child = elements(document.root_element())
        .next()
        .expect("the rendered element");
    shows(child, a);
    says(child, "x", b);
}

fn content(a: &str) {
    let served = ShownPart::Lines { start: 1, count: 2 };
    let answer = view::content(
        &FdId::Fd(1),
        ROOM,
        &served,
        part(a),
        Some(&ShownPart::Chars { start: 3, count: 4 }),
    );
    let document = parse(&answer);
    shows(document.root_element(), a);
    is_marked(&document, &[a]);
    assert_eq!(elements(document.root_element()).count(), 0);
}

fn result(a: &str, b: &str) {
    let tail = Tail {
        omitted: Omitted {
            lines: (3, 4),
            chars: 5,
        },
        part: part(b),
    };
    let answer = view::result(
        &FdId::Ref(a.to_owned()),
        b,
        ROOM,
        b,
        Previewed {
            head: part(a),
            tail: Some(tail),
            summary: Some(a),
        },
    );
    let document = parse(&answer);
    let root = document.root_element();
    let children: Vec<_> = elements(root).collect();
    assert_eq!(children.len(), 5);
    says(root, "source", b);
    says(root, "fd", &FdId::Ref(a.to_owned()).to_string());
    shows(children[0], b);
    shows(children[1], a);
    shows(children[2], a);
    shows(children[4], b);
    is_marked(&document, &[a, b]);
}

fn write(a: &str, b: &str) {
    let written = Written {
        file_path: a,
        mode: b,
        bytes: 1,
        lines: 2,
        pretty: None,
    };
    let answer = view::write(&FdId::Fd(1), written);
    let document = parse(&answer);
    let root = document.root_element();
    says(root, "file_path", a);
    says(root, "mode", b);
    assert!(
        elements(root)
            .next()
            .is_some_and(|message| text(message).ends_with(&*sanitize(a)))
    );
    is_marked(&document, &[a, b]);
}

fn search(a: &str, b: &str) {
    let excerpt = |text| Excerpt {
        part: part(text),
        line: 1,
        page: 1,
        char: 0,
        count: 2,
    };
    let found = Found {
        query_kind: QueryKind::Literal,
        query: b,
        shown: Shown {
            start: 1,
            count: 4,
            total: 9,
        },
        excerpts: vec![excerpt(a), excerpt(b)],
    };
    let answer = view::search(&FdId::Fd(1), ROOM, &found);
    let document = parse(&answer);
    let root = document.root_element();
    says(root, "query", b);
    let matches: Vec<_> = elements(root).collect();
    assert_eq!(matches.len(), 2);
    shows(matches[0], a);
    shows(matches[1], b);
    is_marked(&document, &[a, b]);
}

fn error(a: &str, b: &str) {
    let answer = FdError::new(FdErrorKind::NotFound, Some(a.to_owned()), b).answer();
    let document = parse(&answer);
    let root = document.root_element();
    says(root, "fd", a);
    shows(elements(root).next().expect("a message"), b);
    is_marked(&document, &[a, b]);
}
