//! A file that was read once and is kept in memory. It replaces the open file of a compacted
//! segment, which consists of one header: a long-lived store has many such segments, and each open
//! file would take a file descriptor.

use std::io;

use bytes::Bytes;

use super::DiskFile;

/// The bytes of a file that is no longer written.
#[derive(Debug)]
pub(crate) struct MemoryFile(pub(crate) Bytes);

fn read_only_error() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "a file that is kept in memory is not written",
    )
}

impl DiskFile for MemoryFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|start| self.0.get(start..)?.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, _offset: u64, _parts: &[Bytes]) -> io::Result<()> {
        Err(read_only_error())
    }

    fn sync(&self) -> io::Result<()> {
        Err(read_only_error())
    }

    fn set_length(&self, _length: u64) -> io::Result<()> {
        Err(read_only_error())
    }

    fn reserve(&self, _length: u64) -> io::Result<()> {
        Err(read_only_error())
    }

    fn map(&self, length: u64) -> io::Result<Bytes> {
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= self.0.len());
        length
            .map(|length| self.0.slice(..length))
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}
