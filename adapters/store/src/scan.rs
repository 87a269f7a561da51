//! The walk over the log: what stands in it, where it is damaged, and where it ends.
//!
//! **How a torn tail is told from damage.** Each record says which commit was known to be on the
//! disk when it was written. So when a bad record turns up where commit *n+1* should stand,
//! * before HEAD's mark it is damage: HEAD vouches for it (LOG-3);
//! * after the mark it is damage if a record stands further on that says that *n+1* was synced.
//!   Other records prove nothing: the disk may have kept the end of what was written and lost its
//!   beginning;
//! * otherwise it is the torn tail of a commit that nobody was told of. The walk ends before it
//!   (LOG-2).
//!
//! Behind damage the walk goes on at the next header that opens. A header that opens is genuine
//! (`envelope`), so the search cannot be led astray by what stands in a content.
//!
//! A segment that was swept is one record, behind which the chain goes on as behind what stood
//! there.
//!
//! The walk reads headers only, and payloads behind HEAD's mark. It changes nothing.

use dormouse_actors::ports::StoreError;

use crate::envelope::{HEADER_BYTES, Header, Kind, Sealed, Turn};
use crate::error::damaged;
use crate::log::{Log, end_of};
use crate::mark::{Hash, Location, Mark};
use crate::search;
use crate::window::Window;

/// More records than a segment of the usual length can hold.
const SEGMENT_RECORDS: u64 = 1 << 21;

/// A part of the log in which nothing can be recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Its first byte.
    pub(crate) from: Location,
    /// Where the next record that can be recognised starts.
    pub(crate) to: Location,
    /// No record in it was written before this commit, unless it was moved there.
    pub(crate) since: u64,
    /// No record in it is of a later commit than this.
    pub(crate) upto: u64,
}

impl Lost {
    /// So many records were in it at most. Of whole segments nobody knows how long they were.
    pub(crate) fn most_records(&self) -> u64 {
        let spanned =
            u64::from(self.to.segment.saturating_sub(self.from.segment)) * SEGMENT_RECORDS;
        spanned
            + self
                .to
                .offset
                .saturating_sub(if spanned > 0 { 0 } else { self.from.offset })
                / HEADER_BYTES as u64
    }
}

/// What the walk comes by.
#[derive(Debug)]
pub(crate) enum Found {
    /// A record of a complete commit.
    Record(Location, Header),
    /// All records of a commit were shown; the log is good up to here.
    Commit(Mark),
    /// Damage.
    Lost(Lost),
}

/// Walks the log from `from` to its end and shows what stands there, commit by commit. Answers with
/// the mark of the last complete commit; whatever lies behind it is a torn tail.
///
/// # Errors
/// [`StoreError::Damaged`] where the log is not the one that `head` speaks of, and whatever `visit`
/// fails with.
pub(crate) fn walk<E: From<StoreError>>(
    log: &Log,
    from: Mark,
    head: Mark,
    visit: &mut dyn FnMut(Found) -> Result<(), E>,
) -> Result<Mark, E> {
    let mut walk = Walk::new(log, from, head);
    walk.run(visit)?;
    walk.settle()?;
    Ok(walk.good)
}

/// Where a walk over a log ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reached {
    /// The last complete commit.
    pub(crate) good: Mark,
    /// The highest commit of which there is a record.
    pub(crate) commit: u64,
    /// Whether damage follows the last complete commit, so that the log does not end there for
    /// certain.
    pub(crate) is_doubtful: bool,
}

/// The same over the whole log, for who looks at what is there, wherever it ends.
///
/// # Errors
/// As [`walk`], but damage at the end is no error.
pub(crate) fn walk_all<E: From<StoreError>>(
    log: &Log,
    head: Mark,
    visit: &mut dyn FnMut(Found) -> Result<(), E>,
) -> Result<Reached, E> {
    let mut walk = Walk::new(log, Mark::EMPTY, head);
    walk.run(visit)?;
    Ok(Reached {
        good: walk.good,
        commit: walk.reached,
        is_doubtful: walk.unsettled.is_some(),
    })
}

/// Refuses a log that is not the one that `head` speaks of, by reading all its headers. For when
/// the record that HEAD names cannot be read: is the record damaged, or the log another one?
///
/// # Errors
/// [`StoreError::Damaged`].
pub(crate) fn survey(log: &Log, head: Mark) -> Result<(), StoreError> {
    let mut recognised = false;
    walk(log, Mark::EMPTY, head, &mut |found| {
        recognised |= matches!(found, Found::Record(at, _) if at < head.end);
        Ok::<_, StoreError>(())
    })?;
    if recognised {
        return Ok(());
    }
    Err(damaged(format!(
        "nothing in the log was written by the store that HEAD belongs to, which had reached {}. \
         Put back the log of this store, or a copy of HEAD and log together",
        head.end
    )))
}

struct Walk<'a> {
    log: &'a Log,
    window: Window<'a>,
    head: Mark,
    at: Location,
    /// The end of the record before `at`: in an earlier segment where `at` is the start of one.
    behind: Location,
    /// The hash of the record before `at`; none behind damage, where it is unknown.
    chain: Option<Hash>,
    good: Mark,
    /// Good records of a commit whose end has not been seen.
    pending: Vec<(Location, Header)>,
    /// The highest commit of which a record was taken.
    reached: u64,
    /// The latest commit that a record further on says was synced.
    foreseen: u64,
    /// Damage behind the last good commit.
    unsettled: Option<Lost>,
}

impl<'a> Walk<'a> {
    fn new(log: &'a Log, from: Mark, head: Mark) -> Self {
        let (at, behind, chain) = (from.end, from.end, Some(from.chain));
        let (window, reached, pending) = (Window::on(log), from.commit, Vec::new());
        Self {
            log,
            window,
            head,
            at,
            behind,
            chain,
            good: from,
            pending,
            reached,
            foreseen: 0,
            unsettled: None,
        }
    }

    fn run<E: From<StoreError>>(
        &mut self,
        visit: &mut dyn FnMut(Found) -> Result<(), E>,
    ) -> Result<(), E> {
        while self.enter_segment() {
            self.pass_head(visit)?;
            let here = self.window.header(self.at)?;
            let vouched = self.at < self.head.end;
            match here {
                Some(sealed) if vouched => {
                    self.check_against_head(&sealed)?;
                    self.take(sealed, visit)?;
                }
                Some(sealed) if self.is_trusted(&sealed)? => self.take(sealed, visit)?,
                None if vouched => self.skip_before_head(visit)?,
                None if self.later_commit_stands()? => {
                    match search::header_from(self.log, self.at)? {
                        Some(next) => self.skip(next, self.commit_at(next)?, visit)?,
                        None => break,
                    }
                }
                _ => break,
            }
        }
        self.pass_head(visit)
    }

    /// HEAD vouches for a commit at its mark. If the walk comes to that place by another way, as
    /// over the end of a segment that was cut between two records, what is missing before it is
    /// lost.
    fn pass_head<E: From<StoreError>>(
        &mut self,
        visit: &mut dyn FnMut(Found) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.at < self.head.end || self.good.end >= self.head.end {
            return Ok(());
        }
        self.flush(visit)?;
        visit(Found::Lost(self.lost(
            self.behind,
            self.head.end,
            self.head.commit,
        )))?;
        self.vouch(visit)
    }

    /// Goes on from HEAD's mark, whatever stands before it.
    fn vouch<E>(&mut self, visit: &mut dyn FnMut(Found) -> Result<(), E>) -> Result<(), E> {
        (self.chain, self.good, self.unsettled) = (Some(self.head.chain), self.head, None);
        (self.behind, self.reached) = (self.head.end, self.head.commit);
        visit(Found::Commit(self.head))
    }

    fn lost(&self, from: Location, to: Location, upto: u64) -> Lost {
        let is_begun = self.good.commit != self.reached;
        let since = if is_begun {
            self.reached
        } else {
            self.reached + 1
        };
        Lost {
            from,
            to,
            since,
            upto,
        }
    }

    /// A torn tail may be cut, but not together with damage: that would make it forgotten.
    fn settle(&self) -> Result<(), StoreError> {
        let Some(lost) = self.unsettled else {
            return Ok(());
        };
        Err(damaged(format!(
            "the log cannot be read from {} on, and no whole commit follows. Cutting it there \
             could lose what was acknowledged. Put back a copy of HEAD and log together",
            lost.from
        )))
    }

    /// Moves on to the next segment at the end of one; false at the end of the log.
    fn enter_segment(&mut self) -> bool {
        let last = self.log.numbers().last().copied().unwrap_or(0);
        let end = self
            .log
            .segment(self.at.segment)
            .map(|segment| segment.end());
        // HEAD vouches for what stood before its mark, also where the segment is cut or gone by
        // now.
        let is_over = end == Some(self.at.offset)
            || (self.at == self.head.end && end.is_none_or(|end| end < self.at.offset));
        if is_over && self.at.segment < last {
            self.at = Location {
                segment: self.at.segment + 1,
                offset: 0,
            };
        }
        self.at.segment < last || end.is_some_and(|end| self.at.offset < end)
    }

    /// A record behind HEAD's mark counts if it is whole, or if a later commit shows that it once
    /// was.
    fn is_trusted(&mut self, sealed: &Sealed) -> Result<bool, StoreError> {
        Ok(self.log.is_whole(self.at, &sealed.header)? || self.later_commit_stands()?)
    }

    fn check_against_head(&self, sealed: &Sealed) -> Result<(), StoreError> {
        let end = end_of(self.at, &sealed.header);
        let another = end > self.head.end && end.segment == self.head.end.segment;
        if another || (end == self.head.end && sealed.hash != self.head.chain) {
            return Err(damaged(format!(
                "the log is not the one that HEAD speaks of: they part at {}. Put back a copy of \
                 HEAD and log together",
                self.at
            )));
        }
        Ok(())
    }

    /// Numbers of commits rise. Where they do not, two histories of the store stand one behind the
    /// other.
    fn check_order(&self, header: &Header) -> Result<(), StoreError> {
        if header.commit > self.reached {
            return Ok(());
        }
        Err(damaged(format!(
            "the segments before {:08} hold commits up to {}, and it goes on with commit {}: they \
             are of two copies of the store, which were written apart from each other. Put back \
             HEAD, HEAD2 and the log of one of them together",
            self.at.segment, self.reached, header.commit
        )))
    }

    fn take<E: From<StoreError>>(
        &mut self,
        sealed: Sealed,
        visit: &mut dyn FnMut(Found) -> Result<(), E>,
    ) -> Result<(), E> {
        let (at, Sealed { header, hash }) = (self.at, sealed);
        if self.chain.is_some_and(|chain| chain != header.previous) {
            self.check_order(&header)?;
            self.flush(visit)?;
            visit(Found::Lost(self.lost(self.behind, at, header.commit)))?;
        }
        if header.kind == Kind::Swept {
            return self.step_over(header, visit);
        }
        if self
            .pending
            .first()
            .is_some_and(|(_, first)| first.commit != header.commit)
        {
            self.flush(visit)?;
        }
        self.at = end_of(at, &header);
        self.behind = self.at;
        self.chain = Some(hash);
        self.reached = self.reached.max(header.commit);
        let ends = (header.turn == Turn::Last).then_some(header.commit);
        self.pending.push((at, header));
        if let Some(commit) = ends {
            self.flush(visit)?;
            self.good = Mark {
                end: self.at,
                last: at.offset,
                chain: hash,
                commit,
            };
            self.unsettled = None;
            visit(Found::Commit(self.good))?;
        }
        Ok(())
    }

    /// Goes on behind a segment that was swept. HEAD's mark is always further on, so that no commit
    /// ends here.
    fn step_over<E>(
        &mut self,
        header: Header,
        visit: &mut dyn FnMut(Found) -> Result<(), E>,
    ) -> Result<(), E> {
        self.flush(visit)?;
        let at = self.at;
        (self.at, self.chain) = (end_of(at, &header), Some(header.payload));
        self.behind = self.at;
        self.reached = self.reached.max(header.commit);
        visit(Found::Record(at, header))
    }

    fn flush<E>(&mut self, visit: &mut dyn FnMut(Found) -> Result<(), E>) -> Result<(), E> {
        self.pending
            .drain(..)
            .try_for_each(|(at, header)| visit(Found::Record(at, header)))
    }

    /// Goes on behind damage.
    fn skip<E>(
        &mut self,
        to: Location,
        upto: u64,
        visit: &mut dyn FnMut(Found) -> Result<(), E>,
    ) -> Result<(), E> {
        self.flush(visit)?;
        let lost = self.lost(self.at, to, upto);
        visit(Found::Lost(lost))?;
        (self.at, self.behind, self.chain, self.unsettled) = (to, to, None, Some(lost));
        Ok(())
    }

    fn commit_at(&self, at: Location) -> Result<u64, StoreError> {
        Ok(self
            .log
            .header(at)?
            .map_or(u64::MAX, |sealed| sealed.header.commit))
    }

    /// Goes on at the next record, and at HEAD's mark at the latest: there a record ended for
    /// certain.
    fn skip_before_head<E: From<StoreError>>(
        &mut self,
        visit: &mut dyn FnMut(Found) -> Result<(), E>,
    ) -> Result<(), E> {
        match search::header_from(self.log, self.at)? {
            Some(next) if next < self.head.end => self.skip(next, self.commit_at(next)?, visit),
            _ => {
                self.skip(self.head.end, self.head.commit, visit)?;
                self.vouch(visit)
            }
        }
    }

    /// Whether a record further on shows that the commit that should stand here was synced.
    fn later_commit_stands(&mut self) -> Result<bool, StoreError> {
        // Where a commit has begun, the bad record is one of its own.
        let begun = self.good.commit != self.reached;
        let wanted = if begun {
            self.reached
        } else {
            self.reached + 1
        };
        let mut at = self.at;
        while self.foreseen < wanted {
            let Some(next) = search::header_from(self.log, at)? else {
                break;
            };
            let Some(sealed) = self.log.header(next)? else {
                break;
            };
            self.foreseen = self.foreseen.max(sealed.header.synced);
            at = end_of(next, &sealed.header);
        }
        Ok(self.foreseen >= wanted)
    }
}
