//! The store of the simulated kernel: journals as encoded bytes, contents by hash, and one commit
//! at a time.
//!
//! While a batch is on its way to the disk, appends collect; a crash loses what waits, and the
//! batch is written as a whole or not at all.

use std::collections::BTreeMap;

use bytes::Bytes;
use dormouse_content::Content;
use dormouse_kernel::labels::LabelChange;
use dormouse_kernel::process::{Fact, Image, State, evolve};
use dormouse_proto::id::{ContentHash, Pid};
use dormouse_proto::model::Usage;
use dormouse_proto::process::{Exit, ProcessRow, Waiting};
use dormouse_proto::record::{ContentRef, codec};
use dormouse_proto::temp_file::TempFileRecord;

use crate::defect::Defect;
use crate::event::{Ack, Event, FilesMessage, ProcessMessage, SupervisorMessage};
use crate::invariants::{Held, Violation, ensure};
use crate::programs::Programs;
use crate::schedule::{FILES, STORE, SUPERVISOR};
use crate::world::World;

/// A record as it is written.
pub(crate) enum Entry {
    Content {
        hash: ContentHash,
        bytes: Bytes,
    },
    Created {
        row: ProcessRow,
        image: Vec<u8>,
    },
    Facts {
        pid: Pid,
        first: u64,
        facts: Vec<Vec<u8>>,
    },
    Snapshot {
        pid: Pid,
        at: u64,
        image: Vec<u8>,
    },
    Ended {
        pid: Pid,
        exit: Exit,
    },
    Reopened {
        pid: Pid,
        reopenings: u32,
    },
    Waiting {
        pid: Pid,
        waiting: Waiting,
        is_paused: bool,
    },
    TempFile {
        root: Pid,
        record: Vec<u8>,
    },
    /// Written at the end of its batch.
    Label(LabelChange),
}

/// What stands on the disk of one process.
pub(crate) struct Journal {
    pub(crate) row: ProcessRow,
    image: Vec<u8>,
    pub(crate) facts: Vec<Vec<u8>>,
    snapshots: Vec<(u64, Vec<u8>)>,
}

#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) journals: BTreeMap<Pid, Journal>,
    pub(crate) contents: BTreeMap<ContentHash, Bytes>,
    pub(crate) temp_files: BTreeMap<Pid, Vec<Vec<u8>>>,
    /// The records of labels, by their numbers.
    pub(crate) labels: BTreeMap<u64, Vec<u8>>,
}

/// What is to be written together, and who is told.
pub(crate) struct Append {
    entries: Vec<Entry>,
    ack: Ack,
}

#[derive(Default)]
pub(crate) struct Store {
    pub(crate) disk: Disk,
    queue: Vec<Append>,
    writing: Vec<Append>,
}

/// Where a journal is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Birth,
    Snapshot,
}

impl Disk {
    fn write(&mut self, entry: Entry) -> Held {
        match entry {
            Entry::Content { hash, bytes } => drop(self.contents.insert(hash, bytes)),
            Entry::Created { row, image } => {
                let journal = Journal {
                    row,
                    image,
                    facts: Vec::new(),
                    snapshots: Vec::new(),
                };
                let pid = journal.row.pid;
                ensure(
                    self.journals.insert(pid, journal).is_none(),
                    "DUR-1",
                    || format!("pid {pid} is used twice"),
                )?;
            }
            Entry::Facts { pid, first, facts } => {
                let journal = self.journal_mut(pid)?;
                let next = journal.facts.len() as u64 + 1;
                ensure(first == next, "DUR-1", || {
                    format!("fact {first} of {pid} comes where {next} is due")
                })?;
                journal.facts.extend(facts);
            }
            Entry::Snapshot { pid, at, image } => {
                self.journal_mut(pid)?.snapshots.push((at, image))
            }
            Entry::Ended { pid, exit } => {
                let row = &mut self.journal_mut(pid)?.row;
                row.exit = Some(exit);
                row.waiting = Waiting::Nothing;
                row.is_paused = false;
            }
            Entry::Reopened { pid, reopenings } => {
                let row = &mut self.journal_mut(pid)?.row;
                row.exit = None;
                row.waiting = Waiting::Nothing;
                row.reopenings = reopenings;
            }
            Entry::Waiting {
                pid,
                waiting,
                is_paused,
            } => {
                let row = &mut self.journal_mut(pid)?.row;
                row.waiting = waiting;
                row.is_paused = is_paused;
            }
            Entry::TempFile { root, record } => {
                self.temp_files.entry(root).or_default().push(record)
            }
            // The world writes the records of labels.
            Entry::Label(_) => {}
        }
        Ok(())
    }

    fn journal_mut(&mut self, pid: Pid) -> Result<&mut Journal, Violation> {
        self.journals
            .get_mut(&pid)
            .ok_or_else(|| Violation::of("DUR-1", format!("process {pid} has no journal")))
    }

    pub(crate) fn last(&self, pid: Pid) -> u64 {
        self.journals
            .get(&pid)
            .map_or(0, |journal| journal.facts.len() as u64)
    }

    /// What a process has used since it began, as the facts of its journal say: the account of a
    /// child that is opened again begins at zero.
    pub(crate) fn used_since_birth(
        &self,
        programs: &Programs,
        pid: Pid,
    ) -> Result<Usage, Violation> {
        let broken = |what: String| Violation::of("DUR-2", format!("the journal of {pid}: {what}"));
        let (mut state, _) = self.read(programs, pid, Some(0), From::Birth, None)?;
        let mut used = Usage::default();
        for fact in &self.journals[&pid].facts {
            let fact = codec::decode::<dormouse_proto::record::Fact<ContentRef>>(fact);
            let fact = fact.map_err(|error| broken(error.to_string()))?;
            let before = state.usage();
            evolve(
                &mut state,
                &fact.try_map(&mut |reference| self.content(reference))?,
            );
            used += state.usage().saturating_sub(before);
        }
        Ok(used)
    }

    pub(crate) fn content(&self, reference: ContentRef) -> Result<Content, Violation> {
        let missing = || {
            Violation::of(
                "DUR-3",
                format!("content {} is not in the store", reference.hash),
            )
        };
        let content = Content::new(
            self.contents
                .get(&reference.hash)
                .ok_or_else(missing)?
                .clone(),
        );
        ensure(content.reference() == reference, "DUR-3", || {
            format!("content {} is another", reference.hash)
        })?;
        Ok(content)
    }

    /// The process as its journal tells it, after fact `up_to` (none: its last), and that fact's
    /// number.
    pub(crate) fn read(
        &self,
        programs: &Programs,
        pid: Pid,
        up_to: Option<u64>,
        from: From,
        defect: Option<Defect>,
    ) -> Result<(State, u64), Violation> {
        let broken = |what: String| Violation::of("DUR-2", format!("the journal of {pid}: {what}"));
        let journal = self
            .journals
            .get(&pid)
            .ok_or_else(|| broken("there is none".to_owned()))?;
        let up_to = up_to.unwrap_or(journal.facts.len() as u64);
        let snapshots = journal
            .snapshots
            .iter()
            .rev()
            .filter(|_| from == From::Snapshot);
        let snapshot = snapshots.into_iter().find(|(at, _)| *at <= up_to);
        let (base, image) = snapshot.map_or((0, &journal.image), |(at, image)| (*at, image));
        let image = codec::decode::<dormouse_proto::record::Image<ContentRef>>(image);
        let image = image.map_err(|error| broken(error.to_string()))?;
        let image = image.try_map(&mut |reference| self.content(reference))?;
        let program = programs
            .find(
                &image
                    .bundle
                    .unlimited_reader()
                    .bytes()
                    .expect("it is in memory"),
                &image.program,
            )
            .ok_or_else(|| broken("no program".to_owned()))?;
        let state = State::from_image(pid, program, programs.around.clone(), image);
        let mut state = state.map_err(|error| broken(error.to_string()))?;
        for (number, fact) in (1..)
            .zip(&journal.facts)
            .skip(base as usize)
            .take((up_to - base) as usize)
        {
            let fact = codec::decode::<dormouse_proto::record::Fact<ContentRef>>(fact);
            let fact = fact.map_err(|error| broken(error.to_string()))?;
            let fact: Fact = fact.try_map(&mut |reference| self.content(reference))?;
            if defect != Some(Defect::SkipsAFactOnReplay) || number != 1 {
                evolve(&mut state, &fact);
            }
        }
        Ok((state, up_to))
    }
}

impl World {
    /// Makes entries durable in the order of these calls; who waits is told then.
    pub(crate) fn append(&mut self, entries: Vec<Entry>, ack: Ack) {
        self.store.queue.push(Append { entries, ack });
        self.begin_commit();
    }

    fn begin_commit(&mut self) {
        if self.store.writing.is_empty() && !self.store.queue.is_empty() {
            self.store.writing = std::mem::take(&mut self.store.queue);
            let delay = if self.random.percent(3) {
                150
            } else {
                1 + self.random.below(6)
            };
            self.schedule.after(delay, Event::Written);
        }
    }

    pub(crate) fn written(&mut self) -> Held {
        self.tally.count("commits");
        let batch = std::mem::take(&mut self.store.writing);
        self.write_labels(&batch);
        for Append { entries, ack } in batch {
            self.write(entries)?;
            self.acknowledge(ack);
        }
        self.begin_commit();
        Ok(())
    }

    /// The records of the labels that a batch changes, together with the rest of it.
    fn write_labels(&mut self, batch: &[Append]) {
        let entries = batch.iter().flat_map(|append| &append.entries);
        let changes = entries.filter_map(|entry| match entry {
            Entry::Label(change) => Some(change.clone()),
            _ => None,
        });
        let changes: Vec<_> = changes.collect();
        self.commit_labels(&changes);
    }

    fn write(&mut self, entries: Vec<Entry>) -> Held {
        for entry in entries {
            if let Entry::TempFile { root, record } = &entry {
                let record: TempFileRecord<ContentRef> =
                    codec::decode(record).expect("it was encoded by us");
                let record = record.try_map(&mut |reference| self.store.disk.content(reference))?;
                self.plain_files.entry(*root).or_default().apply(&record);
            }
            self.store.disk.write(entry)?;
        }
        Ok(())
    }

    fn acknowledge(&mut self, ack: Ack) {
        if let Ack::Facts {
            reopened: Some((pid, answer)),
            ..
        } = &ack
        {
            let (pid, answer, delay) = (*pid, answer.clone(), self.delay());
            let message = SupervisorMessage::Reopened { pid, answer };
            self.schedule
                .send(STORE, SUPERVISOR, delay, Event::Supervisor(message));
        }
        let (to, event) = match ack {
            Ack::ReadEnded { pid } => (
                SUPERVISOR,
                Event::Supervisor(SupervisorMessage::EndedRead { pid }),
            ),
            Ack::Reopened {
                reopened: (pid, answer),
            } => (
                SUPERVISOR,
                Event::Supervisor(SupervisorMessage::Reopened { pid, answer }),
            ),
            Ack::Facts {
                pid, life, up_to, ..
            } => (
                pid.0,
                Event::Process {
                    pid,
                    life,
                    message: ProcessMessage::Committed { up_to },
                },
            ),
            Ack::Imaged { pid, life } => (
                pid.0,
                Event::Process {
                    pid,
                    life,
                    message: ProcessMessage::Imaged,
                },
            ),
            Ack::Created { new_processes } => (
                SUPERVISOR,
                Event::Supervisor(SupervisorMessage::Created { new_processes }),
            ),
            Ack::GivenUp { pid, exit } => (
                SUPERVISOR,
                Event::Supervisor(SupervisorMessage::Ended { pid, exit }),
            ),
            Ack::Load { pid } => (
                SUPERVISOR,
                Event::Supervisor(SupervisorMessage::Loaded { pid }),
            ),
            Ack::Files { root } => (FILES, Event::Files(FilesMessage::Committed { root })),
        };
        let delay = self.delay();
        self.schedule.send(STORE, to, delay, event);
    }

    /// What the store holds when the kernel dies: of the batch on its way all or nothing, and
    /// nobody was told.
    pub(crate) fn cut_store(&mut self) -> Held {
        let batch = std::mem::take(&mut self.store.writing);
        if !batch.is_empty() && self.random.percent(50) {
            self.tally.count("batches written but not acknowledged");
            self.write_labels(&batch);
            if self.defect == Some(Defect::CountsForLabelsAgain) {
                self.write_labels(&batch);
            }
            for append in batch {
                self.write(append.entries)?;
            }
        }
        self.store.queue.clear();
        let acknowledged: Vec<_> = self
            .ledgers
            .iter()
            .filter_map(|(pid, ledger)| {
                ledger
                    .witness
                    .as_ref()
                    .filter(|(at, _)| *at > 0 && *at == self.store.disk.last(*pid))
                    .map(|_| *pid)
            })
            .collect();
        if self.defect == Some(Defect::ForgetsACommittedFact)
            && let Some(journal) = acknowledged
                .first()
                .and_then(|pid| self.store.disk.journals.get_mut(pid))
        {
            let last = journal.facts.len() as u64 - 1;
            journal.facts.pop();
            journal.snapshots.retain(|(at, _)| *at <= last);
        }
        if self.defect == Some(Defect::ForgetsAContent) {
            self.store.disk.contents.pop_first();
        }
        Ok(())
    }
}

/// An image as it is written; the contents that it refers to stand before it.
pub(crate) fn encode_image(image: Image, entries: &mut Vec<Entry>) -> Vec<u8> {
    let image = image.try_map(&mut |content| refer(content, entries));
    codec::encode(&image.expect("referring cannot fail")).expect("an image of this world is small")
}

pub(crate) fn encode_fact(fact: &Fact, entries: &mut Vec<Entry>) -> Vec<u8> {
    let fact = fact.clone().try_map(&mut |content| refer(content, entries));
    codec::encode(&fact.expect("referring cannot fail")).expect("a fact of this world is small")
}

pub(crate) fn encode_record(record: &TempFileRecord<Content>, entries: &mut Vec<Entry>) -> Vec<u8> {
    let record = record
        .clone()
        .try_map(&mut |content| refer(content, entries));
    codec::encode(&record.expect("referring cannot fail")).expect("a change of this world is small")
}

fn refer(
    content: Content,
    entries: &mut Vec<Entry>,
) -> Result<ContentRef, std::convert::Infallible> {
    entries.push(Entry::Content {
        hash: content.hash(),
        bytes: content
            .unlimited_reader()
            .bytes()
            .expect("it is in memory")
            .clone(),
    });
    Ok(content.reference())
}
