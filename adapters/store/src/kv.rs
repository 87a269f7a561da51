//! The key-value backend of the index. It is either a sled database in a folder, or nothing: then
//! all changes stay pending in memory. The only module that uses sled.
//!
//! sled is no longer maintained, does not sync what it flushes, and may panic or silently lose keys
//! if its files are damaged. Therefore every call runs under `catch_unwind`, and the callers verify
//! what they read. The program's panic hook runs before a panic is caught, and a library must not
//! replace the hook: [`catches_panic_here`] lets a hook skip these panics.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::location_index::IndexFault;

/// sled counts pages by their size on disk; in memory they take about four times that. The opening of
/// a store reads all pages with entries of the process table, and later queries read few of them
/// again, so that a large cache would only keep these. A page that is missing costs a read of a file
/// that the operating system caches.
const CACHE_BYTES: u64 = 2 << 20;

/// How long an opening waits for sled threads that still write for a closed handle. They hold the
/// lock of the database file, which no other program uses: the store has a lock of its own.
const WAIT_FOR_CLOSING: Duration = Duration::from_secs(5);

/// A key and its value.
pub(crate) type Pair = (Vec<u8>, Vec<u8>);

/// An ordered map of keys to values.
#[derive(Debug)]
pub(crate) enum KvStore {
    /// In a folder.
    Sled(SledStore),
    /// No backend: everything is pending.
    NoBackend,
}

/// Pending changes that are applied together; only the latest of each key is kept. Queries see
/// additions before they are applied.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    has_removals: bool,
}

impl Batch {
    /// Sets a value.
    pub(crate) fn insert(&mut self, key: &[u8], value: Vec<u8>) {
        self.changes.insert(key.to_vec(), Some(value));
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.changes.insert(key.to_vec(), None);
        self.has_removals = true;
    }

    /// Whether any key is removed. Range queries ignore pending removals, so a batch with removals
    /// must be applied before the next query.
    pub(crate) fn has_removals(&self) -> bool {
        self.has_removals
    }

    fn between<'b>(
        &'b self,
        first: &[u8],
        last: &[u8],
    ) -> impl DoubleEndedIterator<Item = Pair> + 'b {
        let entries = between(&self.changes, first, last);
        entries.filter_map(|(key, value)| Some((key.clone(), value.clone()?)))
    }
}

impl KvStore {
    /// Opens or creates the database in `folder`.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn open(folder: &Path) -> Result<Self, IndexFault> {
        SledStore::open(folder).map(Self::Sled)
    }

    /// The value of a key, including pending changes.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn get(&self, key: &[u8], pending: &Batch) -> Result<Option<Vec<u8>>, IndexFault> {
        if let Some(value) = pending.changes.get(key) {
            return Ok(value.clone());
        }
        match self {
            Self::Sled(sled) => call_sled(|| Ok(sled.db().get(key)?.map(|value| value.to_vec()))),
            Self::NoBackend => Ok(None),
        }
    }

    /// The last pair in `first..=last`, including pending additions.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn last(
        &self,
        first: &[u8],
        last: &[u8],
        pending: &Batch,
    ) -> Result<Option<Pair>, IndexFault> {
        let addition = pending.between(first, last).next_back();
        let stored = match self {
            Self::Sled(sled) => call_sled(|| {
                Ok(sled
                    .db()
                    .range(first..=last)
                    .next_back()
                    .transpose()?
                    .map(to_pair))
            })?,
            Self::NoBackend => None,
        };
        // For the same key, the pending value is the newer one.
        Ok(stored
            .into_iter()
            .chain(addition)
            .max_by(|one, other| one.0.cmp(&other.0)))
    }

    /// All pairs in `first..=last`, in order, including pending additions.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn range(
        &self,
        first: &[u8],
        last: &[u8],
        pending: &Batch,
    ) -> Result<Vec<Pair>, IndexFault> {
        let mut stored: Vec<Pair> = match self {
            Self::Sled(sled) => call_sled(|| {
                sled.db()
                    .range(first..=last)
                    .map(|entry| entry.map(to_pair))
                    .collect()
            })?,
            Self::NoBackend => return Ok(pending.between(first, last).collect()),
        };
        let stored_pairs = stored.len();
        stored.extend(pending.between(first, last));
        if stored.len() > stored_pairs {
            let merged: BTreeMap<_, _> = stored.into_iter().collect();
            stored = merged.into_iter().collect();
        }
        Ok(stored)
    }

    /// Passes all stored pairs in `first..=last` to `visit`, in order, without collecting them.
    /// Pending changes are ignored.
    ///
    /// # Errors
    /// [`IndexFault`]. `visit` may have received some of the pairs by then.
    pub(crate) fn for_each(
        &self,
        first: &[u8],
        last: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), IndexFault> {
        match self {
            Self::Sled(sled) => call_sled(|| {
                for entry in sled.db().range(first..=last) {
                    let (key, value) = entry?;
                    visit(&key, &value);
                }
                Ok(())
            }),
            Self::NoBackend => Ok(()),
        }
    }

    /// Applies changes atomically. The changes are not durable, and need not be: the index can be
    /// rebuilt from the log.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn apply(&mut self, Batch { changes, .. }: Batch) -> Result<(), IndexFault> {
        let Self::Sled(sled) = self else {
            return Err(IndexFault(
                "has no backend to write pending changes to".to_owned(),
            ));
        };
        let mut batch = sled::Batch::default();
        for (key, value) in changes {
            match value {
                Some(value) => batch.insert(key, value),
                None => batch.remove(key),
            }
        }
        call_sled(|| sled.db().apply_batch(batch))
    }
}

/// A sled database in a folder that only its owner can access.
#[derive(Debug)]
pub(crate) struct SledStore {
    /// `Some` until the value is dropped.
    db: Option<sled::Db>,
    folder: PathBuf,
}

impl SledStore {
    fn open(folder: &Path) -> Result<Self, IndexFault> {
        // The folder is created with mode 0700 first, because sled creates its files with the
        // umask's mode. Its name is not synced: without its folder, the index is rebuilt.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| IndexFault(format!("has no folder: {error}")))?;
        let config = sled::Config::new().path(folder).cache_capacity(CACHE_BYTES);
        let db = call_sled(|| open_when_unlocked(&config))?;
        let store = Self {
            db: Some(db),
            folder: folder.to_owned(),
        };
        store.restrict_files();
        Ok(store)
    }

    fn db(&self) -> &sled::Db {
        self.db
            .as_ref()
            .expect("the database is open until the value is dropped")
    }

    /// Makes the files of the database accessible to their owner only.
    fn restrict_files(&self) {
        if let Err(error) = restrict_to_owner(&self.folder) {
            tracing::debug!(%error, "cannot change the modes of the index's files; their folder is \
             accessible to its owner only");
        }
    }
}

impl Drop for SledStore {
    /// sled flushes when the last handle is dropped, and may panic there too.
    fn drop(&mut self) {
        let db = self.db.take();
        if let Err(fault) = call_sled(|| db.map_or(Ok(0), |db| db.flush())) {
            tracing::warn!(%fault, "cannot flush sled; the index will be caught up or rebuilt from \
             the log");
        }
        self.restrict_files();
    }
}

/// Opens a database. Waits while threads of a closed handle hold its lock.
fn open_when_unlocked(config: &sled::Config) -> sled::Result<sled::Db> {
    let deadline = Instant::now() + WAIT_FOR_CLOSING;
    loop {
        match config.open() {
            // sled has no error of its own for a locked file.
            Err(sled::Error::Io(error))
                if error.to_string().contains("acquire lock") && Instant::now() < deadline =>
            {
                thread::sleep(Duration::from_millis(5));
            }
            outcome => return outcome,
        }
    }
}

fn restrict_to_owner(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            restrict_to_owner(&entry.path())?;
        } else {
            fs::set_permissions(entry.path(), Permissions::from_mode(0o600))?;
        }
    }
    Ok(())
}

fn between<'m, V>(
    map: &'m BTreeMap<Vec<u8>, V>,
    first: &[u8],
    last: &[u8],
) -> impl DoubleEndedIterator<Item = (&'m Vec<u8>, &'m V)> + use<'m, V> {
    // An inverted range is empty here, as in sled. `BTreeMap::range` would panic.
    let bounds = (Bound::Included(first), Bound::Included(last.max(first)));
    let found = if first <= last {
        Some(map.range::<[u8], _>(bounds))
    } else {
        None
    };
    found.into_iter().flatten()
}

fn to_pair((key, value): (sled::IVec, sled::IVec)) -> Pair {
    (key.to_vec(), value.to_vec())
}

thread_local! {
    /// Whether this thread is inside a call of sled.
    static IS_IN_SLED_CALL: Cell<bool> = const { Cell::new(false) };
}

/// Prefixes of the names of sled's threads. sled catches panics of the `sled-io-` threads itself,
/// and continues without its `log flusher` if that panics.
const SLED_THREADS: [&str; 2] = ["sled-io-", "log flusher"];

/// Whether a panic on this thread, now, comes from the index. The store catches such a panic and
/// rebuilds the index from the log, or keeps it in memory. A program with a panic hook of its own
/// (`std::panic::set_hook`) should call this in the hook, and report nothing if it returns `true`.
/// The default hook prints the panic, which does no harm.
#[must_use]
pub fn catches_panic_here() -> bool {
    let thread = thread::current();
    let is_sled_thread = thread
        .name()
        .is_some_and(|name| SLED_THREADS.iter().any(|prefix| name.starts_with(prefix)));
    is_sled_thread || IS_IN_SLED_CALL.get()
}

/// Calls sled, and turns its errors and panics into an [`IndexFault`].
fn call_sled<T>(call: impl FnOnce() -> sled::Result<T>) -> Result<T, IndexFault> {
    let was_in_sled_call = IS_IN_SLED_CALL.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(call));
    IS_IN_SLED_CALL.set(was_in_sled_call);
    match outcome {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(IndexFault(format!("failed: {error}"))),
        Err(panic) => Err(IndexFault(format!("panicked: {}", panic_message(&*panic)))),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no panic message")
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn opening_waits_for_a_database_that_is_still_being_closed() {
        let folder = tempfile::tempdir().unwrap();
        let mut kv = KvStore::open(folder.path()).unwrap();
        let mut batch = Batch::default();
        batch.insert(b"key", vec![1]);
        kv.apply(batch).unwrap();
        drop(kv);
        // A sled thread of a closed database would hold this lock; `holder` stands for it.
        let holder = File::open(folder.path().join("db")).unwrap();
        holder.lock().unwrap();
        let closing = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(holder);
        });
        let kv = KvStore::open(folder.path()).unwrap();
        assert_eq!(kv.get(b"key", &Batch::default()).unwrap(), Some(vec![1]));
        closing.join().unwrap();
    }

    #[test]
    fn a_panic_of_sled_becomes_a_fault_that_panic_hooks_can_recognise() {
        let fault = call_sled(|| -> sled::Result<()> {
            assert!(call_sled(|| Ok(catches_panic_here())).unwrap());
            assert!(catches_panic_here(), "after a nested call");
            std::panic::resume_unwind(Box::new("a page is gone"))
        });
        assert_eq!(
            fault.unwrap_err().to_string(),
            "the index panicked: a page is gone"
        );
        assert!(!catches_panic_here());
        for (name, is_sled_thread) in [
            ("sled-io-3", true),
            ("log flusher", true),
            ("worker", false),
        ] {
            let thread = thread::Builder::new()
                .name(name.to_owned())
                .spawn(catches_panic_here)
                .unwrap();
            assert_eq!(thread.join().unwrap(), is_sled_thread, "{name}");
        }
    }
}
