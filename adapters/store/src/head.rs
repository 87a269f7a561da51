//! HEAD: the store's key, a lower bound of the log's end, and the current owner.
//!
//! HEAD is separate from the log, so that an older or empty log in place of the right one is
//! detected. It has two files, either of which is enough:
//! * `HEAD` is replaced at each claim, at each new segment, at closing, and after a number of
//!   commits: written to a temporary file, synced, renamed, and the folder synced. There is always
//!   one whole HEAD.
//! * `HEAD2` is overwritten in place after each synced commit, its two blocks in turn, and is not
//!   synced. It is up to date as long as the operating system runs, and some seconds behind after a
//!   power loss. Older stores have none.
//!
//! The newer file counts: the one with the newer owner, or with the later position if the owners
//! are the same.
//!
//! A file contains two blocks of 176 bytes; one good block is enough. A block is `DMHEAD` and two
//! zeros (8), version (4), key (32), owner (8), position (60), the check of the secret or zeros
//! (32), and the BLAKE3 hash of all that (32).

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_actors::ports::StoreError;

use crate::disk::{Disk, DiskFile, OpenMode, read_whole, replace};
use crate::error::{damaged, io as io_error};
use crate::log_position::{Hash, LogPosition, MAX_NUMBER};
use dormouse_records::secret::StoreKey;
use dormouse_records::secret::{NO_CHECK, StoreSecret, random_bytes, secret_check};

/// The file that is replaced and synced.
pub(crate) const HEAD: &str = "HEAD";
/// The file that is overwritten after each commit.
pub(crate) const HEAD2: &str = "HEAD2";
const MAGIC: [u8; 8] = *b"DMHEAD\0\0";
const VERSION: u32 = 1;
const BODY_BYTES: usize = 8 + 4 + 32 + 8 + LogPosition::BYTES + 32;
const CHECK_AT: usize = BODY_BYTES - 32;
const BLOCK_BYTES: usize = BODY_BYTES + 32;

/// The content of HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Authenticates this store's headers. In an encrypted store, all keys are derived from it and
    /// the secret.
    pub(crate) key: StoreKey,
    /// The newest owner.
    pub(crate) owner: u64,
    /// The log is good and synced at least up to here.
    pub(crate) position: LogPosition,
    /// The value that a secret is compared with; [`NO_CHECK`] if the store is not encrypted.
    pub(crate) check: Hash,
}

impl Head {
    /// The HEAD of a new store, which is encrypted if there is a secret.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the operating system provides no randomness.
    pub(crate) fn new_store(secret: Option<&StoreSecret>) -> Result<Self, StoreError> {
        let key = StoreKey(random_bytes().map_err(io_error("draw the key of a new store"))?);
        let check = secret.map_or(NO_CHECK, |secret| secret_check(secret, key));
        Ok(Self {
            key,
            owner: 0,
            position: LogPosition::EMPTY,
            check,
        })
    }

    /// Reads HEAD; `None` if neither file exists.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if no block is whole, [`StoreError::Newer`] if a later version wrote
    /// them, [`StoreError::Io`].
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>, StoreError> {
        let files = Self::read_files(disk, dir)?;
        match files.best {
            None if files.has_any_file => Err(damaged(format!(
                "{} contains no whole block of format version {VERSION}, and no other file does, so \
                 it is unknown whether the log is whole. Restore a copy of HEAD, HEAD2 and log \
                 together. dormouse fsck shows what can be done without one",
                dir.join(HEAD).display()
            ))),
            best => Ok(best),
        }
    }

    /// Reads both files of HEAD, whatever their state.
    ///
    /// # Errors
    /// [`StoreError::Newer`] if a later version wrote them, [`StoreError::Io`].
    pub(crate) fn read_files(disk: &dyn Disk, dir: &Path) -> Result<HeadFiles, StoreError> {
        let first = Self::read_file(disk, &dir.join(HEAD))?;
        let second = Self::read_file(disk, &dir.join(HEAD2))?;
        let mut faulty_files = Vec::new();
        if !matches!(first, HeadFile::Whole(_)) {
            faulty_files.push(HEAD);
        }
        // Stores of older versions have no HEAD2, so its absence alone is no damage.
        if matches!(second, HeadFile::Damaged)
            || (matches!(second, HeadFile::Missing) && !faulty_files.is_empty())
        {
            faulty_files.push(HEAD2);
        }
        let best = match (first.head(), second.head()) {
            (Some(first), Some(second)) if first.key == second.key => Some(first.newer(second)),
            (Some(first), _) => Some(first),
            (None, second) => second,
        };
        let is_behind = first.head() != best;
        let has_any_file = ![&first, &second]
            .iter()
            .all(|file| matches!(file, HeadFile::Missing));
        Ok(HeadFiles {
            best,
            faulty_files,
            is_behind,
            has_any_file,
        })
    }

    /// Reads one file of HEAD.
    fn read_file(disk: &dyn Disk, path: &Path) -> Result<HeadFile, StoreError> {
        let bytes = read_whole(disk, path).map_err(io_error(format!("read {}", path.display())))?;
        let Some(bytes) = bytes else {
            return Ok(HeadFile::Missing);
        };
        let version = bytes
            .strip_prefix(&MAGIC)
            .and_then(|rest| rest.first_chunk())
            .map(|it| u32::from_le_bytes(*it));
        let blocks = bytes.chunks(BLOCK_BYTES).take(2);
        match blocks.filter_map(Self::from_block).reduce(Self::newer) {
            Some(head) => Ok(HeadFile::Whole(head)),
            None if version
                .is_some_and(|version| (VERSION + 1..VERSION + 256).contains(&version)) =>
            {
                let version = version.unwrap_or_default();
                Err(StoreError::Newer {
                    what: format!("format version {version} in {}", path.display()),
                })
            }
            None => Ok(HeadFile::Damaged),
        }
    }

    /// The head with the newer owner, then with the later commit; `self` if both are equal.
    fn newer(self, other: Self) -> Self {
        let rank = |head: &Self| (head.owner, head.position.commit);
        if rank(&other) > rank(&self) {
            other
        } else {
            self
        }
    }

    /// Replaces HEAD durably. Costs two or three syncs.
    ///
    /// # Errors
    /// As the operating system's; the previous HEAD stays whole.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        self.write_to(disk, &dir.join(HEAD))
    }

    /// Replaces both files, as [`Head::write`] does.
    ///
    /// # Errors
    /// As [`Head::write`].
    pub(crate) fn write_both(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        self.write_to(disk, &dir.join(HEAD2))?;
        self.write(disk, dir)
    }

    fn write_to(&self, disk: &dyn Disk, path: &Path) -> io::Result<()> {
        let block = self.to_block();
        replace(disk, path, [block, block].concat().into())
    }

    fn to_block(self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        block[..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[12..44].copy_from_slice(&self.key.0);
        block[44..52].copy_from_slice(&self.owner.to_le_bytes());
        block[52..CHECK_AT].copy_from_slice(&self.position.to_bytes());
        block[CHECK_AT..BODY_BYTES].copy_from_slice(&self.check);
        let hash = blake3::hash(&block[..BODY_BYTES]);
        block[BODY_BYTES..].copy_from_slice(hash.as_bytes());
        block
    }

    fn from_block(block: &[u8]) -> Option<Self> {
        let (body, hash) = block.split_at_checked(BODY_BYTES)?;
        let is_whole = blake3::hash(body).as_bytes()[..] == *hash;
        if !is_whole || body[..8] != MAGIC || body[8..12] != VERSION.to_le_bytes() {
            return None;
        }
        Some(Self {
            key: StoreKey(body[12..44].try_into().ok()?),
            owner: Some(u64::from_le_bytes(body[44..52].try_into().ok()?))
                .filter(|owner| *owner <= MAX_NUMBER)?,
            position: LogPosition::from_bytes(&body[52..CHECK_AT])?,
            check: body[CHECK_AT..].try_into().ok()?,
        })
    }
}

/// The state of both files of HEAD.
#[derive(Clone, Debug)]
pub(crate) struct HeadFiles {
    /// The newer of the two; `None` if neither is whole.
    pub(crate) best: Option<Head>,
    /// The names of the files that are missing or damaged.
    pub(crate) faulty_files: Vec<&'static str>,
    /// Whether HEAD is missing, damaged or older than HEAD2.
    pub(crate) is_behind: bool,
    /// Whether either file exists, whole or damaged.
    pub(crate) has_any_file: bool,
}

/// The content of one file of HEAD.
enum HeadFile {
    Missing,
    Damaged,
    Whole(Head),
}

impl HeadFile {
    fn head(&self) -> Option<Head> {
        match self {
            Self::Whole(head) => Some(*head),
            Self::Missing | Self::Damaged => None,
        }
    }
}

/// HEAD2, which is overwritten after each commit and never synced.
#[derive(Debug)]
pub(crate) struct SecondHead {
    file: Arc<dyn DiskFile>,
    /// Whether the next write goes to the first block.
    first_is_next: bool,
}

impl SecondHead {
    /// Opens or creates the file, and writes `head` to it. Costs three syncs if the file is
    /// created, otherwise none.
    ///
    /// # Errors
    /// As the operating system's.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path, head: &Head) -> io::Result<Self> {
        let path = dir.join(HEAD2);
        let file = match disk.open(&path, OpenMode::Existing) {
            Ok(file) if file.length()? == 2 * BLOCK_BYTES as u64 => file,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {
                head.write_to(disk, &path)?;
                disk.open(&path, OpenMode::Existing)?
            }
        };
        // The older block is overwritten first, so that the newer one survives a torn write.
        let mut first = [0; BLOCK_BYTES];
        file.read_at(0, &mut first)?;
        let best = Head::read_file(disk, &path)
            .ok()
            .and_then(|found| found.head());
        let first_is_next = Head::from_block(&first).is_none_or(|first| Some(first) != best);
        let mut second = Self {
            file,
            first_is_next,
        };
        second.write(head)?;
        Ok(second)
    }

    /// Overwrites one block. Costs no sync.
    ///
    /// # Errors
    /// As the operating system's; the other block is whole.
    pub(crate) fn write(&mut self, head: &Head) -> io::Result<()> {
        let at = if self.first_is_next {
            0
        } else {
            BLOCK_BYTES as u64
        };
        self.first_is_next = !self.first_is_next;
        self.file
            .write_at(at, &[Bytes::copy_from_slice(&head.to_block())])
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::disk::OsDisk;

    #[test]
    fn head_is_readable_if_one_of_its_blocks_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let head = Head {
            owner: 4,
            ..Head::new_store(None).unwrap()
        };
        head.write(&OsDisk, dir.path()).unwrap();
        let good = fs::read(dir.path().join("HEAD")).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            fs::write(dir.path().join("HEAD"), bad).unwrap();
            assert_eq!(
                Head::read(&OsDisk, dir.path()).unwrap(),
                Some(head),
                "byte {at}"
            );
        }
    }

    #[test]
    fn damage_to_both_blocks_is_an_error_and_a_missing_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Head::read(&OsDisk, dir.path()).unwrap(), None);
        for bad in [&b""[..], b"DMHEAD", &[0; 2 * BLOCK_BYTES]] {
            fs::write(dir.path().join("HEAD"), bad).unwrap();
            assert!(
                matches!(
                    Head::read(&OsDisk, dir.path()),
                    Err(StoreError::Damaged { .. })
                ),
                "{} bytes",
                bad.len()
            );
        }
    }
}
