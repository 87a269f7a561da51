//! Any query on any text, as JSON arguments: literal matches are those of the standard library, and
//! no pattern panics.

#![no_main]

use arbitrary::Arbitrary;
use dormouse_fuzz::answer::{elements, number, parse, text};
use dormouse_fuzz::table;
use dormouse_kernel::syscall::{Call, Outcome, search_fd};
use dormouse_proto::descriptor::DescriptorSettings;
use libfuzzer_sys::fuzz_target;
use roxmltree::Node;
use serde_json::json;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    flags: u8,
    query_chars: u8,
    page_chars: u8,
    context: u8,
    start: u8,
    max_matches: u8,
    max_read_chars: u16,
    /// The query, then the text.
    bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Literal,
    /// A pattern that matches the query and nothing else.
    Escaped,
    Pattern,
}

fuzz_target!(|input: Input<'_>| {
    let all = String::from_utf8_lossy(input.bytes);
    let at = all
        .char_indices()
        .map(|(at, _)| at)
        .nth(usize::from(input.query_chars))
        .unwrap_or(all.len());
    let (query, rest) = all.split_at(at);
    // Every other text holds the query.
    let text = if input.flags & 1 == 0 { rest } else { &all };
    let form = match input.flags >> 1 & 7 {
        0..=4 => Form::Literal,
        5 => Form::Escaped,
        _ => Form::Pattern,
    };
    let is_exact = form != Form::Pattern && !ignores_case(input.flags);
    search(&input, form, query, text, is_exact);
});

fn search(input: &Input<'_>, form: Form, query: &str, content: &str, is_exact: bool) {
    let table = table([content.as_bytes()], input.page_chars.max(1).into());
    let settings = DescriptorSettings {
        max_read_chars: input.max_read_chars.into(),
        ..DescriptorSettings::default()
    };
    // Contexts that are wider than any text belong to the hostile ones.
    let context = if input.context == u8::MAX {
        i64::MAX
    } else {
        i64::from(input.context)
    };
    let args = json!({
        "fd": "fd:1",
        "query": if form == Form::Escaped { escaped(query) } else { query.to_owned() },
        "regex": form != Form::Literal,
        "case_sensitive": !ignores_case(input.flags),
        "context": context,
        "start": input.start.max(1),
        "max_matches": input.max_matches.max(1),
    });
    let outcome = search_fd(&Call::unlimited(&table, &args.to_string(), &settings, 0));
    let Outcome::Answer(answer) = outcome else {
        panic!("a search only answers")
    };
    let document = parse(&answer);
    let root = document.root_element();
    if answer.is_error {
        let refused = query.is_empty()
            || !is_exact
            || usize::from(input.start) > content.matches(query).count().max(1);
        assert!(refused, "{}", answer.text);
        return;
    }
    let shown: usize = elements(root).map(|node| text(node).chars().count()).sum();
    assert!(
        shown <= usize::from(input.max_read_chars).max(1),
        "{shown} characters are shown: {args}"
    );
    if is_exact {
        counts_and_places(root, query, content);
    }
}

/// Patterns cost more to compile than texts cost to search: most queries are literal.
fn ignores_case(flags: u8) -> bool {
    flags & 0x30 == 0x30
}

fn escaped(query: &str) -> String {
    query
        .chars()
        .map(|c| format!("\\x{{{:x}}}", u32::from(c)))
        .collect()
}

fn counts_and_places(root: Node<'_, '_>, query: &str, content: &str) {
    let places: Vec<usize> = content.match_indices(query).map(|(at, _)| at).collect();
    assert_eq!(number(root, "matches"), Some(places.len()));
    let first = root
        .attribute("shown")
        .and_then(|shown| shown.split('-').next()?.parse::<usize>().ok());
    let mut next = first.expect("a number").saturating_sub(1);
    for node in elements(root) {
        let before = &content[..places[next]];
        assert_eq!(
            number(node, "char"),
            Some(before.chars().count()),
            "match {}",
            next + 1
        );
        assert_eq!(
            number(node, "line"),
            Some(1 + before.matches('\n').count()),
            "match {}",
            next + 1
        );
        next += number(node, "count").unwrap_or(1);
    }
    assert_eq!(
        number(root, "next_start"),
        (next < places.len()).then_some(next + 1)
    );
}
