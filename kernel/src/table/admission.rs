//! Admission: what is too large for a context becomes a descriptor before it is first sent to a model.
//!
//! Answers of descriptor tools are [`Answer`]s already, and nothing here takes an `Answer`: that is what keeps them from
//! being wrapped again. Admission never looks at the name of a tool, and never changes the table: it says what to open.
//!
//! Nothing here is the kernel's word, so that what is small is shown by the rule of [`ShownText`].

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_proto::descriptor::{DescriptorSettings, Preview, view};
use dormouse_proto::id::FdId;
use dormouse_proto::message::Block;
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::Entry;
use dormouse_proto::shown::ShownText;
use dormouse_proto::spoken::{Spoken, SpokenPart};
use dormouse_proto::temp_file::{self, TempId};
use dormouse_proto::tool::{Answer, ToolOutput};

use super::preview;
use super::{Table, served};
use crate::content::{Collected, Content, ReadQuota, Reader, Unreadable};
use crate::syscall::temp_file::{contents, unreadable};

/// What becomes of an output or input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It enters the context as a text.
    Direct {
        /// What the model reads where the text stands by itself: by the rule of [`ShownText`].
        answer: Answer,
        /// The text exactly: what an element of the kernel is written around.
        text: Arc<str>,
    },
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
/// are off, and then nothing does. The preview of an error shows both of its ends. What is beyond `max_content_bytes` is cut off, counted, and said to be. `source` says
/// where it comes from, such as `tool:grep`. O(n), at memory bandwidth.
#[must_use]
pub fn admit_output(
    table: &Table,
    output: ToolOutput,
    source: &str,
    settings: Option<&DescriptorSettings>,
    now_ms: u64,
) -> Admission {
    let ToolOutput { bytes, is_error, cut_bytes, attached: _ } = output;
    let kept = Kept::new(bytes, cut_bytes, settings);
    let of_errors = settings.filter(|_| is_error).map(of_errors);
    let settings = of_errors.as_ref().or(settings);
    admit(table, kept, source, settings, now_ms).unwrap_or_else(Admission::lost).with_error_flag(is_error)
}

/// The settings for an error: its cause stands at its end more often than at its beginning, so both are shown.
fn of_errors(settings: &DescriptorSettings) -> DescriptorSettings {
    DescriptorSettings { preview: Preview::HeadTail, ..*settings }
}

fn admit(
    table: &Table,
    kept: Kept,
    source: &str,
    settings: Option<&DescriptorSettings>,
    now_ms: u64,
) -> Result<Admission, Unreadable> {
    match settings {
        Some(settings) if kept.reader().total_chars()? > settings.max_direct_output_chars => {
            let chars = settings.max_direct_output_chars;
            let message = format!("Output exceeds {chars} characters. Use read_fd to read more pages.");
            Ok(open(table, kept, source, settings, &message, now_ms))
        }
        _ => kept.direct("output", |text| ShownText::outside(source, text)),
    }
}

/// Admits what another process said, as [`admit_output`] admits a result. What becomes a descriptor is handed over: it
/// shares the text, and nothing of it is copied.
#[must_use]
pub fn admit_shared(
    table: &Table,
    text: &Arc<str>,
    source: &str,
    settings: Option<&DescriptorSettings>,
    now_ms: u64,
) -> Admission {
    let content = Content::shared(text.clone());
    let is_too_large = |settings: &&DescriptorSettings| content.len_bytes() > settings.max_content_bytes;
    let kept = match settings.filter(is_too_large) {
        Some(settings) => content.unbounded().bytes().map(|bytes| Kept::new(bytes, 0, Some(settings))),
        None => Ok(Kept { content, cut_bytes: 0 }),
    };
    let admission = kept.and_then(|kept| admit(table, kept, source, settings, now_ms));
    admission.unwrap_or_else(Admission::lost)
}

/// Admits what a child said last, as [`admit_shared`] does. Where the child did not finish, that is an error.
#[must_use]
pub fn admit_exit(
    table: &Table,
    exit: &Exit,
    source: &str,
    settings: Option<&DescriptorSettings>,
    now_ms: u64,
) -> Admission {
    let of_errors = settings.filter(|_| exit.status != ExitStatus::Done).map(of_errors);
    admit_shared(table, &exit.message, source, of_errors.as_ref().or(settings), now_ms)
}

/// Admits a part of what the user said. It becomes a descriptor if it has more characters than `max_input_chars` and
/// `page_user_input` is on. O(n), at memory bandwidth; nothing is copied.
#[must_use]
pub fn admit_input(table: &Table, part: &SpokenPart, settings: Option<&DescriptorSettings>, now_ms: u64) -> Admission {
    let settings = settings.filter(|settings| settings.page_user_input);
    let kept = Kept::new(part.bytes.clone(), 0, settings);
    let is_large = |settings: &&DescriptorSettings| {
        kept.reader().total_chars().is_ok_and(|chars| chars > settings.max_input_chars)
    };
    match settings.filter(is_large) {
        Some(settings) => {
            let message = "Large user input has been stored in a file descriptor. Use read_fd to read more pages.";
            open(table, kept, &part.source, settings, message, now_ms)
        }
        None if part.is_typed => kept.direct("input", ShownText::typed).unwrap_or_else(Admission::lost),
        None => {
            let shown = |text| ShownText::outside(&part.source, text);
            kept.direct("input", shown).unwrap_or_else(Admission::lost)
        }
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
    let is_large = |settings: &&DescriptorSettings| {
        content.unbounded().total_chars().is_ok_and(|chars| chars > settings.max_direct_output_chars)
    };
    match settings.filter(is_large) {
        Some(settings) => {
            let message = temp_file::view::exceeds(id, version, settings.max_direct_output_chars);
            let kept = Kept { content: content.clone(), cut_bytes: 0 };
            open(table, kept, &id.to_string(), settings, &message, now_ms)
        }
        None => contents(id, version, content).map_or_else(Admission::lost, Admission::element),
    }
}

/// Admits all that is said at once, part after part: what enters the context of each, in order, and the descriptors that
/// large parts become. O(n), at memory bandwidth.
#[must_use]
pub fn admit_spoken(
    table: &Table,
    spoken: &Spoken,
    settings: Option<&DescriptorSettings>,
    now_ms: u64,
) -> (Vec<Block>, Vec<(FdId, Entry<Content>)>) {
    let (mut table, mut opened) = (table.clone(), Vec::new());
    let blocks = spoken.parts.iter().map(|part| match admit_input(&table, part, settings, now_ms) {
        Admission::Direct { answer, .. } => Block::text(answer.text),
        Admission::Opened { id, entry, answer } => {
            table.insert(id.clone(), entry.clone());
            opened.push((id, entry));
            Block::text(answer.text)
        }
    });
    (blocks.collect(), opened)
}

/// Admits what the host hands over: a descriptor however small it is, in pages of so many characters (none: as the settings
/// say). O(n), at memory bandwidth.
#[must_use]
pub fn admit_handed(
    table: &Table,
    Collected { bytes, cut_bytes }: Collected,
    source: &str,
    page_chars: Option<u32>,
    settings: Option<&DescriptorSettings>,
    now_ms: u64,
) -> Admission {
    let settings = settings.copied().unwrap_or_default();
    let settings = DescriptorSettings { page_chars: page_chars.unwrap_or(settings.page_chars), ..settings };
    let kept = Kept::new(bytes, cut_bytes, Some(&settings));
    open(table, kept, source, &settings, &format!("Opened {source}. Use read_fd to read its pages."), now_ms)
}

/// What is kept of something that came in, and how much is not.
struct Kept {
    content: Content,
    cut_bytes: u64,
}

impl Kept {
    fn new(bytes: Bytes, cut_bytes: u64, settings: Option<&DescriptorSettings>) -> Self {
        let cap_bytes = settings.map_or(u64::MAX, |settings| settings.max_content_bytes);
        let Collected { bytes, cut_bytes: cut_here } = Collected::capped(bytes, cap_bytes);
        Self { content: Content::new(bytes), cut_bytes: cut_bytes + cut_here }
    }

    fn reader(&self) -> Reader<'static> {
        self.content.unbounded()
    }

    /// What is small enough, and how it is `shown` by itself: binary with a word of what it is, then its base64; and behind a
    /// cut a word of that.
    fn direct(&self, what: &str, shown: impl Fn(Arc<str>) -> ShownText) -> Result<Admission, Unreadable> {
        let Self { content, cut_bytes } = self;
        let reader = self.reader();
        let text: Arc<str> = match reader.is_binary()? {
            true => format!("Binary {what} of {} bytes, as base64:\n{}", content.len_bytes(), reader.text()?).into(),
            false => (&*reader.text()?).into(),
        };
        let shown = shown(text.clone());
        if *cut_bytes == 0 {
            return Ok(Admission::Direct { answer: Answer::shown(shown), text });
        }
        let behind = format!("\n\n{}", cut(content, *cut_bytes));
        let text = [&*text, &*behind].concat().into();
        Ok(Admission::Direct { answer: Answer::shown(shown.then(behind)), text })
    }
}

fn cut(content: &Content, cut_bytes: u64) -> String {
    let kept = content.len_bytes();
    format!("Only its first {kept} bytes were kept; {cut_bytes} bytes after them were cut off.")
}

/// The `fd_result` of a descriptor that has just been opened, with this message and as much of it as the settings want to be
/// shown. JSON on a single line is reformatted first where they say so, at the cost of
/// [`Content::pretty`]: some 0.2 s for 20 MB. Of content that cannot be read, the answer is an `fd_error` that says so.
#[must_use]
pub fn opened(id: &FdId, entry: &Entry<Content>, message: &str, settings: &DescriptorSettings) -> Answer {
    let message = match entry.cut_bytes {
        0 => message.to_owned(),
        cut_bytes => format!("{message} {}", cut(&entry.content, cut_bytes)),
    };
    let answer = || {
        let view = served(Cow::Borrowed(entry), settings, ReadQuota::unlimited())?;
        let shown = preview::shown(&view, settings.preview)?;
        let previewed = shown.previewed(entry.notes.summary.as_deref());
        Ok(view::result(id, &entry.source, view.extent()?, &message, previewed))
    };
    answer().unwrap_or_else(|lost| unreadable(Some(id.to_string()), &lost))
}

fn open(
    table: &Table,
    kept: Kept,
    source: &str,
    settings: &DescriptorSettings,
    message: &str,
    now_ms: u64,
) -> Admission {
    let id = table.next_id();
    let Kept { content, cut_bytes } = kept;
    let entry = Entry { cut_bytes, ..Entry::new(content, settings.page_chars.max(1), source, now_ms) };
    let answer = opened(&id, &entry, message, settings);
    Admission::Opened { id, entry, answer }
}

impl Admission {
    /// How many characters were produced, whatever of them enters the context.
    #[must_use]
    pub fn produced_chars(&self) -> u64 {
        match self {
            Self::Direct { text, .. } => text.chars().count() as u64,
            // What was opened has just been read.
            Self::Opened { entry, .. } => entry.content.unbounded().total_chars().unwrap_or_default(),
        }
    }

    /// What came in cannot be read: an answer that says so.
    #[expect(clippy::needless_pass_by_value, reason = "it maps an error")]
    fn lost(error: Unreadable) -> Self {
        Self::element(unreadable(None, &error))
    }

    /// What is an element of the kernel already.
    fn element(answer: Answer) -> Self {
        Self::Direct { text: answer.text.clone(), answer }
    }

    fn with_error_flag(mut self, is_error: bool) -> Self {
        let (Self::Direct { answer, .. } | Self::Opened { answer, .. }) = &mut self;
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
                let output = ToolOutput { is_error, ..ToolOutput::ok(bytes) };
                let admission = admit_output(&Table::new(), output.clone(), "tool:t", Some(&settings(20)), 7);
                assert_eq!(is_opened(&admission), expected, "{bytes:?}");
                let (Admission::Direct { answer, .. } | Admission::Opened { answer, .. }) = &admission;
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
    fn of_an_error_both_ends_are_shown_whatever_the_program_says() {
        let text = "building\nwarning: unused\nerror: no such file\n";
        let shown = |admission: &Admission| {
            let (Admission::Direct { answer, .. } | Admission::Opened { answer, .. }) = admission;
            let parts = ["building", "warning: unused", "no such file"].map(|part| answer.text.contains(part));
            (is_opened(admission), parts)
        };
        let output = |is_error, settings: &DescriptorSettings| {
            let output = ToolOutput { is_error, ..ToolOutput::ok(text) };
            shown(&admit_output(&Table::new(), output, "tool:t", Some(settings), 0))
        };
        let exit = |status, settings: &DescriptorSettings| {
            shown(&admit_exit(&Table::new(), &Exit::new(status, text), "fork:2", Some(settings), 0))
        };
        let (head, ends) = ((true, [true, true, false]), (true, [true, false, true]));
        let settings = DescriptorSettings { page_chars: 40, ..settings(20) };
        let small = DescriptorSettings { max_direct_output_chars: 100, ..settings };
        assert_eq!([output(false, &settings), output(true, &settings)], [head, ends]);
        assert_eq!(output(true, &small), (false, [true; 3]));
        assert_eq!([exit(ExitStatus::Done, &settings), exit(ExitStatus::Refused, &settings)], [head, ends]);
    }

    #[test]
    fn small_binary_is_answered_as_base64_that_says_so() {
        let output = ToolOutput::ok(vec![0_u8, 0xff]);
        let admission = admit_output(&Table::new(), output, "tool:t", Some(&settings(20)), 0);
        let text = "Binary output of 2 bytes, as base64:\nAP8=";
        assert_eq!(admission, Admission::Direct { answer: Answer::shown(text), text: text.into() });
    }

    #[test]
    fn what_is_beyond_the_cap_is_cut_off_and_counted() {
        let capped = |max_content_bytes| DescriptorSettings { max_content_bytes, ..settings(20) };
        let output = ToolOutput { cut_bytes: 5, ..ToolOutput::ok("é".repeat(26)) };
        let admission = admit_output(&Table::new(), output.clone(), "tool:t", Some(&capped(31)), 0);
        let Admission::Direct { answer, .. } = admission else { panic!("15 characters are left") };
        let said = "\n\nOnly its first 30 bytes were kept; 27 bytes after them were cut off.";
        assert_eq!(&*answer.text, "é".repeat(15) + said);
        let admission = admit_output(&Table::new(), output, "tool:t", Some(&capped(50)), 0);
        let Admission::Opened { entry, answer, .. } = admission else { panic!("25 characters are left") };
        assert_eq!((&*entry.content.unbounded().text().unwrap(), entry.cut_bytes), (&*"é".repeat(25), 7));
        assert!(answer.text.contains("total_chars=\"25\" cut_bytes=\"7\""), "{}", answer.text);
        assert!(answer.text.contains("Only its first 50 bytes were kept; 7 bytes after them"), "{}", answer.text);
    }
}
