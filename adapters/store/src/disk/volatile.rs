//! A simulated disk for tests, with a write cache: after a power loss, unsynced writes may be lost,
//! torn or complete. The disk can also fail at a chosen step.
//!
//! After a power loss, each sector of an unsynced write is kept or lost at random, and so are
//! changes of lengths and names. Most file systems lose less.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::{Disk, DiskFile, OpenMode};

const SECTOR: usize = 512;

/// A simulated disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolatileDisk(Arc<Mutex<DiskState>>);

#[derive(Debug, Default)]
struct DiskState {
    names: BTreeMap<PathBuf, File>,
    durable_names: BTreeMap<PathBuf, File>,
    steps: u64,
    /// The step that fails, and how.
    fault: Option<(u64, Fault)>,
    has_failed: bool,
    /// Reserving fails after the file has been extended.
    fails_reserving: bool,
}

/// A simulated failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// One step fails half-way.
    Once(io::ErrorKind),
    /// The power fails: this step is done half-way, and every later one fails.
    Power,
}

type File = Arc<Mutex<FileBytes>>;

/// The bytes of a file, in the cache and on the platter.
#[derive(Clone, Debug, Default)]
struct FileBytes {
    cached: Vec<u8>,
    durable: Vec<u8>,
    /// Ranges written since the last sync.
    dirty: Vec<Range<usize>>,
}

impl VolatileDisk {
    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many changing steps were requested.
    pub(crate) fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// Fails at step `number`, counted from 1 since the disk was created.
    pub(crate) fn fail_at(&self, number: u64, fault: Fault) {
        self.lock().fault = Some((number, fault));
    }

    /// From now on reserving fails half-way.
    pub(crate) fn fail_reserving(&self) {
        self.lock().fails_reserving = true;
    }

    /// Whether the fault has occurred.
    pub(crate) fn has_failed(&self) -> bool {
        self.lock().has_failed
    }

    /// Simulates a power loss: `random_below` decides which unsynced writes survive. Returns the
    /// disk that the restarted machine finds.
    pub(crate) fn after_power_loss(&self, random_below: &mut impl FnMut(usize) -> usize) -> Self {
        let state = self.lock();
        let mut names = BTreeMap::new();
        // A name that was changed but not synced has its old or its new file.
        let paths: std::collections::BTreeSet<_> = state
            .names
            .keys()
            .chain(state.durable_names.keys())
            .collect();
        for path in paths {
            let new = state.names.get(path);
            let old = state.durable_names.get(path);
            let is_same = matches!((new, old), (Some(new), Some(old)) if Arc::ptr_eq(new, old));
            let survivor = if is_same || random_below(2) == 0 {
                new
            } else {
                old
            };
            if let Some(file) = survivor {
                let found = file
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .after_power_loss(random_below);
                names.insert(path.clone(), Arc::new(Mutex::new(found)));
            }
        }
        let durable_names = names.clone();
        Self(Arc::new(Mutex::new(DiskState {
            names,
            durable_names,
            ..DiskState::default()
        })))
    }

    /// Counts a step, and fails it if it is the chosen one.
    fn step(&self) -> Result<(), Fault> {
        let mut state = self.lock();
        state.steps += 1;
        let Some((at, fault)) = state.fault else {
            return Ok(());
        };
        match state.steps == at || (state.has_failed && fault == Fault::Power) {
            true => {
                state.has_failed = true;
                Err(fault)
            }
            false => Ok(()),
        }
    }

    fn is_off(&self) -> bool {
        let state = self.lock();
        state.has_failed && matches!(state.fault, Some((_, Fault::Power)))
    }
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Once(kind) => kind.into(),
            Fault::Power => io::Error::other("the power is gone"),
        }
    }
}

impl FileBytes {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.cached.len() < offset {
            self.cached.resize(offset, 0);
        }
        // Most writes append, and `extend_from_slice` is much faster than `resize` and a copy.
        let overwritten = bytes.len().min(self.cached.len() - offset);
        self.cached[offset..offset + overwritten].copy_from_slice(&bytes[..overwritten]);
        self.cached.extend_from_slice(&bytes[overwritten..]);
        self.dirty.push(offset..end);
    }

    fn sync(&mut self) {
        self.durable = self.cached.clone();
        self.dirty.clear();
    }

    fn after_power_loss(&self, random_below: &mut impl FnMut(usize) -> usize) -> Self {
        let mut survived = self.durable.clone();
        let shorter = survived.len().min(self.cached.len());
        let longer = survived.len().max(self.cached.len());
        let length = match random_below(3) {
            0 => survived.len(),
            1 => self.cached.len(),
            _ => shorter + random_below(longer - shorter + 1),
        };
        survived.resize(length, 0);
        for range in &self.dirty {
            for sector in range.start / SECTOR..range.end.div_ceil(SECTOR) {
                let end = range
                    .end
                    .min((sector + 1) * SECTOR)
                    .min(length)
                    .min(self.cached.len());
                let start = range.start.max(sector * SECTOR);
                if start < end && random_below(2) == 0 {
                    survived[start..end].copy_from_slice(&self.cached[start..end]);
                }
            }
        }
        Self {
            cached: survived.clone(),
            durable: survived,
            dirty: Vec::new(),
        }
    }
}

impl Disk for VolatileDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let existing = self.lock().names.get(path).cloned();
        let file = match (mode, existing) {
            (OpenMode::Existing, None) => return Err(io::ErrorKind::NotFound.into()),
            (OpenMode::CreateNew, Some(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            (OpenMode::Existing, Some(file)) => file,
            (OpenMode::Truncated, Some(file)) => {
                self.step()?;
                file.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .cached
                    .clear();
                file
            }
            (OpenMode::CreateNew | OpenMode::Truncated, None) => {
                self.step()?;
                let file = File::default();
                self.lock().names.insert(path.to_owned(), file.clone());
                file
            }
        };
        Ok(Arc::new(OpenFile {
            disk: self.clone(),
            file,
        }))
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let state = self.lock();
        let inside = state
            .names
            .keys()
            .filter(|path| path.parent() == Some(folder));
        Ok(inside
            .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
            .collect())
    }

    fn make_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        let mut state = self.lock();
        let file = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.step()?;
        let mut state = self.lock();
        let inside = |path: &PathBuf| path.parent() == Some(folder);
        let now: Vec<_> = state
            .names
            .iter()
            .filter(|(path, _)| inside(path))
            .map(|(a, b)| (a.clone(), b.clone()))
            .collect();
        state.durable_names.retain(|path, _| !inside(path));
        state.durable_names.extend(now);
        Ok(())
    }
}

#[derive(Debug)]
struct OpenFile {
    disk: VolatileDisk,
    file: File,
}

impl OpenFile {
    fn bytes(&self) -> MutexGuard<'_, FileBytes> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskFile for OpenFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes().cached.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if self.disk.is_off() {
            return Err(Fault::Power.into());
        }
        let bytes = self.bytes();
        let from = bytes
            .cached
            .get(offset as usize..offset as usize + buffer.len());
        buffer.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, parts: &[Bytes]) -> io::Result<()> {
        let whole = parts.concat();
        let done = self.disk.step();
        let written = if done.is_ok() {
            whole.len()
        } else {
            whole.len() / 2
        };
        self.bytes().write(offset as usize, &whole[..written]);
        Ok(done?)
    }

    fn sync(&self) -> io::Result<()> {
        // A failed sync may have dropped the pages: they stay dirty here, and no retry writes them.
        self.disk.step()?;
        self.bytes().sync();
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.disk.step()?;
        self.bytes().cached.resize(length as usize, 0);
        Ok(())
    }

    /// Reserving is best effort, so it does not count as a step that can fail.
    fn reserve(&self, length: u64) -> io::Result<()> {
        if self.disk.is_off() {
            return Err(Fault::Power.into());
        }
        let mut bytes = self.bytes();
        let length = bytes.cached.len().max(length as usize);
        bytes.cached.resize(length, 0);
        if self.disk.lock().fails_reserving {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    fn map(&self, length: u64) -> io::Result<Bytes> {
        Ok(Bytes::copy_from_slice(
            &self.bytes().cached[..length as usize],
        ))
    }
}
