//! Writes objects once.
//!
//! An object of up to 16 MiB is written under the condition that there is none (`If-None-Match`). So
//! if the answer to a write is lost, the next attempt learns that the object exists.
//!
//! A larger object is uploaded in parts, which not every store completes under a condition. So the
//! object is looked for first; of two writers at the same time the last one wins. That is safe: their
//! contents are equal, since their names are. If they are encrypted differently, a reader that opened
//! the first object notices by the hash of a block, and reads the new directory (`reader`). An upload
//! becomes visible when it is complete; what it leaves behind if the program ends is deleted by the
//! bucket's own rule for unfinished uploads.

use std::time::Duration;

use bytes::Bytes;
use dormouse_actors::ports::StoreError;
use dormouse_proto::id::ContentHash;
use futures_util::stream::{FuturesUnordered, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use tokio::time::{Instant, sleep};

use crate::contents::Objects;
use crate::error::is_transient;
use crate::object::{HEAD_BYTES, Head};

/// The largest object that is written by one request.
const SINGLE_BYTES: usize = 16 << 20;
/// The length of a part.
const PART_BYTES: usize = 8 << 20;
/// The most parts that each store takes.
const MAX_PARTS: usize = 10_000;
const PARTS_AT_ONCE: usize = 4;
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// What is stored under a key.
enum Existing {
    Absent,
    Whole,
    Damaged,
}

/// Writes the object of a content (its head and directory, and the bytes), unless it exists.
pub(crate) async fn put(
    objects: &Objects,
    name: ContentHash,
    head: Bytes,
    bytes: Bytes,
) -> Result<(), StoreError> {
    let key = objects.key(name);
    let is_large = head.len() + bytes.len() > SINGLE_BYTES;
    let end = Instant::now() + objects.retry_for;
    let mut mode = PutMode::Create;
    let mut wait = FIRST_WAIT;
    let mut is_repeated = false;
    loop {
        if is_large && matches!(existing(objects, name).await?, Existing::Whole) {
            return Ok(());
        }
        let written = if is_large {
            upload(&*objects.store, &key, &head, &bytes).await
        } else {
            let payload = [head.clone(), bytes.clone()]
                .into_iter()
                .collect::<PutPayload>();
            let put = objects.store.put_opts(&key, payload, mode.clone().into());
            put.await.map(|_| ())
        };
        let Err(error) = written else {
            return Ok(());
        };
        let may_retry = match &error {
            // The store also says so if two writes collide and neither is done yet.
            Error::AlreadyExists { .. } | Error::Precondition { .. } => {
                match existing(objects, name).await? {
                    Existing::Whole => return Ok(()),
                    Existing::Damaged => mode = PutMode::Overwrite,
                    Existing::Absent => {}
                }
                true
            }
            // If the answer to the last request of an upload was lost, the store no longer knows the
            // upload: the next look finds the object.
            Error::NotFound { .. } => is_large && !is_repeated,
            other => is_transient(other),
        };
        if !may_retry || Instant::now() + wait > end {
            return Err(objects.object_error("write", name, &error));
        }
        is_repeated = true;
        sleep(wait).await;
        wait = (2 * wait).min(LONGEST_WAIT);
    }
}

/// Looks at the head of an object.
async fn existing(objects: &Objects, name: ContentHash) -> Result<Existing, StoreError> {
    let start = match objects.read_start(name, HEAD_BYTES).await {
        Err(StoreError::Damaged { .. }) => return Ok(Existing::Damaged),
        start => start?,
    };
    let Some((size, start)) = start else {
        return Ok(Existing::Absent);
    };
    match Head::read(name, size, &start) {
        Ok(_) => Ok(Existing::Whole),
        Err(StoreError::Damaged { what }) => {
            tracing::warn!(what, "a damaged object is replaced");
            Ok(Existing::Damaged)
        }
        Err(other) => Err(other),
    }
}

/// Uploads an object in parts. Nobody sees it before the last request.
async fn upload(
    store: &dyn ObjectStore,
    key: &Path,
    head: &Bytes,
    bytes: &Bytes,
) -> object_store::Result<()> {
    let mut upload = store.put_multipart(key).await?;
    let sent = async {
        let mut running = FuturesUnordered::new();
        for part in parts(head, bytes) {
            if running.len() == PARTS_AT_ONCE {
                running.try_next().await?;
            }
            running.push(upload.put_part(part));
        }
        running.try_collect::<()>().await
    };
    let sent = match sent.await {
        Ok(()) => upload.complete().await.map(|_| ()),
        failed => failed,
    };
    if sent.is_err() {
        // The store deletes the parts of unfinished uploads by a rule of the bucket.
        let _unknown = upload.abort().await;
    }
    sent
}

/// The parts of an object, of equal lengths but for the last one, as some stores want them.
fn parts(head: &Bytes, bytes: &Bytes) -> impl Iterator<Item = PutPayload> {
    let size = head.len() + bytes.len();
    let part_bytes = PART_BYTES.max(size.div_ceil(MAX_PARTS));
    let (head, bytes) = (head.clone(), bytes.clone());
    (0..size).step_by(part_bytes).map(move |start| {
        let end = size.min(start + part_bytes);
        let of_head = head.slice(start.min(head.len())..end.min(head.len()));
        let of_bytes = start.saturating_sub(head.len())..end.saturating_sub(head.len());
        [of_head, bytes.slice(of_bytes)]
            .into_iter()
            .filter(|piece| !piece.is_empty())
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_joined_are_the_object() {
        let head = Bytes::from(vec![1; 1000]);
        for length in [SINGLE_BYTES, 3 * PART_BYTES - 1000, 3 * PART_BYTES + 7] {
            let bytes: Bytes = (0..length).map(|i| (i / 3) as u8).collect();
            let parts: Vec<_> = parts(&head, &bytes).map(Bytes::from).collect();
            assert_eq!(parts.concat(), [&head[..], &bytes].concat());
            let (last, others) = parts.split_last().unwrap();
            assert!(others.iter().all(|part| part.len() == PART_BYTES));
            assert!(!last.is_empty() && last.len() <= PART_BYTES);
        }
    }
}
