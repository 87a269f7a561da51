//! What an export holds, checked as a whole: each record by itself, and all of them against each
//! other.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::export::{Facts, Head, Member, Record};
use dormouse_proto::id::{CallId, ContentHash, FactNumber, Pid};
use dormouse_proto::process::{ExportId, Origin};
use dormouse_proto::record::{ContentRef, Image};
use dormouse_proto::temp_file::TempFileRecord;

use super::{ExportError, Keep, Piece, Scanner};
use crate::program::MAX_PROGRAM_BYTES;

/// No number of a file may be greater: what counts on from it must have somewhere to go.
const MAX_NUMBER: u64 = 1 << 53;
/// Nor may the highest number of its store be: pids go on behind it, and what is exported then is
/// to be taken in again.
const MAX_LAST: u64 = 1 << 48;
const MAX_COUNT: u32 = 1 << 31;

/// An export, whole and checked. Contents are named; of them only programs are held. Where it was
/// checked to keep [programs](Keep::Programs) only, it holds no process: they were told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Its name.
    pub id: ExportId,
    /// What it begins with.
    pub head: Head,
    /// The processes: the one that it is of first, each other after its parent.
    pub members: Vec<Member>,
    /// The changes of the temporary files of the tree.
    pub files: Vec<TempFileRecord<ContentRef>>,
    /// The contents, and how many bytes each has.
    pub contents: BTreeMap<ContentHash, u64>,
    /// The programs of its processes, as contents.
    pub programs: BTreeMap<ContentHash, Bytes>,
    /// How many facts of each process it tells, by the process's number in the store that it is of.
    pub facts: BTreeMap<Pid, u64>,
    /// How many bytes the file has.
    pub bytes: u64,
}

/// Told what a [`Manifest`] does not keep.
pub trait Told {
    /// A process.
    fn member(&mut self, member: &Member) {
        let _ = member;
    }

    /// Facts of a process.
    fn facts(&mut self, facts: Facts) {
        drop(facts);
    }

    /// A content begins.
    fn content(&mut self, len: u64) {
        let _ = len;
    }

    /// Bytes of it.
    fn part(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }

    /// It is whole, and this is its name.
    fn closed(&mut self, content: ContentRef) {
        let _ = content;
    }
}

/// Hears nothing.
impl Told for () {}

/// Checks an export as its bytes come.
#[derive(Default)]
pub struct Checker {
    scanner: Scanner,
    found: Found,
}

#[derive(Default)]
struct Found {
    keep: Keep,
    head: Option<Head>,
    members: Vec<Member>,
    /// The latest process, and the last fact in its image.
    latest: Option<(Pid, FactNumber)>,
    roll: Roll,
    files: Vec<TempFileRecord<ContentRef>>,
    /// What is named, and whether it has come.
    contents: BTreeMap<ContentHash, (u64, bool)>,
    /// One has begun.
    is_behind_records: bool,
    bundles: BTreeSet<ContentHash>,
    /// The lengths that contents of programs are named with.
    bundle_lens: BTreeSet<u64>,
    programs: BTreeMap<ContentHash, Bytes>,
    /// Of each process that has some: how many, and the last.
    facts: BTreeMap<Pid, (u64, FactNumber)>,
    /// The length of the content that comes, and its bytes where it may be a program.
    coming: (u64, Option<Vec<u8>>),
}

impl Checker {
    /// Of an export whose processes are kept, or pass by.
    #[must_use]
    pub fn new(keep: Keep) -> Self {
        Self {
            scanner: Scanner::new(keep),
            found: Found {
                keep,
                ..Found::default()
            },
        }
    }

    /// Takes the next bytes. What `told` hears of before [`finish`](Self::finish) has answered is
    /// not certain.
    ///
    /// # Errors
    /// [`ExportError`]. Nothing more is to be fed then.
    pub fn feed(&mut self, bytes: &[u8], told: &mut dyn Told) -> Result<(), ExportError> {
        let Self { scanner, found } = self;
        scanner.feed(bytes, &mut |piece| found.take(piece, told))
    }

    /// Nothing more comes.
    ///
    /// # Errors
    /// [`ExportError`].
    pub fn finish(self) -> Result<Manifest, ExportError> {
        let Self { scanner, found } = self;
        let bytes = scanner.bytes();
        let id = scanner.finish()?;
        let head = found.head.filter(|_| found.latest.is_some());
        let head = head.ok_or_else(|| ExportError::invalid("it holds no process"))?;
        if let Some((lost, _)) = found.contents.iter().find(|(_, (_, has_come))| !has_come) {
            return Err(ExportError::invalid(format!(
                "content {lost} is named, and is not in it"
            )));
        }
        Ok(Manifest {
            id,
            head,
            members: found.members,
            files: found.files,
            contents: found
                .contents
                .into_iter()
                .map(|(hash, (len, _))| (hash, len))
                .collect(),
            programs: found.programs,
            facts: found
                .facts
                .into_iter()
                .map(|(pid, (count, _))| (pid, count))
                .collect(),
            bytes,
        })
    }
}

impl Found {
    fn take(&mut self, piece: Piece<'_>, told: &mut dyn Told) -> Result<(), ExportError> {
        match piece {
            Piece::Record(record) => return self.record(record, told),
            Piece::Content(len) => {
                self.is_behind_records = true;
                let may_be_program = len <= MAX_PROGRAM_BYTES && self.bundle_lens.contains(&len);
                self.coming = (len, may_be_program.then(Vec::new));
                told.content(len);
            }
            Piece::Part(bytes) => {
                if let Some(held) = &mut self.coming.1 {
                    held.extend_from_slice(bytes);
                }
                told.part(bytes);
            }
            Piece::Closed(hash) => {
                let (len, held) = std::mem::take(&mut self.coming);
                match self.contents.get_mut(&hash) {
                    Some((named, has_come @ false)) if *named == len => *has_come = true,
                    Some(_) => {
                        return Err(ExportError::invalid(format!(
                            "content {hash} is not as it is named"
                        )));
                    }
                    None => {
                        return Err(ExportError::invalid(format!(
                            "nothing in it names content {hash}"
                        )));
                    }
                }
                if let Some(held) = held.filter(|_| self.bundles.contains(&hash)) {
                    self.programs.insert(hash, held.into());
                }
                told.closed(ContentRef { hash, len });
            }
        }
        Ok(())
    }

    fn record(&mut self, record: Record, told: &mut dyn Told) -> Result<(), ExportError> {
        let Some(head) = &self.head else {
            let Record::Head(head) = record else {
                return Err(ExportError::invalid("it has no head"));
            };
            check(head.last.0 < MAX_LAST, || {
                format!("process {} is no number to count on from", head.last)
            })?;
            self.head = Some(head);
            return Ok(());
        };
        check(!self.is_behind_records, || {
            "a record stands behind contents".to_owned()
        })?;
        match record {
            Record::Head(_) => Err(ExportError::invalid("it has two heads")),
            Record::Member(member) => {
                check(self.files.is_empty(), || {
                    "a process stands behind temporary files".to_owned()
                })?;
                self.roll.enter(&member, head)?;
                self.name(&member.image)?;
                self.latest = Some((member.row.pid, member.at));
                told.member(&member);
                if self.keep == Keep::Processes {
                    self.members.push(*member);
                }
                Ok(())
            }
            Record::Facts(facts) => {
                self.check_facts(&facts)?;
                told.facts(facts);
                Ok(())
            }
            Record::TempFile(change) => {
                let in_order = change.number == self.files.len() as u64 + 1;
                check(in_order, || {
                    "a change of temporary files is missing".to_owned()
                })?;
                let is_counted = change.id.0 < MAX_COUNT && change.version < MAX_NUMBER;
                check(is_counted, || {
                    format!("{} is no number to count on from", change.id)
                })?;
                change.clone().try_map(&mut |content| self.want(content))?;
                self.files.push(change);
                Ok(())
            }
        }
    }

    /// Notes what an image names.
    fn name(&mut self, image: &Image<ContentRef>) -> Result<(), ExportError> {
        self.bundles.insert(image.bundle.hash);
        self.bundle_lens.insert(image.bundle.len);
        image
            .contents()
            .try_for_each(|content| self.want(*content).map(drop))
    }

    fn want(&mut self, content: ContentRef) -> Result<ContentRef, ExportError> {
        let (len, _) = *self
            .contents
            .entry(content.hash)
            .or_insert((content.len, false));
        check(len == content.len, || {
            format!("content {} has two lengths", content.hash)
        })?;
        Ok(content)
    }

    fn check_facts(&mut self, facts: &Facts) -> Result<(), ExportError> {
        let of = self
            .latest
            .filter(|(pid, _)| *pid == facts.pid && self.files.is_empty());
        let (_, at) =
            of.ok_or_else(|| ExportError::invalid("facts do not stand behind their process"))?;
        let (count, last) = self
            .facts
            .entry(facts.pid)
            .or_insert((0, FactNumber(facts.first.0.saturating_sub(1))));
        let next = last.0.checked_add(facts.facts.len() as u64);
        let fits =
            facts.first.0 == last.0.saturating_add(1) && next.is_some_and(|next| next <= at.0);
        check(fits, || {
            format!("facts of process {} are missing", facts.pid)
        })?;
        *count += facts.facts.len() as u64;
        *last = FactNumber(next.unwrap_or_default());
        Ok(())
    }
}

/// What the processes so far are called, and which calls made them.
#[derive(Default)]
struct Roll {
    pids: BTreeSet<Pid>,
    known_as: BTreeSet<Pid>,
    made: BTreeSet<(Pid, CallId, u32)>,
}

impl Roll {
    fn enter(&mut self, member: &Member, head: &Head) -> Result<(), ExportError> {
        let Member { row, image, .. } = member;
        let (pid, known_as, is_first) = (row.pid, row.known_as(), self.pids.is_empty());
        let is_counted =
            (1..=head.last.0).contains(&pid.0) && (1..=head.last.0).contains(&known_as.0);
        check(is_counted, || {
            format!("process {pid} is greater than all of its store")
        })?;
        check(member.at.0 < MAX_NUMBER, || {
            format!("process {pid} has no fact {}", member.at)
        })?;
        check(row.exit.is_none(), || format!("process {pid} has two ends"))?;
        let counts = [
            image.epoch,
            image.next_seq,
            image.next_fd,
            image.depth,
            image.iterations,
            image.restores,
        ];
        check(counts.iter().all(|count| *count < MAX_COUNT), || {
            format!("process {pid} has no numbers left")
        })?;
        if is_first {
            check(known_as == head.of, || {
                format!("it is said to be of process {}", head.of)
            })?;
        } else {
            check(head.scope == Scope::Tree, || {
                "it is said to be of one process, and holds more".to_owned()
            })?;
            let parent = row.parent.filter(|parent| self.pids.contains(parent));
            let parent = parent.ok_or_else(|| {
                ExportError::invalid(format!("process {pid} stands before its parent"))
            })?;
            let (call, index) = match row.origin {
                Origin::Forked { call, index } => (call, index),
                Origin::Spawned { call } => (call, 0),
                Origin::Started | Origin::Copied { .. } => {
                    return Err(ExportError::invalid(format!(
                        "process {pid} has a parent that did not make it"
                    )));
                }
            };
            check(self.made.insert((parent, call, index)), || {
                format!("process {pid} was made twice")
            })?;
        }
        let is_new = self.pids.insert(pid) && self.known_as.insert(known_as);
        check(is_new, || format!("two processes have the number {pid}"))
    }
}

fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), ExportError> {
    if holds {
        Ok(())
    } else {
        Err(ExportError::invalid(otherwise()))
    }
}

/// The contents that an image names: of its program first.
#[must_use]
pub fn named(image: &Image<ContentRef>) -> Vec<ContentRef> {
    image.contents().copied().collect()
}
