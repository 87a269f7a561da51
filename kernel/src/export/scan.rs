//! Reads the records of an export from its bytes, and verifies each record before it is used.
//!
//! At most one record is buffered. A content is passed on in parts, which are verified when the
//! last one has arrived. The memory of all kept records together is bounded by a multiple of the
//! bytes read, since a payload with valid hashes may still be forged.

use blake3::{Hash, Hasher};
use dormouse_proto::export::{Facts, Head, Member, Record};
use dormouse_proto::id::ContentHash;
use dormouse_proto::process::ExportId;
use dormouse_proto::record::codec::{self, Allowance, MAX_PAYLOAD_BYTES};
use serde::de::DeserializeOwned;

use super::ExportError;
use super::frame::{
    END_BYTES, FILE_HEADER_BYTES, HASH_BYTES, MAGIC, RECORD_HEADER_BYTES, RecordKind, VERSION,
    chain_hash, file_header,
};

/// A part of an export, as the scanner reports it.
#[derive(Debug)]
pub enum ScannedPart<'a> {
    /// A complete and verified record.
    Record(Record),
    /// Start of a content of this length.
    Content(u64),
    /// Bytes of the content, not verified before `Closed`.
    Part(&'a [u8]),
    /// End of the content, verified, with its hash.
    Closed(ContentHash),
}

/// Which verified processes and programs are kept in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Processes and programs. Together they take at most the memory that [`Allowance::of`] allows
    /// for the whole file.
    #[default]
    Processes,
    /// Only programs. Each process is passed to the visitor and then dropped, as facts always are.
    Programs,
}

/// Parses an export incrementally.
pub struct Scanner {
    stage: Stage,
    keep: Keep,
    /// Bounds the memory of the kept records by the bytes read so far.
    allowance: Allowance,
    /// Buffer for a header or hash that is not complete yet.
    buffer: Vec<u8>,
    payload: Vec<u8>,
    chain: Hash,
    records: u64,
    bytes: u64,
}

enum Stage {
    FileHeader,
    RecordHeader,
    Payload {
        kind: RecordKind,
        left: u64,
        hasher: Box<Hasher>,
    },
    Footer {
        kind: RecordKind,
        hash: Hash,
    },
    /// The end was read, or an error occurred.
    Done {
        is_complete: bool,
    },
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new(Keep::default())
    }
}

impl Scanner {
    /// A scanner that keeps processes, or passes them on.
    #[must_use]
    pub fn new(keep: Keep) -> Self {
        let buffer = Vec::new();
        let payload = Vec::new();
        let chain = blake3::hash(&file_header());
        let allowance = Allowance::of(0);
        Self {
            stage: Stage::FileHeader,
            keep,
            allowance,
            buffer,
            payload,
            chain,
            records: 0,
            bytes: 0,
        }
    }

    /// Parses the next bytes. One pass; buffers at most one record.
    ///
    /// # Errors
    /// [`ExportError`] for invalid input, and errors of `on_part`. The scanner must not be used
    /// afterwards.
    pub fn feed<E: From<ExportError>>(
        &mut self,
        mut bytes: &[u8],
        on_part: &mut dyn FnMut(ScannedPart<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            self.stage =
                match std::mem::replace(&mut self.stage, Stage::Done { is_complete: false }) {
                    Stage::FileHeader => {
                        if !self.fill_buffer(&mut bytes, FILE_HEADER_BYTES) {
                            self.stage = Stage::FileHeader;
                            return Ok(());
                        }
                        check_file_header(&std::mem::take(&mut self.buffer))?;
                        Stage::RecordHeader
                    }
                    Stage::RecordHeader => {
                        if !self.fill_buffer(&mut bytes, RECORD_HEADER_BYTES) {
                            self.stage = Stage::RecordHeader;
                            return Ok(());
                        }
                        let (kind, left) = self.read_header()?;
                        if kind == RecordKind::Content {
                            on_part(ScannedPart::Content(left))?;
                        }
                        Stage::Payload {
                            kind,
                            left,
                            hasher: Box::default(),
                        }
                    }
                    Stage::Payload {
                        kind,
                        left,
                        mut hasher,
                    } => {
                        let part = self.consume(&mut bytes, left);
                        let left = left - part.len() as u64;
                        hasher.update(part);
                        match kind {
                            RecordKind::Content if part.is_empty() => {}
                            RecordKind::Content => on_part(ScannedPart::Part(part))?,
                            RecordKind::Head
                            | RecordKind::Member
                            | RecordKind::Facts
                            | RecordKind::TempFile
                            | RecordKind::End => {
                                self.payload.extend_from_slice(part);
                            }
                        }
                        if left > 0 {
                            self.stage = Stage::Payload { kind, left, hasher };
                            return Ok(());
                        }
                        Stage::Footer {
                            kind,
                            hash: hasher.finalize(),
                        }
                    }
                    Stage::Footer { kind, hash } => {
                        if !self.fill_buffer(&mut bytes, HASH_BYTES) {
                            self.stage = Stage::Footer { kind, hash };
                            return Ok(());
                        }
                        self.check_footer(&hash)?;
                        let payload = std::mem::take(&mut self.payload);
                        if let Some(scanned) = self.finish_record(kind, hash, &payload)? {
                            on_part(scanned)?;
                        }
                        if kind == RecordKind::End {
                            Stage::Done { is_complete: true }
                        } else {
                            Stage::RecordHeader
                        }
                    }
                    Stage::Done { is_complete } if bytes.is_empty() => {
                        self.stage = Stage::Done { is_complete };
                        return Ok(());
                    }
                    Stage::Done { .. } => {
                        return Err(ExportError::Altered { at: self.bytes }.into());
                    }
                }
        }
    }

    /// Ends the input. Returns the id of the export, if it is complete.
    ///
    /// # Errors
    /// [`ExportError::Truncated`], or [`ExportError::NotAnExport`] if the input is too short to
    /// recognise.
    pub fn finish(self) -> Result<ExportId, ExportError> {
        match self.stage {
            Stage::Done { is_complete: true } => Ok(ExportId(*self.chain.as_bytes())),
            Stage::FileHeader
                if !MAGIC.starts_with(&self.buffer[..self.buffer.len().min(MAGIC.len())]) =>
            {
                Err(ExportError::NotAnExport)
            }
            _ => Err(ExportError::Truncated { at: self.bytes }),
        }
    }

    /// Bytes read so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn consume<'a>(&mut self, bytes: &mut &'a [u8], max: u64) -> &'a [u8] {
        let len = usize::try_from(max).unwrap_or(usize::MAX).min(bytes.len());
        let (consumed, rest) = bytes.split_at(len);
        *bytes = rest;
        self.bytes += len as u64;
        self.allowance.extend(len as u64);
        consumed
    }

    /// Fills the buffer to `len` bytes. Returns whether it is full.
    fn fill_buffer(&mut self, bytes: &mut &[u8], len: usize) -> bool {
        let part = self.consume(bytes, (len - self.buffer.len()) as u64);
        self.buffer.extend_from_slice(part);
        self.buffer.len() == len
    }

    /// Verifies the hash of a header. Returns the kind and length of the record.
    fn read_header(&mut self) -> Result<(RecordKind, u64), ExportError> {
        let header = std::mem::take(&mut self.buffer);
        let (fields, hash) = header.split_at(RECORD_HEADER_BYTES - HASH_BYTES);
        self.chain = chain_hash(&self.chain, fields);
        if self.chain != *to_array(hash) {
            return Err(ExportError::Altered { at: self.bytes });
        }
        let kind = fields[0];
        let len = u64::from_le_bytes(*to_array(&fields[8..]));
        let Some(kind) = RecordKind::from_number(kind).filter(|_| fields[1..8] == [0; 7]) else {
            return Err(ExportError::Newer {
                what: format!("a record of kind {kind}"),
            });
        };
        let is_too_long = match kind {
            RecordKind::Content => false,
            RecordKind::End => len != END_BYTES,
            RecordKind::Head | RecordKind::Member | RecordKind::Facts | RecordKind::TempFile => {
                len > MAX_PAYLOAD_BYTES as u64
            }
        };
        self.records += 1;
        match is_too_long {
            true => Err(ExportError::invalid(format!(
                "a record claims to have {len} bytes"
            ))),
            false => Ok((kind, len)),
        }
    }

    /// Verifies the hash after a payload.
    fn check_footer(&mut self, payload: &Hash) -> Result<(), ExportError> {
        self.chain = chain_hash(&self.chain, payload.as_bytes());
        match self.chain == *to_array(&std::mem::take(&mut self.buffer)) {
            true => Ok(()),
            false => Err(ExportError::Altered { at: self.bytes }),
        }
    }

    fn finish_record(
        &mut self,
        kind: RecordKind,
        hash: Hash,
        payload: &[u8],
    ) -> Result<Option<ScannedPart<'static>>, ExportError> {
        let before = self.allowance;
        let record = match kind {
            RecordKind::Content => {
                return Ok(Some(ScannedPart::Closed(ContentHash(*hash.as_bytes()))));
            }
            RecordKind::End => return self.check_end(payload).map(|()| None),
            RecordKind::Head => Record::Head(self.decode::<Head>(payload)?),
            RecordKind::Member => Record::Member(Box::new(self.decode::<Member>(payload)?)),
            RecordKind::Facts => Record::Facts(self.decode::<Facts>(payload)?),
            RecordKind::TempFile => Record::TempFile(self.decode(payload)?),
        };
        if matches!(
            (kind, self.keep),
            (RecordKind::Facts, _) | (RecordKind::Member, Keep::Programs)
        ) {
            self.allowance.refund_since(&before);
        }
        Ok(Some(ScannedPart::Record(record)))
    }

    /// Decodes a record and charges its memory to the allowance.
    fn decode<T: DeserializeOwned>(&mut self, payload: &[u8]) -> Result<T, ExportError> {
        let size = size_of::<T>() as u64;
        let value = self
            .allowance
            .charge(size)
            .and_then(|()| codec::decode_within(payload, &mut self.allowance));
        value.map_err(|error| ExportError::invalid(error.to_string()))
    }

    fn check_end(&self, payload: &[u8]) -> Result<(), ExportError> {
        let (records, bytes) = payload.split_at(8);
        let stated_totals = (
            u64::from_le_bytes(*to_array(records)),
            u64::from_le_bytes(*to_array(bytes)),
        );
        let end_bytes = RECORD_HEADER_BYTES as u64 + END_BYTES + HASH_BYTES as u64;
        match stated_totals == (self.records - 1, self.bytes - end_bytes) {
            true => Ok(()),
            false => Err(ExportError::invalid(
                "its end record states other totals than the file has",
            )),
        }
    }
}

fn to_array<const N: usize>(bytes: &[u8]) -> &[u8; N] {
    bytes
        .try_into()
        .expect("the caller passes a slice of this length")
}

fn check_file_header(bytes: &[u8]) -> Result<(), ExportError> {
    if bytes[..8] != MAGIC[..] {
        return Err(ExportError::NotAnExport);
    }
    match u32::from_le_bytes(*to_array(&bytes[8..12])) {
        VERSION if bytes[12..] == [0; 4] => Ok(()),
        VERSION => Err(ExportError::Altered {
            at: FILE_HEADER_BYTES as u64,
        }),
        version => Err(ExportError::Newer {
            what: format!("version {version} of the format"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::ExportEncoder;
    use super::*;

    fn scan_file(file: &[u8]) -> Result<ExportId, ExportError> {
        let mut scanner = Scanner::default();
        scanner.feed(file, &mut |_| Ok::<_, ExportError>(()))?;
        scanner.finish()
    }

    fn file(kind: RecordKind, payload: &[u8]) -> Vec<u8> {
        let (mut encoder, mut file) = ExportEncoder::begin();
        file.extend(encoder.record_bytes(kind, payload));
        file.extend(encoder.end().1);
        file
    }

    /// A payload with valid hashes can still be invalid.
    #[test]
    fn forged_payloads_with_valid_hashes_are_refused_without_a_panic() {
        let change = Facts {
            pid: dormouse_proto::id::Pid(1),
            commit: dormouse_proto::id::CommitNumber(1),
            at_ms: 3,
            first: dormouse_proto::id::FactNumber(1),
            facts: vec![vec![7; 9]; 2],
        };
        let good = codec::encode(&change).unwrap();
        assert!(scan_file(&file(RecordKind::Facts, &good)).is_ok());
        for kind in [
            RecordKind::Head,
            RecordKind::Member,
            RecordKind::Facts,
            RecordKind::TempFile,
        ] {
            for at in 0..good.len() {
                for byte in [0, 1, 250, 253, 255] {
                    let mut forged = good.clone();
                    forged[at] = byte;
                    // Some changed payloads are still valid records.
                    if let Err(error) = scan_file(&file(kind, &forged)) {
                        assert!(
                            matches!(error, ExportError::Invalid { .. }),
                            "{kind:?}: {error}"
                        );
                    }
                }
            }
            assert!(
                scan_file(&file(kind, &[253, 255, 255, 255, 255, 255, 255, 255, 255])).is_err()
            );
        }
    }

    #[test]
    fn a_record_of_an_unknown_kind_is_reported_as_newer() {
        let (mut encoder, mut bytes) = ExportEncoder::begin();
        let mut header = encoder.header(RecordKind::Head, 0);
        header[0] = 9;
        let chain = chain_hash(&blake3::hash(&file_header()), &header[..16]);
        header[16..].copy_from_slice(chain.as_bytes());
        bytes.extend(header);
        assert_eq!(
            scan_file(&bytes),
            Err(ExportError::Newer {
                what: "a record of kind 9".to_owned()
            })
        );
    }

    #[test]
    fn an_end_record_with_wrong_totals_is_refused() {
        let (mut encoder, mut bytes) = ExportEncoder::begin();
        encoder.records = 3;
        bytes.extend(encoder.end().1);
        assert!(matches!(
            scan_file(&bytes),
            Err(ExportError::Invalid { .. })
        ));
        assert!(matches!(
            scan_file(&file(RecordKind::End, &[0; 16])),
            Err(ExportError::Invalid { .. })
        ));
    }
}
