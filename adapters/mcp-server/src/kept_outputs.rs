//! Outputs that outlive their session, in a folder: a client that has a session for each call can
//! read in the next one what the last one returned.
//!
//! * The name of an output is 125 random bits, and the name of its file is the hash of that name.
//!   Only a client that knows the name can read the output. The folder reveals no name.
//! * Age, number and bytes are bounded. What is over a bound is deleted when an output is added and
//!   when a server starts. Age is checked again when an output is read.
//! * Several servers can use one folder. Files appear whole, under names that are never reused.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde_json::{Value, json};

/// What a name begins with.
const PREFIX: &str = "kept-";
/// The characters after that: 5 bits each.
const NAME_CHARS: usize = 25;
/// Digits and letters without those that look like others.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// The extension of a file that is still being written.
const PARTIAL: &str = "partial";
/// The longest first line of a file, which describes the output.
const MAX_HEAD_BYTES: usize = 4 << 10;

/// How long outputs are kept, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepLimits {
    /// An older output is not kept.
    pub age: Duration,
    /// The most outputs; the oldest go first.
    pub outputs: usize,
    /// The most bytes of all outputs. A larger output is not kept.
    pub bytes: u64,
}

impl Default for KeepLimits {
    /// An hour, 256 outputs, 512 MiB.
    fn default() -> Self {
        Self {
            age: Duration::from_secs(60 * 60),
            outputs: 256,
            bytes: 512 << 20,
        }
    }
}

/// A folder of outputs that outlive their session, for
/// [`McpServer::keep_outputs`](crate::McpServer::keep_outputs).
#[derive(Clone, Debug)]
pub struct KeptOutputs {
    folder: PathBuf,
    limits: KeepLimits,
}

/// The name of an output. Only who was told it can read the output.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OutputName(String);

/// An output as it is kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeptOutput {
    /// Where it came from, such as `tool:log`.
    pub(crate) source: String,
    pub(crate) bytes: Bytes,
}

/// Why an output cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error(
        "There is no output '{name}' any more: outputs are kept for {minutes} minutes, at most \
         {outputs} of them. Call the tool again that returned it, and use the name in its new \
         answer."
    )]
    Absent {
        name: String,
        minutes: u64,
        outputs: usize,
    },
    #[error("The output '{0}' cannot be read: {1}. Call the tool again that returned it.")]
    Unreadable(String, io::Error),
}

impl OutputName {
    fn generate() -> io::Result<Self> {
        let mut random = [0; NAME_CHARS];
        getrandom::getrandom(&mut random)?;
        // 256 is a multiple of 32, so each character is equally likely.
        let chars = random.map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]));
        Ok(Self(PREFIX.chars().chain(chars).collect()))
    }

    /// Parses a text that is exactly a name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let chars = text.strip_prefix(PREFIX)?;
        let is_name =
            chars.len() == NAME_CHARS && chars.bytes().all(|byte| ALPHABET.contains(&byte));
        is_name.then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl KeptOutputs {
    /// Keeps outputs in this folder, which is created if it is absent, for this user alone. Deletes
    /// what is over the limits.
    ///
    /// # Errors
    /// The folder cannot be created or read.
    pub fn open(folder: impl Into<PathBuf>, limits: KeepLimits) -> io::Result<Self> {
        let folder = folder.into();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)?;
        let kept = Self { folder, limits };
        kept.prune()?;
        Ok(kept)
    }

    pub(crate) fn limits(&self) -> KeepLimits {
        self.limits
    }

    /// Keeps an output, and returns its name; `None` if it is larger than the limit. O(bytes) and
    /// O(kept outputs). Call it on a thread that may block.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn add(&self, output: &KeptOutput) -> io::Result<Option<OutputName>> {
        if output.bytes.len() as u64 > self.limits.bytes {
            return Ok(None);
        }
        let name = OutputName::generate()?;
        let path = self.path(&name);
        let partial = path.with_extension(PARTIAL);
        let mut source: String = output.source.clone();
        source.truncate(source.floor_char_boundary(MAX_HEAD_BYTES / 8));
        let written = write_file(&partial, &json!({ "source": source }), &output.bytes)
            .and_then(|()| fs::rename(&partial, &path));
        if written.is_err() {
            // It would be deleted by age otherwise.
            let _ = fs::remove_file(&partial);
        }
        written?;
        self.prune()?;
        Ok(Some(name))
    }

    /// Reads an output. O(bytes). Call it on a thread that may block.
    ///
    /// # Errors
    /// [`LoadError`].
    pub(crate) fn load(&self, name: &OutputName) -> Result<KeptOutput, LoadError> {
        let absent = || LoadError::Absent {
            name: name.0.clone(),
            minutes: self.limits.age.as_secs().div_ceil(60),
            outputs: self.limits.outputs,
        };
        let unreadable = |error: io::Error| match error.kind() {
            ErrorKind::NotFound => absent(),
            _ => LoadError::Unreadable(name.0.clone(), error),
        };
        let path = self.path(name);
        let written = path
            .metadata()
            .and_then(|found| found.modified())
            .map_err(unreadable)?;
        if self.is_expired(written) {
            return Err(absent());
        }
        let bytes = Bytes::from(fs::read(&path).map_err(unreadable)?);
        parse_file(&bytes).ok_or_else(|| {
            let why = io::Error::new(ErrorKind::InvalidData, "the file is damaged");
            LoadError::Unreadable(name.0.clone(), why)
        })
    }

    fn path(&self, name: &OutputName) -> PathBuf {
        self.folder
            .join(blake3::hash(name.0.as_bytes()).to_hex().as_str())
    }

    /// Whether an output of this time is too old. A time in the future is that of a clock that was
    /// set back: such an output counts as new, and goes by the other limits.
    fn is_expired(&self, written: SystemTime) -> bool {
        written
            .elapsed()
            .is_ok_and(|elapsed| elapsed >= self.limits.age)
    }

    /// Deletes own files that are over the limits. Files that another server deletes meanwhile are
    /// skipped.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn prune(&self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = fs::read_dir(&self.folder)?
            .filter_map(Result::ok)
            .filter(|entry| entry.file_name().to_str().is_some_and(is_own_file))
            .filter_map(|entry| {
                let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
                Some((metadata.modified().ok()?, metadata.len(), entry.path()))
            })
            .collect();
        files.sort_by(|a, b| b.cmp(a));
        let (mut outputs, mut bytes) = (0, 0);
        for (written, len, path) in files {
            outputs += 1;
            bytes += len.saturating_sub(MAX_HEAD_BYTES as u64);
            let is_over = outputs > self.limits.outputs || bytes > self.limits.bytes;
            if is_over || self.is_expired(written) {
                // A file that stays is tried again next time, and is not read once it has expired.
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }
}

/// Whether [`KeptOutputs::add`] made a file of this name: a hash, or what it leaves behind if it is
/// killed. The folder may hold files of others.
fn is_own_file(name: &str) -> bool {
    let hash = match name.rsplit_once('.') {
        Some((hash, PARTIAL)) => hash,
        _ => name,
    };
    hash.len() == 2 * blake3::OUT_LEN && hash.bytes().all(|c| c.is_ascii_hexdigit())
}

fn write_file(path: &Path, head: &Value, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file: File = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(format!("{head}\n").as_bytes())?;
    file.write_all(bytes)
}

fn parse_file(file: &Bytes) -> Option<KeptOutput> {
    let head_end = file
        .iter()
        .take(MAX_HEAD_BYTES)
        .position(|byte| *byte == b'\n')?;
    let head: Value = serde_json::from_slice(&file[..head_end]).ok()?;
    Some(KeptOutput {
        source: head["source"].as_str()?.to_owned(),
        bytes: file.slice(head_end + 1..),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(text: &str) -> KeptOutput {
        KeptOutput {
            source: "tool:t".to_owned(),
            bytes: Bytes::copy_from_slice(text.as_bytes()),
        }
    }

    fn limits(outputs: usize, bytes: u64) -> KeepLimits {
        KeepLimits {
            outputs,
            bytes,
            ..KeepLimits::default()
        }
    }

    #[test]
    fn an_output_is_read_by_its_name_alone_also_by_another_server() {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptOutputs::open(folder.path().join("new"), KeepLimits::default()).unwrap();
        let name = kept.add(&output("one\ntwo")).unwrap().unwrap();
        let other = KeptOutputs::open(folder.path().join("new"), KeepLimits::default()).unwrap();
        assert_eq!(other.load(&name).unwrap(), output("one\ntwo"));
        assert_ne!(kept.add(&output("one\ntwo")).unwrap().unwrap(), name);
        for file in fs::read_dir(folder.path().join("new")).unwrap() {
            let path = file.unwrap().path();
            assert!(!path.to_string_lossy().contains(&name.0[PREFIX.len()..]));
        }
        for wrong in ["kept-", "kept-x", "kept-../../../etc/passwd-00000", "fd:1"] {
            assert_eq!(OutputName::parse(wrong), None);
        }
        assert_eq!(OutputName::parse(name.as_str()), Some(name));
    }

    #[test]
    fn what_is_over_a_limit_is_deleted_and_the_error_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptOutputs::open(folder.path(), limits(2, 100)).unwrap();
        assert_eq!(kept.add(&output(&"x".repeat(101))).unwrap(), None);
        let names: Vec<_> = (0_u64..3)
            .map(|number| {
                let name = kept.add(&output("small")).unwrap().unwrap();
                let written = SystemTime::now() - Duration::from_secs(10 - number);
                let file = File::options().write(true).open(kept.path(&name)).unwrap();
                file.set_modified(written).unwrap();
                name
            })
            .collect();
        kept.prune().unwrap();
        assert!(kept.load(&names[2]).is_ok() && kept.load(&names[1]).is_ok());
        let gone = kept.load(&names[0]).unwrap_err().to_string();
        assert!(gone.contains("Call the tool again"), "{gone}");
        let strict = KeepLimits {
            age: Duration::from_secs(9),
            ..limits(2, 100)
        };
        let strict = KeptOutputs {
            folder: folder.path().to_owned(),
            limits: strict,
        };
        assert!(strict.load(&names[1]).is_err(), "expired");
        strict.prune().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_own_files_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let foreign = folder.path().join("notes.txt");
        fs::write(&foreign, "not an output").unwrap();
        let kept = KeptOutputs::open(folder.path(), limits(0, 100)).unwrap();
        let name = kept.add(&output("x")).unwrap().unwrap();
        let partial = kept.path(&name).with_extension(PARTIAL);
        fs::write(&partial, "of a server that was killed").unwrap();
        kept.prune().unwrap();
        assert!(foreign.exists());
        assert!(!kept.path(&name).exists() && !partial.exists());
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptOutputs::open(folder.path(), KeepLimits::default()).unwrap();
        let name = kept.add(&output("text")).unwrap().unwrap();
        fs::write(kept.path(&name), "no head").unwrap();
        let error = kept.load(&name).unwrap_err().to_string();
        assert!(error.contains("damaged"), "{error}");
    }
}
