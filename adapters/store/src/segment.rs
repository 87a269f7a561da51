//! One file of the log.
//!
//! A segment is appended to and read at the same time: readers see only what lies before its acknowledged end.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use crate::map;
use crate::tail::Tail;

/// The most parts that one call of the operating system takes.
const PARTS_AT_ONCE: usize = 512;

/// An open segment.
#[derive(Debug)]
pub(crate) struct Segment {
    number: u32,
    file: File,
    end: AtomicU64,
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
    pub(crate) fn open(folder: &Path, number: u32) -> io::Result<Self> {
        Self::with(File::options().read(true).write(true), folder, number)
    }

    /// Makes the segment `number`. Its name is not durable before the folder is synced.
    pub(crate) fn create(folder: &Path, number: u32) -> io::Result<Self> {
        Self::with(File::options().read(true).write(true).create_new(true).mode(0o600), folder, number)
    }

    fn with(options: &OpenOptions, folder: &Path, number: u32) -> io::Result<Self> {
        let file = options.open(folder.join(Self::file_name(number)))?;
        let end = AtomicU64::new(file.metadata()?.len());
        Ok(Self { number, file, end, mapped: Mutex::default() })
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
        self.file.set_len(end)?;
        self.file.sync_all()
    }

    /// Fills `buffer` from `offset` on.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match offset.checked_add(buffer.len() as u64) {
            Some(end) if end <= self.end() => self.file.read_exact_at(buffer, offset),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// A range of it as memory. Costs nothing where the range was mapped before, otherwise one map of the segment.
    pub(crate) fn slice(&self, range: Range<u64>) -> io::Result<Bytes> {
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        if (mapped.len() as u64) < range.end {
            *mapped = map::map(&self.file, self.end())?;
        }
        let (start, end) = (range.start as usize, range.end as usize);
        if end <= mapped.len() { Ok(mapped.slice(start..end)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

impl Tail for Segment {
    fn append(&self, at: u64, parts: &[Bytes]) -> io::Result<()> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(at))?;
        for parts in parts.chunks(PARTS_AT_ONCE) {
            let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let mut left = &mut slices[..];
            IoSlice::advance_slices(&mut left, 0);
            while !left.is_empty() {
                match file.write_vectored(left) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => IoSlice::advance_slices(&mut left, written),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn roll_back(&self, end: u64) -> io::Result<()> {
        self.file.set_len(end)
    }
}
