//! Placement: decides whether an output or input enters the context of the model or becomes a
//! descriptor. A text that is too large for the context becomes a descriptor.
//!
//! Answers of descriptor tools have the type [`Answer`]. No function here turns an `Answer` into a
//! descriptor. Placement depends neither on the name of a tool nor on the descriptor table, since a
//! new descriptor gets its number later, when it is opened. Therefore all work on bytes can be done
//! outside of the process actor.
//!
//! Small text is escaped as [`ShownText`], since the kernel did not write it.

use std::sync::Arc;

use bytes::Bytes;
use dormouse_proto::descriptor::{DescriptorSettings, Preview};
use dormouse_proto::id::FdId;
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::Entry;
use dormouse_proto::shown::ShownText;
use dormouse_proto::temp_file::{self, TempId};
use dormouse_proto::tool::{Answer, ToolOutput};
use dormouse_proto::user_input::{InputPart, UserInput};

use super::attachment::{MAX_ATTACHMENTS, NewAttachment};
use super::new_descriptor::{NewDescriptor, cut_notice, unreadable_answer};
use dormouse_content::{CappedBytes, Content, ReadQuota, Reader, Unreadable};

/// Where an output or input goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The whole text enters the context.
    Context {
        /// The answer with the text, escaped as [`ShownText`].
        answer: Answer,
        /// The unescaped text, for callers that put it into an element of the kernel.
        text: Arc<str>,
        /// Characters of the text.
        produced_chars: u64,
    },
    /// The text becomes a descriptor, and a preview enters the context.
    Descriptor(Box<NewDescriptor>),
}

/// The placement of a tool's output and of its attachments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedOutput {
    /// Placement of the output itself.
    pub placement: Placement,
    /// The attachments, at most [`MAX_ATTACHMENTS`].
    pub attached: Vec<NewAttachment>,
    /// Number of attachments that the tool returned.
    pub total_attached: usize,
}

impl PlacedOutput {
    /// Whether a descriptor is opened for the output or one of its attachments.
    pub(crate) fn opens_descriptor(&self) -> bool {
        matches!(self.placement, Placement::Descriptor(_)) || !self.attached.is_empty()
    }
}

/// Places the outputs and inputs of one process. O(n) in the bytes, at memory bandwidth.
/// Single-line JSON is reformatted first if the settings say so, at the cost of [`Reader::pretty`]:
/// about 0.2 s for 20 MB.
#[derive(Clone, Copy, Debug)]
pub struct Placer<'a> {
    /// Descriptor settings. `None` if descriptors are off; then everything enters the context.
    pub settings: Option<&'a DescriptorSettings>,
    /// The time: milliseconds since the epoch, UTC.
    pub now_ms: u64,
    /// Quota for the bytes that are read.
    pub quota: &'a ReadQuota,
}

impl<'a> Placer<'a> {
    /// A placer without a read limit.
    #[must_use]
    pub fn unlimited(settings: Option<&'a DescriptorSettings>, now_ms: u64) -> Self {
        Self {
            settings,
            now_ms,
            quota: ReadQuota::unlimited(),
        }
    }

    /// Places the output of a tool: a result or an error, text or binary. It becomes a descriptor
    /// if the shown text exceeds a limit for direct output (`max_direct_output_chars`,
    /// `max_direct_output_tokens`). The preview of an error shows both ends. Bytes past
    /// `max_content_bytes` are dropped and reported as `cut_bytes`. `source` names the origin, such
    /// as `tool:grep`.
    #[must_use]
    pub fn output(&self, output: ToolOutput, source: &str) -> PlacedOutput {
        let ToolOutput {
            bytes,
            is_error,
            cut_bytes,
            attached,
        } = output;
        let error_settings = self.settings.filter(|_| is_error).map(error_settings);
        let placer = Placer {
            settings: error_settings.as_ref().or(self.settings),
            ..*self
        };
        let placed = placer
            .cap_content(bytes, cut_bytes, self.settings)
            .and_then(|capped| placer.place_content(capped, source));
        let total_attached = attached.len();
        // If the quota runs out, the caller discards the whole result, so a partial list is
        // harmless.
        let attached = attached
            .iter()
            .take(MAX_ATTACHMENTS)
            .map_while(|attachment| self.attachment(attachment, source).ok());
        PlacedOutput {
            placement: placed
                .unwrap_or_else(Placement::unreadable)
                .with_error_flag(is_error),
            attached: attached.collect(),
            total_attached,
        }
    }

    /// Places text of another process, by the same rule as [`output`](Self::output). A descriptor
    /// shares the text without a copy.
    #[must_use]
    pub fn process_text(&self, text: &Arc<str>, source: &str) -> Placement {
        let capped = self.cap_content(Content::bytes_from_text(text.clone()), 0, self.settings);
        capped
            .and_then(|capped| self.place_content(capped, source))
            .unwrap_or_else(Placement::unreadable)
    }

    /// Places the last message of a child, as [`process_text`](Self::process_text) does. If the
    /// child did not finish, the preview shows both ends, as for an error.
    #[must_use]
    pub fn exit(&self, exit: &Exit, source: &str) -> Placement {
        let error_settings = self
            .settings
            .filter(|_| exit.status != ExitStatus::Done)
            .map(error_settings);
        Placer {
            settings: error_settings.as_ref().or(self.settings),
            ..*self
        }
        .process_text(&exit.message, source)
    }

    /// Places one part of an input. It becomes a descriptor if it has more than `max_input_chars`
    /// characters and `page_user_input` is on. Nothing is copied.
    #[must_use]
    pub fn input(&self, part: &InputPart) -> Placement {
        let settings = self.settings.filter(|settings| settings.page_user_input);
        let place = |capped: CappedContent| match settings {
            Some(settings)
                if self.reader(&capped.content).total_chars()? > settings.max_input_chars =>
            {
                let message = format!(
                    "Large user input has been stored in a file descriptor.{}",
                    settings.hintable_tools.hint_to_read()
                );
                Ok(self.place_as_descriptor(capped, &part.source, settings, &message))
            }
            _ if part.is_typed => self.place_in_context(&capped, "input", ShownText::typed),
            _ => self.place_in_context(&capped, "input", |text| {
                ShownText::outside(&part.source, text)
            }),
        };
        self.cap_content(part.bytes.clone(), 0, settings)
            .and_then(place)
            .unwrap_or_else(Placement::unreadable)
    }

    /// Places all parts of an input, in order.
    #[must_use]
    pub fn user_input(&self, user_input: &UserInput) -> Vec<Placement> {
        user_input
            .parts
            .iter()
            .map(|part| self.input(part))
            .collect()
    }

    /// Places the content of a temporary file for its reader. A large one becomes a descriptor
    /// whose source is the file's name and which shares that version. The answer states the version
    /// in both cases.
    #[must_use]
    pub fn temp_file(&self, (id, version): (TempId, u64), content: &Content) -> Placement {
        let reader = self.reader(content);
        let place = || {
            let produced_chars = reader.total_chars()?;
            match self.exceeded_limit(&reader)? {
                Some((settings, limit)) => {
                    let message =
                        temp_file::view::exceeds(id, version, &limit, settings.hintable_tools);
                    let capped = CappedContent {
                        content: content.clone(),
                        cut_bytes: 0,
                    };
                    Ok(self.place_as_descriptor(capped, &id.to_string(), settings, &message))
                }
                None => temp_file_answer(id, version, &reader)
                    .map(|answer| Placement::from_answer(answer, produced_chars)),
            }
        };
        place().unwrap_or_else(Placement::unreadable)
    }

    /// Makes a descriptor of any size for a content that the host opens. `page_chars`
    /// defaults to the setting of the program.
    ///
    /// # Errors
    /// [`Unreadable`] if the quota is used up.
    pub fn host_descriptor(
        &self,
        capped: CappedBytes,
        source: &str,
        page_chars: Option<u32>,
    ) -> Result<NewDescriptor, Unreadable> {
        let settings = self.settings.copied().unwrap_or_default();
        let settings = DescriptorSettings {
            page_chars: page_chars.unwrap_or(settings.page_chars),
            ..settings
        };
        let placer = Placer {
            settings: Some(&settings),
            ..*self
        };
        let hint = settings
            .hintable_tools
            .hint("read_fd", "Use read_fd to read its pages.");
        placer.open_bytes(capped, source, &format!("Opened {source}.{hint}"))
    }

    /// Makes a descriptor of these bytes, of any length. The answer that announces it contains
    /// `message`.
    ///
    /// # Errors
    /// [`Unreadable`] if the quota is used up.
    pub fn open_bytes(
        &self,
        CappedBytes { bytes, cut_bytes }: CappedBytes,
        source: &str,
        message: &str,
    ) -> Result<NewDescriptor, Unreadable> {
        let settings = self.settings.copied().unwrap_or_default();
        let capped = self.cap_content(bytes, cut_bytes, Some(&settings))?;
        Ok(self.new_descriptor(capped, source, &settings, message))
    }

    fn place_content(&self, capped: CappedContent, source: &str) -> Result<Placement, Unreadable> {
        match self.exceeded_limit(&self.reader(&capped.content))? {
            Some((settings, limit)) => {
                let hint = settings.hintable_tools.hint_to_read();
                let message = format!("Output exceeds {limit}.{hint}");
                Ok(self.place_as_descriptor(capped, source, settings, &message))
            }
            None => {
                self.place_in_context(&capped, "output", |text| ShownText::outside(source, text))
            }
        }
    }

    /// The settings, and in words the limit for direct output that the content exceeds.
    fn exceeded_limit(
        &self,
        reader: &Reader<'_>,
    ) -> Result<Option<(&'a DescriptorSettings, String)>, Unreadable> {
        let Some(settings) = self.settings else {
            return Ok(None);
        };
        let bytes = reader.shown_bytes()? as u64;
        let limit = settings.exceeded_output_limit(reader.total_chars()?, bytes);
        Ok(limit.map(|limit| (settings, limit)))
    }

    /// Places small text into the context, escaped by `escape`. Binary content is shown as base64
    /// after a sentence that states this. Sentences at the end state from what text was decoded,
    /// and how many bytes were dropped.
    fn place_in_context(
        &self,
        capped: &CappedContent,
        what: &str,
        escape: impl Fn(Arc<str>) -> ShownText,
    ) -> Result<Placement, Unreadable> {
        let CappedContent { content, cut_bytes } = capped;
        let reader = self.reader(content);
        let mut text: Arc<str> = match reader.is_binary()? {
            true => format!(
                "Binary {what} of {} bytes, as base64:\n{}",
                content.len_bytes(),
                reader.text()?
            )
            .into(),
            false => (&*reader.text()?).into(),
        };
        let mut shown = escape(text.clone());
        let cut_notice = (*cut_bytes > 0).then(|| cut_notice(content, *cut_bytes));
        for notice in reader.encoding()?.notice().into_iter().chain(cut_notice) {
            let notice = format!("\n\n{notice}");
            text = [&*text, &*notice].concat().into();
            shown = shown.then(notice);
        }
        let produced_chars = text.chars().count() as u64;
        Ok(Placement::Context {
            answer: Answer::shown(shown),
            text,
            produced_chars,
        })
    }

    fn place_as_descriptor(
        &self,
        capped: CappedContent,
        source: &str,
        settings: &DescriptorSettings,
        message: &str,
    ) -> Placement {
        Placement::Descriptor(Box::new(
            self.new_descriptor(capped, source, settings, message),
        ))
    }

    fn new_descriptor(
        &self,
        capped: CappedContent,
        source: &str,
        settings: &DescriptorSettings,
        message: &str,
    ) -> NewDescriptor {
        let CappedContent { content, cut_bytes } = capped;
        let entry = Entry {
            cut_bytes,
            ..Entry::new(content, settings.page_chars.max(1), source, self.now_ms)
        };
        NewDescriptor::previewed(entry, message, settings, self.quota)
    }

    fn reader(&self, content: &Content) -> Reader<'a> {
        content.reader(self.quota)
    }

    /// Creates a content of these bytes, truncated to `max_content_bytes`.
    pub(super) fn cap_content(
        &self,
        bytes: Bytes,
        cut_bytes: u64,
        settings: Option<&DescriptorSettings>,
    ) -> Result<CappedContent, Unreadable> {
        let cap_bytes = settings.map_or(u64::MAX, |settings| settings.max_content_bytes);
        let CappedBytes {
            bytes,
            cut_bytes: cut_here,
        } = CappedBytes::capped(bytes, cap_bytes);
        self.quota.charge(bytes.len())?;
        Ok(CappedContent {
            content: Content::new(bytes),
            cut_bytes: cut_bytes + cut_here,
        })
    }
}

/// The settings for an error, whose preview shows the beginning and the end, since the cause of an
/// error is often at its end.
fn error_settings(settings: &DescriptorSettings) -> DescriptorSettings {
    DescriptorSettings {
        preview: Preview::HeadTail,
        ..*settings
    }
}

/// A content that was capped, and the number of bytes that were dropped.
pub(super) struct CappedContent {
    pub(super) content: Content,
    pub(super) cut_bytes: u64,
}

/// The full content of a temporary file, as the model reads it.
///
/// # Errors
/// [`Unreadable`] if the content cannot be read.
pub fn temp_file_answer(
    id: TempId,
    version: u64,
    content: &Reader<'_>,
) -> Result<Answer, Unreadable> {
    Ok(temp_file::view::contents(
        id,
        version,
        content.total_chars()?,
        content.encoding()?,
        &content.text()?,
    ))
}

impl Placement {
    /// The answer that enters the context. `id` is the id of the descriptor, if one is opened.
    #[must_use]
    pub fn answer(&self, id: &FdId) -> Answer {
        match self {
            Self::Context { answer, .. } => answer.clone(),
            Self::Descriptor(new_descriptor) => new_descriptor.answer(id),
        }
    }

    /// Characters of the text, even if only a part of them enters the context.
    #[must_use]
    pub fn produced_chars(&self) -> u64 {
        match self {
            Self::Context { produced_chars, .. } => *produced_chars,
            Self::Descriptor(new_descriptor) => new_descriptor.total_chars(),
        }
    }

    /// The answer for bytes that cannot be read. Counts no characters.
    #[expect(clippy::needless_pass_by_value, reason = "it maps an error")]
    fn unreadable(error: Unreadable) -> Self {
        Self::from_answer(unreadable_answer(None, &error), 0)
    }

    /// Places an answer that is already an element of the kernel.
    fn from_answer(answer: Answer, produced_chars: u64) -> Self {
        Self::Context {
            text: answer.text.clone(),
            answer,
            produced_chars,
        }
    }

    fn with_error_flag(mut self, flag: bool) -> Self {
        match &mut self {
            Self::Context { answer, .. } => answer.is_error = flag,
            Self::Descriptor(new_descriptor) => new_descriptor.set_error(flag),
        }
        self
    }
}

#[cfg(test)]
mod tests;
