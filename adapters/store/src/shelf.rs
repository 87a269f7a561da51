//! What the index stands on, keys in order: sled in a folder, or nothing, so that all of it waits
//! in memory. The only module that knows sled.
//!
//! sled is no longer maintained, does not sync what it flushes, and panics on damage or loses keys
//! without a word. So every call is made under `catch_unwind`, and whoever asks checks what it is
//! told. The panic hook of the program is called before a panic is caught, and a library must not
//! replace it: [`catches_panic_here`] tells a hook that there is nothing to report.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::disk::{Disk as _, System};
use crate::index::Fault;

/// sled counts pages as they lie on the disk, and holds them in some four times that.
const CACHE_BYTES: u64 = 8 << 20;

/// How long an opening waits for threads of sled that still write for a handle that is gone. They
/// keep the file locked, and nobody else does: the store has a lock of its own.
const WAIT_FOR_CLOSING: Duration = Duration::from_secs(5);

/// A key and its value.
pub(crate) type Pair = (Vec<u8>, Vec<u8>);

/// Keys and values in order.
#[derive(Debug)]
pub(crate) enum Shelf {
    /// In a folder.
    Sled(SledFolder),
    /// Nothing: all that there is waits.
    Nothing,
}

/// Changes that are applied together: the latest of each key. What they set can be read before they
/// are.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    removes: bool,
}

impl Batch {
    /// Sets a value.
    pub(crate) fn insert(&mut self, key: &[u8], value: Vec<u8>) {
        self.changes.insert(key.to_vec(), Some(value));
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.changes.insert(key.to_vec(), None);
        self.removes = true;
    }

    /// Whether they remove anything: then a shelf is read only once they are applied.
    pub(crate) fn removes(&self) -> bool {
        self.removes
    }

    fn between<'b>(
        &'b self,
        first: &[u8],
        last: &[u8],
    ) -> impl DoubleEndedIterator<Item = Pair> + 'b {
        let set = between(&self.changes, first, last);
        set.filter_map(|(key, value)| Some((key.clone(), value.clone()?)))
    }
}

impl Shelf {
    /// What is in `folder`; makes it where there is none.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn open(folder: &Path) -> Result<Self, Fault> {
        SledFolder::open(folder).map(Self::Sled)
    }

    /// The value of a key, with what `waiting` sets.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn get(&self, key: &[u8], waiting: &Batch) -> Result<Option<Vec<u8>>, Fault> {
        if let Some(value) = waiting.changes.get(key) {
            return Ok(value.clone());
        }
        match self {
            Self::Sled(sled) => guard(|| Ok(sled.db().get(key)?.map(|value| value.to_vec()))),
            Self::Nothing => Ok(None),
        }
    }

    /// The last pair from `first` up to and with `last`, with what `waiting` sets.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn last(
        &self,
        first: &[u8],
        last: &[u8],
        waiting: &Batch,
    ) -> Result<Option<Pair>, Fault> {
        let set = waiting.between(first, last).next_back();
        let kept = match self {
            Self::Sled(sled) => guard(|| {
                Ok(sled
                    .db()
                    .range(first..=last)
                    .next_back()
                    .transpose()?
                    .map(pair))
            })?,
            Self::Nothing => None,
        };
        // Of one key, what waits is the later.
        Ok(kept
            .into_iter()
            .chain(set)
            .max_by(|one, other| one.0.cmp(&other.0)))
    }

    /// All pairs from `first` up to and with `last`, in order, with what `waiting` sets.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn range(
        &self,
        first: &[u8],
        last: &[u8],
        waiting: &Batch,
    ) -> Result<Vec<Pair>, Fault> {
        let mut kept: Vec<Pair> = match self {
            Self::Sled(sled) => guard(|| {
                sled.db()
                    .range(first..=last)
                    .map(|entry| entry.map(pair))
                    .collect()
            })?,
            Self::Nothing => return Ok(waiting.between(first, last).collect()),
        };
        let kept_pairs = kept.len();
        kept.extend(waiting.between(first, last));
        if kept.len() > kept_pairs {
            let merged: BTreeMap<_, _> = kept.into_iter().collect();
            kept = merged.into_iter().collect();
        }
        Ok(kept)
    }

    /// Shows all pairs from `first` up to and with `last`, in order, without holding them.
    ///
    /// # Errors
    /// [`Fault`]. Some may have been shown by then.
    pub(crate) fn each(
        &self,
        first: &[u8],
        last: &[u8],
        show: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Fault> {
        match self {
            Self::Sled(sled) => guard(|| {
                for entry in sled.db().range(first..=last) {
                    let (key, value) = entry?;
                    show(&key, &value);
                }
                Ok(())
            }),
            Self::Nothing => Ok(()),
        }
    }

    /// Applies changes, all or nothing. Not durable, and need not be.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn apply(&mut self, Batch { changes, .. }: Batch) -> Result<(), Fault> {
        let Self::Sled(sled) = self else {
            return Err(Fault("has nowhere to put what waits".to_owned()));
        };
        let mut batch = sled::Batch::default();
        for (key, value) in changes {
            match value {
                Some(value) => batch.insert(key, value),
                None => batch.remove(key),
            }
        }
        guard(|| sled.db().apply_batch(batch))
    }
}

/// sled, in a folder that is for its owner alone.
#[derive(Debug)]
pub(crate) struct SledFolder {
    /// There until the value is dropped.
    db: Option<sled::Db>,
    folder: PathBuf,
}

impl SledFolder {
    fn open(folder: &Path) -> Result<Self, Fault> {
        // Nobody else gets at what is in the folder, while sled makes its files for all whom the
        // umask lets.
        System
            .make_folder(folder)
            .map_err(|error| Fault(format!("has no folder: {error}")))?;
        let config = sled::Config::new().path(folder).cache_capacity(CACHE_BYTES);
        let db = guard(|| open_when_closed(&config))?;
        let opened = Self {
            db: Some(db),
            folder: folder.to_owned(),
        };
        opened.close_to_others();
        Ok(opened)
    }

    fn db(&self) -> &sled::Db {
        self.db
            .as_ref()
            .expect("sled is there until the value is dropped")
    }

    fn close_to_others(&self) {
        if let Err(error) = owner_only(&self.folder) {
            tracing::debug!(%error, "the files of the index keep their modes; their folder is for \
                 its owner alone");
        }
    }
}

impl Drop for SledFolder {
    /// sled writes what it holds when the last handle goes, and may panic at that too.
    fn drop(&mut self) {
        let db = self.db.take();
        if let Err(fault) = guard(|| db.map_or(Ok(0), |db| db.flush())) {
            tracing::warn!(%fault, "the index was not written; it will be caught up or rebuilt \
                 from the log");
        }
        self.close_to_others();
    }
}

fn open_when_closed(config: &sled::Config) -> sled::Result<sled::Db> {
    let until = Instant::now() + WAIT_FOR_CLOSING;
    loop {
        match config.open() {
            // sled has no kind of its own for a file that is locked.
            Err(sled::Error::Io(error))
                if error.to_string().contains("acquire lock") && Instant::now() < until =>
            {
                thread::sleep(Duration::from_millis(5));
            }
            outcome => return outcome,
        }
    }
}

fn owner_only(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            owner_only(&entry.path())?;
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
    // A range that ends before it begins holds nothing here, as in sled.
    let bounds = (Bound::Included(first), Bound::Included(last.max(first)));
    let found = if first <= last {
        Some(map.range::<[u8], _>(bounds))
    } else {
        None
    };
    found.into_iter().flatten()
}

fn pair((key, value): (sled::IVec, sled::IVec)) -> Pair {
    (key.to_vec(), value.to_vec())
}

thread_local! {
    /// Whether this thread is in a call of sled.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// The threads that sled starts. It catches what happens in the first, and has no more use for the
/// other.
const THREADS_OF_SLED: [&str; 2] = ["sled-io-", "log flusher"];

/// Whether a panic in this thread at this moment is one of the index, which the store catches and
/// recovers from: the index is built again from the log, or kept in memory. A program that reports
/// panics by a hook of its own (`std::panic::set_hook`) asks this there, and reports nothing if so.
/// The default hook prints the panic, which does no harm.
#[must_use]
pub fn catches_panic_here() -> bool {
    let thread = thread::current();
    let is_of_sled = thread.name().is_some_and(|name| {
        THREADS_OF_SLED
            .iter()
            .any(|of_sled| name.starts_with(of_sled))
    });
    is_of_sled || IS_GUARDED.get()
}

fn guard<T>(call: impl FnOnce() -> sled::Result<T>) -> Result<T, Fault> {
    let was_guarded = IS_GUARDED.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(call));
    IS_GUARDED.set(was_guarded);
    match outcome {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Fault(format!("failed: {error}"))),
        Err(panic) => Err(Fault(format!("panicked: {}", text_of(&*panic)))),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("nothing was said")
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn an_index_that_is_still_being_closed_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut shelf = Shelf::open(folder.path()).unwrap();
        let mut batch = Batch::default();
        batch.insert(b"key", vec![1]);
        shelf.apply(batch).unwrap();
        drop(shelf);
        // A thread of sled that is late keeps the same lock.
        let late = File::open(folder.path().join("db")).unwrap();
        late.lock().unwrap();
        let closing = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(late);
        });
        let shelf = Shelf::open(folder.path()).unwrap();
        assert_eq!(shelf.get(b"key", &Batch::default()).unwrap(), Some(vec![1]));
        closing.join().unwrap();
    }

    #[test]
    fn a_panic_of_sled_is_a_fault_that_hooks_can_tell_from_others() {
        let fault = guard(|| -> sled::Result<()> {
            assert!(guard(|| Ok(catches_panic_here())).unwrap());
            assert!(catches_panic_here(), "behind a call within a call");
            std::panic::resume_unwind(Box::new("a page is gone"))
        });
        assert_eq!(
            fault.unwrap_err().to_string(),
            "the index panicked: a page is gone"
        );
        assert!(!catches_panic_here());
        for (name, is_of_sled) in [
            ("sled-io-3", true),
            ("log flusher", true),
            ("worker", false),
        ] {
            let thread = thread::Builder::new()
                .name(name.to_owned())
                .spawn(catches_panic_here)
                .unwrap();
            assert_eq!(thread.join().unwrap(), is_of_sled, "{name}");
        }
    }
}
