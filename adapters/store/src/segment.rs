//! One file of the log.
//!
//! A segment is appended to and read at the same time: readers see only what lies before its
//! acknowledged end. Behind it the file may have room that is reserved, which is zeros.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::append_file::AppendFile;
use crate::disk::{Disk, DiskFile, MemoryFile, OpenMode};
use crate::record_header::HEADER_BYTES;

/// Small commits share what reserving costs.
const RESERVED_BYTES: u64 = 256 << 10;

/// An open segment.
#[derive(Debug)]
pub(crate) struct Segment {
    number: u32,
    file: Arc<dyn DiskFile>,
    end: AtomicU64,
    /// The length of the file, with what is reserved.
    length: AtomicU64,
    mapped: Mutex<Bytes>,
}

impl Segment {
    /// The name of a segment's file.
    pub(crate) fn file_name(number: u32) -> String {
        format!("{number:08}.seg")
    }

    /// The number in a segment's file name; none for other files.
    pub(crate) fn number_in(name: &str) -> Option<u32> {
        let number = name.strip_suffix(".seg")?.parse().ok()?;
        (Self::file_name(number) == name).then_some(number)
    }

    /// Opens the segment `number` in the log's folder, with all its bytes.
    pub(crate) fn open(disk: &dyn Disk, folder: &Path, number: u32) -> io::Result<Self> {
        Self::with(disk, folder, number, OpenMode::Existing)
    }

    /// Makes the segment `number`. Its name is not durable before the folder is synced.
    pub(crate) fn create(disk: &dyn Disk, folder: &Path, number: u32) -> io::Result<Self> {
        Self::with(disk, folder, number, OpenMode::New)
    }

    fn with(disk: &dyn Disk, folder: &Path, number: u32, how: OpenMode) -> io::Result<Self> {
        let file = disk.open(&folder.join(Self::file_name(number)), how)?;
        let length = file.length()?;
        let (end, length) = (AtomicU64::new(length), AtomicU64::new(length));
        Ok(Self {
            number,
            file,
            end,
            length,
            mapped: Mutex::default(),
        })
    }

    /// The same, closed: it is kept in memory. For what is left of a segment that was swept.
    pub(crate) fn to_memory(&self) -> io::Result<Self> {
        let mut bytes = vec![0; HEADER_BYTES];
        self.read(0, &mut bytes)?;
        Ok(Self::in_memory(self.number, bytes.into()))
    }

    /// A segment that is not there yet: who only reads makes no file.
    pub(crate) fn empty(number: u32) -> Self {
        Self::in_memory(number, Bytes::new())
    }

    fn in_memory(number: u32, bytes: Bytes) -> Self {
        let (end, length) = (
            AtomicU64::new(bytes.len() as u64),
            AtomicU64::new(bytes.len() as u64),
        );
        Self {
            number,
            file: Arc::new(MemoryFile(bytes)),
            end,
            length,
            mapped: Mutex::default(),
        }
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The bytes that readers may see.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Shows readers what was appended and synced.
    pub(crate) fn acknowledge(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// Drops what lies behind `end`, durably. Only recovery does this, before anyone reads.
    pub(crate) fn cut_tail(&self, end: u64) -> io::Result<()> {
        self.acknowledge(end);
        self.roll_back(end)?;
        self.file.sync()
    }

    /// Reserves room where `bytes` more do not fit into what is reserved, for the commits behind
    /// them as well, but not beyond `limit`. A disk that cannot is written without.
    pub(crate) fn reserve(&self, bytes: u64, limit: u64) {
        let wanted = self.end() + bytes;
        let length = limit.min(wanted + RESERVED_BYTES);
        if bytes > RESERVED_BYTES
            || wanted <= self.length.load(Ordering::Acquire)
            || length <= wanted
        {
            return;
        }
        // What fails half-way may have made it longer.
        self.length.fetch_max(length, Ordering::AcqRel);
        if let Err(error) = self.file.reserve(length) {
            tracing::debug!(%error, "no room was reserved");
        }
    }

    /// Whether there is room behind the end.
    pub(crate) fn is_reserved(&self) -> bool {
        self.length.load(Ordering::Acquire) > self.end()
    }

    /// Fills `buffer` from `offset` on.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match offset.checked_add(buffer.len() as u64) {
            Some(end) if end <= self.end() => self.file.read_at(offset, buffer),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Whether [`Segment::slice`] gives memory that stays as it is: not beside a writer, who may
    /// cut off what it failed to write.
    pub(crate) fn is_mappable(&self) -> bool {
        self.file.is_mappable()
    }

    /// A range of it as memory, where that can be had. Costs nothing where the range was mapped
    /// before, otherwise one map of the segment.
    pub(crate) fn slice(&self, range: Range<u64>) -> io::Result<Bytes> {
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        if (mapped.len() as u64) < range.end {
            *mapped = self.file.map(self.end())?;
        }
        let (start, end) = (range.start as usize, range.end as usize);
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
        // What fails may have made it longer as well.
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
