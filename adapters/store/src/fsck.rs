//! Looking a store over: every record, with its payload, and what follows from damage; and mending
//! what can be.
//!
//! A check changes nothing, and uses the same table as an opening (`census`). A repair loses
//! nothing that could still be read:
//! * the index is built again;
//! * an image that is damaged is given up where an earlier one leads to the same state;
//! * a content that is damaged is noted as lost, so that who reads it is told at once, and kept
//!   again when it is committed again;
//! * HEAD is written again from its other file;
//! * where the log ends before HEAD's mark, a new segment stands in for what is missing, and the
//!   log goes on in it. Its first record goes on from the commit that HEAD names, so that what is
//!   put back later fits in between;
//! * where both files of HEAD are lost, or damage follows the last whole commit, the end of the log
//!   is unknown. The new segment then has no predecessor in the chain, which records permanently
//!   that something may be missing before it;
//! * all else is noted as acknowledged: it is answered as lost still, and no longer told to who did
//!   not ask for it.
//!
//! Segments with damage are never changed: a copy of one can still be put back.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use std::sync::Arc;

use dormouse_actors::garbage::Piece;
use dormouse_actors::ports::{StoreError, Until};
use dormouse_proto::id::Pid;

use crate::census::{Census, Content, Health, Records};
use crate::disk::{Reading, System};
use crate::draft::Draft;
use crate::envelope::{HEADER_BYTES, Header, StoreKey};
use crate::error::{damaged, io};
use crate::finding::Finding;
use crate::head::{Head, HeadFiles};
use crate::index::Index;
use crate::lock::StoreLock;
use crate::log::{Log, segment_numbers};
use crate::log_store::LogStore;
use crate::mark::{Hash, Location, Mark};
use crate::options::Options;
use crate::read_only::{beside_a_writer, moment};
use crate::recover::{check_log, check_tail, is_short, keys_of};
use crate::scan::Reached;
use crate::secret::{NO_CHECK, StoreSecret, check_of};
use crate::segment::Segment;

/// The newest owner of a store whose HEAD was lost: more than any that there was.
const EPOCH_BEHIND_ALL: u64 = 1 << 40;

/// Whether damage is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// It is only reported.
    No,
    /// What can be mended is.
    Yes,
}

/// What was found in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkup {
    /// Records that were read.
    pub records: u64,
    /// Bytes of the log.
    pub bytes: u64,
    /// The damage.
    pub findings: Vec<Finding>,
    /// Damage that an earlier repair has noted as acknowledged.
    pub acknowledged: Vec<Finding>,
}

/// Looks over the store in `dir`, which is opened as `options` say; mends it, if so asked, after
/// all was read. `reader` is told of every piece of a journal that can be read, perhaps more than
/// once, so that who can decode them knows what refers to a content. Costs a pass over the whole
/// log; a repair two or three.
///
/// Without a repair it takes no lock and changes no byte. It works while another program writes the
/// store, of which it sees one moment, and on a read-only file system. A repair needs the lock of
/// the store, and acknowledges what it cannot mend.
///
/// # Errors
/// [`StoreError::InUse`], to repair; [`StoreError::Key`] where it is encrypted otherwise;
/// [`StoreError::Damaged`] where log and HEAD do not belong together, or nothing tells the key of
/// the store: nothing was changed then. [`StoreError::Io`].
pub fn fsck(
    dir: &Path,
    options: &Options,
    repair: Repair,
    reader: &mut dyn FnMut(Pid, Piece<'_>),
) -> Result<Checkup, StoreError> {
    let log = dir.join("log");
    match log.metadata() {
        Ok(found) if !found.is_dir() => {
            return Err(damaged(format!(
                "{} is not a store: its log is not a folder",
                dir.display()
            )));
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(io(format!("look into {}", log.display()))(error));
        }
        // Without a folder there is no segment.
        _ => {}
    }
    // Who does not have the key leaves no trace, not even in LOCK.
    if let Some(head) = read_head(dir)?.best {
        keys_of(&head, options.secret.as_ref(), dir)?;
    }
    let lock = match repair {
        Repair::Yes => Some(StoreLock::take(dir)?),
        Repair::No => None,
    };
    let seen = look_over(dir, options, reader)?;
    let mut checkup = seen.checkup();
    if repair == Repair::No || checkup.findings.iter().any(Finding::is_refused) {
        return Ok(checkup);
    }
    let bridged = seen.bridge(dir, options.secret.as_ref())?;
    Index::remove(&dir.join("index")).map_err(io("remove the index"))?;
    let at_ms = seen.census.end_ms;
    drop((seen, lock));
    if bridged == Bridged::Yes {
        options.clone().open(dir)?.begin_segment(at_ms)?;
    }
    let found = mend(options, dir)?;
    // What the repair itself made visible.
    let is_new = |finding: &Finding| !checkup.findings.contains(finding) && bridged == Bridged::Yes;
    let new: Vec<_> = found.into_iter().filter(is_new).collect();
    checkup
        .findings
        .retain(|finding| bridged == Bridged::No || !matches!(finding, Finding::Part { .. }));
    checkup.findings.extend(new);
    Ok(checkup)
}

/// The files of HEAD, damage to all of them being no error.
fn read_head(dir: &Path) -> Result<HeadFiles, StoreError> {
    Head::read_files(&Reading::default(), dir)
}

/// One moment of a store.
struct Seen {
    /// None if HEAD is lost.
    head: Option<Head>,
    /// The files of HEAD that are missing or damaged.
    faulty: Vec<&'static str>,
    log: Log,
    census: Census,
    reached: Reached,
}

/// Whether a segment was begun that stands in for what is missing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bridged {
    No,
    Yes,
}

fn look_over(
    dir: &Path,
    options: &Options,
    reader: &mut dyn FnMut(Pid, Piece<'_>),
) -> Result<Seen, StoreError> {
    let secret = options.secret.as_ref();
    beside_a_writer(|| {
        let HeadFiles { best, faulty, .. } = read_head(dir)?;
        let (head, log) = match best {
            Some(_) => {
                let (head, log) = moment(dir, options)?;
                (Some(head), log)
            }
            None => {
                let keys = keys_of(&head_in(dir, secret)?, secret, dir)?;
                let disk = Arc::new(Reading::paced(options.pace.clone()));
                (None, Log::open(disk, &dir.join("log"), keys)?)
            }
        };
        let mark = head.map_or(Mark::EMPTY, |head| head.mark);
        let (census, reached) = match is_short(&log, mark) {
            false => {
                check_log(&log, mark)?;
                Census::take(&log, mark, reader)?
            }
            true => {
                let (census, reached) = Census::take(&log, mark, reader)?;
                if census.records == 0 {
                    check_log(&log, mark)?;
                }
                (census, reached)
            }
        };
        let is_doubtful = head.is_some() && census.catalog.table().is_lost_behind(mark.end);
        Ok((
            Seen {
                head,
                faulty,
                log,
                census,
                reached,
            },
            is_doubtful,
        ))
    })
}

impl Seen {
    fn checkup(&self) -> Checkup {
        let table = self.census.catalog.table();
        let known = table.acknowledged();
        let (acknowledged, rest) = findings(&self.census)
            .into_iter()
            .partition(|finding| known.contains(&finding.clone().known_by()));
        let head = self.faulty.iter().map(|file| Finding::Head {
            file: (*file).to_owned(),
        });
        let findings = head.chain(self.end()).chain(rest).collect();
        Checkup {
            records: self.census.records,
            bytes: self.log.bytes(),
            findings,
            acknowledged,
        }
    }

    /// What is wrong with the log's end.
    fn end(&self) -> Vec<Finding> {
        let whole = self.census.last_whole;
        let mut found = Vec::new();
        match self.head {
            Some(head) if is_short(&self.log, head.mark) => {
                let commits = head.mark.commit.saturating_sub(whole.commit);
                found.push(Finding::Short {
                    end: whole.end,
                    vouched: head.mark.end,
                    commits,
                });
            }
            Some(_) if !self.reached.is_doubtful => {}
            _ => found.push(Finding::Unvouched {
                end: whole.end,
                commit: whole.commit,
            }),
        }
        if check_tail(&self.log, self.reached.good).is_err() {
            let segment = self.log.numbers().last().copied().unwrap_or_default();
            found.push(Finding::Stray {
                end: self.reached.good.end,
                segment,
            });
        }
        found
    }

    /// Begins a new segment if the log does not end with a whole commit that HEAD knows. Writes
    /// HEAD again if one of its files is damaged.
    fn bridge(&self, dir: &Path, secret: Option<&StoreSecret>) -> Result<Bridged, StoreError> {
        let last = self.log.numbers().last().copied().unwrap_or_default();
        let (head, number) = match self.head {
            Some(head) if is_short(&self.log, head.mark) => (head, Some(head.mark.end.segment + 1)),
            Some(head) if !self.reached.is_doubtful => (head, None),
            head => {
                let head = match head {
                    Some(head) => head,
                    None => Head {
                        epoch: EPOCH_BEHIND_ALL,
                        ..head_in(dir, secret)?
                    },
                };
                let end = Location {
                    segment: last + 1,
                    offset: 0,
                };
                // No record has this hash: the chain shows that it is broken here.
                let mark = Mark {
                    end,
                    last: 0,
                    chain: [0; 32],
                    commit: self.reached.commit,
                };
                (Head { mark, ..head }, Some(last + 1))
            }
        };
        if let Some(number) = number {
            let log = Log::open(Arc::new(System), &dir.join("log"), self.log.keys().clone())?;
            log.add(number)
                .map_err(io("begin a segment behind what is lost"))?;
        }
        if number.is_some() || !self.faulty.is_empty() {
            head.write_both(&System, dir).map_err(io("write HEAD"))?;
        }
        Ok(if number.is_some() {
            Bridged::Yes
        } else {
            Bridged::No
        })
    }
}

/// So many losses stand in one note.
const NOTED_AT_ONCE: usize = 1_000;

/// Notes what is lost, so that the next who asks is told at once, and who does not ask is not.
/// Answers with what there is.
fn mend(options: &Options, dir: &Path) -> Result<Vec<Finding>, StoreError> {
    let store = options.clone().open(dir)?;
    let mark = store.writer().mark();
    let (census, _) = Census::take(&store.log, mark, &mut |_, _| {})?;
    let known = census.catalog.table().acknowledged();
    let found = findings(&census);
    let (mut notes, mut losses) = (Vec::new(), Vec::new());
    notes.extend(damaged_contents(&census).map(|(name, _)| Draft::content_lost(*name)));
    for finding in &found {
        match finding.clone().known_by() {
            Finding::Image { pid, at } => notes.push(Draft::snapshot_dropped(pid, at)),
            Finding::Content { .. } => {}
            loss if known.contains(&loss) => {}
            loss => losses.push(loss),
        }
    }
    for losses in losses.chunks(NOTED_AT_ONCE) {
        notes.push(Draft::loss_noted(losses)?);
    }
    store.write_notes(notes, census.end_ms)?;
    Ok(found)
}

impl LogStore {
    /// Begins a segment in which nothing else stands yet, durably, and tells HEAD.
    ///
    /// # Errors
    /// As those of a commit.
    fn begin_segment(&self, at_ms: u64) -> Result<(), StoreError> {
        let mut writer = self.writer();
        let written = writer.begin_segment(at_ms)?;
        self.note(&writer, &written);
        writer.settle().map_err(io("write HEAD"))
    }

    /// Writes notes of damage as one commit, durably.
    ///
    /// # Errors
    /// As those of a commit.
    pub(crate) fn write_notes(&self, drafts: Vec<Draft>, at_ms: u64) -> Result<(), StoreError> {
        let mut writer = self.writer();
        if !drafts.is_empty() {
            let finished = writer.finish(drafts, at_ms)?;
            let written = writer.append(finished, Until::Synced)?;
            self.note(&writer, &written);
        }
        Ok(())
    }
}

fn findings(census: &Census) -> Vec<Finding> {
    let table = census.catalog.table();
    let openings = census
        .openings
        .iter()
        .map(|segment| Finding::Opening { segment: *segment });
    let processes = census
        .processes
        .iter()
        .flat_map(|(pid, records)| of_process(*pid, records));
    let contents =
        damaged_contents(census).map(|(_, content)| Finding::Content { hash: content.hash });
    let losses = table
        .losses()
        .into_iter()
        .chain(openings)
        .chain(table.open_ends());
    losses.chain(processes).chain(contents).collect()
}

fn damaged_contents(census: &Census) -> impl Iterator<Item = (&Hash, &Content)> {
    census
        .contents
        .iter()
        .filter(|(_, content)| content.health == Some(Health::Damaged))
}

/// So many lost changes of the files of a tree are named: a number in a forged header can leave out
/// any number of them.
const MOST_LOST_CHANGES: usize = 1_000;

fn of_process(pid: Pid, records: &Records) -> Vec<Finding> {
    let mut found = Vec::new();
    if records.images.get(&records.since) != Some(&Health::Whole) {
        found.push(Finding::Beginning {
            pid,
            again_from: records.image_from(records.since),
        });
    }
    found.extend(
        records
            .damaged_images()
            .into_iter()
            .map(|at| Finding::Image { pid, at }),
    );
    let facts = records.lost_facts().into_iter();
    found.extend(facts.map(|(first, last)| Finding::Facts {
        pid,
        first,
        last,
        again_from: records.image_from(last),
    }));
    let last = records
        .temp_files
        .last_key_value()
        .map_or(0, |(number, _)| *number);
    let is_lost = |number: &u64| records.temp_files.get(number) != Some(&Health::Whole);
    let lost = (1..=last).filter(is_lost).take(MOST_LOST_CHANGES);
    found.extend(lost.map(|number| Finding::TempFile { root: pid, number }));
    found
}

/// What stood in a HEAD that is lost. The key of the store stands in the first record of each
/// segment, which opens with it, or with one that is made of it and the secret; a segment that was
/// swept has no such record.
fn head_in(dir: &Path, secret: Option<&StoreSecret>) -> Result<Head, StoreError> {
    let folder = dir.join("log");
    let numbers = segment_numbers(&System, &folder).map_err(io("look for a log"))?;
    for number in numbers.into_iter().rev() {
        let mut start = Vec::new();
        let file =
            File::open(folder.join(Segment::file_name(number))).map_err(io("open a segment"))?;
        file.take((HEADER_BYTES + size_of::<Hash>()) as u64)
            .read_to_end(&mut start)
            .map_err(io("read a segment"))?;
        let payload = start.get(HEADER_BYTES..HEADER_BYTES + size_of::<Hash>());
        let Some(key) = payload
            .and_then(|bytes| bytes.first_chunk())
            .map(|key| StoreKey(*key))
        else {
            continue;
        };
        let at = Location {
            segment: number,
            offset: 0,
        };
        let check = secret.map_or(NO_CHECK, |secret| check_of(secret, key));
        let head = Head {
            key,
            epoch: 0,
            mark: Mark::EMPTY,
            check,
        };
        let keys = keys_of(&head, secret, dir)?;
        let opens = |bytes| matches!(Header::open(bytes, keys.headers(), at), Ok(Some(_)));
        if start.first_chunk().is_some_and(opens) {
            return Ok(head);
        }
    }
    Err(damaged(
        "HEAD is lost, and no segment says what the key of the store was; if it is encrypted, only \
         its own secret shows that. Put back a copy of HEAD",
    ))
}
