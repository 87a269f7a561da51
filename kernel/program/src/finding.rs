//! Errors and warnings of the compiler, which point into a program file.
//!
//! They implement `miette::Diagnostic`, so that the report handlers of `miette` can show them with
//! the source lines. Without `miette`, the accessors return file, line and text.

use std::fmt;
use std::sync::Arc;

use dormouse_proto::program::{Diagnostic, Label, Severity};
use miette::{LabeledSpan, NamedSource};

/// A file of a program with its name, as the source of diagnostics.
pub(super) type Source = Arc<NamedSource<Arc<str>>>;

pub(super) fn named_source(name: &str, text: &str) -> Source {
    Arc::new(NamedSource::new(name, Arc::from(text)))
}

/// An error or a warning. Its `Display` is the message alone.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.diagnostic.message)]
pub struct Finding {
    diagnostic: Diagnostic,
    source_text: Source,
    line: Option<usize>,
}

impl Finding {
    pub(super) fn new(source: &Source, mut diagnostic: Diagnostic) -> Self {
        let (text, name) = (source.inner(), source.name());
        let labels = &diagnostic.labels;
        let line = labels.first().map(|label| line_of(text, label.span.start));
        let exceeds_max_column = labels
            .iter()
            .any(|label| column_of(text, label.span.end) > MAX_LABEL_COLUMN);
        // Such a label cannot be shown (see `MAX_LABEL_COLUMN`), so the message names the line.
        if exceeds_max_column {
            diagnostic.labels.clear();
        }
        let message = &diagnostic.message;
        match line {
            Some(line) if exceeds_max_column => {
                diagnostic.message = format!("{name}:{line}: {message}")
            }
            Some(_) => {}
            None => diagnostic.message = format!("{name}: {message}"),
        }
        Self {
            diagnostic,
            source_text: Arc::clone(source),
            line,
        }
    }

    /// Whether it is an error or a warning.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.diagnostic.severity
    }

    /// The file, by its name in the bundle.
    #[must_use]
    pub fn file(&self) -> &str {
        self.source_text.name()
    }

    /// The text of that file, which the labels point into.
    #[must_use]
    pub fn text(&self) -> &str {
        self.source_text.inner()
    }

    /// The line, counted from 1; `None` for a finding about the file as a whole.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// The valid values, and what to try.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.diagnostic.help.as_deref()
    }

    fn format_line(&self) -> String {
        match self.line.filter(|_| !self.diagnostic.labels.is_empty()) {
            Some(line) => format!("{}:{line}: {self}", self.file()),
            None => self.to_string(),
        }
    }
}

impl miette::Diagnostic for Finding {
    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.diagnostic.severity {
            Severity::Warning => miette::Severity::Warning,
            Severity::Error => miette::Severity::Error,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.advice()
            .map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        Some(&*self.source_text)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let labels = self.diagnostic.labels.iter();
        let labels = labels.map(|Label { span, text }| {
            LabeledSpan::new_with_span(Some(text.clone()), span.clone())
        });
        (labels.len() > 0).then(|| Box::new(labels) as Box<dyn Iterator<Item = _>>)
    }
}

/// The errors of all files of a program that does not compile. Its `Display` is one line with the
/// first error; a report handler of `miette` shows all.
#[derive(Clone, Debug, thiserror::Error, miette::Diagnostic)]
#[error("{entry} does not compile: {}", self.summary())]
pub struct ProgramErrors {
    entry: String,
    #[related]
    findings: Vec<Finding>,
}

impl ProgramErrors {
    /// Keeps the errors among the findings, of which there is at least one.
    pub(super) fn new(entry: &str, mut findings: Vec<Finding>) -> Self {
        findings.retain(|finding| finding.severity() == Severity::Error);
        debug_assert!(!findings.is_empty(), "a program without errors compiles");
        Self {
            entry: entry.to_owned(),
            findings,
        }
    }

    /// The errors, in the order in which the files were compiled. There is at least one.
    #[must_use]
    pub fn errors(&self) -> &[Finding] {
        &self.findings
    }

    fn summary(&self) -> String {
        let first = self
            .findings
            .first()
            .map(Finding::format_line)
            .unwrap_or_default();
        match self.findings.len() {
            0 | 1 => first,
            count => format!("{count} errors, the first: {first}"),
        }
    }
}

/// The largest column, in bytes, at which a label may end. A report handler of `miette` underlines
/// the label and panics if that line is wider than 65,535 characters.
const MAX_LABEL_COLUMN: usize = 4_000;

fn column_of(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    before.len() - memchr::memrchr(b'\n', before).map_or(0, |line_feed| line_feed + 1)
}

fn line_of(text: &str, at: usize) -> usize {
    1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..at.min(text.len())]).count()
}
