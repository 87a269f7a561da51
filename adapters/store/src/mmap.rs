//! Maps segments into memory. The only module of the workspace with unsafe code.
//!
//! A map lives as long as any slice of it. Callers map only synced bytes, which no longer change.

use std::fs::File;
use std::io;

use bytes::Bytes;
use memmap2::MmapOptions;

/// Maps the first `length` bytes of a segment for reading.
///
/// # Errors
/// As the operating system's, for instance if no address space is left.
#[expect(
    unsafe_code,
    reason = "a file map is unsafe by nature; the note says why this one is sound"
)]
pub(crate) fn map(file: &File, length: u64) -> io::Result<Bytes> {
    let length = usize::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
    if length == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is sound as long as no one changes or truncates the file below `length`.
    // - The log is append-only: `length` is at most the segment's acknowledged end, and neither the
    // rollback of a failed write nor the cut of a torn tail goes below that while the segment is
    // open. Compaction does not change the file either: another file takes its name, and the map
    // keeps the old one.
    // - Other instances of this program are excluded by the lock on LOCK, which is held while a
    // segment is open; other users by the folder's mode 0700.
    // A user who overwrites the file by hand cannot be defended against; bytes that were already
    // checked may change then.
    let map = unsafe { MmapOptions::new().len(length).map(file)? };
    Ok(Bytes::from_owner(map))
}
