//! Finding the next record behind damage.

use dormouse_actors::ports::StoreError;
use memchr::memmem;

use crate::envelope::{HEADER_BYTES, MAGIC};
use crate::error::io;
use crate::log::Log;
use crate::mark::Location;
use crate::segment::Segment;

const WINDOW_BYTES: u64 = 1 << 20;

/// The first place at or behind `from` where a header opens. Costs a pass over what is skipped.
///
/// # Errors
/// [`StoreError::Io`].
pub(crate) fn header_from(log: &Log, from: Location) -> Result<Option<Location>, StoreError> {
    if log.header(from)?.is_some() {
        return Ok(Some(from));
    }
    for number in log.numbers().into_iter().filter(|number| *number >= from.segment) {
        let offset = if number == from.segment { from.offset } else { 0 };
        let Some(segment) = log.segment(number) else { continue };
        if let Some(found) = header_in(log, &segment, offset)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn header_in(log: &Log, segment: &Segment, mut offset: u64) -> Result<Option<Location>, StoreError> {
    let overlap = MAGIC.len() as u64 - 1;
    while offset.saturating_add(HEADER_BYTES as u64) <= segment.end() {
        let length = WINDOW_BYTES.min(segment.end() - offset);
        let mut window = vec![0; length as usize];
        segment.read(offset, &mut window).map_err(io("search the log behind damage"))?;
        for hit in memmem::find_iter(&window, &MAGIC) {
            let at = Location { segment: segment.number(), offset: offset + hit as u64 };
            if log.header(at)?.is_some() {
                return Ok(Some(at));
            }
        }
        offset += length - overlap;
    }
    Ok(None)
}
