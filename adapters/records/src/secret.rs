//! Encryption: the secret that the host supplies, and the keys that are derived from it.
//!
//! Four independent keys are derived from the secret and a salt: for payloads, index entries, names
//! of contents, and headers. The salt is random for each store, so that two stores with the same
//! secret share no key. The salt is stored in HEAD or, in a log of records, in the log header. No
//! key is ever written. A check value next to the salt distinguishes a wrong secret from damage.
//!
//! This is the only module that encrypts. Both [`RecordStore`](crate::RecordStore) and the store of
//! the crate `dormouse-store` use it.
//!
//! An encrypted text is a random nonce (24), the text under XChaCha20-Poly1305, and the tag (16).

use std::fmt;
use std::io;
use std::sync::Arc;

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use dormouse_actors::ports::KeyFault;
use dormouse_proto::id::ContentHash;
use zeroize::Zeroizing;

/// A BLAKE3 hash, or a key as long as one.
type Hash = [u8; 32];

const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;

/// How many bytes encryption adds: the nonce and the tag.
pub const ENCRYPTION_BYTES: u64 = (NONCE_BYTES + TAG_BYTES) as u64;
/// The check value of a store that is not encrypted.
pub const NO_CHECK: Hash = [0; 32];

/// The salt of a store's keys: random bytes that distinguish the store from all others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StoreKey(pub Hash);

impl fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreKey(hidden)")
    }
}

/// The secret of an encrypted store: 32 random bytes that the host keeps. Without them the store is
/// unreadable. They are wiped from memory on drop, and never printed.
#[derive(Clone)]
pub struct StoreSecret(Zeroizing<[u8; 32]>);

impl StoreSecret {
    /// A secret of 32 random bytes. For a password, derive the bytes by a password hash first.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Parses a secret: 64 hexadecimal digits, with optional white space around them, or the 32
    /// bytes themselves. The input is wiped.
    ///
    /// # Errors
    /// [`InvalidSecret`], which reveals nothing of the input; also for 32 bytes of printable text,
    /// which are not random.
    pub fn read(text: Vec<u8>) -> Result<Self, InvalidSecret> {
        let text = Zeroizing::new(text);
        let invalid = InvalidSecret { bytes: text.len() };
        if let Ok(bytes) = <[u8; 32]>::try_from(&text[..]) {
            let is_text = bytes
                .iter()
                .all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
            return if is_text {
                Err(invalid)
            } else {
                Ok(Self::new(bytes))
            };
        }
        let digits = text.trim_ascii();
        let mut secret = Zeroizing::new([0; 32]);
        if digits.len() != 2 * secret.len() {
            return Err(invalid);
        }
        for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| {
                char::from(pair[at])
                    .to_digit(16)
                    .and_then(|digit| u8::try_from(digit).ok())
            };
            let (Some(high), Some(low)) = (digit(0), digit(1)) else {
                return Err(invalid);
            };
            *byte = high << 4 | low;
        }
        Ok(Self(secret))
    }

    fn key(&self, salt: &Hash, purpose: &str) -> Zeroizing<Hash> {
        let mut material = Zeroizing::new([0; 64]);
        material[..32].copy_from_slice(&*self.0);
        material[32..].copy_from_slice(salt);
        Zeroizing::new(blake3::derive_key(purpose, &*material))
    }
}

/// The error of an input that is not a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {bytes} bytes given are not a key. A key is 32 random bytes, written as 64 hexadecimal \
     digits or as they are. `openssl rand -hex 32` makes one; a password is not a key"
)]
pub struct InvalidSecret {
    bytes: usize,
}

impl fmt::Debug for StoreSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreSecret(hidden)")
    }
}

/// The keys of a store: they authenticate headers, and encrypt payloads and entries if the store is
/// encrypted.
#[derive(Clone)]
pub struct Keys {
    headers: StoreKey,
    cipher: Option<Arc<Cipher>>,
}

struct Cipher {
    payloads: XChaCha20Poly1305,
    entries: XChaCha20Poly1305,
    names: Zeroizing<Hash>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.cipher.is_some() {
            "Keys(encrypted)"
        } else {
            "Keys(plain)"
        })
    }
}

impl Keys {
    /// The keys of a store whose HEAD contains this salt and check value.
    ///
    /// # Errors
    /// [`KeyFault`] if the secret is not the one that the store was created with.
    pub fn derive(
        salt: StoreKey,
        check: &Hash,
        secret: Option<&StoreSecret>,
    ) -> Result<Self, KeyFault> {
        match (secret, *check == NO_CHECK) {
            (None, true) => Ok(Self::plain(salt)),
            (None, false) => Err(KeyFault::Missing),
            (Some(_), true) => Err(KeyFault::NotEncrypted),
            (Some(secret), false) if secret_check(secret, salt) != *check => Err(KeyFault::Wrong),
            (Some(secret), false) => Ok(Self::encrypting(salt, secret)),
        }
    }

    /// The keys of a store that is not encrypted.
    pub fn plain(key: StoreKey) -> Self {
        Self {
            headers: key,
            cipher: None,
        }
    }

    fn encrypting(StoreKey(salt): StoreKey, secret: &StoreSecret) -> Self {
        let key = |purpose| secret.key(&salt, purpose);
        let cipher = |purpose| XChaCha20Poly1305::new((&*key(purpose)).into());
        let payloads = cipher("dormouse store 1, payloads");
        let entries = cipher("dormouse store 1, lines of the index");
        let names = key("dormouse store 1, names of contents");
        let headers = StoreKey(*key("dormouse store 1, headers"));
        Self {
            headers,
            cipher: Some(Arc::new(Cipher {
                payloads,
                entries,
                names,
            })),
        }
    }

    /// The key that authenticates headers and index entries.
    pub fn headers(&self) -> &StoreKey {
        &self.headers
    }

    /// Whether the store is encrypted.
    pub fn is_encrypting(&self) -> bool {
        self.cipher.is_some()
    }

    /// The name of a content in the log and the index. In an encrypted store it does not reveal the
    /// content's hash, which would show whether the store contains a known content.
    pub fn content_name(&self, content: ContentHash) -> Hash {
        match &self.cipher {
            None => content.0,
            Some(cipher) => *blake3::keyed_hash(&cipher.names, &content.0).as_bytes(),
        }
    }

    /// Encrypts a payload, or a part of one. It can be decrypted only with the same
    /// `associated_data`. Returns a copy of the text if the store is not encrypted.
    ///
    /// # Errors
    /// If the operating system provides no randomness.
    pub fn encrypt(&self, text: &[u8], associated_data: &[u8]) -> io::Result<Vec<u8>> {
        self.cipher.as_ref().map_or_else(
            || Ok(text.to_vec()),
            |cipher| encrypt_with(&cipher.payloads, text, associated_data),
        )
    }

    /// The reverse of [`Keys::encrypt`]; `None` if the text or the associated data were changed, or
    /// the store is not encrypted.
    pub fn decrypt(&self, encrypted: &[u8], associated_data: &[u8]) -> Option<Vec<u8>> {
        self.cipher
            .as_ref()
            .and_then(|cipher| decrypt_with(&cipher.payloads, encrypted, associated_data))
    }

    /// Encrypts an entry of the index, with its index key `name` as associated data.
    ///
    /// # Errors
    /// If the operating system provides no randomness.
    pub fn encrypt_entry(&self, entry: Vec<u8>, name: &[u8]) -> io::Result<Vec<u8>> {
        match &self.cipher {
            None => Ok(entry),
            Some(cipher) => encrypt_with(&cipher.entries, &entry, name),
        }
    }

    /// The reverse of [`Keys::encrypt_entry`]; `None` if the entry was changed, or was written
    /// under another index key.
    pub fn decrypt_entry(&self, entry: &[u8], name: &[u8]) -> Option<Vec<u8>> {
        self.cipher.as_ref().map_or_else(
            || Some(entry.to_vec()),
            |cipher| decrypt_with(&cipher.entries, entry, name),
        )
    }
}

/// The check value of a secret: enough to recognise the secret, and no help in finding it.
pub fn secret_check(secret: &StoreSecret, StoreKey(salt): StoreKey) -> Hash {
    *secret.key(&salt, "dormouse store 1, check of the secret")
}

/// Random bytes from the operating system.
///
/// # Errors
/// If it provides none.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::getrandom(&mut bytes)?;
    Ok(bytes)
}

fn encrypt_with(
    cipher: &XChaCha20Poly1305,
    text: &[u8],
    associated_data: &[u8],
) -> io::Result<Vec<u8>> {
    let nonce = random_bytes::<NONCE_BYTES>()?;
    let text = cipher.encrypt(
        &XNonce::from(nonce),
        Payload {
            msg: text,
            aad: associated_data,
        },
    );
    let text = text.map_err(|_| io::Error::other("a text is too long to be encrypted"))?;
    Ok([&nonce[..], &text].concat())
}

fn decrypt_with(
    cipher: &XChaCha20Poly1305,
    encrypted: &[u8],
    associated_data: &[u8],
) -> Option<Vec<u8>> {
    let (nonce, text) = encrypted.split_first_chunk::<NONCE_BYTES>()?;
    cipher
        .decrypt(
            &XNonce::from(*nonce),
            Payload {
                msg: text,
                aad: associated_data,
            },
        )
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: StoreKey = StoreKey([3; 32]);

    fn keys(secret: u8, salt: StoreKey) -> Keys {
        Keys::encrypting(salt, &StoreSecret::new([secret; 32]))
    }

    #[test]
    fn a_text_decrypts_only_with_its_key_and_its_associated_data() {
        let encrypted = keys(1, SALT).encrypt(b"text", b"bound").unwrap();
        assert_eq!(encrypted.len() as u64, 4 + ENCRYPTION_BYTES);
        assert_eq!(
            keys(1, SALT).decrypt(&encrypted, b"bound").unwrap(),
            b"text"
        );
        assert_ne!(
            keys(1, SALT).encrypt(b"text", b"bound").unwrap(),
            encrypted,
            "each has a nonce of its own"
        );
        let others = [
            (keys(2, SALT), &b"bound"[..]),
            (keys(1, StoreKey([4; 32])), b"bound"),
            (keys(1, SALT), b"other"),
        ];
        for (keys, associated_data) in others {
            assert_eq!(keys.decrypt(&encrypted, associated_data), None);
        }
        for bit in 0..encrypted.len() * 8 {
            let mut flipped = encrypted.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(keys(1, SALT).decrypt(&flipped, b"bound"), None, "bit {bit}");
        }
        assert_eq!(
            keys(1, SALT).decrypt_entry(&encrypted, b"bound"),
            None,
            "entries have a key of their own"
        );
    }

    #[test]
    fn a_wrong_missing_or_needless_secret_is_refused() {
        let secret = StoreSecret::new([1; 32]);
        let check = secret_check(&secret, SALT);
        let fault = |check, secret: Option<&StoreSecret>| Keys::derive(SALT, check, secret).err();
        assert_eq!(fault(&check, Some(&secret)), None);
        assert_eq!(
            fault(&check, Some(&StoreSecret::new([2; 32]))),
            Some(KeyFault::Wrong)
        );
        assert_eq!(fault(&check, None), Some(KeyFault::Missing));
        assert_eq!(
            fault(&NO_CHECK, Some(&secret)),
            Some(KeyFault::NotEncrypted)
        );
        assert_eq!(fault(&NO_CHECK, None), None);
    }

    #[test]
    fn debug_output_hides_secrets() {
        let debug_text = format!(
            "{:?} {:?} {SALT:?}",
            StoreSecret::new([77; 32]),
            keys(77, SALT)
        );
        assert!(
            !debug_text.contains("77") && !debug_text.contains('3'),
            "{debug_text}"
        );
    }
}
