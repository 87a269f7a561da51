//! Finds the next record after a damaged part of the log, by searching for headers that verify.

use std::io::ErrorKind;

use dormouse_actors::ports::StoreError;
use memchr::memmem;

use crate::error::io;
use crate::log::Log;
use crate::log_position::Location;
use crate::record_header::{HEADER_BYTES, MAGIC};
use crate::segment::Segment;

const WINDOW_BYTES: u64 = 1 << 20;

/// The first location at or after `from` where a header verifies. Costs a pass over the skipped
/// bytes.
///
/// # Errors
/// [`StoreError::Io`].
pub(crate) fn find_next_header(log: &Log, from: Location) -> Result<Option<Location>, StoreError> {
    if log.header(from)?.is_some() {
        return Ok(Some(from));
    }
    for number in log
        .numbers()
        .into_iter()
        .filter(|number| *number >= from.segment)
    {
        let offset = if number == from.segment {
            from.offset
        } else {
            0
        };
        let Some(segment) = log.segment(number) else {
            continue;
        };
        if let Some(found) = find_header_in(log, &segment, offset)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn find_header_in(
    log: &Log,
    segment: &Segment,
    mut offset: u64,
) -> Result<Option<Location>, StoreError> {
    let overlap = MAGIC.len() as u64 - 1;
    while offset.saturating_add(HEADER_BYTES as u64) <= segment.end() {
        let Some(window) = read_window(segment, offset)? else {
            return Ok(None);
        };
        let length = window.len() as u64;
        for hit in memmem::find_iter(&window, &MAGIC) {
            let at = Location {
                segment: segment.number(),
                offset: offset + hit as u64,
            };
            if log.header(at)?.is_some() {
                return Ok(Some(at));
            }
        }
        offset += length - overlap;
    }
    Ok(None)
}

/// Reads at most one window from `offset` on; `None` if too few bytes are left for a header. The
/// segment may be shorter than when it was opened, because a writer truncates reserved space. That
/// space never contained a record.
fn read_window(segment: &Segment, offset: u64) -> Result<Option<Vec<u8>>, StoreError> {
    let mut length = WINDOW_BYTES.min(segment.end() - offset);
    while length >= HEADER_BYTES as u64 {
        let mut window = vec![0; length as usize];
        match segment.read(offset, &mut window) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => length /= 2,
            read => {
                return read
                    .map(|()| Some(window))
                    .map_err(io("search the log behind damage"));
            }
        }
    }
    Ok(None)
}
