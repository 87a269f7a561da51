//! All segments of a store, read as one log.
//!
//! A record is a header (`record_header.rs`) and a payload. Every read is checked. This module
//! creates and replaces segments; only the writer appends to them. It does not interpret payloads.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use dormouse_actors::ports::StoreError;

use crate::disk::{Disk, rename_into_place, write_temp};
use crate::error::{damaged, io as io_error};
use crate::log_position::{Hash, Location, LogPosition};
use crate::record_header::{
    CheckedHeader, Encoding, HEADER_BYTES, PayloadPart, RecordHeader, RecordKind,
};
use crate::segment::Segment;
use crate::stored_content::StoredContent;
use dormouse_records::secret::{Keys, StoreKey};

/// All segments, open.
#[derive(Debug)]
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    keys: Keys,
    segments: RwLock<BTreeMap<u32, Arc<Segment>>>,
    compacted: Arc<CompactedSegments>,
}

/// The numbers of the compacted segments. A location inside one of them is no longer valid.
#[derive(Debug, Default)]
pub(crate) struct CompactedSegments(RwLock<BTreeSet<u32>>);

impl CompactedSegments {
    /// Whether this segment is compacted.
    pub(crate) fn contains(&self, segment: u32) -> bool {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&segment)
    }

    /// Whether this segment or a later one is compacted.
    pub(crate) fn contains_any_from(&self, segment: u32) -> bool {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .range(segment..)
            .next()
            .is_some()
    }

    /// How many segments are compacted. If the count rises during a read, the records that were
    /// read may have been moved.
    pub(crate) fn count(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn add(&self, segment: u32) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(segment);
    }
}

impl Log {
    /// Opens every segment in `folder`.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(crate) fn open(disk: Arc<dyn Disk>, folder: &Path, keys: Keys) -> Result<Self, StoreError> {
        let open_segments = || -> io::Result<_> {
            let numbers = segment_numbers(&*disk, folder)?;
            numbers
                .into_iter()
                .map(|number| Ok((number, Arc::new(Segment::open(&*disk, folder, number)?))))
                .collect()
        };
        let segments =
            open_segments().map_err(io_error(format!("open the log in {}", folder.display())))?;
        let segments = RwLock::new(segments);
        let log = Self {
            disk,
            folder: folder.to_owned(),
            keys,
            segments,
            compacted: Arc::default(),
        };
        for number in log.numbers() {
            if log
                .header(Location::start_of(number))?
                .is_some_and(|checked| checked.header.kind == RecordKind::SegmentCompacted)
            {
                log.compacted.add(number);
                log.keep_in_memory(number).map_err(io_error(format!(
                    "read what is left of segment {number:08}"
                )))?;
            }
        }
        Ok(log)
    }

    /// The compacted segments.
    pub(crate) fn compacted(&self) -> &Arc<CompactedSegments> {
        &self.compacted
    }

    /// The size of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .map(|segment| segment.end())
            .sum()
    }

    /// A hash over the numbers and lengths of all segments before this one, which are no longer
    /// written. It changes if one of them is lost, truncated, compacted or restored.
    pub(crate) fn hash_lengths_before(&self, number: u32) -> Hash {
        let mut hasher = blake3::Hasher::new();
        for (number, segment) in self
            .segments
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .range(..number)
        {
            hasher
                .update(&number.to_le_bytes())
                .update(&segment.end().to_le_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    /// The bytes after a location, to the log's end.
    pub(crate) fn bytes_after(&self, at: Location) -> u64 {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let bytes = segments
            .range(at.segment..)
            .map(|(_, segment)| segment.end())
            .sum::<u64>();
        bytes.saturating_sub(at.offset)
    }

    /// Writes the stub of a segment, durably, to a temporary file next to the segment. Replaces a
    /// temporary file of an earlier attempt.
    ///
    /// # Errors
    /// As the operating system's; the segment is unchanged.
    pub(crate) fn write_stub(&self, number: u32, record: &[u8]) -> io::Result<()> {
        write_temp(
            &*self.disk,
            &self.path_of(number),
            Bytes::copy_from_slice(record),
        )
    }

    /// Replaces a segment by the stub that [`Log::write_stub`] wrote. Readers that hold the old
    /// segment can still read it. Locations in it are invalid from here on.
    ///
    /// # Errors
    /// As the operating system's. Then either the segment or the stub has the name.
    pub(crate) fn replace_by_stub(&self, number: u32) -> io::Result<()> {
        rename_into_place(&*self.disk, &self.path_of(number))?;
        let stub = Arc::new(Segment::open(&*self.disk, &self.folder, number)?);
        self.compacted.add(number);
        self.segments
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(number, stub);
        self.keep_in_memory(number)
    }

    /// Keeps the stub of a compacted segment in memory, and closes its file.
    fn keep_in_memory(&self, number: u32) -> io::Result<()> {
        let mut segments = self
            .segments
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(segment) = segments
            .get_mut(&number)
            .filter(|segment| segment.end() == HEADER_BYTES as u64)
        {
            *segment = Arc::new(segment.to_memory()?);
        }
        Ok(())
    }

    fn path_of(&self, number: u32) -> PathBuf {
        self.folder.join(Segment::file_name(number))
    }

    /// The key that authenticates headers.
    pub(crate) fn key(&self) -> &StoreKey {
        self.keys.headers()
    }

    /// The keys of the store.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The numbers of the segments, ascending.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.segments
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .keys()
            .copied()
            .collect()
    }

    /// The segment of this number.
    pub(crate) fn segment(&self, number: u32) -> Option<Arc<Segment>> {
        self.segments
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&number)
            .cloned()
    }

    /// The segment that contains a location.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the segment is missing.
    pub(crate) fn require_segment(&self, at: Location) -> Result<Arc<Segment>, StoreError> {
        self.segment(at.segment)
            .ok_or_else(|| missing_segment_error(at))
    }

    /// Creates the segment `number`, with a durable name.
    ///
    /// # Errors
    /// As the operating system's.
    pub(crate) fn add_segment(&self, number: u32) -> io::Result<Arc<Segment>> {
        let segment = match Segment::create(&*self.disk, &self.folder, number) {
            // An earlier attempt failed after it created the file.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let leftover = Segment::open(&*self.disk, &self.folder, number)?;
                leftover.truncate_durably(0)?;
                leftover
            }
            other => other?,
        };
        self.disk.sync_folder(&self.folder)?;
        let segment = Arc::new(segment);
        self.segments
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(number, Arc::clone(&segment));
        Ok(segment)
    }

    /// The header at a location; `None` if no record of this store starts there, or the record is
    /// cut off.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the disk fails, which is not the same as damage. [`StoreError::Newer`]
    /// if a later version wrote the record.
    pub(crate) fn header(&self, at: Location) -> Result<Option<CheckedHeader>, StoreError> {
        let Some(segment) = self.segment(at.segment) else {
            return Ok(None);
        };
        let mut bytes = [0; HEADER_BYTES];
        match segment.read(at.offset, &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other.map_err(cannot_read(at))?,
        }
        self.verify_header(&bytes, at)
    }

    /// Verifies the bytes of a header; `None` as for [`Log::header`].
    ///
    /// # Errors
    /// [`StoreError::Newer`].
    pub(crate) fn verify_header(
        &self,
        bytes: &[u8; HEADER_BYTES],
        at: Location,
    ) -> Result<Option<CheckedHeader>, StoreError> {
        let newer = |unknown| StoreError::Newer {
            what: format!("{unknown} at {at}"),
        };
        let end = self.segment(at.segment).map_or(0, |segment| segment.end());
        let fits = |checked: &CheckedHeader| {
            payload_start(at)
                .checked_add(checked.header.length)
                .is_some_and(|payload_end| payload_end <= end)
        };
        Ok(RecordHeader::verify(bytes, self.key(), at)
            .map_err(newer)?
            .filter(fits))
    }

    /// Whether the log contains the commit that ends at this position.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(crate) fn contains_commit(&self, position: &LogPosition) -> Result<bool, StoreError> {
        let is_same = |found: CheckedHeader| {
            found.hash == position.chain
                && record_end(position.last_record(), &found.header) == position.end
        };
        Ok(position.is_empty() || self.header(position.last_record())?.is_some_and(is_same))
    }

    /// The payload of a record other than a content, checked. Costs one read and one hash, and a
    /// decryption if the payload is encrypted.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Io`].
    pub(crate) fn payload(
        &self,
        at: Location,
        header: &RecordHeader,
    ) -> Result<Vec<u8>, StoreError> {
        let segment = self.require_segment(at)?;
        let length = usize::try_from(header.length).map_err(|_| missing_segment_error(at))?;
        let mut bytes = vec![0; length];
        segment
            .read(payload_start(at), &mut bytes)
            .map_err(cannot_read(at))?;
        let is_whole = *blake3::hash(&bytes).as_bytes() == header.payload_hash;
        let payload = is_whole
            .then(|| self.decrypt_payload(header, bytes))
            .flatten();
        payload.ok_or_else(|| hash_mismatch(at))
    }

    /// Decrypts the payload of a record other than a content; `None` if it is not authentic.
    pub(crate) fn decrypt_payload(
        &self,
        header: &RecordHeader,
        stored: Vec<u8>,
    ) -> Option<Vec<u8>> {
        if header.encoding == Encoding::PLAIN {
            Some(stored)
        } else {
            self.keys
                .decrypt(&stored, &header.associated_data(PayloadPart::Whole, 0))
        }
    }

    /// Whether a record's payload is undamaged, including the list of chunks of a content.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(crate) fn is_whole(&self, at: Location, header: &RecordHeader) -> Result<bool, StoreError> {
        if header.kind == RecordKind::Content {
            return StoredContent::is_whole(self, at, header);
        }
        if header.kind.has_no_payload() {
            return Ok(true);
        }
        match self.payload(at, header) {
            Err(StoreError::Damaged { .. }) => Ok(false),
            other => other.map(|_| true),
        }
    }
}

/// The first byte after the record at `at`.
pub(crate) fn record_end(at: Location, header: &RecordHeader) -> Location {
    Location {
        offset: payload_start(at) + header.length,
        ..at
    }
}

fn payload_start(at: Location) -> u64 {
    at.offset + HEADER_BYTES as u64
}

/// Converts an error of a read: a segment that is too short is damaged; any other error comes from
/// the disk and may be temporary.
pub(crate) fn cannot_read(at: Location) -> impl FnOnce(io::Error) -> StoreError {
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof => missing_segment_error(at),
        _ => io_error(format!("read the record at {at}"))(error),
    }
}

fn missing_segment_error(at: Location) -> StoreError {
    damaged(format!(
        "the record at {at} cannot be reached: its segment is missing or shorter than it was"
    ))
}

/// The error of a record whose payload does not match its hash.
pub(crate) fn hash_mismatch(at: Location) -> StoreError {
    damaged(format!(
        "the record at {at} does not match its hash. Its content is lost; everything else can \
         still be read"
    ))
}

/// The numbers of the segments in a folder, ascending; empty if the folder does not exist.
pub(crate) fn segment_numbers(disk: &dyn Disk, folder: &Path) -> io::Result<Vec<u32>> {
    let mut numbers: Vec<_> = disk
        .names(folder)?
        .iter()
        .filter_map(|name| Segment::parse_number(name))
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}
