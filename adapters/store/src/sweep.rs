//! Giving back the room of what is garbage, a segment at a time.
//!
//! A segment of which little is live is emptied: what is live in it is moved to the log's end, made durable and vouched for by
//! HEAD; then another file takes its name, which holds one record that says so (`Kind::Swept`). The segment that HEAD's mark is
//! in, and all behind it, are never swept: where that is worth it, the one that is written is closed first, so that the mark
//! moves on.
//!
//! * What is garbage is asked of the catalog, which knows the place of every record that counts; a second copy that an earlier
//!   sweep left when it was broken off is garbage as well. Of contents the order says which are referred to.
//! * A commit may name a content while its segment is being emptied. So the last look, and putting the stub in place, happen
//!   while no commit can be made.
//! * A segment in which something cannot be read is left alone: what is damaged stays where it can be looked into.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_actors::ports::{Contents, OwnerToken, Progress, Purpose, Step, StoreError, Sweep, Swept, Until};
use dormouse_proto::id::{CheckpointId, FactNumber, Pid};

use crate::catalog::Catalog;
use crate::draft::Draft;
use crate::envelope::{Coding, HEADER_BYTES, Header, Kind, Sealed, Turn};
use crate::error::io as io_error;
use crate::index::{Fault, Name};
use crate::log::end_of;
use crate::log_store::LogStore;
use crate::mark::{Hash, Location, Mark};
use crate::rules::check_owner;
use crate::segment::Segment;
use crate::table::{CheckpointLine, Kept};
use crate::writer::Writer;

/// Records that are judged while the catalog is held.
const JUDGED_AT_ONCE: usize = 256;

/// What is swept in a store that has nearly used up its quota, whatever its bounds say: what is at least a tenth garbage.
const TIGHT_PERCENT: u8 = 90;

/// A sweep under way.
pub(crate) struct Sweeper<'s, 'a> {
    store: &'s LogStore,
    owner: OwnerToken,
    order: Sweep<'a>,
    named: Named,
    swept: Swept,
}

/// The contents that stay, by the names that the log has for them.
enum Named {
    All,
    These(HashSet<Hash>),
}

/// What stands in a segment.
#[derive(Debug, Default)]
struct Inspected {
    /// The places of what is live.
    live: Vec<u64>,
    live_bytes: u64,
    bytes: u64,
    /// The names of what is garbage and has one.
    names: Vec<Name>,
    /// The places of contents that nothing refers to, and their lengths.
    contents: HashMap<Hash, (u64, u64)>,
    /// The record that stands in its place once it is swept; none where the segment cannot be read to its end.
    stub: Option<Header>,
}

/// What becomes of a record.
enum Verdict {
    Live,
    /// A content to which nothing refers, as yet.
    Unnamed,
    Garbage,
}

/// Why a sweep does not go on.
enum Stop {
    BrokenOff,
    Damaged,
    Error(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Damaged { .. } => Self::Damaged,
            error => Self::Error(error),
        }
    }
}

impl<'s, 'a> Sweeper<'s, 'a> {
    /// Ready to begin.
    ///
    /// # Errors
    /// [`StoreError::Io`] of kind `InvalidInput` where something is to be freed by a mark that is not the last, or is over.
    pub(crate) fn new(store: &'s LogStore, owner: OwnerToken, order: Sweep<'a>) -> Result<Self, StoreError> {
        if order.purpose == Purpose::Free {
            store.spared.check(order.mark)?;
        }
        let named = match &order.live.contents {
            Contents::All => Named::All,
            Contents::These(hashes) => Named::These(hashes.iter().map(|hash| store.log.keys().name(*hash)).collect()),
        };
        let bytes = store.log.bytes();
        let swept = Swept { bytes_before: bytes, bytes_after: bytes, ..Swept::default() };
        Ok(Self { store, owner, order, named, swept })
    }

    /// Looks at every segment, and sweeps those that are worth it.
    ///
    /// # Errors
    /// As [`dormouse_actors::ports::Store::sweep`].
    pub(crate) fn run(mut self) -> Result<Swept, StoreError> {
        let outcome = self.segments();
        if self.order.purpose == Purpose::Free {
            self.swept.bytes_after = self.store.log.bytes();
            self.store.spared.end(self.order.mark);
        }
        outcome.map(|()| self.swept)
    }

    fn segments(&mut self) -> Result<(), StoreError> {
        let end = match self.end() {
            Ok(end) => end,
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::BrokenOff | Stop::Damaged) => {
                self.swept.progress = Progress::BrokenOff;
                return Ok(());
            }
        };
        let (log, swept) = (&self.store.log, self.store.log.swept());
        let candidates = log.numbers().into_iter().filter(|number| *number < end && !swept.contain(*number));
        for number in candidates.collect::<Vec<_>>() {
            match self.segment(number) {
                Ok(()) => {}
                Err(Stop::Damaged) => self.swept.damaged_parts.push(number),
                Err(Stop::Error(error)) => return Err(error),
                Err(Stop::BrokenOff) => {
                    self.swept.progress = Progress::BrokenOff;
                    break;
                }
            }
        }
        Ok(())
    }

    /// The first segment that is not swept: the one that HEAD's mark is in, or the one behind it where that is worth closing.
    fn end(&mut self) -> Result<u32, Stop> {
        let mark = match self.order.purpose {
            Purpose::Count => self.store.writer().mark(),
            Purpose::Free => self.vouched(&mut self.store.writer())?,
        };
        let number = mark.end.segment;
        let at_ms = match self.closing(number) {
            Ok(Some(at_ms)) => at_ms,
            // What is damaged is left alone.
            Ok(None) | Err(Stop::Damaged) => return Ok(number),
            Err(stop) => return Err(stop),
        };
        if self.order.purpose == Purpose::Count {
            return Ok(number + 1);
        }
        let mut writer = self.store.writer();
        check_owner(self.owner, writer.owner())?;
        // A commit may have closed it meanwhile.
        if writer.mark().end.segment == number {
            let written = writer.begin_segment(at_ms)?;
            self.store.note(&writer, &written);
        }
        Ok(self.vouched(&mut writer)?.end.segment)
    }

    fn vouched(&self, writer: &mut Writer) -> Result<Mark, Stop> {
        writer.settle().map_err(|error| stop(error, "write HEAD before a sweep"))?;
        Ok(writer.vouched())
    }

    /// The time of the last record in the segment that is written, where closing it is worth it.
    fn closing(&mut self, number: u32) -> Result<Option<u64>, Stop> {
        let end = self.store.log.segment(number).map_or(0, |segment| segment.end());
        if end == 0 || end < self.order.bounds.close_bytes {
            return Ok(None);
        }
        self.step(Step::Inspect(number))?;
        let inspected = self.inspect(number)?;
        let is_worth_it = self.is_worth_it(&inspected)
            && inspected.bytes.saturating_sub(inspected.live_bytes) >= self.order.bounds.close_bytes;
        if !is_worth_it {
            self.swept.left_bytes += inspected.bytes.saturating_sub(inspected.live_bytes);
        }
        Ok(inspected.stub.filter(|_| is_worth_it).map(|stub| stub.at_ms))
    }

    /// Whether so little of a segment is live that it is swept.
    fn is_worth_it(&self, inspected: &Inspected) -> bool {
        let asked = self.order.bounds.live_percent;
        let is_tight = self.store.quota.is_tight(self.swept.bytes_before);
        let percent = if is_tight { asked.max(TIGHT_PERCENT) } else { asked };
        u128::from(inspected.live_bytes) * 100 <= u128::from(inspected.bytes) * u128::from(percent)
    }

    fn segment(&mut self, number: u32) -> Result<(), Stop> {
        self.step(Step::Inspect(number))?;
        let mut inspected = self.inspect(number)?;
        let Some(stub) = inspected.stub.take() else { return Err(Stop::Damaged) };
        self.swept.parts += 1;
        self.swept.live_bytes += inspected.live_bytes;
        if !self.is_worth_it(&inspected) {
            self.swept.left_bytes += inspected.bytes - inspected.live_bytes;
            return Ok(());
        }
        if self.order.purpose == Purpose::Free {
            self.empty(number, &inspected)?;
            self.seal(number, &mut inspected, stub)?;
        } else {
            let freed = inspected.bytes.saturating_sub(inspected.live_bytes + HEADER_BYTES as u64);
            self.swept.bytes_after = self.swept.bytes_after.saturating_sub(freed);
            self.swept.moved_bytes += inspected.live_bytes;
        }
        self.swept.freed_parts += 1;
        self.swept.dropped_contents += inspected.contents.len() as u64;
        self.swept.dropped_content_bytes += inspected.contents.values().map(|(_, bytes)| bytes).sum::<u64>();
        if self.order.purpose == Purpose::Free {
            self.step(Step::Clean(number))?;
            self.clean(&inspected.names);
        }
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), Stop> {
        match (self.order.watch)(step) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Stop::BrokenOff),
        }
    }

    /// Reads the headers of a segment, and judges them.
    fn inspect(&self, number: u32) -> Result<Inspected, Stop> {
        let segment = self.segment_of(number)?;
        let mut inspected = Inspected { bytes: segment.end(), ..Inspected::default() };
        let (mut at, mut first, mut last) = (Location { segment: number, offset: 0 }, None, None::<Sealed>);
        while at.offset < segment.end() {
            let mut records = Vec::new();
            while at.offset < segment.end() && records.len() < JUDGED_AT_ONCE {
                let sealed = self.store.log.header(at)?.ok_or(Stop::Damaged)?;
                if last.as_ref().is_some_and(|last| last.hash != sealed.header.previous) {
                    return Err(Stop::Damaged);
                }
                first.get_or_insert_with(|| sealed.header.clone());
                records.push((at, sealed.header.clone()));
                at = end_of(at, &sealed.header);
                last = Some(sealed);
            }
            self.judge(&records, &mut inspected)?;
        }
        inspected.stub = first.zip(last).map(|(first, last)| Header {
            kind: Kind::Swept,
            turn: Turn::Last,
            coding: Coding::PLAIN,
            since: last.header.commit,
            length: 0,
            subject: number.into(),
            first: segment.end(),
            count: 0,
            payload: last.hash,
            previous: first.previous,
            ..last.header
        });
        Ok(inspected)
    }

    fn judge(&self, records: &[(Location, Header)], inspected: &mut Inspected) -> Result<(), StoreError> {
        let verdicts = self.store.ask(|catalog| {
            records.iter().map(|(at, header)| self.verdict(catalog, *at, header)).collect::<Result<Vec<_>, _>>()
        })?;
        for ((at, header), verdict) in records.iter().zip(verdicts) {
            let bytes = HEADER_BYTES as u64 + header.length;
            match verdict {
                Verdict::Live => {
                    inspected.live.push(at.offset);
                    inspected.live_bytes += bytes;
                    continue;
                }
                Verdict::Unnamed => drop(inspected.contents.insert(header.payload, (at.offset, bytes))),
                Verdict::Garbage => {}
            }
            inspected.names.extend(name_of(header));
        }
        Ok(())
    }

    fn verdict(&self, catalog: &Catalog, at: Location, header: &Header) -> Result<Verdict, Fault> {
        Ok(if self.is_live(catalog, at, header)? {
            Verdict::Live
        } else if header.kind == Kind::Content && catalog.leads_to(&Name::Content(header.payload), at)? {
            Verdict::Unnamed
        } else {
            Verdict::Garbage
        })
    }

    /// Whether a content of this name stays.
    fn names(&self, name: Hash) -> bool {
        let is_live = match &self.named {
            Named::All => true,
            Named::These(names) => names.contains(&name),
        };
        is_live || self.store.spared.contain(name)
    }

    /// Whether an answer hangs on the record that stands at a place.
    fn is_live(&self, catalog: &Catalog, at: Location, header: &Header) -> Result<bool, Fault> {
        let forgotten = &self.order.live.forgotten;
        let (pid, id) = (Pid(header.subject), CheckpointId(header.subject));
        let leads_here = || name_of(header).map_or(Ok(false), |name| catalog.leads_to(&name, at));
        let line = catalog.table().line(pid).filter(|line| !line.is_forgotten() && !forgotten.processes.contains(&pid));
        let line = line.as_ref();
        let since = line.map(|line| forgotten.histories.get(&pid).copied().unwrap_or_default().max(line.since()));
        let checkpoint = catalog.table().checkpoint_line(id).filter(|line| line.at == at);
        match header.kind {
            Kind::Opened | Kind::Swept => Ok(false),
            Kind::Content => {
                if self.names(header.payload) {
                    leads_here()
                } else {
                    Ok(false)
                }
            }
            Kind::ContentLost => leads_here(),
            Kind::Born => Ok(since == Some(FactNumber(0)) && line.is_some_and(|line| line.born_at == at)),
            Kind::Facts => match since {
                Some(since) if header.first + header.count > since.0 + 1 => leads_here(),
                _ => Ok(false),
            },
            Kind::Snapshot => {
                if since.is_some_and(|since| header.first >= since.0) {
                    leads_here()
                } else {
                    Ok(false)
                }
            }
            Kind::SnapshotDropped => {
                let image = Name::Image(pid, FactNumber(header.first));
                Ok(since.is_some_and(|since| header.first >= since.0) && !catalog.leads_somewhere(&image)?)
            }
            Kind::Ended => Ok(line.and_then(|line| line.end.as_ref()).is_some_and(|end| end.at == at)),
            Kind::TempFile => {
                if line.is_some() {
                    leads_here()
                } else {
                    Ok(false)
                }
            }
            Kind::Checkpoint => {
                Ok(checkpoint.is_some_and(CheckpointLine::is_held) && !forgotten.checkpoints.contains(&id))
            }
            Kind::CheckpointDropped => Ok(checkpoint.is_some()),
            Kind::Shortened => Ok(line.is_some_and(|line| matches!(line.kept, Kept::From(_, place) if place == at))),
            Kind::Forgotten => {
                let line = catalog.table().line(pid);
                Ok(line.is_some_and(|line| matches!(line.kept, Kept::Number(place) if place == at)))
            }
        }
    }

    /// Moves all that is live to the log's end, so much at a time.
    fn empty(&mut self, number: u32, inspected: &Inspected) -> Result<(), Stop> {
        let mut places = inspected.live.iter().map(|offset| Location { segment: number, offset: *offset }).peekable();
        while places.peek().is_some() {
            self.step(Step::Move(number))?;
            let (mut records, mut bytes) = (Vec::new(), 0);
            while bytes < self.order.bounds.step_bytes
                && let Some(at) = places.next()
            {
                let record = self.read(at)?;
                bytes += HEADER_BYTES as u64 + record.1.length;
                records.push(record);
            }
            let mut writer = self.store.writer();
            self.move_to_end(&mut writer, &records)?;
        }
        Ok(())
    }

    /// Moves those of these records that still count.
    fn move_to_end(&mut self, writer: &mut Writer, records: &[(Location, Header, Bytes)]) -> Result<(), StoreError> {
        check_owner(self.owner, writer.owner())?;
        self.settle_index(writer)?;
        let counts = {
            let catalog = self.store.catalog();
            let counts = |(at, header, _): &(Location, Header, Bytes)| self.is_live(&catalog, *at, header);
            records.iter().map(counts).collect::<Result<Vec<_>, _>>()
        };
        let counts = counts.map_err(|fault| io_error("ask its index")(io::Error::other(fault)))?;
        let at_ms = records.first().map_or(0, |(_, header, _)| header.at_ms);
        let records = records.iter().zip(counts).filter(|(_, counts)| *counts).map(|(record, _)| record);
        let drafts: Vec<_> = records.map(|(_, header, payload)| Draft::moved(header, payload.clone())).collect();
        if drafts.is_empty() {
            return Ok(());
        }
        let finished = writer.finish(drafts, at_ms)?;
        self.swept.moved_bytes += finished.length();
        let written = writer.append(finished, Until::Written)?;
        self.store.note(writer, &written);
        Ok(())
    }

    /// Tells the index everything, so that it can be asked while no commit can be made.
    fn settle_index(&self, writer: &Writer) -> Result<(), StoreError> {
        match self.store.settle_catalog() {
            Ok(()) => Ok(()),
            Err(_) => self.store.catalog_mut().rebuild(&self.store.log, writer.mark()),
        }
    }

    /// A record with its payload, checked.
    fn read(&self, at: Location) -> Result<(Location, Header, Bytes), Stop> {
        let log = &self.store.log;
        let header = log.header(at)?.ok_or(Stop::Damaged)?.header;
        if !log.is_whole(at, &header)? {
            return Err(Stop::Damaged);
        }
        let start = at.offset + HEADER_BYTES as u64;
        let segment = log.known_segment(at)?;
        let payload = segment.slice(start..start + header.length).map_err(|error| stop(error, "map a segment"))?;
        Ok((at, header, payload))
    }

    /// Puts the stub in place of a segment that was emptied, while no commit can be made.
    fn seal(&mut self, number: u32, inspected: &mut Inspected, stub: Header) -> Result<(), Stop> {
        let (at, log) = (Location { segment: number, offset: 0 }, Arc::clone(&self.store.log));
        let mut writer = self.store.writer();
        check_owner(self.owner, writer.owner())?;
        writer.check_alive()?;
        self.store.spared.check(self.order.mark)?;
        self.save_spared(&mut writer, number, inspected)?;
        self.step(Step::Settle(number))?;
        writer.settle().map_err(|error| stop(error, "make durable what a sweep has moved"))?;
        // A moved record whose place the index was not told of would be taken for one that is gone.
        self.settle_index(&writer)?;
        self.step(Step::Write(number))?;
        let (bytes, _) = stub.seal(log.key(), at);
        log.write_stub(number, &bytes)
            .map_err(|error| stop(error, "write what stands for a segment that was swept"))?;
        self.step(Step::Replace(number))?;
        log.replace(number).map_err(|error| {
            // Which of the two stands there is not known, and so not what is held.
            writer.give_up(format!("segment {number:08} could not be replaced: {error}"));
            stop(error, "replace a segment that was swept")
        })
    }

    /// Moves contents that looked like garbage and were named by a commit since.
    fn save_spared(&mut self, writer: &mut Writer, number: u32, inspected: &mut Inspected) -> Result<(), Stop> {
        let store = self.store;
        let named: Vec<_> = inspected.contents.extract_if(|name, _| store.spared.contain(*name)).collect();
        let at = |offset| Location { segment: number, offset };
        let records = named.iter().map(|(_, (offset, _))| self.read(at(*offset))).collect::<Result<Vec<_>, _>>()?;
        Ok(self.move_to_end(writer, &records)?)
    }

    /// Takes what is gone out of the index, which may fail: what leads into a swept segment leads nowhere.
    fn clean(&self, names: &[Name]) {
        for names in names.chunks(JUDGED_AT_ONCE) {
            if let Err(fault) = self.store.catalog_mut().clean(names) {
                tracing::warn!(%fault, "the index was not cleaned after a sweep");
                return;
            }
        }
    }

    fn segment_of(&self, number: u32) -> Result<Arc<Segment>, StoreError> {
        self.store.log.known_segment(Location { segment: number, offset: 0 })
    }
}

/// What the index knows a record by; none for those that it does not know.
fn name_of(header: &Header) -> Option<Name> {
    let (pid, first) = (Pid(header.subject), FactNumber(header.first));
    match header.kind {
        Kind::Content | Kind::ContentLost => Some(Name::Content(header.payload)),
        Kind::Born => Some(Name::Image(pid, FactNumber(0))),
        Kind::Facts => Some(Name::Facts(pid, first)),
        Kind::Snapshot => Some(Name::Image(pid, first)),
        Kind::TempFile => Some(Name::TempFile(pid, header.first)),
        Kind::Opened
        | Kind::Swept
        | Kind::Ended
        | Kind::Checkpoint
        | Kind::CheckpointDropped
        | Kind::Shortened
        | Kind::Forgotten
        | Kind::SnapshotDropped => None,
    }
}

fn stop(error: io::Error, doing: &str) -> Stop {
    Stop::Error(io_error(doing)(error))
}
