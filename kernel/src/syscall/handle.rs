//! Expands handles in the arguments of a call. A handle, such as `{{fd:3}}` or `{{fd:3 lines
//! 10-40}}`, represents the content of a descriptor, so that the model does not have to repeat it.
//!
//! A handle is a whole JSON string, never a part of one. If the text in the braces does not have
//! the syntax of a descriptor, it stays as it is, since templates use such braces. If it names a
//! descriptor that does not exist, the call is refused.

use dormouse_machine::tool::may_hold_handle;
use dormouse_proto::descriptor::{FdError, FdErrorKind};
use serde::de::IgnoredAny;

use super::Call;
use super::part::{PARTS, PartReference};

/// Limit for the bytes, as JSON, that handles add to the arguments of one call.
const MAX_EXPANDED_BYTES: usize = 16 << 20;

/// Replaces every handle by the text of its descriptor, or by the base64 text of binary content.
/// All other bytes stay unchanged. `None` if there is no handle. O(n) in the arguments and the
/// inserted bytes.
///
/// # Errors
/// `not_found`, `invalid_page`, `invalid_range`, `invalid_parameter`: a handle that does not
/// resolve, or whose content is too long.
pub fn expand(call: &Call<'_>) -> Result<Option<String>, FdError> {
    let args = call.args;
    // Invalid JSON is reported by the tool itself, which knows its schema.
    if !may_hold_handle(args) || serde_json::from_str::<IgnoredAny>(args).is_err() {
        return Ok(None);
    }
    let mut expander = HandleExpander {
        call,
        bytes_left: MAX_EXPANDED_BYTES,
    };
    let mut expanded = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'"', &args.as_bytes()[at..]) {
        let start = at + found;
        let (text, len) = parse_string(&args[start..]);
        at = start + len;
        let is_key = args[at..].trim_start().starts_with(':');
        if let Some(replacement) = text
            .filter(|_| !is_key)
            .map_or(Ok(None), |text| expander.expand_string(&text))?
        {
            expanded.push_str(&args[copied..start]);
            expanded.push_str(&replacement);
            copied = at;
        }
    }
    Ok((copied > 0).then(|| expanded + &args[copied..]))
}

/// Parses the string at the start of valid JSON. Returns it with its length in the JSON text. The
/// string is `None` if it is not valid Unicode, such as an unpaired surrogate.
fn parse_string(json: &str) -> (Option<String>, usize) {
    let mut values = serde_json::Deserializer::from_str(json).into_iter::<IgnoredAny>();
    values.next();
    let len = values.byte_offset();
    (serde_json::from_str(&json[..len]).ok(), len)
}

/// The state of the expansion of one call's arguments.
struct HandleExpander<'a> {
    call: &'a Call<'a>,
    bytes_left: usize,
}

impl HandleExpander<'_> {
    /// The replacement of a string, as JSON.
    fn expand_string(&mut self, text: &str) -> Result<Option<String>, FdError> {
        let inside = text
            .strip_prefix("{{")
            .and_then(|rest| rest.strip_suffix("}}"))
            .map(str::trim);
        // A string with two handles is not itself a handle.
        let Some(inside) = inside.filter(|inside| !inside.contains("}}")) else {
            return Ok(None);
        };
        let Some(reference) = PartReference::parse(self.call, inside)? else {
            return Ok(None);
        };
        let too_long = || {
            reference.error(
                FdErrorKind::InvalidRange,
                format!(
                    "What the handles stand for is more than {MAX_EXPANDED_BYTES} bytes. Name \
                     parts: {PARTS}."
                ),
            )
        };
        // Escaping only adds bytes, so a content that is too long need not be read.
        if reference.byte_range()?.len() > self.bytes_left {
            return Err(too_long());
        }
        let replacement = serde_json::Value::from(&*reference.slice()?.text).to_string();
        let bytes_left = self.bytes_left.checked_sub(replacement.len());
        self.bytes_left = bytes_left.ok_or_else(too_long)?;
        Ok(Some(replacement))
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::id::FdId;
    use dormouse_proto::record::{Annotation, Entry, Section};
    use serde_json::json;

    use super::*;
    use crate::table::Table;
    use dormouse_content::Content;
    use dormouse_proto::descriptor::DescriptorSettings;

    fn table() -> Table {
        let mut table = Table::new();
        table.insert(
            table.next_id(),
            Entry::new(Content::new("one\ntwo\nthree \"é\"\n"), 8, "tool:t", 0),
        );
        table.insert(
            table.next_id(),
            Entry::new(Content::new(vec![0_u8, 0xff]), 8, "tool:t", 0),
        );
        let id = FdId::Fd(1);
        table.annotate(
            &id,
            &Annotation::Named {
                name: Some("error log".into()),
            },
        );
        let section = Section {
            start_line: 2,
            end_line: 3,
        };
        table.annotate(
            &id,
            &Annotation::Marked {
                ref_id: "rest".into(),
                section,
            },
        );
        table
    }

    fn expanded(table: &Table, args: &str) -> Result<Option<String>, FdError> {
        expand(&Call::unlimited(
            table,
            args,
            &DescriptorSettings::default(),
            0,
        ))
    }

    #[test]
    fn parts_are_counted_in_reformatted_json_and_the_whole_is_exact() {
        let mut table = Table::new();
        table.insert(
            table.next_id(),
            Entry::new(Content::new("[1,2]"), 8, "tool:t", 0),
        );
        let settings = DescriptorSettings {
            pretty_json: true,
            ..DescriptorSettings::default()
        };
        for (handle, text) in [("{{fd:1}}", "[1,2]"), ("{{fd:1 line 2}}", "  1,\n")] {
            let expected = json!({ "x": text }).to_string();
            assert_eq!(
                expand(&Call::unlimited(
                    &table,
                    &json!({ "x": handle }).to_string(),
                    &settings,
                    0
                )),
                Ok(Some(expected))
            );
        }
    }

    #[test]
    fn a_string_that_is_a_handle_is_replaced_at_any_depth() {
        let cases = [
            ("{{fd:1}}", "one\ntwo\nthree \"é\"\n"),
            ("{{ fd-1 }}", "one\ntwo\nthree \"é\"\n"),
            ("{{error log}}", "one\ntwo\nthree \"é\"\n"),
            ("{{error log lines 2-2}}", "two\n"),
            ("{{fd:1 line 2}}", "two\n"),
            ("{{fd:1 lines 2-99}}", "two\nthree \"é\"\n"),
            ("{{fd:1 page 1}}", "one\ntwo\n"),
            ("{{fd:1 pages 1-2}}", "one\ntwo\nthree \"é"),
            ("{{fd:1 chars 0-2}}", "one"),
            ("{{fd:1 section rest}}", "two\nthree \"é\"\n"),
            ("{{fd:2}}", "AP8="),
        ];
        for (handle, text) in cases {
            let args =
                json!({ "to": "a", "body": [handle, { "deep": handle }], "n": 1.50 }).to_string();
            let expected =
                json!({ "to": "a", "body": [text, { "deep": text }], "n": 1.50 }).to_string();
            assert_eq!(expanded(&table(), &args), Ok(Some(expected)), "{handle}");
        }
    }

    #[test]
    fn other_strings_and_keys_stay_unchanged() {
        for text in [
            "{{user.name}}",
            "see {{fd:1}}",
            "{{fd:1}} {{fd:1}}",
            "{{fd:1}} ",
            "{fd:1}",
            "{{}}",
            "{{",
            "}}",
            "{{{{fd:1}}}}",
            "{{ lines 1-2}}",
        ] {
            let args = format!("{{\"x\":  {}}}", json!(text));
            assert_eq!(expanded(&table(), &args), Ok(None), "{text}");
        }
        assert_eq!(expanded(&table(), "{{fd:1}}"), Ok(None), "no JSON");
        assert_eq!(expanded(&table(), r#"{"{{fd:1}}": 1}"#), Ok(None), "a key");
    }

    #[test]
    fn an_unresolvable_handle_is_an_error_that_states_what_is_valid() {
        let cases = [
            (
                "{{fd:9}}",
                FdErrorKind::NotFound,
                "File descriptor fd:9 not found",
            ),
            ("{{ref:nope}}", FdErrorKind::NotFound, "ref:nope"),
            (
                "{{fd:9 lines 1-2}}",
                FdErrorKind::NotFound,
                "File descriptor fd:9 not found",
            ),
            (
                "{{fd:1 lines 4}}",
                FdErrorKind::InvalidRange,
                "Invalid line 4. Valid range: 1-3",
            ),
            (
                "{{fd:1 lines 0}}",
                FdErrorKind::InvalidRange,
                "Valid range: 1-3",
            ),
            (
                "{{fd:1 page 4}}",
                FdErrorKind::InvalidPage,
                "Valid range: 1-3",
            ),
            (
                "{{fd:1 chars 99}}",
                FdErrorKind::InvalidRange,
                "Valid range: 0-17",
            ),
            (
                "{{fd:1 lines 3-2}}",
                FdErrorKind::InvalidParameter,
                "'3-2' is no range",
            ),
            (
                "{{fd:1 lines -}}",
                FdErrorKind::InvalidParameter,
                "is no range",
            ),
            (
                "{{fd:1 words 1-2}}",
                FdErrorKind::InvalidParameter,
                "Parts: lines 10-40",
            ),
            (
                "{{fd:1 section none}}",
                FdErrorKind::NotFound,
                "The sections are: rest",
            ),
        ];
        for (handle, kind, message) in cases {
            let error = expanded(&table(), &json!({ "x": handle }).to_string()).unwrap_err();
            assert_eq!(error.kind, kind, "{handle}: {}", error.message);
            assert!(
                error.message.contains(message),
                "{handle}: {}",
                error.message
            );
        }
    }

    #[test]
    fn the_text_around_a_handle_stays_unchanged() {
        let cases = [
            (
                r#" {"n": [123456789012345678901234567890, 1.50e3, -0], "x" : "{{fd:1 line 2}}", "x":"\u0041\/"} "#,
                r#" {"n": [123456789012345678901234567890, 1.50e3, -0], "x" : "two\n", "x":"\u0041\/"} "#,
            ),
            (
                r#"{"{{fd:1}}": ["{{fd:1 line 1}}"]}"#,
                r#"{"{{fd:1}}": ["one\n"]}"#,
            ),
            (
                r#"["a\"{{", "{{fd:1 line 1}}", "\\"]"#,
                r#"["a\"{{", "one\n", "\\"]"#,
            ),
            (r#""{{fd:1 line 1}}""#, r#""one\n""#),
            (r#"["\ud800", "{{fd:1 line 1}}"]"#, r#"["\ud800", "one\n"]"#),
        ];
        for (args, replaced) in cases {
            assert_eq!(
                expanded(&table(), args),
                Ok(Some(replaced.to_owned())),
                "{args}"
            );
        }
    }

    #[test]
    fn an_error_names_some_of_many_sections() {
        let mut table = table();
        for number in 0..100 {
            let section = Section {
                start_line: 1,
                end_line: 1,
            };
            table.annotate(
                &FdId::Fd(1),
                &Annotation::Marked {
                    ref_id: format!("s{number}").into(),
                    section,
                },
            );
        }
        let error = expanded(&table, r#"{"x": "{{fd:1 section none}}"}"#).unwrap_err();
        assert!(
            error.message.contains("There are 101, among them rest, s0"),
            "{}",
            error.message
        );
    }

    #[test]
    fn the_inserted_bytes_are_bounded() {
        let mut table = Table::new();
        table.insert(
            table.next_id(),
            Entry::new(
                // Two more bytes are the quotation marks.
                Content::new("x".repeat(MAX_EXPANDED_BYTES / 2 - 2)),
                8,
                "tool:t",
                0,
            ),
        );
        let args = |count| json!({ "x": vec!["{{fd:1}}"; count] }).to_string();
        assert!(expanded(&table, &args(2)).is_ok());
        assert_eq!(
            expanded(&table, &args(3)).unwrap_err().kind,
            FdErrorKind::InvalidRange
        );
    }

    #[test]
    fn what_escaping_adds_counts_against_the_limit() {
        let mut table = Table::new();
        let quotes = "\"".repeat(MAX_EXPANDED_BYTES / 2);
        table.insert(
            table.next_id(),
            Entry::new(Content::new(quotes), 8, "tool:t", 0),
        );
        let refused = expanded(&table, r#"{"a": "{{fd:1}}"}"#).unwrap_err();
        assert!(format!("{refused:?}").contains("more than"), "{refused:?}");
    }
}
