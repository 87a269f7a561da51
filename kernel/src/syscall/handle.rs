//! Handles: `{{fd:3}}`, or a part such as `{{fd:3 lines 10-40}}`, in the place of text that the model need not repeat.
//!
//! A handle is a whole string and never a part of one. Two curly braces around anything that is no descriptor are not a
//! handle but text, since templates look like that; around the name of a descriptor that is not there they are a mistake.

use std::borrow::Cow;

use dormouse_proto::descriptor::{DescriptorSettings, FdError, FdErrorKind};
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use serde_json::Value;

use crate::content::{Content, Slice};
use crate::table::{Table, served};

/// The most bytes that the arguments of one call may grow by.
const MAX_EXPANDED_BYTES: usize = 16 << 20;

/// What parts a handle may name, as errors say it.
const PARTS: &str = "lines 10-40, page 2, pages 2-4, chars 0-99, or section ID";

/// Arguments with every handle replaced by the text that it stands for, or by the base64 of binary content. None where
/// there is no handle: the arguments are as they were written. Costs a pass over the arguments, and what is put in.
///
/// # Errors
/// `not_found`, `invalid_page`, `invalid_range`, `invalid_parameter`: a handle that stands for nothing, or for too much.
pub fn expand(table: &Table, args: &str, settings: &DescriptorSettings) -> Result<Option<String>, FdError> {
    if !args.contains("{{") {
        return Ok(None);
    }
    // What is no JSON is refused by the tool itself, which knows what it wants.
    let Ok(mut value) = serde_json::from_str::<Value>(args) else { return Ok(None) };
    let mut expansion = Expansion { table, settings, replaced: 0, bytes_left: MAX_EXPANDED_BYTES };
    expansion.visit(&mut value)?;
    Ok((expansion.replaced > 0).then(|| value.to_string()))
}

struct Expansion<'a> {
    table: &'a Table,
    settings: &'a DescriptorSettings,
    replaced: usize,
    bytes_left: usize,
}

impl Expansion<'_> {
    /// No deeper than the parser goes, which is bounded.
    fn visit(&mut self, value: &mut Value) -> Result<(), FdError> {
        match value {
            Value::String(text) => {
                if let Some(found) = self.replacement(text)? {
                    *text = found;
                }
                Ok(())
            }
            Value::Array(items) => items.iter_mut().try_for_each(|item| self.visit(item)),
            Value::Object(fields) => fields.values_mut().try_for_each(|field| self.visit(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    fn replacement(&mut self, text: &str) -> Result<Option<String>, FdError> {
        let Some(mut handle) = Handle::parse(self.table, text)? else { return Ok(None) };
        // A part is one of what the model saw; the whole is exact.
        if handle.part.is_some() {
            handle.entry = served(handle.entry, self.settings).entry;
        }
        let text = handle.slice()?.text;
        self.bytes_left = self.bytes_left.checked_sub(text.len()).ok_or_else(|| {
            handle.error(
                FdErrorKind::InvalidRange,
                format!("What the handles stand for is more than {MAX_EXPANDED_BYTES} bytes. Name parts: {PARTS}."),
            )
        })?;
        self.replaced += 1;
        Ok(Some(text.to_owned()))
    }
}

/// A handle: the descriptor that it names, and which part.
struct Handle<'a> {
    asked: &'a str,
    entry: Cow<'a, Entry<Content>>,
    part: Option<(&'a str, &'a str)>,
}

impl<'a> Handle<'a> {
    /// The handle that `text` is, if it is one.
    fn parse(table: &'a Table, text: &'a str) -> Result<Option<Self>, FdError> {
        let inside = text.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")).map(str::trim);
        // Two handles in a row are a text that holds handles.
        let Some(inside) = inside.filter(|inside| !inside.contains("}}")) else { return Ok(None) };
        if let Ok((_, entry)) = table.resolve(inside) {
            return Ok(Some(Self { asked: inside, entry, part: None }));
        }
        // A name may hold spaces: the part is the last two words.
        let split = inside.rsplit_once(' ').and_then(|(rest, value)| {
            let (fd, unit) = rest.trim_end().rsplit_once(' ')?;
            Some((fd.trim_end(), unit, value))
        });
        let (fd, part) = split.map_or((inside, None), |(fd, unit, value)| (fd, Some((unit, value))));
        let is_id = |name: &str| name.split(' ').next().is_some_and(|word| word.parse::<FdId>().is_ok());
        match table.resolve(fd) {
            Ok((_, entry)) => Ok(Some(Self { asked: fd, entry, part })),
            Err(error) if is_id(inside) => Err(error),
            Err(_) => Ok(None),
        }
    }

    fn slice(&self) -> Result<Slice<'_>, FdError> {
        let content = &self.entry.content;
        let Some((unit, value)) = self.part else { return Ok(content.all()) };
        let (first, last) = match unit {
            "section" => return self.section(value),
            _ => self.range(value)?,
        };
        let count = last.saturating_sub(first).saturating_add(1);
        let (kind, slice, valid) = match unit {
            "line" | "lines" => (FdErrorKind::InvalidRange, content.lines(first, count), (1, content.total_lines())),
            "page" | "pages" => {
                let page_chars = self.entry.page_chars;
                let total = content.total_pages(page_chars);
                (FdErrorKind::InvalidPage, content.pages(page_chars, first, count), (1, total))
            }
            "char" | "chars" => {
                let total = content.total_chars().saturating_sub(1);
                (FdErrorKind::InvalidRange, content.chars(first, count), (0, total))
            }
            _ => return Err(self.unknown(unit)),
        };
        slice.ok_or_else(|| {
            let (least, most) = valid;
            self.error(kind, format!("The content has no {unit} {value}. Valid range: {least}-{most}"))
        })
    }

    fn section(&self, ref_id: &str) -> Result<Slice<'_>, FdError> {
        let sections = &self.entry.notes.sections;
        let section = sections.get(ref_id).ok_or_else(|| {
            let known: Vec<_> = sections.keys().map(|id| &**id).collect();
            let message = match known.len() {
                0 => format!("There is no section '{ref_id}': none is marked."),
                _ => format!("There is no section '{ref_id}'. The sections are: {}", known.join(", ")),
            };
            self.error(FdErrorKind::NotFound, message)
        })?;
        let count = section.end_line.saturating_sub(section.start_line).saturating_add(1);
        let lines = self.entry.content.lines(section.start_line, count);
        lines.ok_or_else(|| self.error(FdErrorKind::InvalidRange, format!("Section '{ref_id}' holds no line.")))
    }

    /// `10-40`, or `10` alone.
    fn range(&self, value: &str) -> Result<(u64, u64), FdError> {
        let (first, last) = value.split_once('-').unwrap_or((value, value));
        let numbers = first.parse::<u64>().ok().zip(last.parse::<u64>().ok()).filter(|(first, last)| first <= last);
        numbers.ok_or_else(|| {
            self.error(FdErrorKind::InvalidParameter, format!("'{value}' is no range: give a number, or two as 10-40."))
        })
    }

    fn unknown(&self, unit: &str) -> FdError {
        let message = format!("A handle cannot name its part by '{unit}'. Parts: {PARTS}.");
        self.error(FdErrorKind::InvalidParameter, message)
    }

    fn error(&self, kind: FdErrorKind, message: String) -> FdError {
        FdError { kind, fd: Some(self.asked.to_owned()), message }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::record::{Note, Section};
    use serde_json::json;

    use super::*;

    fn table() -> Table {
        let mut table = Table::new();
        table.insert(table.next_id(), Entry::new(Content::new("one\ntwo\nthree \"é\"\n"), 8, "tool:t", 0));
        table.insert(table.next_id(), Entry::new(Content::new(vec![0_u8, 0xff]), 8, "tool:t", 0));
        let id = FdId::Fd(1);
        table.note(&id, &Note::Named { name: Some("error log".into()) });
        let section = Section { start_line: 2, end_line: 3 };
        table.note(&id, &Note::Marked { ref_id: "rest".into(), section });
        table
    }

    fn expanded(table: &Table, args: &str) -> Result<Option<String>, FdError> {
        expand(table, args, &DescriptorSettings::default())
    }

    #[test]
    fn a_part_of_reformatted_json_is_one_of_what_was_shown_and_the_whole_is_exact() {
        let mut table = Table::new();
        table.insert(table.next_id(), Entry::new(Content::new("[1,2]"), 8, "tool:t", 0));
        let settings = DescriptorSettings { pretty_json: true, ..DescriptorSettings::default() };
        for (handle, text) in [("{{fd:1}}", "[1,2]"), ("{{fd:1 line 2}}", "  1,\n")] {
            let expected = json!({ "x": text }).to_string();
            assert_eq!(expand(&table, &json!({ "x": handle }).to_string(), &settings), Ok(Some(expected)));
        }
    }

    #[test]
    fn a_string_that_is_a_handle_is_replaced_wherever_it_stands() {
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
            let args = json!({ "to": "a", "body": [handle, { "deep": handle }], "n": 1.50 }).to_string();
            let expected = json!({ "to": "a", "body": [text, { "deep": text }], "n": 1.50 }).to_string();
            assert_eq!(expanded(&table(), &args), Ok(Some(expected)), "{handle}");
        }
    }

    #[test]
    fn anything_else_stays_as_it_is_written() {
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
    fn a_handle_that_stands_for_nothing_is_an_error_that_says_what_is_there() {
        let cases = [
            ("{{fd:9}}", FdErrorKind::NotFound, "File descriptor fd:9 not found"),
            ("{{ref:nope}}", FdErrorKind::NotFound, "ref:nope"),
            ("{{fd:9 lines 1-2}}", FdErrorKind::NotFound, "File descriptor fd:9 not found"),
            ("{{fd:1 lines 4}}", FdErrorKind::InvalidRange, "no lines 4. Valid range: 1-3"),
            ("{{fd:1 lines 0}}", FdErrorKind::InvalidRange, "Valid range: 1-3"),
            ("{{fd:1 page 4}}", FdErrorKind::InvalidPage, "Valid range: 1-3"),
            ("{{fd:1 chars 99}}", FdErrorKind::InvalidRange, "Valid range: 0-17"),
            ("{{fd:1 lines 3-2}}", FdErrorKind::InvalidParameter, "'3-2' is no range"),
            ("{{fd:1 lines -}}", FdErrorKind::InvalidParameter, "is no range"),
            ("{{fd:1 words 1-2}}", FdErrorKind::InvalidParameter, "Parts: lines 10-40"),
            ("{{fd:1 section none}}", FdErrorKind::NotFound, "The sections are: rest"),
        ];
        for (handle, kind, message) in cases {
            let error = expanded(&table(), &json!({ "x": handle }).to_string()).unwrap_err();
            assert_eq!(error.kind, kind, "{handle}: {}", error.message);
            assert!(error.message.contains(message), "{handle}: {}", error.message);
        }
    }

    #[test]
    fn what_is_put_in_is_bounded() {
        let mut table = Table::new();
        table.insert(table.next_id(), Entry::new(Content::new("x".repeat(MAX_EXPANDED_BYTES / 2)), 8, "tool:t", 0));
        let args = |count| json!({ "x": vec!["{{fd:1}}"; count] }).to_string();
        assert!(expanded(&table, &args(2)).is_ok());
        assert_eq!(expanded(&table, &args(3)).unwrap_err().kind, FdErrorKind::InvalidRange);
    }
}
