//! Reads the key of an encrypted store: from a file or from the environment, never from the command
//! line, which every user of the machine can see.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use dormouse::store::{LogStore, Options, StoreSecret};

use crate::failure::Failure;

/// The key of an encrypted store. The key itself is never an argument: every user of the machine
/// can see arguments.
#[derive(Debug, Default, Args)]
pub(crate) struct Key {
    /// The file with the key of an encrypted store, or of a new store to be encrypted: 64
    /// hexadecimal digits, or 32 random bytes. `openssl rand -hex 32` makes one. Without this flag,
    /// DORMOUSE_STORE_KEY may hold the digits.
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

/// The environment variable that holds the key if no file is named.
const KEY_VARIABLE: &str = "DORMOUSE_STORE_KEY";

/// The options to open a store with: they hold the key, if there is one.
pub(crate) fn store_options(key: &Key) -> Result<Options, Failure> {
    let options = LogStore::options();
    match store_secret(key)? {
        Some(secret) => Ok(options.key(secret)),
        None => Ok(options),
    }
}

/// The key itself, if there is one.
pub(crate) fn store_secret(key: &Key) -> Result<Option<StoreSecret>, Failure> {
    read_secret(key.key_file.as_deref(), std::env::var_os(KEY_VARIABLE))
}

/// The key in the file, if one is named; otherwise the key in the variable. An empty variable
/// counts as unset.
///
/// # Errors
/// [`Failure::Usage`], which never quotes the key.
fn read_secret(
    file: Option<&Path>,
    variable: Option<OsString>,
) -> Result<Option<StoreSecret>, Failure> {
    if let Some(path) = file {
        let wrong = |why: String| Failure::Usage(format!("--key-file {}: {why}", path.display()));
        let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let secret = StoreSecret::read(bytes).map_err(|error| wrong(error.to_string()))?;
        return Ok(Some(secret));
    }
    let Some(digits) = variable.filter(|digits| !digits.is_empty()) else {
        return Ok(None);
    };
    let secret = StoreSecret::read(digits.into_vec())
        .map_err(|error| Failure::Usage(format!("{KEY_VARIABLE}: {error}")))?;
    Ok(Some(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_file_overrides_the_environment_and_errors_hide_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let digits = "0f".repeat(32);
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let of = |path: Option<&Path>, variable: Option<&str>| {
            read_secret(path, variable.map(OsString::from))
        };
        let good = [
            file("hex", format!("{digits}\n").as_bytes()),
            file("raw", &[200; 32]),
        ];
        for path in &good {
            assert!(
                of(Some(path), Some("nonsense")).unwrap().is_some(),
                "{}",
                path.display()
            );
        }
        assert!(of(None, Some(&digits.to_uppercase())).unwrap().is_some());
        assert!(of(None, Some("")).unwrap().is_none() && of(None, None).unwrap().is_none());
        let wrong = [
            file("short", b"0f0f"),
            file("password", &[b'x'; 32]),
            file("digits", &[b'g'; 64]),
            folder.path().join("no"),
        ];
        for path in &wrong {
            let Err(Failure::Usage(why)) = of(Some(path), Some(&digits)) else {
                panic!("{} is no key", path.display())
            };
            assert!(
                why.contains("--key-file") && !why.contains("xxxx") && !why.contains("0f0f"),
                "{why}"
            );
        }
        let Err(Failure::Usage(why)) = of(None, Some("swordfish")) else {
            panic!("it is no key")
        };
        assert!(
            why.contains(KEY_VARIABLE)
                && why.contains("64 hexadecimal digits")
                && !why.contains("swordfish"),
            "{why}"
        );
    }
}
