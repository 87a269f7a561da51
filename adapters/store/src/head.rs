//! HEAD: the store's key, how far the log reaches at least, and who may write.
//!
//! It stands apart from the log, so that an older or empty log put in its place is recognised. It is written to a
//! temporary file, synced, renamed, and the folder synced: there is always one whole HEAD.
//!
//! The file holds the same block of 176 bytes twice; one good block is enough. A block is `DMHEAD` and two zeros (8),
//! version (4), key (32), epoch (8), mark (60), the check of the secret or zeros (32), and the BLAKE3 hash of all that (32).

use std::io;
use std::path::Path;

use dormouse_actors::ports::StoreError;

use crate::disk::{Disk, read_whole, replace};
use crate::envelope::StoreKey;
use crate::error::{damaged, io as io_error};
use crate::mark::{Hash, MOST, Mark};
use crate::secret::{NO_CHECK, StoreSecret, check_of, drawn};

const MAGIC: [u8; 8] = *b"DMHEAD\0\0";
const VERSION: u32 = 1;
const BODY_BYTES: usize = 8 + 4 + 32 + 8 + Mark::BYTES + 32;
const CHECK_AT: usize = BODY_BYTES - 32;
const BLOCK_BYTES: usize = BODY_BYTES + 32;

/// What HEAD says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// What this store's headers are signed with; where it is encrypted, what its keys are made of together with the secret.
    pub(crate) key: StoreKey,
    /// The newest owner.
    pub(crate) epoch: u64,
    /// The log is good and synced up to here, at least.
    pub(crate) mark: Mark,
    /// What a secret is recognised by; [`NO_CHECK`] where the store is not encrypted.
    pub(crate) check: Hash,
}

impl Head {
    /// Of a store that is made now, and encrypted where there is a secret.
    ///
    /// # Errors
    /// [`StoreError::Io`] where the operating system gives no randomness.
    pub(crate) fn fresh(secret: Option<&StoreSecret>) -> Result<Self, StoreError> {
        let key = StoreKey(drawn().map_err(io_error("draw the key of a new store"))?);
        let check = secret.map_or(NO_CHECK, |secret| check_of(secret, key));
        Ok(Self { key, epoch: 0, mark: Mark::EMPTY, check })
    }

    /// Reads HEAD; none where there is no such file.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where neither block is whole, [`StoreError::Newer`] where a later version wrote them,
    /// [`StoreError::Io`].
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>, StoreError> {
        let path = dir.join("HEAD");
        let bytes = read_whole(disk, &path).map_err(io_error(format!("read {}", path.display())))?;
        let Some(bytes) = bytes else { return Ok(None) };
        let version = bytes.strip_prefix(&MAGIC).and_then(|rest| rest.first_chunk()).map(|it| u32::from_le_bytes(*it));
        let blocks = bytes.chunks(BLOCK_BYTES).take(2);
        match blocks.filter_map(Self::from_block).next() {
            Some(head) => Ok(Some(head)),
            None if version.is_some_and(|version| (VERSION + 1..VERSION + 256).contains(&version)) => {
                let version = version.unwrap_or_default();
                Err(StoreError::Newer { what: format!("format version {version} in {}", path.display()) })
            }
            None => Err(damaged(format!(
                "{} holds no whole block of format version {VERSION}. The log beside it cannot be vouched for: put back a copy \
                 of HEAD and log together",
                path.display()
            ))),
        }
    }

    /// Writes HEAD durably, in place of the one before. Costs two or three syncs.
    ///
    /// # Errors
    /// As the operating system's; the HEAD before stays whole.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let block = self.to_block();
        replace(disk, &dir.join("HEAD"), [block, block].concat().into())
    }

    fn to_block(self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        block[..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[12..44].copy_from_slice(&self.key.0);
        block[44..52].copy_from_slice(&self.epoch.to_le_bytes());
        block[52..CHECK_AT].copy_from_slice(&self.mark.to_bytes());
        block[CHECK_AT..BODY_BYTES].copy_from_slice(&self.check);
        let hash = blake3::hash(&block[..BODY_BYTES]);
        block[BODY_BYTES..].copy_from_slice(hash.as_bytes());
        block
    }

    fn from_block(block: &[u8]) -> Option<Self> {
        let (body, hash) = block.split_at_checked(BODY_BYTES)?;
        let whole = blake3::hash(body).as_bytes()[..] == *hash;
        if !whole || body[..8] != MAGIC || body[8..12] != VERSION.to_le_bytes() {
            return None;
        }
        Some(Self {
            key: StoreKey(body[12..44].try_into().ok()?),
            epoch: Some(u64::from_le_bytes(body[44..52].try_into().ok()?)).filter(|epoch| *epoch <= MOST)?,
            mark: Mark::from_bytes(&body[52..CHECK_AT])?,
            check: body[CHECK_AT..].try_into().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::disk::System;

    #[test]
    fn any_one_damaged_byte_is_healed_by_the_other_block() {
        let dir = tempfile::tempdir().unwrap();
        let head = Head { epoch: 4, ..Head::fresh(None).unwrap() };
        head.write(&System, dir.path()).unwrap();
        let good = fs::read(dir.path().join("HEAD")).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            fs::write(dir.path().join("HEAD"), bad).unwrap();
            assert_eq!(Head::read(&System, dir.path()).unwrap(), Some(head), "byte {at}");
        }
    }

    #[test]
    fn damage_to_both_blocks_is_refused_and_absence_is_not_damage() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Head::read(&System, dir.path()).unwrap(), None);
        for bad in [&b""[..], b"DMHEAD", &[0; 2 * BLOCK_BYTES]] {
            fs::write(dir.path().join("HEAD"), bad).unwrap();
            assert!(matches!(Head::read(&System, dir.path()), Err(StoreError::Damaged { .. })), "{} bytes", bad.len());
        }
    }
}
