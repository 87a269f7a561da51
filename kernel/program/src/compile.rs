//! Compiles an entry file and every file that it names into checked programs.
//!
//! `dormouse_proto::program` parses a file, and `check.rs` checks the parsed file. The result is a
//! `Library` (`library.rs`): all programs, and the bundle of all files that were read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_proto::file::FileError;
use dormouse_proto::program::{
    Diagnostic, Diagnostics, LineRange, Parsed, RelativeTo, Severity, WithSpan, parse, too_large,
};

use super::bundle::{Bundle, MAX_BUNDLE_BYTES, MAX_BUNDLE_FILES};
use super::finding::{Finding, ProgramErrors, named_source};
use super::kernel_tool::KernelTool;
use super::library::{CheckedProgram, Library, Program};
use super::{check, path};

/// A compiled program and the warnings about it.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The program.
    pub program: Program,
    /// Warnings about the program and about the programs that it links.
    pub warnings: Vec<Finding>,
}

/// The names of what an embedder registered with the kernel that will run a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registered<'a> {
    /// Tools.
    pub tools: &'a [&'a str],
    /// Providers of models.
    pub providers: KnownProviders<'a>,
}

/// The providers that a program may name in addition to the built-in ones.
#[derive(Clone, Copy, Debug)]
pub enum KnownProviders<'a> {
    /// Only these.
    Only(&'a [&'a str]),
    /// Any: the program was compiled before, and its provider is looked up when its model is
    /// called.
    Any,
}

impl Default for KnownProviders<'_> {
    fn default() -> Self {
        Self::Only(&[])
    }
}

impl<'a, const N: usize> From<&'a [&'a str; N]> for Registered<'a> {
    fn from(tools: &'a [&'a str; N]) -> Self {
        Self {
            tools,
            ..Self::default()
        }
    }
}

/// Compiles the program file `entry` and everything that it names.
///
/// Files are read only through `files`, each once. Their paths are absolute, or relative to the
/// directory that `entry` is relative to. `kernel` lists the kernel's own tools. `registered` names
/// the tools that the embedder registered, such as `&["grep"]`, or with [`Registered`] also its
/// providers of models. Costs a pass over each file.
///
/// # Errors
/// [`ProgramErrors`]: every mistake of every file.
pub fn compile<'a>(
    entry: &Path,
    files: &mut dyn FnMut(&Path) -> Result<Bytes, FileError>,
    kernel: &'a [KernelTool],
    registered: impl Into<Registered<'a>>,
) -> Result<Compiled, ProgramErrors> {
    let Some(name) = entry.file_name().and_then(|name| name.to_str()) else {
        return Err(entry_error(
            &entry.to_string_lossy(),
            "the path names no file, or is not UTF-8".to_owned(),
        ));
    };
    let folder = entry.parent().unwrap_or(Path::new(""));
    compile_named(
        name,
        &mut |name| files(&path::to_path(folder, name)),
        kernel,
        registered.into(),
    )
}

/// Compiles the program `entry`. `read` reads a file by its name in the bundle.
pub(super) fn compile_named(
    entry: &str,
    read: &mut dyn FnMut(&str) -> Result<Bytes, FileError>,
    kernel: &[KernelTool],
    registered: Registered<'_>,
) -> Result<Compiled, ProgramErrors> {
    let mut compilation = Compilation {
        read,
        kernel,
        registered,
        files: BTreeMap::new(),
        total_bytes: 0,
        programs: Vec::new(),
        key: String::new(),
        diagnostics: Diagnostics::default(),
    };
    compilation
        .queue_program(entry)
        .map_err(|fault| entry_error(entry, fault.to_string()))?;
    let (mut programs, mut findings) = (Vec::new(), Vec::new());
    while let Some(name) = compilation.programs.get(programs.len()).cloned() {
        compilation.key = name;
        programs.push(compile_file(&mut compilation, &mut findings));
    }
    let mut severities = findings.iter().map(Finding::severity);
    if severities.any(|severity| severity == Severity::Error) {
        return Err(ProgramErrors::new(entry, findings));
    }
    let programs = programs
        .into_iter()
        .map(|program| program.expect("a program without errors was checked"));
    let bundle = Arc::new(Bundle::new(entry.to_owned(), compilation.files));
    let library = Library {
        programs: programs.collect(),
        bundle,
    };
    Ok(Compiled {
        program: Program::entry_of(library),
        warnings: findings,
    })
}

/// Compiles one file that has been read. Returns `None` only if an error was reported.
fn compile_file(
    compilation: &mut Compilation<'_>,
    findings: &mut Vec<Finding>,
) -> Option<CheckedProgram> {
    let bytes = compilation
        .files
        .get(&compilation.key)
        .cloned()
        .unwrap_or_default();
    let text = str::from_utf8(&bytes).unwrap_or_default();
    let parsed = match str::from_utf8(&bytes) {
        Ok(text) => parse(text),
        Err(error) => not_utf8_error(error.valid_up_to()),
    };
    compilation.diagnostics = parsed.diagnostics;
    let checked = parsed
        .is_toml
        .then(|| check::check(parsed.file, compilation));
    let source = named_source(&compilation.key, text);
    let diagnostics = std::mem::take(&mut compilation.diagnostics).into_vec();
    findings.extend(
        diagnostics
            .into_iter()
            .map(|found| Finding::new(&source, found)),
    );
    checked
}

fn not_utf8_error(at: usize) -> Parsed {
    let message = format!("not UTF-8: the byte {at} is no text");
    let mut parsed = Parsed::default();
    let help = "save the file as UTF-8";
    parsed
        .diagnostics
        .push(Diagnostic::general(message).help(help));
    parsed
}

fn entry_error(entry: &str, message: String) -> ProgramErrors {
    let finding = Finding::new(&named_source(entry, ""), Diagnostic::general(message));
    ProgramErrors::new(entry, vec![finding])
}

impl Compiled {
    /// Returns `self` if there are no findings, and the findings as an error otherwise.
    pub(super) fn fail_on_findings(self, findings: Vec<Finding>) -> Result<Self, ProgramErrors> {
        match findings.as_slice() {
            [] => Ok(self),
            _ => Err(ProgramErrors::new(self.program.key(), findings)),
        }
    }
}

/// Why a file that a program names cannot be added to the bundle.
/// Each text names the file or the limit, so that it stands alone.
#[derive(Debug, thiserror::Error)]
enum AddFileError {
    #[error(transparent)]
    Unreadable(#[from] FileError),
    /// Programs of the reference implementation are also written in YAML, with the same keys.
    #[error(
        "{0} is YAML, and programs are TOML: write its sections as tables (`model:` becomes \
         `[model]`) with the same keys; other values are valid for `env_info.variables` (no \
         file_map) and `tools` (commands in place of other builtins)"
    )]
    Yaml(String),
    /// A program file is too large to be parsed. The text states the maximum size.
    #[error("{0}")]
    ProgramTooLarge(String),
    #[error("a program and everything that it links may name {MAX_BUNDLE_FILES} files")]
    TooManyFiles,
    #[error("with its {bytes} bytes the program's files exceed {MAX_BUNDLE_BYTES} bytes")]
    BundleTooLarge { bytes: usize },
}

/// The state of a compilation: its files, each of which is read once within the limits of a bundle,
/// and the programs that are queued.
pub(super) struct Compilation<'a> {
    read: &'a mut dyn FnMut(&str) -> Result<Bytes, FileError>,
    pub(super) kernel: &'a [KernelTool],
    pub(super) registered: Registered<'a>,
    files: BTreeMap<String, Bytes>,
    total_bytes: usize,
    /// The program files, in the order of their first mention.
    programs: Vec<String>,
    /// The program file that is being compiled.
    pub(super) key: String,
    /// The diagnostics about that file.
    pub(super) diagnostics: Diagnostics,
}

impl Compilation<'_> {
    /// The bytes of the file with this name, or why it cannot be read.
    fn read_file(&mut self, name: &str) -> Result<Bytes, AddFileError> {
        let bytes = self.fetch(name)?;
        self.add_to_bundle(name, &bytes)?;
        Ok(bytes)
    }

    /// The position of the program with this name, which is queued for compilation if it is new.
    fn queue_program(&mut self, name: &str) -> Result<usize, AddFileError> {
        if let Some(position) = self.programs.iter().position(|known| known == name) {
            return Ok(position);
        }
        if is_yaml(name) {
            return Err(AddFileError::Yaml(name.to_owned()));
        }
        let bytes = self.fetch(name)?;
        if let Some(diagnostic) = too_large(bytes.len()) {
            return Err(AddFileError::ProgramTooLarge(diagnostic.message));
        }
        self.add_to_bundle(name, &bytes)?;
        self.programs.push(name.to_owned());
        Ok(self.programs.len() - 1)
    }

    fn fetch(&mut self, name: &str) -> Result<Bytes, AddFileError> {
        match self.files.get(name) {
            Some(bytes) => Ok(bytes.clone()),
            None if self.files.len() == MAX_BUNDLE_FILES => Err(AddFileError::TooManyFiles),
            None => Ok((self.read)(name)?),
        }
    }

    /// Adds a file to the bundle, if it fits.
    fn add_to_bundle(&mut self, name: &str, bytes: &Bytes) -> Result<(), AddFileError> {
        if self.files.contains_key(name) {
            return Ok(());
        }
        let total_bytes = self.total_bytes.saturating_add(bytes.len());
        if total_bytes > MAX_BUNDLE_BYTES {
            return Err(AddFileError::BundleTooLarge { bytes: bytes.len() });
        }
        self.total_bytes = total_bytes;
        self.files.insert(name.to_owned(), bytes.clone());
        Ok(())
    }

    /// The name and the bytes of a file that the program names. Reports an error if the file cannot
    /// be read.
    pub(super) fn read_named_file(
        &mut self,
        path: &WithSpan<String>,
        relative_to: RelativeTo,
    ) -> Option<(String, Bytes)> {
        let name = match relative_to {
            RelativeTo::Program => path::relative_to_file(&self.key, &path.value),
            RelativeTo::WorkingDirectory => path::in_working_directory(&path.value),
        };
        self.read_named(path, name, Self::read_file)
    }

    /// Reports lines that begin after the end of a file. O(n).
    pub(super) fn check_lines_of_file(
        &mut self,
        lines: &WithSpan<LineRange>,
        path: &str,
        bytes: &[u8],
    ) {
        let ends = memchr::memchr_iter(b'\n', bytes).count() as u64;
        let total = ends + u64::from(!bytes.ends_with(b"\n"));
        if lines.value.first > total {
            let message = format!("{path} has no line {}", lines.value.first);
            let error = Diagnostic::error(lines.span.clone(), message, "after the end");
            let valid = format!("valid: lines from 1 to {total}");
            self.diagnostics.push(error.help(valid));
        }
    }

    /// The name and the text of a file that the program names, relative to the program file.
    pub(super) fn read_named_text(&mut self, path: &WithSpan<String>) -> Option<(String, String)> {
        let (name, bytes) = self.read_named_file(path, RelativeTo::Program)?;
        match String::from_utf8(bytes.to_vec()) {
            Ok(text) => Some((name, text)),
            Err(_) => {
                let reason = format!("{name} cannot be used: it is not UTF-8 text");
                self.diagnostics.push(unusable_error(path, &reason));
                None
            }
        }
    }

    /// The position of a program that the program links.
    pub(super) fn queue_named_program(&mut self, path: &WithSpan<String>) -> Option<usize> {
        let name = path::relative_to_file(&self.key, &path.value);
        self.read_named(path, name, Self::queue_program)
            .map(|(_, position)| position)
    }

    /// Reads the file with `read`; reports an error if `name` is `None` or compilation fails.
    fn read_named<T>(
        &mut self,
        path: &WithSpan<String>,
        name: Option<String>,
        read: fn(&mut Self, &str) -> Result<T, AddFileError>,
    ) -> Option<(String, T)> {
        let read_result = match name {
            Some(name) => read(self, &name).map(|read| (name, read)),
            None => {
                let help = "write the path of a file, relative to the folder of this program or \
                            absolute";
                let unnamed = path.error("the path names no file", "not a file");
                self.diagnostics.push(unnamed.help(help));
                return None;
            }
        };
        read_result
            .map_err(|reason| {
                self.diagnostics
                    .push(unusable_error(path, &reason.to_string()))
            })
            .ok()
    }
}

/// The error for a file that the program names. `reason` names the file.
fn unusable_error(path: &WithSpan<String>, reason: &str) -> Diagnostic {
    let help = "relative paths start in the folder of the program file that holds them";
    path.error(reason, "named here").help(help)
}

fn is_yaml(name: &str) -> bool {
    let extension = Path::new(name).extension();
    extension.is_some_and(|extension| {
        extension.eq_ignore_ascii_case("yaml") || extension.eq_ignore_ascii_case("yml")
    })
}
