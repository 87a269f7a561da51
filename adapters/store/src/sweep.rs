//! Giving back the room of what is garbage, a segment at a time.
//!
//! A segment of which little is live is emptied: what is live in it is moved to the log's end, made
//! durable and vouched for by HEAD; then another file takes its name, which holds one record that
//! says so (`Kind::Swept`). The segment that HEAD's mark is in, and all behind it, are never swept:
//! where that is worth it, the one that is written is closed first, so that the mark moves on.
//!
//! * The inventory says which segments are worth a look: those in which something came to be
//!   garbage that were not looked at since. A segment that is left is not looked at again before
//!   that.
//! * What is garbage is asked of the catalog, which knows the place of every record that counts; a
//!   second copy that an earlier sweep left when it was broken off is garbage as well. Of contents
//!   the inventory says which are referred to.
//! * A commit may name a content while its segment is being emptied. So the last look, and putting
//!   the stub in place, happen while no commit can be made.
//! * A segment in which something cannot be read is left alone: what is damaged stays where it can
//!   be looked into.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_actors::ports::inventory::{Losses, ShortName, Stock};
use dormouse_actors::ports::{
    Contents, OwnerToken, Progress, Purpose, Step, StoreError, Sweep, Swept, Until,
};

use crate::answered::{is_answered_from, name_of};
use crate::catalog::Catalog;
use crate::draft::{Draft, numbers_of};
use crate::envelope::{Coding, HEADER_BYTES, Header, Kind, Sealed, Turn};
use crate::error::io as io_error;
use crate::index::{Fault, Name};
use crate::log::end_of;
use crate::log_store::LogStore;
use crate::mark::{Hash, Location, Mark};
use crate::scan::Lost;
use crate::segment::Segment;
use crate::writer::Writer;
use dormouse_records::validator::check_owner;

/// Records that are judged while the catalog is held.
pub(crate) const JUDGED_AT_ONCE: usize = 256;

/// What is swept in a store that has nearly used up its quota, whatever its bounds say: what is at
/// least a tenth garbage.
const TIGHT_PERCENT: u8 = 90;

/// A sweep under way.
pub(crate) struct Sweeper<'s, 'a> {
    store: &'s LogStore,
    owner: OwnerToken,
    order: Sweep<'a>,
    losses: Losses,
    swept: Swept,
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
    /// The record that stands in its place once it is swept; none where the segment cannot be read
    /// to its end.
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
    /// [`StoreError::MarkSuperseded`] where something is to be freed by a mark that is not the
    /// last, or is over.
    pub(crate) fn new(
        store: &'s LogStore,
        owner: OwnerToken,
        order: Sweep<'a>,
    ) -> Result<Self, StoreError> {
        if order.purpose == Purpose::Free {
            store.gc_pins.check(order.mark)?;
        }
        let losses = order.inventory.losses(order.forgotten);
        let bytes = store.log.bytes();
        let swept = Swept {
            bytes_before: bytes,
            bytes_after: bytes,
            ..Swept::default()
        };
        Ok(Self {
            store,
            owner,
            order,
            losses,
            swept,
        })
    }

    /// Looks at every segment, and sweeps those that are worth it.
    ///
    /// # Errors
    /// As [`dormouse_actors::ports::Store::sweep`].
    pub(crate) fn run(mut self) -> Result<Swept, StoreError> {
        let outcome = self.segments();
        if self.order.purpose == Purpose::Free {
            self.swept.bytes_after = self.store.log.bytes();
            self.store.gc_pins.end(self.order.mark);
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
        let candidates = log
            .numbers()
            .into_iter()
            .filter(|number| *number < end && !swept.contain(*number));
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

    /// The first segment that is not swept: the one that HEAD's mark is in, or the one behind it
    /// where that is worth closing.
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
        writer
            .settle()
            .map_err(|error| stop(error, "write HEAD before a sweep"))?;
        Ok(writer.vouched())
    }

    /// The time of the last record in the segment that is written, where closing it is worth it.
    fn closing(&mut self, number: u32) -> Result<Option<u64>, Stop> {
        let end = self
            .store
            .log
            .segment(number)
            .map_or(0, |segment| segment.end());
        if end == 0 || end < self.order.bounds.close_bytes {
            return Ok(None);
        }
        let garbage = |stock: Stock| stock.bytes.saturating_sub(stock.live);
        let is_worth_closing = |sweeper: &Self, stock| {
            sweeper.is_worth_it(stock) && garbage(stock) >= sweeper.order.bounds.close_bytes
        };
        if let Some(stock) = self
            .known(number, end)
            .filter(|stock| !is_worth_closing(self, *stock))
        {
            self.swept.left_bytes += garbage(stock);
            return Ok(None);
        }
        self.step(Step::Inspect(number))?;
        let inspected = self.inspect(number)?;
        self.correct(number, &inspected);
        let is_worth_it = is_worth_closing(self, inspected.stock());
        if !is_worth_it {
            self.swept.left_bytes += garbage(inspected.stock());
        }
        Ok(inspected
            .stub
            .filter(|_| is_worth_it)
            .map(|stub| stub.at_ms))
    }

    /// What is known of a segment of so many bytes without a look; what came to it since stock was
    /// taken counts as live.
    fn known(&self, number: u32, end: u64) -> Option<Stock> {
        let stock = self.order.inventory.stock(number, &self.losses)?;
        let is_known =
            self.order.contents == Contents::Referred && !stock.is_doubtful && stock.bytes <= end;
        is_known.then(|| Stock::seen(end, stock.live + (end - stock.bytes)))
    }

    /// Notes what a look has shown, unless it was a look at what is only foreseen.
    fn correct(&mut self, number: u32, inspected: &Inspected) {
        let is_all_looked_at = self
            .order
            .inventory
            .stock(number, &self.losses)
            .map(|stock| stock.bytes);
        if self.order.contents == Contents::Referred
            && self.order.forgotten.is_empty()
            && is_all_looked_at == Some(inspected.bytes)
        {
            self.order.inventory.correct(number, inspected.live_bytes);
        }
    }

    /// Whether so little of a segment is live that it is swept.
    fn is_worth_it(&self, stock: Stock) -> bool {
        let asked = self.order.bounds.live_percent;
        let is_tight = self.store.quota.is_tight(self.swept.bytes_before);
        let percent = if is_tight {
            asked.max(TIGHT_PERCENT)
        } else {
            asked
        };
        u128::from(stock.live) * 100 <= u128::from(stock.bytes) * u128::from(percent)
    }

    fn segment(&mut self, number: u32) -> Result<(), Stop> {
        let end = self.segment_of(number)?.end();
        if let Some(stock) = self
            .known(number, end)
            .filter(|stock| !self.is_worth_it(*stock))
        {
            self.leave(stock);
            return Ok(());
        }
        self.step(Step::Inspect(number))?;
        let ends_loss = |lost: &Lost| {
            lost.to
                == Location {
                    segment: number,
                    offset: 0,
                }
        };
        if self.store.catalog().table().lost().iter().any(ends_loss) {
            // Its first record says up to which commit something is missing before it.
            return Err(Stop::Damaged);
        }
        let mut inspected = self.inspect(number)?;
        let Some(stub) = inspected.stub.take() else {
            return Err(Stop::Damaged);
        };
        self.correct(number, &inspected);
        if !self.is_worth_it(inspected.stock()) {
            self.leave(inspected.stock());
            return Ok(());
        }
        self.swept.parts += 1;
        self.swept.live_bytes += inspected.live_bytes;
        if self.order.purpose == Purpose::Free {
            // Broken off, it leaves copies of what it has moved.
            self.order.inventory.doubt(number);
            self.empty(number, &inspected)?;
            self.seal(number, &mut inspected, stub)?;
            self.order.inventory.drop_part(number);
            inspected
                .contents
                .keys()
                .for_each(|name| self.order.inventory.dropped(ShortName::of(name), number));
        } else {
            let freed = inspected
                .bytes
                .saturating_sub(inspected.live_bytes + HEADER_BYTES as u64);
            self.swept.bytes_after = self.swept.bytes_after.saturating_sub(freed);
            self.swept.moved_bytes += inspected.live_bytes;
        }
        self.swept.freed_parts += 1;
        self.swept.dropped_contents += inspected.contents.len() as u64;
        self.swept.dropped_content_bytes += inspected
            .contents
            .values()
            .map(|(_, bytes)| bytes)
            .sum::<u64>();
        if self.order.purpose == Purpose::Free {
            self.step(Step::Clean(number))?;
            self.clean(&inspected.names);
        }
        Ok(())
    }

    /// A segment stays as it is.
    fn leave(&mut self, stock: Stock) {
        self.swept.parts += 1;
        self.swept.live_bytes += stock.live;
        self.swept.left_bytes += stock.bytes.saturating_sub(stock.live);
    }

    fn step(&mut self, step: Step) -> Result<(), Stop> {
        match (self.order.watch)(step) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Stop::BrokenOff),
        }
    }

    /// Reads the headers of a segment, and judges them.
    fn inspect(&mut self, number: u32) -> Result<Inspected, Stop> {
        let segment = self.segment_of(number)?;
        let mut inspected = Inspected {
            bytes: segment.end(),
            ..Inspected::default()
        };
        let (mut at, mut first, mut last) = (
            Location {
                segment: number,
                offset: 0,
            },
            None,
            None::<Sealed>,
        );
        while at.offset < segment.end() {
            let mut records = Vec::new();
            while at.offset < segment.end() && records.len() < JUDGED_AT_ONCE {
                let sealed = self.store.log.header(at)?.ok_or(Stop::Damaged)?;
                if last
                    .as_ref()
                    .is_some_and(|last| last.hash != sealed.header.previous)
                {
                    return Err(Stop::Damaged);
                }
                first.get_or_insert_with(|| sealed.header.clone());
                records.push((at, sealed.header.clone()));
                at = end_of(at, &sealed.header);
                last = Some(sealed);
            }
            self.swept.inspected += records.len() as u64;
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

    fn judge(
        &self,
        records: &[(Location, Header)],
        inspected: &mut Inspected,
    ) -> Result<(), StoreError> {
        let verdicts = self.store.ask(|catalog| {
            records
                .iter()
                .map(|(at, header)| self.verdict(catalog, *at, header))
                .collect::<Result<Vec<_>, _>>()
        })?;
        for ((at, header), verdict) in records.iter().zip(verdicts) {
            let bytes = HEADER_BYTES as u64 + header.length;
            match verdict {
                Verdict::Live => {
                    inspected.live.push(at.offset);
                    inspected.live_bytes += bytes;
                    continue;
                }
                Verdict::Unnamed => drop(
                    inspected
                        .contents
                        .insert(header.payload, (at.offset, bytes)),
                ),
                Verdict::Garbage => {}
            }
            inspected.names.extend(name_of(header));
        }
        Ok(())
    }

    fn verdict(&self, catalog: &Catalog, at: Location, header: &Header) -> Result<Verdict, Fault> {
        Ok(
            if !is_answered_from(catalog, self.order.forgotten, at, header)? {
                Verdict::Garbage
            } else if header.kind == Kind::Content && !self.stays(header.payload) {
                Verdict::Unnamed
            } else {
                Verdict::Live
            },
        )
    }

    /// Whether a content of this name stays.
    fn stays(&self, name: Hash) -> bool {
        let is_referred_to = || {
            self.order
                .inventory
                .is_referred_to(ShortName::of(&name), &self.losses)
        };
        self.order.contents == Contents::All
            || is_referred_to()
            || self.store.gc_pins.is_pinned(name)
    }

    /// Moves all that is live to the log's end, so much at a time.
    fn empty(&mut self, number: u32, inspected: &Inspected) -> Result<(), Stop> {
        let mut places = inspected
            .live
            .iter()
            .map(|offset| Location {
                segment: number,
                offset: *offset,
            })
            .peekable();
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
    fn move_to_end(
        &mut self,
        writer: &mut Writer,
        records: &[(Location, Header, Bytes)],
    ) -> Result<(), StoreError> {
        check_owner(self.owner, writer.owner())?;
        self.settle_index(writer)?;
        let counts = {
            let catalog = self.store.catalog();
            let counts =
                |(at, header, _): &(Location, Header, Bytes)| self.verdict(&catalog, *at, header);
            let is_live = |verdict| matches!(verdict, Verdict::Live);
            records
                .iter()
                .map(|record| counts(record).map(is_live))
                .collect::<Result<Vec<_>, _>>()
        };
        let counts = counts.map_err(|fault| io_error("ask its index")(io::Error::other(fault)))?;
        let at_ms = records.first().map_or(0, |(_, header, _)| header.at_ms);
        let records = records
            .iter()
            .zip(counts)
            .filter(|(_, counts)| *counts)
            .map(|(record, _)| record);
        let drafts = self.drafts(records);
        if drafts.is_empty() {
            return Ok(());
        }
        let finished = writer.finish(drafts, at_ms)?;
        self.swept.moved_bytes += finished.length();
        let written = writer.append(finished, Until::Written)?;
        self.store.note(writer, &written);
        Ok(())
    }

    /// Records as they will stand elsewhere. Those that only say what was given up are joined: they
    /// count for ever, and there would be more of them to move each time.
    fn drafts<'r>(
        &self,
        records: impl Iterator<Item = &'r (Location, Header, Bytes)>,
    ) -> Vec<Draft> {
        let (mut drafts, mut pids, mut ids) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for (_, header, payload) in records {
            match header.kind {
                Kind::Forgotten => pids.extend([header.subject]),
                Kind::CheckpointDropped => ids.extend([header.subject]),
                Kind::Pids => pids.extend(numbers_of(header)),
                Kind::CheckpointIds => ids.extend(numbers_of(header)),
                _ => drafts.push(Draft::moved(header, payload.clone())),
            }
        }
        drafts.extend(Draft::numbers(Kind::Pids, &pids));
        drafts.extend(Draft::numbers(Kind::CheckpointIds, &ids));
        drafts
    }

    /// Tells the index everything, so that it can be asked while no commit can be made.
    fn settle_index(&self, writer: &Writer) -> Result<(), StoreError> {
        match self.store.settle_catalog() {
            Ok(()) => Ok(()),
            Err(_) => self
                .store
                .catalog_mut()
                .rebuild(&self.store.log, writer.mark()),
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
        let payload = segment
            .slice(start..start + header.length)
            .map_err(|error| stop(error, "map a segment"))?;
        Ok((at, header, payload))
    }

    /// Puts the stub in place of a segment that was emptied, while no commit can be made.
    fn seal(&mut self, number: u32, inspected: &mut Inspected, stub: Header) -> Result<(), Stop> {
        let (at, log) = (
            Location {
                segment: number,
                offset: 0,
            },
            Arc::clone(&self.store.log),
        );
        let mut writer = self.store.writer();
        check_owner(self.owner, writer.owner())?;
        writer.check_alive()?;
        self.store.gc_pins.check(self.order.mark)?;
        self.copy_pinned(&mut writer, number, inspected)?;
        self.step(Step::Settle(number))?;
        writer
            .settle()
            .map_err(|error| stop(error, "make durable what a sweep has moved"))?;
        // A moved record whose place the index was not told of would be taken for one that is gone.
        self.settle_index(&writer)?;
        self.step(Step::Write(number))?;
        let (bytes, _) = stub.seal(log.key(), at);
        log.write_stub(number, &bytes)
            .map_err(|error| stop(error, "write what stands for a segment that was swept"))?;
        self.step(Step::Replace(number))?;
        log.replace(number).map_err(|error| {
            // Which of the two stands there is not known, and so not what is held.
            writer.give_up(format!(
                "segment {number:08} could not be replaced: {error}"
            ));
            stop(error, "replace a segment that was swept")
        })
    }

    /// Moves contents that looked like garbage and were named by a commit since.
    fn copy_pinned(
        &mut self,
        writer: &mut Writer,
        number: u32,
        inspected: &mut Inspected,
    ) -> Result<(), Stop> {
        let store = self.store;
        let named: Vec<_> = inspected
            .contents
            .extract_if(|name, _| store.gc_pins.is_pinned(*name))
            .collect();
        let at = |offset| Location {
            segment: number,
            offset,
        };
        let records = named
            .iter()
            .map(|(_, (offset, _))| self.read(at(*offset)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(self.move_to_end(writer, &records)?)
    }

    /// Removes the deleted names from the index, and tells it that the segment is shorter. This may
    /// fail: a name that leads into a swept segment leads nowhere.
    fn clean(&self, names: &[Name]) {
        let log = &self.store.log;
        let cleaned = names
            .chunks(JUDGED_AT_ONCE)
            .try_for_each(|names| self.store.catalog_mut().clean(names, log));
        if let Err(fault) = cleaned.and_then(|()| self.store.catalog_mut().settle(log)) {
            tracing::warn!(%fault, "the index was not cleaned after a sweep");
        }
    }

    fn segment_of(&self, number: u32) -> Result<Arc<Segment>, StoreError> {
        self.store.log.known_segment(Location {
            segment: number,
            offset: 0,
        })
    }
}

impl Inspected {
    fn stock(&self) -> Stock {
        Stock::seen(self.bytes, self.live_bytes)
    }
}

fn stop(error: io::Error, doing: &str) -> Stop {
    Stop::Error(io_error(doing)(error))
}
