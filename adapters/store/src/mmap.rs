//! A segment as memory: the only module of the house with unsafe code in it.
//!
//! A map lives as long as any slice of it. It never sees bytes that may still change: callers ask
//! for what is synced.

use std::fs::File;
use std::io;

use bytes::Bytes;
use memmap2::MmapOptions;

/// Maps the first `length` bytes of a segment, for reading.
///
/// # Errors
/// As the operating system's, for instance where no address space is left.
#[expect(
    unsafe_code,
    reason = "a file map is unsafe by nature; the note says why this one is sound"
)]
pub(crate) fn map(file: &File, length: u64) -> io::Result<Bytes> {
    let length = usize::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
    if length == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is sound as long as nobody changes or cuts the file below `length`.
    // - The log is append-only: `length` is at most the segment's acknowledged end, and neither the
    //   rollback of a failed write nor the cut of a torn tail ever goes below it while the segment
    //   is open. A segment that is swept is not changed either: another file takes its name, and
    //   the map keeps the old one.
    // - Other programs of this kind are kept out by the lock on LOCK, which is held while a segment
    //   is open; other users by the folder's mode 0700.
    // A user who overwrites the file by hand is outside of what can be defended; what was checked
    // before may then change.
    let map = unsafe { MmapOptions::new().len(length).map(file)? };
    Ok(Bytes::from_owner(map))
}
