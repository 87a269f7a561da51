//! `diff_fd`: compares two contents line by line.

mod unified;

use std::borrow::Cow;

use dormouse_proto::descriptor::view::{self, Differences};
use dormouse_proto::descriptor::{FdError, FdErrorKind};
use dormouse_proto::tool::Access;

use super::args::Args;
use super::{Call, Group, Handler, Outcome, Parameter, Tool, form};
use crate::table::placement::Placer;
use dormouse_content::CappedBytes;
use unified::Diff;
pub use unified::unified_diff;

/// `diff_fd` as a tool.
pub const TOOL: Tool = Tool {
    name: "diff_fd",
    group: Group::Descriptors,
    access: Access::Read,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: Some("diff_fd(a=\"fd:1\", b=\"fd:2\") - what differs, line by line"),
    may_repeat: super::always_repeatable,
    handler: Handler::Table(diff_fd),
};

/// Default number of context lines.
const CONTEXT_LINES: i64 = 3;
/// Maximum number of context lines.
const MAX_CONTEXT_LINES: i64 = 100;

/// Cost of a comparison for the quota, as a multiple of the cost of reading the bytes once.
const PASSES: usize = 8;
/// Limits for one side of a comparison.
const MAX_SIDE_BYTES: u64 = 64 << 20;
const MAX_SIDE_LINES: u64 = 500_000;

const DESCRIPTION: &str = "Compares two file descriptors line by line and shows the differences as \
a unified diff: lines only in `a` begin with -, lines only in `b` with +. A long diff is cut \
(complete=\"false\"); with `extract_to_new_fd` all of it becomes a new descriptor, which can be \
read in pages.";

const PARAMETERS: [Parameter; 5] = [
    Parameter::word("a", "The descriptor to compare from, such as fd:1")
        .required()
        .also(&[
            "fd", "fd1", "fd_a", "old", "old_fd", "left", "from", "before",
        ]),
    Parameter::word("b", "The descriptor to compare to, such as fd:2")
        .required()
        .also(&[
            "fd2", "fd_b", "new", "new_fd", "right", "to", "after", "other",
        ]),
    Parameter::integer(
        "context",
        "Equal lines to show around each difference; 3 if left out",
    )
    .at_least(0)
    .at_most(100),
    Parameter::flag("extract_to_new_fd", "Make the diff a new descriptor"),
    Parameter::flag(
        "pretty",
        "Whether JSON is reformatted before it is compared. If left out, JSON on one line is, \
         where the program wants that",
    ),
];

/// Executes a call. `max_read_chars` of the settings limits what is shown, never what is extracted.
/// Takes about as long as reading both contents eight times, longer if they differ much (1.3 s for
/// two texts of 500,000 lines in different order), and about 50 bytes of memory per line. A running
/// comparison cannot be cancelled.
#[must_use]
pub fn diff_fd(call: &Call<'_>) -> Outcome {
    run(call).into()
}

fn run(call: &Call<'_>) -> Result<Outcome, FdError> {
    let args = Args::parse(&TOOL, call.args)?;
    let context = parse_context(&args)?;
    let (a, before) = read_side(&args, "a", call)?;
    let (b, after) = read_side(&args, "b", call)?;
    let work = before
        .len()
        .saturating_add(after.len())
        .saturating_mul(PASSES);
    call.quota
        .charge(work)
        .map_err(|error| args.unreadable_error(error))?;
    let diff = Diff::compute(&before, &after);
    let added = diff.added_lines();
    let removed = diff.removed_lines();
    let text = diff.to_unified(context);
    if args.flag("extract_to_new_fd") == Some(true) {
        let placer = Placer {
            settings: Some(call.settings),
            now_ms: call.now_ms,
            quota: call.quota,
        };
        let diff = CappedBytes {
            bytes: text.into(),
            cut_bytes: 0,
        };
        let tools = call.settings.hintable_tools;
        let hint = tools.hint("read_fd", "Use read_fd to read the diff.");
        let message = format!("{added} lines are only in {b}, and {removed} only in {a}.{hint}");
        let new = placer
            .open_bytes(diff, &format!("diff:{a}:{b}"), &message)
            .map_err(|error| args.unreadable_error(error))?;
        return Ok(Outcome::Opened(Box::new(new)));
    }
    let shown = truncate_to_lines(&text, call.settings.max_read_chars);
    let is_complete = shown.len() == text.len();
    let shown = with_crlf_headers(shown);
    let differences = Differences {
        added,
        removed,
        is_complete,
        text: &shown,
    };
    Ok(Outcome::Answer(view::differences(&a, &b, differences)))
}

/// Reads one side of the comparison. Returns its id and text.
fn read_side(
    args: &Args,
    key: &'static str,
    call: &Call<'_>,
) -> Result<(String, bytestring::ByteString), FdError> {
    let requested = args.required_text(key, "a descriptor, such as \"fd:1\"")?;
    let with_fd = |error: FdError| FdError {
        fd: Some(requested.to_owned()),
        ..error
    };
    let (id, entry) = call.table.resolve_argument(requested)?;
    let view = form::view(args, entry, form::requested(args), call).map_err(with_fd)?;
    let unreadable = |error| with_fd(args.unreadable_error(error));
    if view.content.is_binary().map_err(unreadable)? {
        return Err(with_fd(args.invalid_error(format!(
            "{id} is binary: only text can be compared line by line."
        ))));
    }
    let bytes = view.content.content().len_bytes();
    let lines = view.content.total_lines().map_err(unreadable)?;
    if bytes > MAX_SIDE_BYTES || lines > MAX_SIDE_LINES {
        let message = format!(
            "{id} has {lines} lines and {bytes} bytes: at most {MAX_SIDE_LINES} lines and {MAX_SIDE_BYTES} \
             bytes are compared. Make parts of it descriptors first: read_fd with \
             extract_to_new_fd=true."
        );
        return Err(with_fd(args.invalid_error(message)));
    }
    Ok((id.to_string(), view.content.text().map_err(unreadable)?))
}

fn parse_context(args: &Args) -> Result<u32, FdError> {
    let requested = args.integer("context").unwrap_or(CONTEXT_LINES);
    let in_range = u32::try_from(requested)
        .ok()
        .filter(|_| requested <= MAX_CONTEXT_LINES);
    in_range.ok_or_else(|| {
        let message = format!("Invalid context {requested}: give 0 to {MAX_CONTEXT_LINES} lines.");
        args.error(FdErrorKind::InvalidRange, message)
    })
}

/// The diff of texts with CR LF with the same line ends after its headers, so that it is shown with
/// LF, as these texts are. Other diffs are unchanged.
fn with_crlf_headers(diff: &str) -> Cow<'_, str> {
    let is_header = |line: &&str| line.starts_with("@@") || line.starts_with('\\');
    let mut content = diff.split_inclusive('\n').filter(|line| !is_header(line));
    if !diff.contains("\r\n") || !content.all(|line| line.ends_with("\r\n")) {
        return Cow::Borrowed(diff);
    }
    let lines = diff
        .split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(header) if is_header(&line) => Cow::Owned(format!("{header}\r\n")),
            _ => Cow::Borrowed(line),
        });
    Cow::Owned(lines.collect())
}

/// The first whole lines that fit `max_chars` characters, or a part of the first line if that does
/// not fit.
fn truncate_to_lines(text: &str, max_chars: u64) -> &str {
    let max_chars = usize::try_from(max_chars).unwrap_or(usize::MAX);
    match text.char_indices().nth(max_chars) {
        None => text,
        Some((end, _)) => {
            let lines = text[..end].rfind('\n').map(|feed| feed + 1);
            &text[..lines.unwrap_or(end)]
        }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::descriptor::DescriptorSettings;
    use dormouse_proto::id::FdId;
    use dormouse_proto::record::Entry;
    use roxmltree::Document;

    use super::*;
    use crate::table::Table;
    use dormouse_content::Content;

    fn table(contents: &[&[u8]]) -> Table {
        let mut table = Table::new();
        for content in contents {
            table.insert(
                table.next_id(),
                Entry::new(Content::new(content.to_vec()), 20, "tool:t", 0),
            );
        }
        table
    }

    fn outcome(contents: &[&[u8]], args: &str, settings: &DescriptorSettings) -> Outcome {
        diff_fd(&Call::unlimited(
            &table(contents),
            &args.replace('\'', "\""),
            settings,
            7,
        ))
    }

    /// Returns the attributes and the text of an answer.
    fn answer_parts(
        contents: &[&[u8]],
        args: &str,
        settings: &DescriptorSettings,
    ) -> (String, String) {
        let xml = outcome(contents, args, settings)
            .answer()
            .unwrap()
            .text
            .to_string();
        let document = Document::parse(&xml).unwrap();
        let root = document.root_element();
        let attributes: Vec<_> = root
            .attributes()
            .map(|a| format!("{}={}", a.name(), a.value()))
            .collect();
        let text = root.children().filter_map(|node| node.text()).collect();
        (attributes.join(" "), text)
    }

    const BOTH: &str = "{'a':'fd:1','b':'fd:2'}";

    #[test]
    fn differences_are_shown_with_line_counts() {
        let (a, b) = (b"one\ntwo\nthree\n", b"one\n2\nthree\nfour\n");
        let (attributes, text) = answer_parts(&[a, b], BOTH, &DescriptorSettings::default());
        assert_eq!(attributes, "a=fd:1 b=fd:2 added=2 removed=1 complete=true");
        assert_eq!(text, "@@ -1,3 +1,4 @@\n one\n-two\n+2\n three\n+four\n");
        let (attributes, text) = answer_parts(&[a, a], BOTH, &DescriptorSettings::default());
        assert_eq!(
            (&*attributes, &*text),
            ("a=fd:1 b=fd:2 added=0 removed=0 complete=true", "")
        );
    }

    #[test]
    fn the_diff_of_texts_with_crlf_has_no_references_for_cr() {
        let (a, b) = (b"one\r\ntwo\r\n", b"one\r\n2\r\n");
        let answer = |contents: &[&[u8]]| {
            let settings = DescriptorSettings::default();
            let outcome = outcome(contents, BOTH, &settings);
            outcome.answer().unwrap().text.to_string()
        };
        let xml = answer(&[a, b]);
        let expected = "line_ending=\"crlf\">@@ -1,2 +1,2 @@\n one\n-two\n+2\n</fd_diff>";
        assert!(xml.ends_with(expected), "{xml}");
        let mixed = answer(&[a, b"one\n2\n"]);
        assert!(mixed.contains("-one&#13;\n"), "{mixed}");
    }

    #[test]
    fn the_shown_diff_is_bounded_and_the_extracted_diff_is_whole() {
        let settings = DescriptorSettings {
            max_read_chars: 30,
            ..DescriptorSettings::default()
        };
        let (a, b) = (b"x\n".repeat(20), b"\xc3\xa9\n".repeat(20));
        let (attributes, text) = answer_parts(&[&a, &b], BOTH, &settings);
        assert!(
            attributes.ends_with("added=20 removed=20 complete=false"),
            "{attributes}"
        );
        assert_eq!(text, "@@ -1,20 +1,20 @@\n-x\n-x\n-x\n-x\n");
        let extracted = outcome(
            &[&a, &b],
            "{'a':'fd:1','b':'fd:2','extract_to_new_fd':true}",
            &settings,
        );
        let Outcome::Opened(new) = extracted else {
            panic!("a descriptor is opened")
        };
        assert_eq!(
            (&*new.entry.source, new.entry.content.len_bytes()),
            ("diff:fd:1:fd:2", 18 + 20 * 3 + 20 * 4)
        );
        let answer = new.answer(&FdId::Fd(3));
        assert!(
            answer
                .text
                .contains("20 lines are only in fd:2, and 20 only in fd:1."),
            "{}",
            answer.text
        );
    }

    #[test]
    fn json_is_compared_reformatted_on_request() {
        let (a, b): (&[u8], &[u8]) = (br#"{"a":1,"b":2}"#, br#"{"a":1,"b":3}"#);
        let (_, text) = answer_parts(
            &[a, b],
            "{'a':'fd:1','b':'fd:2','pretty':true,'context':0}",
            &DescriptorSettings::default(),
        );
        assert_eq!(text, "@@ -3,1 +3,1 @@\n-  \"b\": 2\n+  \"b\": 3\n");
    }

    #[test]
    fn too_long_contents_are_refused_and_others_are_compared_in_linear_time() {
        let answer = |a: &str, b: &str| {
            let outcome = outcome(
                &[a.as_bytes(), b.as_bytes()],
                BOTH,
                &DescriptorSettings::default(),
            );
            outcome.answer().unwrap().text.to_string()
        };
        let long = "\n".repeat(usize::try_from(MAX_SIDE_LINES).unwrap() + 1);
        assert!(answer("", &long).contains("at most 500000 lines"));
        // Every second line differs, and all lines are distinct. A search for common runs of lines
        // would take quadratic time.
        let lines = |word: &str| {
            (0..40_000)
                .map(|n| format!("{n}\n{word} {n}\n"))
                .collect::<String>()
        };
        assert!(answer(&lines("a"), &lines("b")).contains("complete=\"false\""));
        // Memory for lines is not reserved from an estimate, which this text would mislead.
        let deceptive = "\n".repeat(20) + &"x".repeat(1 << 20);
        assert!(answer(&deceptive, &deceptive).contains("added=\"0\""));
    }

    #[test]
    fn contents_that_cannot_be_compared_are_refused_by_name() {
        let cases = [
            ("{'a':'fd:1'}", "invalid_parameter", "'b' is missing"),
            ("{'a':'fd:1','b':'fd:9'}", "not_found", "fd:9"),
            (
                "{'a':'fd:2','b':'fd:1'}",
                "invalid_parameter",
                "fd:2 is binary",
            ),
            (
                "{'a':'fd:1','b':'fd:1','context':101}",
                "invalid_range",
                "0 to 100",
            ),
            (
                "{'a':'fd:1','b':'fd:1','old':'fd:2'}",
                "invalid_parameter",
                "'a' is given twice",
            ),
        ];
        for (args, kind, message) in cases {
            let outcome = outcome(&[b"text", &[0xff]], args, &DescriptorSettings::default());
            let answer = outcome.answer().unwrap();
            let is_named =
                answer.text.contains(&format!("type=\"{kind}\"")) && answer.text.contains(message);
            assert!(answer.is_error && is_named, "{args}: {}", answer.text);
        }
    }
}
