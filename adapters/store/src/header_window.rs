//! Read-ahead for record headers.
//!
//! In a log of facts a header follows every few hundred bytes, and one system call per header costs
//! more than reading and checking it. In a log of contents there is one header every few hundred
//! kilobytes, and the bytes between are not worth reading. Therefore the window grows while one
//! read serves several headers, and shrinks to its minimum otherwise.
//!
//! Next to a writer, the window may be older than the file. A header is used from the window only
//! if it verifies: its keyed hash shows that this store wrote it at this location
//! (`record_header.rs`). That no header verifies at a location is always decided by a fresh read.

use dormouse_actors::ports::StoreError;

use crate::log::Log;
use crate::log_position::Location;
use crate::record_header::{CheckedHeader, HEADER_BYTES};

/// The minimal length of a window. Reading it costs as much as reading a single header.
const MIN_BYTES: usize = 1 << 10;
const MAX_BYTES: usize = 64 << 10;
/// The window grows if it served at least one header per this many bytes.
const DENSE_BYTES_PER_HEADER: usize = 1 << 10;

/// A part of a segment, in memory.
#[derive(Debug)]
pub(crate) struct HeaderWindow<'l> {
    log: &'l Log,
    from: Location,
    bytes: Vec<u8>,
    /// How many headers the window has served since it was read.
    headers_served: usize,
}

impl<'l> HeaderWindow<'l> {
    /// A window that has read nothing yet.
    pub(crate) fn new(log: &'l Log) -> Self {
        Self {
            log,
            from: Location::START,
            bytes: Vec::new(),
            headers_served: 0,
        }
    }

    /// The same answer as [`Log::header`]. Costs one keyed hash, and sometimes a read.
    ///
    /// # Errors
    /// As [`Log::header`].
    pub(crate) fn header(&mut self, at: Location) -> Result<Option<CheckedHeader>, StoreError> {
        if let Some(checked) = self.find_cached(at)? {
            self.headers_served += 1;
            return Ok(Some(checked));
        }
        self.move_to(at);
        match self.find_cached(at)? {
            Some(checked) => {
                self.headers_served = 1;
                Ok(Some(checked))
            }
            // The disk may fail to read the whole window and still be able to read one header.
            None => self.log.header(at),
        }
    }

    /// The header at a location, if it is completely inside the window and verifies.
    fn find_cached(&self, at: Location) -> Result<Option<CheckedHeader>, StoreError> {
        let offset = at
            .offset
            .checked_sub(self.from.offset)
            .filter(|_| at.segment == self.from.segment);
        let start = offset.and_then(|offset| usize::try_from(offset).ok());
        let header = start.and_then(|start| self.bytes.get(start..)?.first_chunk::<HEADER_BYTES>());
        header.map_or(Ok(None), |header| self.log.verify_header(header, at))
    }

    /// Reads the window again, from a location on.
    fn move_to(&mut self, at: Location) {
        let is_dense = self.headers_served * DENSE_BYTES_PER_HEADER > self.bytes.len();
        let length = if is_dense {
            (2 * self.bytes.len()).clamp(MIN_BYTES, MAX_BYTES)
        } else {
            MIN_BYTES
        };
        (self.from, self.headers_served) = (at, 0);
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
