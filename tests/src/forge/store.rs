//! A store of one segment as records, and records as a store with right hashes.

use std::fs;
use std::io;
use std::path::Path;

const HEADER_BYTES: usize = 168;
const BLOCK_BYTES: usize = 176;

/// Kinds that payloads are forged of: born, facts, snapshot, ended, temp file, checkpoint,
/// shortened.
pub const FORGED: [u8; 7] = [3, 4, 5, 6, 7, 8, 11];
const OPENED: u8 = 1;
const CONTENT: u8 = 2;

/// A record: what its header says, and its payload.
#[derive(Clone, Debug)]
pub struct Record {
    /// The first 8 bytes of the header: magic, version, kind, flags and a zero.
    pub start: [u8; 8],
    /// Commit, since, synced, time, length, subject, first and count. The length is set by the
    /// payload.
    pub numbers: [u64; 8],
    /// What the header says is the payload's hash: of contents their name.
    pub named: [u8; 32],
    /// What stands in it.
    pub payload: Vec<u8>,
}

impl Record {
    /// By its number in the format.
    #[must_use]
    pub fn kind(&self) -> u8 {
        self.start[5]
    }
}

/// A store that was closed.
#[derive(Clone, Debug)]
pub struct Forged {
    head: Vec<u8>,
    /// Its records, in order.
    pub records: Vec<Record>,
}

impl Forged {
    /// Of a store that is not encrypted, in one segment.
    ///
    /// # Errors
    /// As the operating system's.
    ///
    /// # Panics
    /// Where it is not whole.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let (head, log) = (
            fs::read(dir.join("HEAD"))?,
            fs::read(dir.join("log/00000001.seg"))?,
        );
        let (mut records, mut rest) = (Vec::new(), &log[..]);
        while rest.starts_with(b"DMLG") {
            let number =
                |at: usize| u64::from_le_bytes(rest[at..at + 8].try_into().expect("eight bytes"));
            let numbers = std::array::from_fn(|at| number(8 + 8 * at));
            let end = HEADER_BYTES + numbers[4] as usize;
            records.push(Record {
                start: rest[..8].try_into().expect("eight bytes"),
                numbers,
                named: rest[72..104].try_into().expect("a hash"),
                payload: rest[HEADER_BYTES..end].to_vec(),
            });
            rest = &rest[end..];
        }
        Ok(Self {
            head: head[..BLOCK_BYTES].to_vec(),
            records,
        })
    }

    /// Writes it, every hash right and HEAD vouching for all of it.
    ///
    /// # Errors
    /// As the operating system's.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let key: [u8; 32] = self.head[12..44].try_into().expect("a key");
        let (mut log, mut chain, mut last) = (Vec::new(), [0; 32], 0);
        for record in &self.records {
            last = log.len() as u64;
            chain = append(&mut log, record, &key, chain);
        }
        let mut head = self.head[..BLOCK_BYTES - 32].to_vec();
        head[52..56].copy_from_slice(&1_u32.to_le_bytes());
        head[56..64].copy_from_slice(&(log.len() as u64).to_le_bytes());
        head[64..72].copy_from_slice(&last.to_le_bytes());
        let commit = self.records.last().map_or(0, |record| record.numbers[0]);
        head[72..80].copy_from_slice(&commit.to_le_bytes());
        head[80..112].copy_from_slice(&chain);
        head.extend(*blake3::hash(&head).as_bytes());
        fs::create_dir_all(dir.join("log"))?;
        fs::write(dir.join("log/00000001.seg"), log)?;
        fs::write(dir.join("HEAD"), [&head[..], &head].concat())
    }
}

fn append(log: &mut Vec<u8>, record: &Record, key: &[u8; 32], previous: [u8; 32]) -> [u8; 32] {
    let (offset, mut numbers) = (log.len() as u64, record.numbers);
    numbers[4] = record.payload.len() as u64;
    let mut header = record.start.to_vec();
    numbers
        .iter()
        .for_each(|number| header.extend(number.to_le_bytes()));
    let named = match record.kind() {
        CONTENT => record.named,
        OPENED..=8 | 11 => *blake3::hash(&record.payload).as_bytes(),
        _ => record.named,
    };
    header.extend(named);
    header.extend(previous);
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher
        .update(&header)
        .update(&1_u32.to_le_bytes())
        .update(&offset.to_le_bytes());
    let hash = *hasher.finalize().as_bytes();
    log.extend(header);
    log.extend(hash);
    log.extend(&record.payload);
    hash
}
