//! Checks an export as a whole: the validity of each record, and the consistency of all records.
//! `scan.rs` has verified the hashes of a record before it arrives here.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::export::{Facts, Head, Member, Record};
use dormouse_proto::id::{CallId, ContentHash, FactNumber, Pid};
use dormouse_proto::process::{ExportId, Origin};
use dormouse_proto::record::{ContentRef, Image};
use dormouse_proto::temp_file::TempFileRecord;

use super::{ExportError, Keep, ScannedPart, Scanner};
use crate::program::MAX_PROGRAM_BYTES;

/// Upper limit for numbers in a file. The store continues counting after them.
const MAX_NUMBER: u64 = 1 << 53;
/// Upper limit for the highest pid of the source store: new pids continue after it, and their
/// exports must remain importable.
const MAX_PID: u64 = 1 << 52;
/// Upper limit for counters of 32 bits, so that they can still be increased.
const MAX_COUNT: u32 = 1 << 31;

/// A complete and verified export. Contents are listed by hash; only the bytes of programs are
/// kept. If only [programs](Keep::Programs) are kept, `members` is empty, and the processes were
/// passed to the visitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Id of the export.
    pub id: ExportId,
    /// First record of the file.
    pub head: Head,
    /// The processes, the exported one first, each other after its parent.
    pub members: Vec<Member>,
    /// Changes of the tree's temporary files.
    pub files: Vec<TempFileRecord<ContentRef>>,
    /// Length of each content in bytes.
    pub contents: BTreeMap<ContentHash, u64>,
    /// Programs of the processes, as contents.
    pub programs: BTreeMap<ContentHash, Bytes>,
    /// Number of facts of each process, by its pid in the source store.
    pub facts: BTreeMap<Pid, u64>,
    /// Length of the file in bytes.
    pub bytes: u64,
}

/// Receives the parts of an export that a [`Manifest`] does not keep.
pub trait ExportVisitor {
    /// A process.
    fn member(&mut self, member: &Member) {
        let _ = member;
    }

    /// Facts of the preceding process.
    fn facts(&mut self, facts: Facts) {
        drop(facts);
    }

    /// Start of a content of `len` bytes.
    fn content(&mut self, len: u64) {
        let _ = len;
    }

    /// Bytes of the current content.
    fn part(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }

    /// End of the current content, with its hash.
    fn closed(&mut self, content: ContentRef) {
        let _ = content;
    }
}

/// Ignores everything.
impl ExportVisitor for () {}

/// Checks an export while its bytes arrive.
#[derive(Default)]
pub struct Checker {
    scanner: Scanner,
    state: CheckState,
}

#[derive(Default)]
struct CheckState {
    keep: Keep,
    head: Option<Head>,
    members: Vec<Member>,
    /// The latest process, and the last fact that its image includes.
    latest: Option<(Pid, FactNumber)>,
    processes: SeenProcesses,
    files: Vec<TempFileRecord<ContentRef>>,
    /// Referenced contents: length, and whether the content has arrived.
    contents: BTreeMap<ContentHash, (u64, bool)>,
    /// Whether the first content has started; no record may follow.
    has_contents: bool,
    bundles: BTreeSet<ContentHash>,
    /// Lengths of the contents that are programs.
    bundle_lens: BTreeSet<u64>,
    programs: BTreeMap<ContentHash, Bytes>,
    /// Facts of each process: count and last number.
    facts: BTreeMap<Pid, (u64, FactNumber)>,
    /// Length of the current content, and its bytes if it may be a program.
    current: (u64, Option<Vec<u8>>),
}

impl Checker {
    /// A checker that keeps processes, or passes them to the visitor.
    #[must_use]
    pub fn new(keep: Keep) -> Self {
        Self {
            scanner: Scanner::new(keep),
            state: CheckState {
                keep,
                ..CheckState::default()
            },
        }
    }

    /// Checks the next bytes. What the visitor receives is not verified until
    /// [`finish`](Self::finish) succeeds.
    ///
    /// # Errors
    /// [`ExportError`]. The checker must not be used afterwards.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        visitor: &mut dyn ExportVisitor,
    ) -> Result<(), ExportError> {
        let Self { scanner, state } = self;
        scanner.feed(bytes, &mut |scanned| state.handle_part(scanned, visitor))
    }

    /// Ends the input. Returns the verified export.
    ///
    /// # Errors
    /// [`ExportError`].
    pub fn finish(self) -> Result<Manifest, ExportError> {
        let Self { scanner, state } = self;
        let bytes = scanner.bytes();
        let id = scanner.finish()?;
        state.check_facts_are_complete()?;
        let head = state.head.filter(|_| state.latest.is_some());
        let head = head.ok_or_else(|| ExportError::invalid("it contains no process"))?;
        if let Some((missing, _)) = state
            .contents
            .iter()
            .find(|(_, (_, has_arrived))| !has_arrived)
        {
            return Err(ExportError::invalid(format!(
                "content {missing} is referenced but missing"
            )));
        }
        Ok(Manifest {
            id,
            head,
            members: state.members,
            files: state.files,
            contents: state
                .contents
                .into_iter()
                .map(|(hash, (len, _))| (hash, len))
                .collect(),
            programs: state.programs,
            facts: state
                .facts
                .into_iter()
                .map(|(pid, (count, _))| (pid, count))
                .collect(),
            bytes,
        })
    }
}

impl CheckState {
    fn handle_part(
        &mut self,
        scanned: ScannedPart<'_>,
        visitor: &mut dyn ExportVisitor,
    ) -> Result<(), ExportError> {
        match scanned {
            ScannedPart::Record(record) => return self.handle_record(record, visitor),
            ScannedPart::Content(len) => {
                self.has_contents = true;
                let may_be_program = len <= MAX_PROGRAM_BYTES && self.bundle_lens.contains(&len);
                self.current = (len, may_be_program.then(Vec::new));
                visitor.content(len);
            }
            ScannedPart::Part(bytes) => {
                if let Some(program_bytes) = &mut self.current.1 {
                    program_bytes.extend_from_slice(bytes);
                }
                visitor.part(bytes);
            }
            ScannedPart::Closed(hash) => {
                let (len, program_bytes) = std::mem::take(&mut self.current);
                match self.contents.get_mut(&hash) {
                    Some((expected_len, has_arrived @ false)) if *expected_len == len => {
                        *has_arrived = true
                    }
                    Some(_) => {
                        return Err(ExportError::invalid(format!(
                            "content {hash} does not match its reference, or occurs twice"
                        )));
                    }
                    None => {
                        return Err(ExportError::invalid(format!(
                            "content {hash} is not referenced"
                        )));
                    }
                }
                if let Some(program_bytes) = program_bytes.filter(|_| self.bundles.contains(&hash))
                {
                    self.programs.insert(hash, program_bytes.into());
                }
                visitor.closed(ContentRef { hash, len });
            }
        }
        Ok(())
    }

    fn handle_record(
        &mut self,
        record: Record,
        visitor: &mut dyn ExportVisitor,
    ) -> Result<(), ExportError> {
        let Some(head) = &self.head else {
            let Record::Head(head) = record else {
                return Err(ExportError::invalid("its first record is not a head"));
            };
            ensure(head.last_pid.0 < MAX_PID, || {
                format!("process number {} is too high", head.last_pid)
            })?;
            self.head = Some(head);
            return Ok(());
        };
        ensure(!self.has_contents, || {
            "a record follows contents".to_owned()
        })?;
        match record {
            Record::Head(_) => Err(ExportError::invalid("it has two heads")),
            Record::Member(member) => {
                ensure(self.files.is_empty(), || {
                    "a process follows temporary files".to_owned()
                })?;
                self.check_facts_are_complete()?;
                self.processes.check_and_add(&member, head)?;
                self.add_references(&member.image)?;
                self.latest = Some((member.row.pid, member.at));
                visitor.member(&member);
                if self.keep == Keep::Processes {
                    self.members.push(*member);
                }
                Ok(())
            }
            Record::Facts(facts) => {
                self.check_facts(&facts)?;
                visitor.facts(facts);
                Ok(())
            }
            Record::TempFile(change) => {
                let in_order = change.number == self.files.len() as u64 + 1;
                ensure(in_order, || {
                    "a change of temporary files is missing".to_owned()
                })?;
                let is_in_range = change.id.0 < MAX_COUNT && change.version < MAX_NUMBER;
                ensure(is_in_range, || {
                    format!("the number or version of {} is too high", change.id)
                })?;
                change
                    .clone()
                    .try_map(&mut |content| self.require_content(content))?;
                self.files.push(change);
                Ok(())
            }
        }
    }

    /// Records the contents that an image references.
    fn add_references(&mut self, image: &Image<ContentRef>) -> Result<(), ExportError> {
        self.bundles.insert(image.bundle.hash);
        self.bundle_lens.insert(image.bundle.len);
        image
            .contents()
            .try_for_each(|content| self.require_content(*content).map(drop))
    }

    fn require_content(&mut self, content: ContentRef) -> Result<ContentRef, ExportError> {
        let (len, _) = *self
            .contents
            .entry(content.hash)
            .or_insert((content.len, false));
        ensure(len == content.len, || {
            format!("content {} has two lengths", content.hash)
        })?;
        Ok(content)
    }

    fn check_facts(&mut self, facts: &Facts) -> Result<(), ExportError> {
        let latest = self
            .latest
            .filter(|(pid, _)| *pid == facts.pid && self.files.is_empty());
        let (_, at) =
            latest.ok_or_else(|| ExportError::invalid("facts do not follow their process"))?;
        let (count, last) = self
            .facts
            .entry(facts.pid)
            .or_insert((0, FactNumber(facts.first.0.saturating_sub(1))));
        let next = last.0.checked_add(facts.facts.len() as u64);
        let is_next =
            facts.first.0 == last.0.saturating_add(1) && next.is_some_and(|next| next <= at.0);
        ensure(is_next, || {
            format!("facts of process {} are missing", facts.pid)
        })?;
        *count += facts.facts.len() as u64;
        *last = FactNumber(next.unwrap_or_default());
        Ok(())
    }

    /// Checks that the facts of the latest process, if the export has any, end at its position.
    fn check_facts_are_complete(&self) -> Result<(), ExportError> {
        let Some((pid, at)) = self.latest else {
            return Ok(());
        };
        let last = self.facts.get(&pid).map(|(_, last)| *last);
        ensure(last.is_none_or(|last| last == at), || {
            format!("the last facts of process {pid} are missing")
        })
    }
}

/// Pids and origins of the processes so far.
#[derive(Default)]
struct SeenProcesses {
    pids: BTreeSet<Pid>,
    local_ids: BTreeSet<Pid>,
    origins: BTreeSet<(Pid, CallId, u32)>,
}

impl SeenProcesses {
    fn check_and_add(&mut self, member: &Member, head: &Head) -> Result<(), ExportError> {
        let Member { row, image, .. } = member;
        let pid = row.pid;
        let local_id = row.local_id();
        let is_first = self.pids.is_empty();
        let is_in_range =
            (1..=head.last_pid.0).contains(&pid.0) && (1..=head.last_pid.0).contains(&local_id.0);
        ensure(is_in_range, || {
            format!("process {pid} is not between 1 and the highest number of its store")
        })?;
        ensure(member.at.0 < MAX_NUMBER, || {
            format!(
                "the position of process {pid} is too high: fact {}",
                member.at
            )
        })?;
        ensure(row.exit.is_none(), || {
            format!("the row of process {pid} states an exit, which only its image may state")
        })?;
        let counters = image.counters();
        ensure(counters.iter().all(|count| *count < MAX_COUNT), || {
            format!("a counter of process {pid} is too high")
        })?;
        if is_first {
            ensure(local_id == head.exported_pid, || {
                format!(
                    "its head names process {} as the exported one",
                    head.exported_pid
                )
            })?;
        } else {
            ensure(head.scope == Scope::Tree, || {
                "its head names one process, and it contains more".to_owned()
            })?;
            let parent = row.parent.filter(|parent| self.pids.contains(parent));
            let parent = parent.ok_or_else(|| {
                ExportError::invalid(format!("process {pid} comes before its parent"))
            })?;
            let (call, index) = match row.origin {
                Origin::Forked { call, index } | Origin::Judge { call, index } => (call, index),
                Origin::Spawned { call } => (call, 0),
                Origin::Started | Origin::Copied { .. } => {
                    return Err(ExportError::invalid(format!(
                        "the origin of process {pid} is not a call of its parent"
                    )));
                }
            };
            ensure(self.origins.insert((parent, call, index)), || {
                format!("process {pid} has the same origin as another process")
            })?;
        }
        let is_new = self.pids.insert(pid) && self.local_ids.insert(local_id);
        ensure(is_new, || format!("two processes have the number {pid}"))
    }
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), ExportError> {
    if holds {
        Ok(())
    } else {
        Err(ExportError::invalid(otherwise()))
    }
}

/// The contents that an image references, its program first.
#[must_use]
pub fn referenced_contents(image: &Image<ContentRef>) -> Vec<ContentRef> {
    image.contents().copied().collect()
}
