//! A log of records in memory, and a store on top of it, for tests and for embedders that want no
//! files.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dormouse_actors::ports::{BlobReader, OwnerToken, StoreError, Unreadable};
use dormouse_proto::id::{CommitNumber, ContentHash};

use crate::log::{Record, RecordBatch, RecordLog, RecordOp, Stream, StreamKind};
use crate::store::RecordStore;
use crate::validator::check_owner;

/// A store that loses everything when it is dropped. It validates commits as a durable store does,
/// and never uses a disk.
pub type MemoryStore = RecordStore<MemoryLog>;

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

/// A log of records in memory.
#[derive(Debug, Default)]
pub struct MemoryLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    owner: u64,
    commit: u64,
    records: BTreeMap<(Stream, u64), Record>,
    contents: HashMap<ContentHash, MemoryContent>,
}

/// A content in memory, which cannot be damaged.
#[derive(Clone, Debug)]
struct MemoryContent {
    bytes: Bytes,
    index: Bytes,
}

impl BlobReader for MemoryContent {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn index(&self) -> Option<Bytes> {
        Some(self.index.clone())
    }

    fn slice(&self, range: Range<u64>) -> Result<Bytes, Unreadable> {
        let range = range.start as usize..range.end as usize;
        if range.start <= range.end && range.end <= self.bytes.len() {
            Ok(self.bytes.slice(range))
        } else {
            Err(Unreadable::new("the content is shorter than that"))
        }
    }
}

impl MemoryLog {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn check_owner(&self, owner: OwnerToken) -> Result<(), StoreError> {
        check_owner(owner, OwnerToken(self.owner))
    }

    fn apply(&mut self, op: &RecordOp, at_ms: u64) {
        match op {
            RecordOp::Put {
                stream,
                number,
                bytes,
            } => {
                let record = Record {
                    number: *number,
                    commit: CommitNumber(self.commit),
                    at_ms,
                    bytes: bytes.clone(),
                };
                self.records.insert((*stream, *number), record);
            }
            RecordOp::Delete { stream, up_to } => {
                let keys = self.records.range((*stream, 0)..=(*stream, *up_to));
                let keys: Vec<_> = keys.map(|(key, _)| *key).collect();
                for key in keys {
                    self.records.remove(&key);
                }
            }
        }
    }
}

impl RecordLog for MemoryLog {
    fn claim(&self) -> Result<OwnerToken, StoreError> {
        let mut state = self.lock();
        state.owner += 1;
        Ok(OwnerToken(state.owner))
    }

    fn append(
        &self,
        owner: OwnerToken,
        batch: &RecordBatch<'_>,
    ) -> Result<CommitNumber, StoreError> {
        let mut state = self.lock();
        state.check_owner(owner)?;
        state.commit += u64::from(!batch.is_empty());
        for new in batch.contents {
            let bytes = new.bytes.clone();
            let index = new.index.clone();
            let content = MemoryContent { bytes, index };
            state.contents.entry(new.name).or_insert(content);
        }
        for op in batch.ops {
            state.apply(op, batch.at_ms);
        }
        Ok(CommitNumber(state.commit))
    }

    fn read(
        &self,
        stream: Stream,
        numbers: RangeInclusive<u64>,
    ) -> Result<Vec<Record>, StoreError> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let state = self.lock();
        let range = (stream, *numbers.start())..=(stream, *numbers.end());
        let records = state.records.range(range);
        Ok(records.map(|(_, record)| record.clone()).collect())
    }

    fn latest(&self, stream: Stream, up_to: u64) -> Result<Option<Record>, StoreError> {
        let state = self.lock();
        let latest = state
            .records
            .range((stream, 0)..=(stream, up_to))
            .next_back();
        Ok(latest.map(|(_, record)| record.clone()))
    }

    fn read_kind(&self, kind: StreamKind) -> Result<Vec<(u64, Record)>, StoreError> {
        let state = self.lock();
        let key = |id, number| (Stream { kind, id }, number);
        let records = state.records.range(key(0, 0)..=key(u64::MAX, u64::MAX));
        Ok(records
            .map(|((stream, _), record)| (stream.id, record.clone()))
            .collect())
    }

    fn content(&self, name: ContentHash) -> Result<Option<Arc<dyn BlobReader>>, StoreError> {
        let content = self.lock().contents.get(&name).cloned();
        Ok(content.map(|content| Arc::new(content) as _))
    }

    fn contents(&self) -> Result<Vec<(ContentHash, u64)>, StoreError> {
        let state = self.lock();
        let contents = state.contents.iter();
        Ok(contents
            .map(|(name, content)| (*name, content.length()))
            .collect())
    }

    fn delete_contents(&self, owner: OwnerToken, names: &[ContentHash]) -> Result<(), StoreError> {
        let mut state = self.lock();
        state.check_owner(owner)?;
        for name in names {
            state.contents.remove(name);
        }
        Ok(())
    }
}
