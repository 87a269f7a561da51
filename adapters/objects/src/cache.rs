//! Blocks that were read, on the local disk: bounded, and never trusted.
//!
//! A block is a file that is named by its hash, so that a file is right or is recognised as wrong by
//! its name alone. Therefore several programs can share a folder, nothing is synced, and a crash
//! leaves at worst a file that is deleted when it is read. A file is written under another name and
//! renamed. The time of its last change is that of its last use.
//!
//! What fails on this disk (it is full, or read-only) makes reads slower, and never fails them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::object::{self, BLOCK_BYTES, Hash};
use crate::options::CacheOptions;
use crate::recent::Recent;

/// How many blocks of 1 MiB are kept in memory, so that pages of one block cost one request, even
/// without a cache on disk.
const RECENT_BLOCKS: usize = 16;
/// What begins the name of a file that is being written.
const PENDING: &str = "pending-";
/// When a file that is being written was left behind by a program that ended.
const PENDING_AT_MOST: Duration = Duration::from_secs(600);

/// Blocks on disk, and the last ones in memory.
#[derive(Debug)]
pub(crate) struct Cache {
    recent: Recent<Bytes>,
    disk: Option<DiskCache>,
}

#[derive(Debug)]
struct DiskCache {
    folder: PathBuf,
    max_bytes: u64,
    /// An upper bound of the bytes in the folder, as far as this program knows.
    used: Mutex<Option<u64>>,
    /// Makes the names of files that are being written differ.
    next_pending: AtomicU64,
    has_warned: AtomicBool,
}

impl Cache {
    pub(crate) fn open(options: Option<&CacheOptions>) -> Self {
        let disk = options.map(|options| DiskCache {
            folder: options.folder.clone(),
            max_bytes: options.max_bytes,
            used: Mutex::new(None),
            next_pending: AtomicU64::new(0),
            has_warned: AtomicBool::new(false),
        });
        Self {
            recent: Recent::new(RECENT_BLOCKS),
            disk,
        }
    }

    /// The bytes with this hash, if they are here.
    pub(crate) fn get(&self, hash: &Hash) -> Option<Bytes> {
        if let Some(bytes) = self.recent.get(hash) {
            return Some(bytes);
        }
        let bytes = self.disk.as_ref()?.get(hash)?;
        self.keep_in_memory(*hash, &bytes);
        Some(bytes)
    }

    /// Keeps bytes that have this hash.
    pub(crate) fn insert(&self, hash: Hash, bytes: &[u8]) {
        self.keep_in_memory(hash, bytes);
        if let Some(disk) = &self.disk {
            disk.insert(&hash, bytes);
        }
    }

    /// Keeps a copy, because a block can be a part of much longer bytes. What is longer than a block
    /// is not kept.
    fn keep_in_memory(&self, hash: Hash, bytes: &[u8]) {
        if bytes.len() as u64 <= BLOCK_BYTES {
            self.recent.insert(hash, Bytes::copy_from_slice(bytes));
        }
    }
}

impl DiskCache {
    fn path(&self, hash: &Hash) -> PathBuf {
        let name = blake3::Hash::from_bytes(*hash).to_hex();
        self.folder.join(&name[..2]).join(name.as_str())
    }

    fn get(&self, hash: &Hash) -> Option<Bytes> {
        let path = self.path(hash);
        let bytes = fs::read(&path).ok()?;
        if object::hash(&bytes) != *hash {
            tracing::warn!(path = %path.display(), "a block of the cache is damaged, and is read again");
            let _kept = fs::remove_file(&path);
            return None;
        }
        // The order of eviction is all that depends on it.
        let _unchanged = File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_modified(SystemTime::now()));
        Some(bytes.into())
    }

    fn insert(&self, hash: &Hash, bytes: &[u8]) {
        let path = self.path(hash);
        if bytes.len() as u64 > self.max_bytes || path.exists() {
            return;
        }
        if let Err(error) = self.write_within_bound(&path, bytes)
            && !self.has_warned.swap(true, Ordering::Relaxed)
        {
            let folder = self.folder.display();
            tracing::warn!(%folder, %error, "the cache of contents cannot be written; reads go on without it");
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let number = self.next_pending.fetch_add(1, Ordering::Relaxed);
        let pending = self
            .folder
            .join(format!("{PENDING}{}-{number}", std::process::id()));
        let parent = path.parent().expect("a block is in a folder");
        create_folder(parent)?;
        let written = create_file(&pending)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&pending, path));
        if written.is_err() {
            let _absent = fs::remove_file(&pending);
        }
        written
    }

    /// Writes a block after making room for it. Threads do that one after another, so that the bound
    /// holds at each moment.
    fn write_within_bound(&self, path: &Path, block: &[u8]) -> io::Result<()> {
        let bytes = block.len() as u64;
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match *used {
            Some(used) if used + bytes <= self.max_bytes => used,
            // Looking through the folder is worth it only if that frees the room for many blocks.
            _ => self.evict((self.max_bytes - self.max_bytes / 8).min(self.max_bytes - bytes))?,
        };
        *used = Some(known + bytes);
        self.write(path, block)
    }

    /// Deletes the files that were used least recently, until the others have at most `max_bytes`.
    /// Returns how many bytes are left.
    fn evict(&self, max_bytes: u64) -> io::Result<u64> {
        create_folder(&self.folder)?;
        let mut files = self.files()?;
        files.sort_unstable_by_key(|file| file.used_at);
        let mut total: u64 = files.iter().map(|file| file.bytes).sum();
        for file in files {
            if total <= max_bytes {
                break;
            }
            match fs::remove_file(&file.path) {
                Ok(()) => total -= file.bytes,
                // Another program has deleted it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => total -= file.bytes,
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    /// The blocks in the folder. Deletes files that a program began to write before it ended.
    fn files(&self) -> io::Result<Vec<CachedFile>> {
        let mut files = Vec::new();
        let mut folders = vec![self.folder.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                let Ok(metadata) = entry.metadata() else {
                    continue;
                };
                let used_at = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                let is_pending = entry.file_name().to_string_lossy().starts_with(PENDING);
                if metadata.is_dir() {
                    folders.push(entry.path());
                } else if is_pending && used_at.elapsed().is_ok_and(|age| age > PENDING_AT_MOST) {
                    let _deleted_by_another = fs::remove_file(entry.path());
                } else {
                    files.push(CachedFile {
                        path: entry.path(),
                        bytes: metadata.len(),
                        used_at,
                    });
                }
            }
        }
        Ok(files)
    }
}

struct CachedFile {
    path: PathBuf,
    bytes: u64,
    used_at: SystemTime,
}

/// Creates a folder that only its owner reads, because contents can be confidential.
fn create_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn create_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 1000;

    fn block(number: u8) -> (Hash, Bytes) {
        let bytes = Bytes::from(vec![number; BLOCK]);
        (object::hash(&bytes), bytes)
    }

    fn open(folder: &Path, blocks: u64) -> DiskCache {
        let options = CacheOptions {
            folder: folder.join("cache"),
            max_bytes: blocks * BLOCK as u64,
        };
        Cache::open(Some(&options)).disk.unwrap()
    }

    fn used(cache: &DiskCache) -> u64 {
        // While a file is renamed it can be found under both names.
        let _no_write = cache.used.lock().unwrap();
        cache.files().unwrap().iter().map(|file| file.bytes).sum()
    }

    #[test]
    fn a_block_is_kept_for_the_next_program() {
        let folder = tempfile::tempdir().unwrap();
        let (hash, bytes) = block(1);
        open(folder.path(), 4).insert(&hash, &bytes);
        assert_eq!(open(folder.path(), 4).get(&hash), Some(bytes));
        assert_eq!(open(folder.path(), 4).get(&block(2).0), None);
    }

    #[test]
    fn a_damaged_block_is_never_returned() {
        let folder = tempfile::tempdir().unwrap();
        let cache = open(folder.path(), 4);
        let (hash, bytes) = block(1);
        for damage in [&b""[..], b"other", &[1; BLOCK - 1]] {
            cache.insert(&hash, &bytes);
            fs::write(cache.path(&hash), damage).unwrap();
            assert_eq!(cache.get(&hash), None);
            assert!(!cache.path(&hash).exists());
        }
    }

    #[test]
    fn what_was_used_least_recently_is_evicted() {
        let folder = tempfile::tempdir().unwrap();
        let cache = open(folder.path(), 8);
        let long_ago = SystemTime::now() - Duration::from_secs(1000);
        for number in 0..8 {
            let (hash, bytes) = block(number);
            cache.insert(&hash, &bytes);
            let file = File::options().write(true).open(cache.path(&hash)).unwrap();
            file.set_modified(long_ago + Duration::from_secs(number.into()))
                .unwrap();
        }
        assert!(cache.get(&block(0).0).is_some());
        cache.insert(&block(8).0, &block(8).1);
        let is_kept = |number| cache.path(&block(number).0).exists();
        assert!(is_kept(0) && !is_kept(1) && is_kept(7) && is_kept(8));
        assert!(used(&cache) <= 8 * BLOCK as u64);
    }

    #[test]
    fn the_bound_holds_while_threads_write_and_read() {
        let folder = tempfile::tempdir().unwrap();
        let cache = open(folder.path(), 10);
        let other = open(folder.path(), 10);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let cache = &cache;
                scope.spawn(move || {
                    for number in 0..100u8 {
                        let (hash, bytes) = block(number.wrapping_mul(thread + 1));
                        cache.insert(&hash, &bytes);
                        assert!(cache.get(&hash).is_none_or(|read| read == bytes));
                        assert!(used(cache) <= 10 * BLOCK as u64);
                    }
                });
            }
        });
        other.insert(&block(200).0, &block(200).1);
        assert!(used(&other) <= 10 * BLOCK as u64);
    }

    #[test]
    fn what_a_program_left_unfinished_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let cache = open(folder.path(), 4);
        cache.insert(&block(1).0, &block(1).1);
        let old = cache.folder.join("pending-1-1");
        let file = File::create(&old).unwrap();
        file.set_modified(SystemTime::now() - 2 * PENDING_AT_MOST)
            .unwrap();
        let new = cache.folder.join("pending-1-2");
        fs::write(&new, "x").unwrap();
        cache.evict(u64::MAX).unwrap();
        assert!(!old.exists() && new.exists());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cache"), "a file").unwrap();
        let cache = open(folder.path(), 4);
        cache.insert(&block(1).0, &block(1).1);
        assert_eq!(cache.get(&block(1).0), None);
        assert!(cache.has_warned.load(Ordering::Relaxed));
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_reads_the_cache() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let cache = open(folder.path(), 4);
        cache.insert(&block(1).0, &block(1).1);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&cache.folder), 0o700);
        assert_eq!(mode(&cache.path(&block(1).0)), 0o600);
    }
}
