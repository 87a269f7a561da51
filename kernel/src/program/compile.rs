//! Compiling: from an entry through every file that it names to a checked program.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_proto::file::FileError;
use dormouse_proto::program::{At, Diagnostic, Diagnostics, Severity, parse, too_large};
use miette::NamedSource;

use super::bundle::{Bundle, MAX_BUNDLE_BYTES, MAX_BUNDLE_FILES};
use super::finding::{Finding, ProgramErrors, Source};
use super::library::{Checked, Library, Program};
use super::{check, path};

/// A program, and what is odd about it.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The program.
    pub program: Program,
    /// Warnings about it and about the programs that it links.
    pub warnings: Vec<Finding>,
}

/// What an embedder registered with the kernel that is to run a program, by name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registered<'a> {
    /// Tools.
    pub tools: &'a [&'a str],
    /// KnownProviders of models.
    pub providers: KnownProviders<'a>,
}

/// Which providers a program may name beside those that every kernel knows.
#[derive(Clone, Copy, Debug)]
pub enum KnownProviders<'a> {
    /// These.
    Only(&'a [&'a str]),
    /// Any: the program was compiled before, and is asked of again when its model is.
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
/// Files are read only through `files`, each once, by paths that start where `entry` does.
/// `registered` names what the embedder registered: `&["grep"]` is a tool, and [`Registered`] names
/// providers of models too. Costs a pass over each file.
///
/// # Errors
/// [`ProgramErrors`]: every mistake of every file.
pub fn compile<'a>(
    entry: &Path,
    files: &mut dyn FnMut(&Path) -> Result<Bytes, FileError>,
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
        &mut |name| files(&path::location(folder, name)),
        registered.into(),
    )
}

/// Compiles with files read by their names.
pub(super) fn compile_named(
    entry: &str,
    read: &mut dyn FnMut(&str) -> Result<Bytes, FileError>,
    registered: Registered<'_>,
) -> Result<Compiled, ProgramErrors> {
    let mut reading = Reading {
        read,
        files: BTreeMap::new(),
        total_bytes: 0,
        programs: Vec::new(),
    };
    reading
        .program(entry)
        .map_err(|message| entry_error(entry, message))?;
    let (mut programs, mut findings) = (Vec::new(), Vec::new());
    while let Some(name) = reading.programs.get(programs.len()).cloned() {
        programs.push(one(&name, &mut reading, registered, &mut findings));
    }
    if findings
        .iter()
        .any(|finding| finding.severity() == Severity::Error)
    {
        return Err(ProgramErrors::new(entry, findings));
    }
    let programs = programs
        .into_iter()
        .map(|program| program.expect("a program without errors was checked"));
    let bundle = Arc::new(Bundle::new(entry.to_owned(), reading.files));
    let library = Library {
        programs: programs.collect(),
        bundle,
    };
    Ok(Compiled {
        program: Program::first_of(library),
        warnings: findings,
    })
}

/// Compiles one file that has been read. Gives nothing only if an error was found.
fn one(
    name: &str,
    reading: &mut Reading<'_>,
    registered: Registered<'_>,
    findings: &mut Vec<Finding>,
) -> Option<Checked> {
    let bytes = reading.files.get(name).cloned().unwrap_or_default();
    let text = str::from_utf8(&bytes).map_err(|error| not_utf8(error.valid_up_to()));
    let source: Source = Arc::new(NamedSource::new(
        name,
        Arc::from(*text.as_ref().unwrap_or(&"")),
    ));
    let (diagnostics, checked) = match text {
        Ok(text) => checked(name, text, reading, registered),
        Err(diagnostic) => {
            let mut diagnostics = Diagnostics::default();
            diagnostics.push(diagnostic);
            (diagnostics, None)
        }
    };
    findings.extend(
        diagnostics
            .into_vec()
            .into_iter()
            .map(|diagnostic| Finding::new(&source, diagnostic)),
    );
    checked
}

fn checked(
    name: &str,
    text: &str,
    reading: &mut Reading<'_>,
    registered: Registered<'_>,
) -> (Diagnostics, Option<Checked>) {
    let parsed = parse(text);
    let mut diagnostics = parsed.diagnostics;
    let checked = parsed
        .is_toml
        .then(|| check::check(name, parsed.file, reading, registered, &mut diagnostics));
    (diagnostics, checked)
}

fn not_utf8(at: usize) -> Diagnostic {
    Diagnostic::general(format!("not UTF-8: the byte {at} is no text"))
        .help("save the file as UTF-8")
}

fn entry_error(entry: &str, message: String) -> ProgramErrors {
    let source: Source = Arc::new(NamedSource::new(entry, Arc::from("")));
    ProgramErrors::new(
        entry,
        vec![Finding::new(&source, Diagnostic::general(message))],
    )
}

/// The files of a compilation: each read once, all of them within the limits of a bundle.
pub(super) struct Reading<'a> {
    read: &'a mut dyn FnMut(&str) -> Result<Bytes, FileError>,
    files: BTreeMap<String, Bytes>,
    total_bytes: usize,
    /// The program files, in the order of their first mention.
    programs: Vec<String>,
}

impl Reading<'_> {
    /// The bytes of the file of this name, or why there are none.
    fn file(&mut self, name: &str) -> Result<Bytes, String> {
        let bytes = self.fetch(name)?;
        self.keep(name, &bytes)?;
        Ok(bytes)
    }

    /// The position of the program of this name, which is compiled in its turn.
    fn program(&mut self, name: &str) -> Result<usize, String> {
        if let Some(position) = self.programs.iter().position(|known| known == name) {
            return Ok(position);
        }
        let bytes = self.fetch(name)?;
        too_large(bytes.len()).map_or(Ok(()), |diagnostic| Err(diagnostic.message))?;
        self.keep(name, &bytes)?;
        self.programs.push(name.to_owned());
        Ok(self.programs.len() - 1)
    }

    fn fetch(&mut self, name: &str) -> Result<Bytes, String> {
        match self.files.get(name) {
            Some(bytes) => Ok(bytes.clone()),
            None if self.files.len() == MAX_BUNDLE_FILES => Err(format!(
                "a program and everything that it links may name {MAX_BUNDLE_FILES} files"
            )),
            None => (self.read)(name).map_err(|error| error.to_string()),
        }
    }

    /// Takes a file into the bundle, where it fits.
    fn keep(&mut self, name: &str, bytes: &Bytes) -> Result<(), String> {
        if self.files.contains_key(name) {
            return Ok(());
        }
        let total_bytes = self.total_bytes.saturating_add(bytes.len());
        if total_bytes > MAX_BUNDLE_BYTES {
            return Err(format!(
                "with its {} bytes the program's files exceed {MAX_BUNDLE_BYTES} bytes",
                bytes.len()
            ));
        }
        self.total_bytes = total_bytes;
        self.files.insert(name.to_owned(), bytes.clone());
        Ok(())
    }

    /// The bytes of a file that a program names by `name`, written at `path`.
    pub(super) fn named_file(
        &mut self,
        name: Option<String>,
        path: &At<String>,
    ) -> Result<(String, Bytes), Diagnostic> {
        let name = name.ok_or_else(|| no_file(path))?;
        let bytes = self
            .file(&name)
            .map_err(|reason| unreadable(path, &reason))?;
        Ok((name, bytes))
    }

    /// The text of such a file.
    pub(super) fn named_text(
        &mut self,
        name: Option<String>,
        path: &At<String>,
    ) -> Result<(String, String), Diagnostic> {
        let (name, bytes) = self.named_file(name, path)?;
        match String::from_utf8(bytes.to_vec()) {
            Ok(text) => Ok((name, text)),
            Err(_) => Err(unreadable(path, "it is not UTF-8 text")),
        }
    }

    /// The position of such a program.
    pub(super) fn named_program(
        &mut self,
        name: Option<String>,
        path: &At<String>,
    ) -> Result<usize, Diagnostic> {
        let name = name.ok_or_else(|| no_file(path))?;
        self.program(&name)
            .map_err(|reason| unreadable(path, &reason))
    }
}

fn no_file(path: &At<String>) -> Diagnostic {
    Diagnostic::error(path.span.clone(), "the path names no file", "not a file")
        .help("write the path of a file, relative to the folder of this program or absolute")
}

fn unreadable(path: &At<String>, reason: &str) -> Diagnostic {
    let help = "relative paths start in the folder of the program file that holds them";
    Diagnostic::error(
        path.span.clone(),
        format!("the file cannot be read: {reason}"),
        "named here",
    )
    .help(help)
}
