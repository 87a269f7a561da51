//! Going through the log for an inventory: what each record is, who needs it, and what it refers
//! to.
//!
//! The log is gone through in its order, from where the last time ended. A record counts where the
//! index leads to it, so of copies that a sweep left one does. What a journal holds is read once,
//! when it is first come by: a record that was moved since is known.
//!
//! Nothing is believed of what is missing. At the end each process that something was shown of must
//! be there from its first image to its last fact, or what it refers to is not known. Only what was
//! first written behind the end of the pass may be missing: the mark that began before it knows
//! what that refers to.

use std::sync::atomic::{AtomicU64, Ordering};

use dormouse_actors::garbage::Piece;
use dormouse_actors::ports::inventory::{Need, Reached, ShortName};
use dormouse_actors::ports::{Forgotten, Progress, StockTaken, StockTaking, StoreError};
use dormouse_proto::id::{CheckpointId, FactNumber, Pid};

use crate::answered::is_answered_from;
use crate::draft::{read_born, read_facts};
use crate::envelope::{HEADER_BYTES, Header, Kind};
use crate::log::end_of;
use crate::log_store::LogStore;
use crate::mark::{Location, Mark};
use crate::reader::known_header;
use crate::search;
use crate::sweep::JUDGED_AT_ONCE;
use crate::table::Line;

/// A number that no other store of this program has, from 1.
pub(crate) fn number_of_a_store() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// A pass under way.
pub(crate) struct Pass<'s, 'a> {
    store: &'s LogStore,
    order: StockTaking<'a>,
    /// Where it ends.
    end: Mark,
    /// What was first written up to this commit was read before.
    known: u64,
    at: Location,
    taken: StockTaken,
}

impl<'s, 'a> Pass<'s, 'a> {
    /// Ready to begin where the inventory has come to, up to the end of the log.
    pub(crate) fn new(store: &'s LogStore, order: StockTaking<'a>) -> Self {
        let end = store.writer().mark();
        order.inventory.belong_to(store.number);
        let Reached {
            part,
            offset,
            commit,
        } = order.inventory.reached();
        let at = Location {
            segment: part,
            offset,
        }
        .max(Location::START);
        Self {
            store,
            order,
            end,
            known: commit,
            at,
            taken: StockTaken::default(),
        }
    }

    /// Goes to the end.
    ///
    /// # Errors
    /// As [`dormouse_actors::ports::Store::take_stock`].
    pub(crate) fn run(mut self) -> Result<StockTaken, StoreError> {
        while self.at < self.end.end {
            if (self.order.watch)().is_break() {
                return Ok(StockTaken {
                    progress: Progress::BrokenOff,
                    ..self.taken
                });
            }
            self.some()?;
            let Location {
                segment: part,
                offset,
            } = self.at;
            self.order.inventory.reach(Reached {
                part,
                offset,
                commit: self.known,
            });
        }
        let touched = self.order.inventory.settle();
        let is_first = self.known == 0;
        let pids = if is_first {
            self.all()
        } else {
            touched.into_iter().collect()
        };
        for pid in pids {
            self.check(pid)?;
        }
        let Location {
            segment: part,
            offset,
        } = self.at;
        self.order.inventory.reach(Reached {
            part,
            offset,
            commit: self.end.commit,
        });
        Ok(self.taken)
    }

    fn all(&self) -> Vec<Pid> {
        self.store
            .catalog()
            .table()
            .listing()
            .rows
            .into_iter()
            .map(|row| row.pid)
            .collect()
    }

    /// A bounded part: records of one segment.
    fn some(&mut self) -> Result<(), StoreError> {
        let log = &self.store.log;
        let number = self.at.segment;
        let limit = if number == self.end.end.segment {
            self.end.end.offset
        } else {
            log.segment(number).map_or(0, |segment| segment.end())
        };
        let mut records = Vec::new();
        while self.at.offset < limit && records.len() < JUDGED_AT_ONCE {
            let Some(sealed) = log.header(self.at)? else {
                self.skip(limit)?;
                break;
            };
            let at = self.at;
            self.at = end_of(at, &sealed.header);
            records.push((at, sealed.header));
        }
        if self.at.offset >= limit && number < self.end.end.segment {
            self.at = Location {
                segment: number + 1,
                offset: 0,
            };
        }
        self.taken.records += records.len() as u64;
        let nothing = Forgotten::default();
        let answered = self.store.ask(|catalog| {
            let is_answered = |(at, header): &_| is_answered_from(catalog, &nothing, *at, header);
            records
                .iter()
                .map(is_answered)
                .collect::<Result<Vec<_>, _>>()
        })?;
        for ((at, header), is_answered) in records.into_iter().zip(answered) {
            self.order.inventory.passed(at.segment, bytes_of(&header));
            if is_answered {
                self.count(at, &header)?;
            } else {
                self.given_up(&header);
            }
        }
        Ok(())
    }

    /// Goes on at the next record behind damage in a segment.
    fn skip(&mut self, limit: u64) -> Result<(), StoreError> {
        let (from, next) = (self.at, search::header_from(&self.store.log, self.at)?);
        let here = next.filter(|next| next.segment == from.segment && next.offset < limit);
        self.at = here.unwrap_or(Location {
            offset: limit,
            ..from
        });
        self.order.inventory.note_unreadable(
            None,
            format!("nothing can be recognised from {from} to {}", self.at),
        );
        Ok(())
    }

    /// What a record gives up, whatever becomes of the record.
    fn given_up(&mut self, header: &Header) {
        let (pid, first) = (Pid(header.subject), FactNumber(header.first));
        let inventory = &mut self.order.inventory;
        match header.kind {
            Kind::Forgotten => inventory.forget(pid),
            Kind::Shortened => inventory.shorten(pid, first),
            Kind::CheckpointDropped => inventory.drop_checkpoint(CheckpointId(header.subject)),
            Kind::SnapshotDropped => inventory.no_image(pid, first),
            _ => {}
        }
    }

    /// A record that answers hang on, or a content that can be asked for.
    fn count(&mut self, at: Location, header: &Header) -> Result<(), StoreError> {
        self.given_up(header);
        let (pid, first, bytes) = (
            Pid(header.subject),
            FactNumber(header.first),
            bytes_of(header),
        );
        let inventory = &mut self.order.inventory;
        let need = match header.kind {
            Kind::Opened | Kind::Swept => return Ok(()),
            Kind::Content => {
                inventory.content(ShortName::of(&header.payload), at.segment, bytes);
                return Ok(());
            }
            Kind::Checkpoint => {
                inventory.checkpoint(CheckpointId(header.subject), at.segment, bytes);
                return Ok(());
            }
            Kind::ContentLost
            | Kind::CheckpointDropped
            | Kind::Forgotten
            | Kind::Pids
            | Kind::CheckpointIds
            | Kind::LossNoted => {
                inventory.fixed(at.segment, bytes);
                return Ok(());
            }
            Kind::Born => Need::image(FactNumber(0)),
            Kind::Facts => Need::fact(FactNumber((header.first + header.count).saturating_sub(1))),
            Kind::Snapshot | Kind::SnapshotDropped | Kind::Shortened => Need::image(first),
            Kind::TempFile => Need::ALWAYS,
            Kind::Ended => {
                inventory.ended(pid, header.at_ms);
                Need::ALWAYS
            }
        };
        inventory.record(pid, need, at.segment, bytes);
        if header.since > self.known || self.known == 0 {
            self.read(at, header)?;
        }
        Ok(())
    }

    /// Reads what a record refers to.
    fn read(&mut self, at: Location, header: &Header) -> Result<(), StoreError> {
        if !matches!(
            header.kind,
            Kind::Born | Kind::Facts | Kind::Snapshot | Kind::TempFile
        ) {
            return Ok(());
        }
        let pid = Pid(header.subject);
        match self
            .store
            .log
            .payload(at, header)
            .and_then(|payload| self.refer(pid, header, &payload))
        {
            // Without a later image a journal is read from an earlier one, and refers to the same.
            Err(StoreError::Damaged { what }) if header.kind == Kind::Snapshot => {
                tracing::warn!(%pid, what, "an image cannot be read");
                Ok(())
            }
            Err(StoreError::Damaged { what }) => {
                self.order.inventory.note_unreadable(Some(pid), what);
                Ok(())
            }
            other => other,
        }
    }

    fn refer(&mut self, pid: Pid, header: &Header, payload: &[u8]) -> Result<(), StoreError> {
        let first = FactNumber(header.first);
        match header.kind {
            Kind::Born => {
                self.piece(
                    pid,
                    Need::image(FactNumber(0)),
                    Piece::Image(read_born(payload)?.1),
                );
                self.order.inventory.image(pid, FactNumber(0));
            }
            Kind::Snapshot => {
                self.piece(pid, Need::image(first), Piece::Image(payload));
                self.order.inventory.image(pid, first);
            }
            Kind::TempFile => {
                self.piece(pid, Need::ALWAYS, Piece::TempFile(payload));
                self.order.inventory.temp_file(pid, header.first);
            }
            _ => {
                let facts = read_facts(payload)?;
                for (number, fact) in (header.first..).zip(&facts) {
                    self.piece(pid, Need::fact(FactNumber(number)), Piece::Fact(fact));
                }
                if facts.len() as u64 == header.count {
                    self.order.inventory.facts(pid, first, header.count);
                }
            }
        }
        Ok(())
    }

    fn piece(&mut self, pid: Pid, need: Need, piece: Piece<'_>) {
        let keys = self.store.log.keys();
        match (self.order.references)(piece) {
            Ok(contents) => {
                let names = contents
                    .into_iter()
                    .map(|hash| ShortName::of(&keys.name(hash)));
                self.order.inventory.refers(pid, need, names);
            }
            Err(error) => self
                .order
                .inventory
                .note_unreadable(Some(pid), error.to_string()),
        }
    }

    /// Makes sure that a process was shown from its first image to its last fact.
    fn check(&mut self, pid: Pid) -> Result<(), StoreError> {
        let line = self.store.catalog().table().line(pid);
        let Some(line) = line.filter(|line| !line.is_forgotten()) else {
            return Ok(());
        };
        let missing = match self.order.inventory.covers(pid, line.since(), line.last) {
            Ok(()) => None,
            Err(None) if self.begins_later(pid, &line)? => return Ok(()),
            Err(None) => Some(format!("its image after fact {} is missing", line.since())),
            Err(Some(upto)) => {
                let places = self
                    .store
                    .ask(|catalog| catalog.facts(pid, upto.plus(1), line.last))?;
                let places = places.map(|runs| runs.into_iter().map(|run| run.at).collect());
                let is_new = self.are_new(places)?;
                (!is_new).then(|| format!("facts behind fact {upto} are missing"))
            }
        };
        missing
            .into_iter()
            .for_each(|what| self.order.inventory.note_unreadable(Some(pid), what));
        let (known, last) = (self.order.inventory.temp_files(pid), line.temp_files.last);
        if known < last {
            let places = self.store.ask(|catalog| catalog.temp_files(pid, last))?;
            let places = places.map(|places| places.into_iter().skip(known as usize).collect());
            if !self.are_new(places)? {
                let what = format!("changes of its temporary files behind {known} are missing");
                self.order.inventory.note_unreadable(Some(pid), what);
            }
        }
        Ok(())
    }

    /// Whether a history began behind the end of the pass: by a birth, or where it was shortened.
    fn begins_later(&self, pid: Pid, line: &Line) -> Result<bool, StoreError> {
        let image = self.store.ask(|catalog| catalog.image(pid, line.since()))?;
        let place = image
            .filter(|(at, _)| *at == line.since())
            .map(|(_, place)| vec![place]);
        self.are_new(place)
    }

    /// Whether all of these were first written behind the end of the pass.
    fn are_new(&self, places: Option<Vec<Location>>) -> Result<bool, StoreError> {
        let Some(places) = places else {
            return Ok(false);
        };
        for at in places {
            match known_header(&self.store.log, at) {
                Ok(header) if header.since > self.end.commit => {}
                Err(error) if !matches!(error, StoreError::Damaged { .. }) => return Err(error),
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

fn bytes_of(header: &Header) -> u64 {
    HEADER_BYTES as u64 + header.length
}
