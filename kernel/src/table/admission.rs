//! Admission: what is too large for a context becomes a descriptor before it is first sent to a model.
//!
//! Answers of descriptor tools are [`Answer`]s already, and nothing here takes an `Answer`: that is what keeps them from
//! being wrapped again. Admission never looks at the name of a tool, and never changes the table: it says what to open.

use dormouse_proto::descriptor::{DescriptorSettings, view};
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use dormouse_proto::spoken::SpokenPart;
use dormouse_proto::temp_file::{self, TempId};
use dormouse_proto::tool::{Answer, ToolOutput};

use super::{Table, extent};
use crate::content::Content;
use crate::syscall::temp_file::contents;

/// What becomes of an output or input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It enters the context as it is.
    Direct(Answer),
    /// It becomes a descriptor, and the answer, a preview, enters the context in its place.
    Opened {
        /// The descriptor's name: the table's next.
        id: FdId,
        /// What it holds.
        entry: Entry<Content>,
        /// What the model reads.
        answer: Answer,
    },
}

/// Admits what a tool produced: a result or an error, text or binary (ruling 11 of the design). It becomes a descriptor if
/// the text that would be shown has more characters than `max_direct_output_chars`; `settings` are none where descriptors
/// are off, and then nothing does. `source` says where it comes from, such as `tool:grep`. O(n), at memory bandwidth.
#[must_use]
pub fn admit_output(
    table: &Table,
    output: ToolOutput,
    source: &str,
    settings: Option<&DescriptorSettings>,
    now_ms: u64,
) -> Admission {
    let ToolOutput { bytes, is_error } = output;
    let content = Content::new(bytes);
    let admission = match settings {
        Some(settings) if content.total_chars() > settings.max_direct_output_chars => {
            let chars = settings.max_direct_output_chars;
            let message = format!("Output exceeds {chars} characters. Use read_fd to read more pages.");
            open(table, content, source, settings, &message, now_ms)
        }
        _ => Admission::Direct(direct("output", &content)),
    };
    admission.with_error_flag(is_error)
}

/// Admits a part of what the user said. It becomes a descriptor if it has more characters than `max_input_chars` and
/// `page_user_input` is on. O(n), at memory bandwidth; nothing is copied.
#[must_use]
pub fn admit_input(table: &Table, part: &SpokenPart, settings: Option<&DescriptorSettings>, now_ms: u64) -> Admission {
    let content = Content::new(part.bytes.clone());
    match settings {
        Some(settings) if settings.page_user_input && content.total_chars() > settings.max_input_chars => {
            let message = "Large user input has been stored in a file descriptor. Use read_fd to read more pages.";
            open(table, content, &part.source, settings, message, now_ms)
        }
        _ => Admission::Direct(direct("input", &content)),
    }
}

/// Admits what a temporary file holds, for a reader of it. A large one becomes a descriptor of the reader, whose source is
/// the file's name: a copy of that version, with nothing copied. The version stands in the answer either way.
#[must_use]
pub fn admit_temp_file(
    table: &Table,
    (id, version): (TempId, u64),
    content: &Content,
    settings: Option<&DescriptorSettings>,
    now_ms: u64,
) -> Admission {
    match settings {
        Some(settings) if content.total_chars() > settings.max_direct_output_chars => {
            let message = temp_file::view::exceeds(id, version, settings.max_direct_output_chars);
            open(table, content.clone(), &id.to_string(), settings, &message, now_ms)
        }
        _ => Admission::Direct(contents(id, version, content)),
    }
}

/// The `fd_result` of a descriptor that has just been opened, with its first page and this message.
#[must_use]
pub fn opened(id: &FdId, entry: &Entry<Content>, message: &str) -> Answer {
    let preview = entry.content.page(entry.page_chars, 1).expect("every content has a first page");
    view::result(id, &entry.source, extent(entry), message, preview.part())
}

fn open(
    table: &Table,
    content: Content,
    source: &str,
    settings: &DescriptorSettings,
    message: &str,
    now_ms: u64,
) -> Admission {
    let id = table.next_id();
    let entry = Entry::new(content, settings.page_chars.max(1), source, now_ms);
    let answer = opened(&id, &entry, message);
    Admission::Opened { id, entry, answer }
}

/// Binary that is small enough: a word of what it is, then its base64.
fn direct(what: &str, content: &Content) -> Answer {
    if content.is_binary() {
        return Answer::ok(format!("Binary {what} of {} bytes, as base64:\n{}", content.bytes().len(), content.text()));
    }
    Answer::ok(content.text())
}

impl Admission {
    /// How many characters were produced, whatever of them enters the context.
    #[must_use]
    pub fn produced_chars(&self) -> u64 {
        match self {
            Self::Direct(answer) => answer.text.chars().count() as u64,
            Self::Opened { entry, .. } => entry.content.total_chars(),
        }
    }

    fn with_error_flag(mut self, is_error: bool) -> Self {
        let (Self::Direct(answer) | Self::Opened { answer, .. }) = &mut self;
        answer.is_error = is_error;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(threshold: u64) -> DescriptorSettings {
        DescriptorSettings {
            max_direct_output_chars: threshold,
            max_input_chars: threshold,
            page_chars: 10,
            ..DescriptorSettings::default()
        }
    }

    fn is_opened(admission: &Admission) -> bool {
        matches!(admission, Admission::Opened { .. })
    }

    #[test]
    fn more_than_the_threshold_and_not_at_it() {
        let cases: [(&[u8], bool); 6] = [
            (&[b'a'; 20], false),
            (&[b'a'; 21], true),
            ("é".repeat(20).leak().as_bytes(), false),
            ("é".repeat(21).leak().as_bytes(), true),
            (&[0xff; 15], false),
            (&[0xff; 16], true),
        ];
        for (bytes, expected) in cases {
            for is_error in [false, true] {
                let output = ToolOutput { bytes: bytes.into(), is_error };
                let admission = admit_output(&Table::new(), output.clone(), "tool:t", Some(&settings(20)), 7);
                assert_eq!(is_opened(&admission), expected, "{bytes:?}");
                let (Admission::Direct(answer) | Admission::Opened { answer, .. }) = &admission;
                assert_eq!(answer.is_error, is_error);
                assert!(!is_opened(&admit_output(&Table::new(), output, "tool:t", None, 7)), "descriptors are off");
            }
            if let Ok(text) = std::str::from_utf8(bytes) {
                let part = SpokenPart::text(text);
                assert_eq!(is_opened(&admit_input(&Table::new(), &part, Some(&settings(20)), 7)), expected);
                let off = DescriptorSettings { page_user_input: false, ..settings(20) };
                assert!(!is_opened(&admit_input(&Table::new(), &part, Some(&off), 7)));
            }
        }
    }

    #[test]
    fn what_is_opened_is_the_whole_output_under_the_next_number() {
        let mut table = Table::new();
        let output = ToolOutput::ok("line one\nline two\nline three\n");
        let Admission::Opened { id, entry, answer } = admit_output(&table, output, "tool:a\"b", Some(&settings(20)), 7)
        else {
            panic!("29 characters are more than 20")
        };
        assert_eq!((id.to_string(), entry.opened_ms, &*entry.source), ("fd:1".into(), 7, "tool:a\"b"));
        assert_eq!(
            &*answer.text,
            "<fd_result fd=\"fd:1\" source=\"tool:a&quot;b\" pages=\"4\" truncated=\"false\" lines=\"1-1\" total_lines=\"3\" \
             total_chars=\"29\">\n  <message>Output exceeds 20 characters. Use read_fd to read more pages.</message>\n  \
             <preview>line one\n</preview>\n</fd_result>"
        );
        table.insert(id, entry);
        let part = SpokenPart::text("<b>\n".repeat(9));
        let Admission::Opened { id, entry, answer } = admit_input(&table, &part, Some(&settings(20)), 8) else {
            panic!("36 characters are more than 20")
        };
        assert_eq!((id.to_string(), &*entry.source), ("fd:2".into(), "user_input"));
        assert!(answer.text.contains("Large user input has been stored in a file descriptor."), "{}", answer.text);
    }

    #[test]
    fn small_binary_is_answered_as_base64_that_says_so() {
        let output = ToolOutput::ok(vec![0_u8, 0xff]);
        let admission = admit_output(&Table::new(), output, "tool:t", Some(&settings(20)), 0);
        assert_eq!(admission, Admission::Direct(Answer::ok("Binary output of 2 bytes, as base64:\nAP8=")));
    }
}
