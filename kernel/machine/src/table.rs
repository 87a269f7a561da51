//! The descriptor table of a process: its contents, by descriptor id and by assigned name.
//!
//! The table is a persistent map. Cloning it for a fork is O(1), and no later change of either side
//! is visible to the other (FORK-1).
//!
//! * FD-1: a number that was assigned is never assigned again.
//! * FD-3: only names of this table resolve, even if another process has the same name.
//!
//! This module never changes a content and never reads a clock.

mod argument;
pub mod attachment;
mod conversation;
#[cfg(test)]
mod edits;
mod form;
pub mod listing;
mod new_descriptor;
pub mod placement;
mod preview;

pub(crate) use self::conversation::marker;
pub use self::form::{Form, View, in_default_form, view_as};
pub(crate) use self::preview::build_preview;

pub use new_descriptor::NewDescriptor;
pub(crate) use new_descriptor::unreadable_answer;

use std::borrow::Cow;
use std::sync::Arc;

use dormouse_proto::descriptor::view::ContentSummary;
use dormouse_proto::descriptor::{FdError, FdErrorKind};
use dormouse_proto::id::FdId;
use dormouse_proto::message::Message;
use dormouse_proto::record::{Annotation, CompactedMessages, Entry};
use imbl::{OrdMap, Vector};

use self::conversation::Conversation;
use dormouse_content::{Content, Reader, Unreadable};

/// Descriptors by name. Cloning costs O(1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    entries: OrdMap<FdId, Entry<Content>>,
    next_fd: u32,
    /// Number of the last descriptor `history:N`; 0 if there is none.
    last_history: u32,
    /// The messages as descriptors `msg:N`, if the program enables that. Few programs do, so it
    /// takes a pointer in each table.
    conversation: Option<Arc<Conversation>>,
}

/// Why the stored parts of a table are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// A descriptor has a number that was never assigned.
    #[error("the table contains {id}, but the next free number is {next}")]
    Unassigned {
        /// Id of the descriptor.
        id: FdId,
        /// The next free number of its kind, as it was stored.
        next: u32,
    },
    /// A descriptor or the next free number is 0; numbers count from 1.
    #[error("fd:0 and history:0 are no descriptors: numbers count from 1")]
    Zero,
    /// A descriptor has a page size of 0.
    #[error("{id} has pages of 0 characters")]
    EmptyPages {
        /// Id of the descriptor.
        id: FdId,
    },
}

impl Default for Table {
    fn default() -> Self {
        Self {
            entries: OrdMap::new(),
            next_fd: 1,
            last_history: 0,
            conversation: None,
        }
    }
}

impl Table {
    /// An empty table; its first descriptor will be `fd:1`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Builds a table from its stored parts. Inspects each entry and copies none.
    ///
    /// # Errors
    /// [`TableError`] if the parts violate FD-1 or a page size is 0.
    pub fn from_parts(
        entries: OrdMap<FdId, Entry<Content>>,
        next_fd: u32,
        last_history: u32,
    ) -> Result<Self, TableError> {
        if next_fd == 0 {
            return Err(TableError::Zero);
        }
        let next_history = last_history.saturating_add(1);
        for (id, entry) in &entries {
            match id {
                FdId::Fd(0) | FdId::History(0) => return Err(TableError::Zero),
                FdId::Fd(number) if *number >= next_fd => {
                    return Err(TableError::Unassigned {
                        id: id.clone(),
                        next: next_fd,
                    });
                }
                FdId::History(number) if *number > last_history => {
                    return Err(TableError::Unassigned {
                        id: id.clone(),
                        next: next_history,
                    });
                }
                _ if entry.page_chars == 0 => {
                    return Err(TableError::EmptyPages { id: id.clone() });
                }
                _ => {}
            }
        }
        Ok(Self {
            entries,
            next_fd,
            last_history,
            conversation: None,
        })
    }

    /// Restores the descriptors of an earlier table, whose next free number was `next_fd` and whose
    /// last `history:N` was `last_history`. Numbers that were assigned later are not reused (FD-1).
    /// O(1).
    pub(crate) fn restore(
        &mut self,
        entries: OrdMap<FdId, Entry<Content>>,
        next_fd: u32,
        last_history: u32,
    ) {
        self.entries = entries;
        self.next_fd = self.next_fd.max(next_fd);
        self.last_history = self.last_history.max(last_history);
    }

    /// The entries, for storage. O(1).
    #[must_use]
    pub fn entries(&self) -> OrdMap<FdId, Entry<Content>> {
        self.entries.clone()
    }

    /// The id of the next new descriptor.
    #[must_use]
    pub fn next_id(&self) -> FdId {
        FdId::Fd(self.next_fd)
    }

    /// The number of the next new descriptor.
    #[must_use]
    pub fn next_fd(&self) -> u32 {
        self.next_fd
    }

    /// Number of the last descriptor `history:N`; 0 if there is none.
    #[must_use]
    pub fn last_history(&self) -> u32 {
        self.last_history
    }

    /// Looks a descriptor up by id. O(log n). Of the messages, only those with notes are found.
    #[must_use]
    pub fn get(&self, id: &FdId) -> Option<&Entry<Content>> {
        self.entries.get(id)
    }

    /// Resolves the text with which a model names a descriptor: `fd:N`, `fd-N`, `ref:ID`, `msg:N`,
    /// `history:N`, or an assigned name. O(log n); O(n) for an assigned name.
    ///
    /// # Errors
    /// `not_found`, with the same text for a malformed name, a name of another process and a number
    /// that was never assigned. For a message that was compacted, the text says where it is.
    pub fn resolve(&self, fd: &str) -> Result<(FdId, Cow<'_, Entry<Content>>), FdError> {
        let entry = match fd.parse::<FdId>() {
            Ok(id) => self.find(&id).map(|entry| (id, entry)),
            Err(_) => self
                .named(fd)
                .map(|(id, entry)| (id.clone(), Cow::Borrowed(entry))),
        };
        entry.ok_or_else(|| {
            let known = self
                .describe_compacted(fd)
                .unwrap_or_else(|| self.describe_known_ids());
            let message = format!("File descriptor {fd} not found. {known}");
            FdError::new(FdErrorKind::NotFound, Some(fd.to_owned()), message)
        })
    }

    /// Looks a descriptor up by id, including the messages.
    fn find(&self, id: &FdId) -> Option<Cow<'_, Entry<Content>>> {
        let message = || self.conversation.as_ref()?.entry(id).map(Cow::Owned);
        self.get(id).map(Cow::Borrowed).or_else(message)
    }

    /// Looks a descriptor up by its assigned name. O(n).
    #[must_use]
    pub fn named(&self, name: &str) -> Option<(&FdId, &Entry<Content>)> {
        self.entries
            .iter()
            .find(|(_, entry)| entry.notes.name.as_deref() == Some(name))
    }

    /// Publishes the messages as descriptors `msg:1`, `msg:2` …, replacing the previous ones.
    /// Messages that were compacted keep their numbers and are no descriptors; if there are some,
    /// the first of `messages` is their summary. Copies no text and builds no index until one is
    /// read. O(1).
    pub fn set_conversation(
        &mut self,
        messages: Vector<Arc<Message>>,
        compacted: Vector<CompactedMessages<Content>>,
        page_chars: u32,
    ) {
        let conversation = Conversation::new(messages, compacted, page_chars);
        self.conversation = Some(Arc::new(conversation));
    }

    /// The sentence of an error that says where the text of a compacted message is. `None` if `fd`
    /// names no such message.
    fn describe_compacted(&self, fd: &str) -> Option<String> {
        let FdId::Message { number, .. } = fd.parse().ok()? else {
            return None;
        };
        let history = self.conversation.as_ref()?.history_of(number)?;
        let history = FdId::History(history);
        Some(format!(
            "Message {number} left the conversation when it filled the context: its text is in \
             {history}, after the line '## msg:{number}'."
        ))
    }

    /// The messages that are descriptors, in order; empty if the program does not enable that.
    pub fn messages(&self) -> impl Iterator<Item = (FdId, Entry<Content>)> {
        self.conversation
            .iter()
            .flat_map(|conversation| conversation.iter())
    }

    /// Applies a note (name, section mark or summary) to a descriptor. Has no effect if the
    /// descriptor does not exist. O(log n).
    pub fn annotate(&mut self, id: &FdId, note: &Annotation) {
        if let Some(entry) = self.find(id) {
            let mut entry = entry.into_owned();
            entry.notes.apply(note);
            self.entries.insert(id.clone(), entry);
        }
    }

    /// Removes the entries of annotated messages, and so their notes, after message `last`, counted
    /// from 1, since their numbers will be reused. O(log n) per note.
    pub fn drop_notes_after(&mut self, last: u32) {
        let is_removed = |id: &&FdId| matches!(id, FdId::Message { number, .. } if *number > last);
        // Only histories sort after message ids, so the scan can stop at the first id of another
        // kind.
        let removed: Vec<_> = self
            .entries
            .range(..FdId::History(0))
            .rev()
            .map(|(id, _)| id)
            .take_while(is_removed)
            .cloned()
            .collect();
        for id in removed {
            self.entries.remove(&id);
        }
    }

    /// The sentence of an error that lists the newest descriptors, one of which the model most
    /// likely meant.
    fn describe_known_ids(&self) -> String {
        const MAX_LISTED: usize = 5;
        let format_name = |(id, entry): (&FdId, &Entry<Content>)| match &entry.notes.name {
            Some(name) => format!("{id} ('{name}')"),
            None => id.to_string(),
        };
        let names: Vec<_> = self
            .entries
            .iter()
            .rev()
            .take(MAX_LISTED)
            .map(format_name)
            .collect();
        match names.len() {
            0 => "This process has no descriptors yet.".to_owned(),
            _ if self.len() > MAX_LISTED => {
                format!(
                    "This process has {} descriptors, among them {}.",
                    self.len(),
                    names.join(", ")
                )
            }
            _ => format!("This process has {}.", names.join(", ")),
        }
    }

    /// Inserts or replaces a descriptor. The next free number stays above all numbers. O(log n).
    pub fn insert(&mut self, id: FdId, entry: Entry<Content>) {
        match id {
            FdId::Fd(number) => self.next_fd = self.next_fd.max(number.saturating_add(1)),
            FdId::History(number) => self.last_history = self.last_history.max(number),
            FdId::Ref(_) | FdId::Message { .. } => {}
        }
        self.entries.insert(id, entry);
    }

    /// The descriptors in the order of their ids: numbers, then references, then annotated
    /// messages, then histories.
    pub fn iter(&self) -> impl Iterator<Item = (&FdId, &Entry<Content>)> {
        self.entries.iter()
    }

    /// Number of descriptors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table has no descriptors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The extent of a content: its numbers of pages, lines and characters. Answers about a descriptor
/// include them. Builds the index of page boundaries if it does not exist yet.
///
/// # Errors
/// [`Unreadable`] if this index does not exist and the content cannot be read.
pub fn extent(
    content: &Reader<'_>,
    page_chars: u32,
    cut_bytes: u64,
) -> Result<ContentSummary, Unreadable> {
    Ok(ContentSummary {
        pages: content.total_pages(page_chars)?,
        total_lines: content.total_lines()?,
        total_chars: content.total_chars()?,
        encoding: content.encoding()?,
        cut_bytes,
        pretty: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> Entry<Content> {
        Entry::new(Content::new(text.to_owned()), 10, "tool:t", 0)
    }

    #[test]
    fn numbers_count_from_one_and_are_never_reused() {
        let mut table = Table::new();
        for (number, text) in (1..).zip(["a", "b", "c"]) {
            assert_eq!(table.next_id(), FdId::Fd(number));
            table.insert(table.next_id(), entry(text));
        }
        table.insert(FdId::Fd(9), entry("preloaded under its parent's number"));
        assert_eq!(table.next_id(), FdId::Fd(10));
        table.insert(FdId::Fd(2), entry("again"));
        assert_eq!(table.next_id(), FdId::Fd(10));
    }

    #[test]
    fn an_id_resolves_in_both_spellings_and_other_texts_do_not() {
        let mut table = Table::new();
        table.insert(table.next_id(), entry("one"));
        table.insert(FdId::Ref("plan".into()), entry("plan"));
        for (fd, text) in [("fd:1", "one"), ("fd-1", "one"), ("ref:plan", "plan")] {
            let (_, found) = table.resolve(fd).unwrap();
            assert_eq!(found.content.unlimited_reader().text().unwrap(), text);
        }
        for fd in [
            "1",
            "fd:2",
            "fd:01",
            "fd:nonexistent",
            "ref:nope",
            "",
            "FD:1",
            "</fd_error>",
        ] {
            let error = table.resolve(fd).unwrap_err();
            assert_eq!(
                (error.kind, error.fd.as_deref()),
                (FdErrorKind::NotFound, Some(fd))
            );
        }
    }

    #[test]
    fn invalid_stored_parts_are_refused() {
        let flat = Entry {
            page_chars: 0,
            ..entry("x")
        };
        let cases = [
            (vec![(FdId::Fd(0), entry("x"))], 1, Some(TableError::Zero)),
            (
                vec![(FdId::History(0), entry("x"))],
                1,
                Some(TableError::Zero),
            ),
            (
                vec![
                    (FdId::History(3), entry("x")),
                    (FdId::History(4), entry("x")),
                ],
                1,
                Some(TableError::Unassigned {
                    id: FdId::History(4),
                    next: 4,
                }),
            ),
            (
                vec![(FdId::Fd(2), entry("x"))],
                2,
                Some(TableError::Unassigned {
                    id: FdId::Fd(2),
                    next: 2,
                }),
            ),
            (
                vec![(FdId::Fd(1), flat)],
                2,
                Some(TableError::EmptyPages { id: FdId::Fd(1) }),
            ),
            (vec![], 0, Some(TableError::Zero)),
            (
                vec![
                    (FdId::Ref("r".into()), entry("x")),
                    (FdId::Fd(1), entry("y")),
                ],
                7,
                None,
            ),
        ];
        for (parts, next_fd, error) in cases {
            assert_eq!(
                Table::from_parts(parts.into_iter().collect(), next_fd, 3).err(),
                error
            );
        }
    }
}
