//! Headers that are close together in the log, read with one call of the operating system.
//!
//! A log of facts has a header every few hundred bytes, and a call for each costs more than to read
//! and check what it returns. A log of contents has one every few hundred kilobytes, and what is
//! between them is not worth reading. So the window grows while it serves several headers, and
//! shrinks to its least when it does not.
//!
//! Beside a writer a window may be older than the log. Therefore only a header that opens is taken
//! from it, since that is genuine; that nothing opens at a place is decided by a fresh read.

use dormouse_actors::ports::StoreError;

use crate::envelope::{HEADER_BYTES, Sealed};
use crate::log::Log;
use crate::mark::Location;

/// Costs hardly more to read than a header.
const LEAST_BYTES: usize = 1 << 10;
const MOST_BYTES: usize = 64 << 10;
/// A larger window is worth it where a smaller one served a header for each so many bytes.
const BYTES_OF_A_HEADER: usize = 1 << 10;

/// A part of a segment, in memory.
#[derive(Debug)]
pub(crate) struct Window<'l> {
    log: &'l Log,
    from: Location,
    bytes: Vec<u8>,
    /// Headers that it has served.
    served: usize,
}

impl<'l> Window<'l> {
    /// One that has read nothing yet.
    pub(crate) fn on(log: &'l Log) -> Self {
        Self {
            log,
            from: Location::START,
            bytes: Vec::new(),
            served: 0,
        }
    }

    /// What [`Log::header`] answers. Costs the check of a hash, and a read now and then.
    ///
    /// # Errors
    /// As [`Log::header`].
    pub(crate) fn header(&mut self, at: Location) -> Result<Option<Sealed>, StoreError> {
        if let Some(sealed) = self.held(at)? {
            self.served += 1;
            return Ok(Some(sealed));
        }
        self.move_to(at);
        match self.held(at)? {
            Some(sealed) => {
                self.served = 1;
                Ok(Some(sealed))
            }
            // A disk that cannot read all of a window may be able to read a header.
            None => self.log.header(at),
        }
    }

    /// The header at a place, if it opens and all of it is in the window.
    fn held(&self, at: Location) -> Result<Option<Sealed>, StoreError> {
        let offset = at
            .offset
            .checked_sub(self.from.offset)
            .filter(|_| at.segment == self.from.segment);
        let start = offset.and_then(|offset| usize::try_from(offset).ok());
        let header = start.and_then(|start| self.bytes.get(start..)?.first_chunk::<HEADER_BYTES>());
        header.map_or(Ok(None), |header| self.log.open_header(header, at))
    }

    /// Reads the log from a place on.
    fn move_to(&mut self, at: Location) {
        let is_dense = self.served * BYTES_OF_A_HEADER > self.bytes.len();
        let length = if is_dense {
            (2 * self.bytes.len()).clamp(LEAST_BYTES, MOST_BYTES)
        } else {
            LEAST_BYTES
        };
        (self.from, self.served) = (at, 0);
        let read = self.log.segment(at.segment).and_then(|segment| {
            let left = segment.end().saturating_sub(at.offset);
            self.bytes
                .resize(length.min(usize::try_from(left).unwrap_or(length)), 0);
            segment.read(at.offset, &mut self.bytes).ok()
        });
        if read.is_none() {
            self.bytes.clear();
        }
    }
}
