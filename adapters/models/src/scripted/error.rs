//! The errors of scripts, with the location of the mistake in the file.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};

/// A script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("cannot read the script {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The script is not valid.
    #[error(transparent)]
    Invalid(#[from] Box<ScriptDiagnostic>),
}

impl Diagnostic for ScriptError {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.diagnostic()
            .map(|diagnostic| &diagnostic.source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = self.diagnostic()?.span.clone();
        Some(Box::new(std::iter::once(LabeledSpan::underline(span))))
    }
}

impl ScriptError {
    /// The mistake in the script; `None` if the file could not be read.
    #[must_use]
    pub fn diagnostic(&self) -> Option<&ScriptDiagnostic> {
        match self {
            Self::Read { .. } => None,
            Self::Invalid(diagnostic) => Some(diagnostic),
        }
    }
}

/// A mistake in a script, with its location.
#[derive(Debug)]
pub struct ScriptDiagnostic {
    source: NamedSource<String>,
    span: Range<usize>,
    message: String,
}

impl ScriptDiagnostic {
    /// The line, counted from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        1 + self.text_before().matches('\n').count()
    }

    /// The character in its line, counted from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        let text_before = self.text_before();
        1 + text_before
            .rfind('\n')
            .map_or(text_before, |at| &text_before[at + 1..])
            .chars()
            .count()
    }

    /// The offending text: its first line.
    #[must_use]
    pub fn excerpt(&self) -> &str {
        self.source.inner()[self.span.clone()]
            .lines()
            .next()
            .unwrap_or_default()
    }

    fn text_before(&self) -> &str {
        &self.source.inner()[..self.span.start]
    }
}

impl fmt::Display for ScriptDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}: {}",
            self.source.name(),
            self.line(),
            self.column(),
            self.message
        )?;
        match self.excerpt() {
            "" => Ok(()),
            excerpt => write!(f, "\n  in: {excerpt}"),
        }
    }
}

impl std::error::Error for ScriptDiagnostic {}

/// The name and the text of a script. Creates errors with a location in that text.
pub(crate) struct ScriptText<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
}

impl ScriptText<'_> {
    /// An error about the text at `span`.
    pub(crate) fn error_at(&self, span: Range<usize>, message: impl Into<String>) -> ScriptError {
        let source = NamedSource::new(self.name, self.text.to_owned());
        Box::new(ScriptDiagnostic {
            source,
            span: self.clip(span),
            message: message.into(),
        })
        .into()
    }

    /// An error about line `line` (from 1) of the string literal at `span`.
    pub(crate) fn error_in_line(
        &self,
        span: Range<usize>,
        line: usize,
        message: String,
    ) -> ScriptError {
        let literal = &self.text[self.clip(span.clone())];
        let first_line =
            usize::from(literal.starts_with("\"\"\"\n") || literal.starts_with("'''\n"));
        let lines = literal
            .split_inclusive('\n')
            .scan(span.start, |start, line| {
                let range = *start..*start + line.len();
                *start = range.end;
                Some(range)
            });
        let found = lines.into_iter().nth(line.saturating_sub(1) + first_line);
        self.error_at(found.unwrap_or(span), message)
    }

    fn clip(&self, span: Range<usize>) -> Range<usize> {
        let char_boundary = |at: usize| {
            (0..=at.min(self.text.len()))
                .rev()
                .find(|&at| self.text.is_char_boundary(at))
                .unwrap_or(0)
        };
        char_boundary(span.start)..char_boundary(span.end.max(span.start))
    }
}
