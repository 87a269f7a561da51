//! One file of the log.
//!
//! A segment is read while it is appended to: readers see only what precedes its acknowledged end.
//! The file may be longer, with reserved space of zeros.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::append_file::AppendFile;
use crate::disk::{Disk, DiskFile, MemoryFile, OpenMode};
use crate::record_header::HEADER_BYTES;

/// Space is reserved for several small commits at once.
const RESERVED_BYTES: u64 = 256 << 10;

/// An open segment.
#[derive(Debug)]
pub(crate) struct Segment {
    number: u32,
    file: Arc<dyn DiskFile>,
    /// The acknowledged end: readers see only the bytes before it.
    end: AtomicU64,
    /// The length of the file, including reserved space.
    length: AtomicU64,
    /// A map of the first bytes of the file; empty until a range is mapped.
    mapped: Mutex<Bytes>,
}

impl Segment {
    /// The file name of a segment.
    pub(crate) fn file_name(number: u32) -> String {
        format!("{number:08}.seg")
    }

    /// The number in a segment's file name; `None` for other files.
    pub(crate) fn parse_number(name: &str) -> Option<u32> {
        let number = name.strip_suffix(".seg")?.parse().ok()?;
        (Self::file_name(number) == name).then_some(number)
    }

    /// Opens an existing segment. All of its bytes are readable.
    pub(crate) fn open(disk: &dyn Disk, folder: &Path, number: u32) -> io::Result<Self> {
        Self::open_file(disk, folder, number, OpenMode::Existing)
    }

    /// Creates a segment. Its name is durable once the folder is synced.
    pub(crate) fn create(disk: &dyn Disk, folder: &Path, number: u32) -> io::Result<Self> {
        Self::open_file(disk, folder, number, OpenMode::CreateNew)
    }

    fn open_file(disk: &dyn Disk, folder: &Path, number: u32, mode: OpenMode) -> io::Result<Self> {
        let file = disk.open(&folder.join(Self::file_name(number)), mode)?;
        let length = file.length()?;
        let end = AtomicU64::new(length);
        let length = AtomicU64::new(length);
        Ok(Self {
            number,
            file,
            end,
            length,
            mapped: Mutex::default(),
        })
    }

    /// Copies the stub of a compacted segment to memory, so that its file can be closed.
    pub(crate) fn to_memory(&self) -> io::Result<Self> {
        let mut bytes = vec![0; HEADER_BYTES];
        self.read(0, &mut bytes)?;
        Ok(Self::in_memory(self.number, bytes.into()))
    }

    /// A segment without a file, for a read-only store that has no segment yet.
    pub(crate) fn empty(number: u32) -> Self {
        Self::in_memory(number, Bytes::new())
    }

    fn in_memory(number: u32, bytes: Bytes) -> Self {
        let end = AtomicU64::new(bytes.len() as u64);
        let length = AtomicU64::new(bytes.len() as u64);
        Self {
            number,
            file: Arc::new(MemoryFile(bytes)),
            end,
            length,
            mapped: Mutex::default(),
        }
    }

    /// The number of the segment, from 1.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The acknowledged end: readers see the bytes before it.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Moves the end that readers see.
    pub(crate) fn acknowledge(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// Drops the bytes past `end`, durably. Only recovery does this, before anyone reads.
    pub(crate) fn truncate_durably(&self, end: u64) -> io::Result<()> {
        self.acknowledge(end);
        self.roll_back(end)?;
        self.file.sync()
    }

    /// Reserves space if `bytes` more do not fit into the reserved space. Reserves more for later
    /// commits, but not past `limit`. A failure is ignored, because reserving only saves time.
    pub(crate) fn reserve(&self, bytes: u64, limit: u64) {
        let wanted = self.end() + bytes;
        let length = limit.min(wanted + RESERVED_BYTES);
        if bytes > RESERVED_BYTES
            || wanted <= self.length.load(Ordering::Acquire)
            || length <= wanted
        {
            return;
        }
        // A failed reservation may have extended the file.
        self.length.fetch_max(length, Ordering::AcqRel);
        if let Err(error) = self.file.reserve(length) {
            tracing::debug!(%error, "cannot reserve space");
        }
    }

    /// Whether there is reserved space after the end.
    pub(crate) fn has_reserved_space(&self) -> bool {
        self.length.load(Ordering::Acquire) > self.end()
    }

    /// Fills `buffer` from `offset` on.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match offset.checked_add(buffer.len() as u64) {
            Some(end) if end <= self.end() => self.file.read_at(offset, buffer),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Whether [`Segment::slice`] returns memory that never changes. Not in a read-only store,
    /// where the writer may truncate a failed write.
    pub(crate) fn is_mappable(&self) -> bool {
        self.file.is_mappable()
    }

    /// A range of the segment, mapped. Maps the whole segment if the range is not mapped yet.
    pub(crate) fn slice(&self, range: Range<u64>) -> io::Result<Bytes> {
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        if (mapped.len() as u64) < range.end {
            *mapped = self.file.map(self.end())?;
        }
        let start = range.start as usize;
        let end = range.end as usize;
        if end <= mapped.len() {
            Ok(mapped.slice(start..end))
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

impl AppendFile for Segment {
    fn append(&self, at: u64, parts: &[Bytes]) -> io::Result<()> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        // A failed write may have extended the file.
        self.length.fetch_max(at + bytes, Ordering::AcqRel);
        self.file.write_at(at, parts)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn roll_back(&self, end: u64) -> io::Result<()> {
        self.file.set_length(end)?;
        self.length.store(end, Ordering::Release);
        Ok(())
    }
}
