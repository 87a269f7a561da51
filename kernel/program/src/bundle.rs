//! Bundles: every file that a program was compiled from, as one value.
//!
//! A bundle is stored with each process, so that a restored process runs the program that it was
//! created with, even if the files have changed. Equal files give equal bytes.

use std::collections::BTreeMap;

use bytes::Bytes;
use dormouse_proto::file::{FileError, FileErrorKind};
use dormouse_proto::program;
use dormouse_proto::record::codec::{self, CodecError};

use super::compile::{Compiled, KnownProviders, Registered, compile_named};
use super::finding::ProgramErrors;
use crate::kernel_tool::{self, KernelTool};

/// The maximum total size of the files of one bundle, in bytes.
pub const MAX_BUNDLE_BYTES: usize = 64 << 20;

/// An upper bound for the encoded size of a valid bundle.
pub const MAX_PROGRAM_BYTES: u64 = MAX_BUNDLE_BYTES as u64 + (8 << 20);

/// The maximum number of files of one bundle.
pub const MAX_BUNDLE_FILES: usize = 1024;

/// The files of a program, by name. The entry is the file that was compiled first. A name is a path
/// with `/`, relative to the folder of the entry. A name that begins with `./` is relative to the
/// working directory, and a name that begins with `/` is absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    entry: String,
    files: BTreeMap<String, Bytes>,
}

/// Bytes that are not a valid bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The bytes cannot be decoded.
    #[error("the bytes are not a bundle of program files: {0}")]
    Codec(#[from] CodecError),
    /// The entry is not among the files.
    #[error("the bundle names {0:?} as its entry, but does not hold it")]
    NoEntry(String),
    /// The files exceed the limits of a bundle.
    #[error(
        "the bundle holds {files} files of {bytes} bytes; up to {MAX_BUNDLE_FILES} of \
         {MAX_BUNDLE_BYTES} are valid"
    )]
    TooLarge {
        /// The number of files.
        files: usize,
        /// Their total size in bytes.
        bytes: usize,
    },
}

impl Bundle {
    /// A bundle of files that the compiler has read.
    ///
    /// # Panics
    /// Never for files from the compiler, which reads the entry first and observes the limits.
    pub(super) fn new(entry: String, files: BTreeMap<String, Bytes>) -> Self {
        Self { entry, files }
            .check_limits()
            .expect("the compiler checks the limits with every file that it reads")
    }

    /// The name of the file that was compiled.
    #[must_use]
    pub fn entry(&self) -> &str {
        &self.entry
    }

    /// The file with this name.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<&Bytes> {
        self.files.get(name)
    }

    /// The names of all files, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Encodes the bundle. Equal files give equal bytes. Copies every file once.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let bytes = codec::encode(&(&self.entry, &self.files));
        Bytes::from(bytes.expect("a bundle is far smaller than the largest record"))
    }

    /// Decodes a bundle. Copies every file once.
    ///
    /// # Errors
    /// [`BundleError`] for all bytes that [`Bundle::to_bytes`] does not produce.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BundleError> {
        let (entry, files) = codec::decode(bytes)?;
        Self { entry, files }.check_limits()
    }

    /// The same files with other names and bytes, each of the same length; `None` if two files
    /// would get the same name.
    pub fn with_rewritten_files(
        &self,
        name: impl Fn(&str) -> String,
        file: impl Fn(&Bytes) -> Bytes,
    ) -> Option<Self> {
        let files: BTreeMap<_, _> = self
            .files
            .iter()
            .map(|(old_name, bytes)| (name(old_name), file(bytes)))
            .collect();
        (files.len() == self.files.len()).then(|| Self {
            entry: name(&self.entry),
            files,
        })
    }

    /// Compiles the program again, from these files only. `kernel` is the list of the kernel's own
    /// tools, `host_tools` the names of those that the embedder registered.
    ///
    /// # Errors
    /// [`ProgramErrors`]. A bundle that has been compiled before can only fail if other host tools
    /// are registered or if this version of the compiler is stricter.
    pub fn compile(
        &self,
        kernel: &[KernelTool],
        host_tools: &[&str],
    ) -> Result<Compiled, ProgramErrors> {
        let mut read = |name: &str| {
            let missing = || FileError {
                kind: FileErrorKind::FileNotFound,
                message: format!("{name:?} is not in the bundle of program files"),
            };
            self.files.get(name).cloned().ok_or_else(missing)
        };
        let registered = Registered {
            tools: host_tools,
            providers: KnownProviders::Any,
        };
        compile_named(&self.entry, &mut read, kernel, registered)
    }

    /// The enabled tools that are neither kernel tools nor declared commands: the host that
    /// compiled the programs had registered them. A host without these tools passes the list to
    /// [`compile`](Self::compile) to inspect the programs.
    #[must_use]
    pub fn host_tools(&self, kernel: &[KernelTool]) -> Vec<String> {
        let texts = self
            .files
            .values()
            .filter_map(|bytes| std::str::from_utf8(bytes).ok());
        let files: Vec<_> = texts.map(|text| program::parse(text).file).collect();
        let commands: Vec<&str> = files
            .iter()
            .flat_map(|file| &file.tools.commands)
            .map(|command| &*command.name.value)
            .collect();
        let enabled = files
            .iter()
            .flat_map(|file| &file.tools.enabled)
            .map(|tool| &tool.name.value);
        let known =
            |name: &str| kernel_tool::find(kernel, name).is_some() || commands.contains(&name);
        enabled.filter(|name| !known(name)).cloned().collect()
    }

    fn check_limits(self) -> Result<Self, BundleError> {
        let (files, bytes) = (self.files.len(), self.files.values().map(Bytes::len).sum());
        if files > MAX_BUNDLE_FILES || bytes > MAX_BUNDLE_BYTES {
            return Err(BundleError::TooLarge { files, bytes });
        }
        if self.files.contains_key(&self.entry) {
            Ok(self)
        } else {
            Err(BundleError::NoEntry(self.entry))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode_bundle(entry: &str, files: &[(&str, &str)]) -> Vec<u8> {
        let files: BTreeMap<_, _> = files
            .iter()
            .map(|(name, text)| (name, Bytes::from(text.to_string())))
            .collect();
        codec::encode(&(entry, files)).unwrap()
    }

    #[test]
    fn a_bundle_round_trips_and_invalid_bytes_are_refused() {
        let good = encode_bundle("a.toml", &[("a.toml", "x"), ("b.md", "y")]);
        let bundle = Bundle::from_bytes(&good).unwrap();
        assert_eq!(bundle.names().collect::<Vec<_>>(), ["a.toml", "b.md"]);
        assert_eq!(bundle.to_bytes(), good);
        let decode_error = |bytes: &[u8]| Bundle::from_bytes(bytes).unwrap_err();
        assert!(matches!(
            decode_error(&good[..good.len() - 1]),
            BundleError::Codec(_)
        ));
        assert!(matches!(decode_error(b""), BundleError::Codec(_)));
        assert!(matches!(
            decode_error(&encode_bundle("a.toml", &[("b.md", "y")])),
            BundleError::NoEntry(_)
        ));
    }
}
