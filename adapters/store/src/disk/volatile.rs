//! A disk for tests, with a write cache: after a power loss, unsynced writes may be lost, torn or
//! complete. It can also fail at a chosen step.
//!
//! Writes survive by sectors, in any combination; lengths and names survive independently. That is
//! harsher than most file systems.

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
pub(crate) struct Volatile(Arc<Mutex<DiskState>>);

#[derive(Debug, Default)]
struct DiskState {
    names: BTreeMap<PathBuf, File>,
    durable_names: BTreeMap<PathBuf, File>,
    steps: u64,
    /// The step that fails, and how.
    fault: Option<(u64, Fault)>,
    failed: bool,
    /// Reserving fails after the file has been extended.
    reserves_in_part: bool,
}

/// A simulated failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// One step fails half-way.
    Once(io::ErrorKind),
    /// The power fails: this step is done half-way, and every later one fails.
    Power,
}

type File = Arc<Mutex<Bytestore>>;

/// The bytes of a file, in the cache and on the platter.
#[derive(Clone, Debug, Default)]
struct Bytestore {
    seen: Vec<u8>,
    synced: Vec<u8>,
    /// Ranges written since the last sync.
    dirty: Vec<Range<usize>>,
}

impl Volatile {
    fn held(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many changing steps were requested.
    pub(crate) fn steps(&self) -> u64 {
        self.held().steps
    }

    /// Fails at step `number`, counted from 1 since the disk was created.
    pub(crate) fn fail_at(&self, number: u64, fault: Fault) {
        self.held().fault = Some((number, fault));
    }

    /// From now on reserving fails half-way.
    pub(crate) fn reserve_in_part(&self) {
        self.held().reserves_in_part = true;
    }

    /// Whether the fault has occurred.
    pub(crate) fn has_failed(&self) -> bool {
        self.held().failed
    }

    /// Simulates a power loss: `dice` decides which unsynced writes survive. Returns the disk that
    /// the restarted machine finds.
    pub(crate) fn after_power_loss(&self, dice: &mut impl FnMut(usize) -> usize) -> Self {
        let held = self.held();
        let mut names = BTreeMap::new();
        // A name that was changed but not synced has its old or its new file.
        let paths: std::collections::BTreeSet<_> =
            held.names.keys().chain(held.durable_names.keys()).collect();
        for path in paths {
            let new = held.names.get(path);
            let old = held.durable_names.get(path);
            let is_same = matches!((new, old), (Some(new), Some(old)) if Arc::ptr_eq(new, old));
            let kept = if is_same || dice(2) == 0 { new } else { old };
            if let Some(file) = kept {
                let found = file
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .after_power_loss(dice);
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
        let mut held = self.held();
        held.steps += 1;
        let Some((at, fault)) = held.fault else {
            return Ok(());
        };
        match held.steps == at || (held.failed && fault == Fault::Power) {
            true => {
                held.failed = true;
                Err(fault)
            }
            false => Ok(()),
        }
    }

    fn is_off(&self) -> bool {
        let held = self.held();
        held.failed && matches!(held.fault, Some((_, Fault::Power)))
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

impl Bytestore {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.seen.len() < offset {
            self.seen.resize(offset, 0);
        }
        // Most writes append, and `extend_from_slice` is much faster than `resize` and a copy.
        let over = bytes.len().min(self.seen.len() - offset);
        self.seen[offset..offset + over].copy_from_slice(&bytes[..over]);
        self.seen.extend_from_slice(&bytes[over..]);
        self.dirty.push(offset..end);
    }

    fn sync(&mut self) {
        self.synced = self.seen.clone();
        self.dirty.clear();
    }

    fn after_power_loss(&self, dice: &mut impl FnMut(usize) -> usize) -> Self {
        let mut left = self.synced.clone();
        let shorter = left.len().min(self.seen.len());
        let longer = left.len().max(self.seen.len());
        let length = match dice(3) {
            0 => left.len(),
            1 => self.seen.len(),
            _ => shorter + dice(longer - shorter + 1),
        };
        left.resize(length, 0);
        for range in &self.dirty {
            for sector in range.start / SECTOR..range.end.div_ceil(SECTOR) {
                let end = range
                    .end
                    .min((sector + 1) * SECTOR)
                    .min(length)
                    .min(self.seen.len());
                let start = range.start.max(sector * SECTOR);
                if start < end && dice(2) == 0 {
                    left[start..end].copy_from_slice(&self.seen[start..end]);
                }
            }
        }
        Self {
            seen: left.clone(),
            synced: left,
            dirty: Vec::new(),
        }
    }
}

impl Disk for Volatile {
    fn open(&self, path: &Path, how: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let known = self.held().names.get(path).cloned();
        let file = match (how, known) {
            (OpenMode::Existing, None) => return Err(io::ErrorKind::NotFound.into()),
            (OpenMode::New, Some(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            (OpenMode::Existing, Some(file)) => file,
            (OpenMode::Emptied, Some(file)) => {
                self.step()?;
                file.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .seen
                    .clear();
                file
            }
            (OpenMode::New | OpenMode::Emptied, None) => {
                self.step()?;
                let file = File::default();
                self.held().names.insert(path.to_owned(), file.clone());
                file
            }
        };
        Ok(Arc::new(Open {
            disk: self.clone(),
            file,
        }))
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let held = self.held();
        let inside = held
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
        let mut held = self.held();
        let file = held.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        held.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.step()?;
        let mut held = self.held();
        let inside = |path: &PathBuf| path.parent() == Some(folder);
        let now: Vec<_> = held
            .names
            .iter()
            .filter(|(path, _)| inside(path))
            .map(|(a, b)| (a.clone(), b.clone()))
            .collect();
        held.durable_names.retain(|path, _| !inside(path));
        held.durable_names.extend(now);
        Ok(())
    }
}

#[derive(Debug)]
struct Open {
    disk: Volatile,
    file: File,
}

impl Open {
    fn bytes(&self) -> MutexGuard<'_, Bytestore> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskFile for Open {
    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes().seen.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if self.disk.is_off() {
            return Err(Fault::Power.into());
        }
        let bytes = self.bytes();
        let from = bytes
            .seen
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
        self.bytes().seen.resize(length as usize, 0);
        Ok(())
    }

    /// Reserving is best effort, so it does not count as a step that can fail.
    fn reserve(&self, length: u64) -> io::Result<()> {
        if self.disk.is_off() {
            return Err(Fault::Power.into());
        }
        let mut bytes = self.bytes();
        let length = bytes.seen.len().max(length as usize);
        bytes.seen.resize(length, 0);
        if self.disk.held().reserves_in_part {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    fn map(&self, length: u64) -> io::Result<Bytes> {
        Ok(Bytes::copy_from_slice(
            &self.bytes().seen[..length as usize],
        ))
    }
}
