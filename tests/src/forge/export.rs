//! An export as records, and records as an export with right hashes.

/// The kinds whose payloads are records of the codec: head, member, facts, change of a temporary
/// file.
pub const CODED: std::ops::RangeInclusive<u8> = 1..=4;
const CONTENT: u8 = 5;
const END: u8 = 6;

/// A kind and a payload.
#[derive(Clone, Debug)]
pub struct Record {
    /// 1 head, 2 member, 3 facts, 4 change of a temporary file, 5 content.
    pub kind: u8,
    /// What stands in it.
    pub payload: Vec<u8>,
}

impl Record {
    /// A record with a payload.
    #[must_use]
    pub fn new(kind: u8, payload: Vec<u8>) -> Self {
        Self { kind, payload }
    }

    /// A content.
    #[must_use]
    pub fn content(bytes: Vec<u8>) -> Self {
        Self::new(CONTENT, bytes)
    }
}

/// The records of an export that is whole, without its end.
///
/// # Panics
/// Where it is not whole.
#[must_use]
pub fn records(file: &[u8]) -> Vec<Record> {
    let (mut records, mut rest) = (Vec::new(), &file[16..]);
    while rest[0] != END {
        let len = u64::from_le_bytes(rest[8..16].try_into().expect("eight bytes")) as usize;
        records.push(Record {
            kind: rest[0],
            payload: rest[48..48 + len].to_vec(),
        });
        rest = &rest[48 + len + 32..];
    }
    records
}

/// An export of these records, its end and all hashes.
#[must_use]
pub fn file(records: &[Record]) -> Vec<u8> {
    let mut file = b"DORMOUSE\x01\0\0\0\0\0\0\0".to_vec();
    let mut chain = blake3::hash(&file);
    for Record { kind, payload } in records {
        append(&mut file, &mut chain, *kind, payload);
    }
    let end = [
        (records.len() as u64).to_le_bytes(),
        (file.len() as u64).to_le_bytes(),
    ]
    .concat();
    append(&mut file, &mut chain, END, &end);
    file
}

fn append(file: &mut Vec<u8>, chain: &mut blake3::Hash, kind: u8, payload: &[u8]) {
    let mut header = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    header.extend((payload.len() as u64).to_le_bytes());
    *chain = chained(chain, &header);
    file.extend(header);
    file.extend(chain.as_bytes());
    *chain = chained(chain, blake3::hash(payload).as_bytes());
    file.extend(payload);
    file.extend(chain.as_bytes());
}

fn chained(before: &blake3::Hash, next: &[u8]) -> blake3::Hash {
    blake3::Hasher::new()
        .update(before.as_bytes())
        .update(next)
        .finalize()
}
