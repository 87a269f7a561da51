//! Errors and warnings about a program file: the location, what is valid, and what to try.

use super::Span;

/// How serious a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The program runs, but perhaps not as intended.
    Warning,
    /// The program does not run.
    Error,
}

/// A span that a diagnostic points to, with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The span.
    pub span: Span,
    /// A short text about the span.
    pub text: String,
}

/// An error or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How serious it is.
    pub severity: Severity,
    /// The problem, in one sentence.
    pub message: String,
    /// The spans; empty for a diagnostic about the file as a whole.
    pub labels: Vec<Label>,
    /// What is valid, and what to try.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error with a span.
    #[must_use]
    pub fn error(span: Span, message: impl Into<String>, label: impl Into<String>) -> Self {
        Self::general(message).label(span, label)
    }

    /// A warning with a span.
    #[must_use]
    pub fn warning(span: Span, message: impl Into<String>, label: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(span, message, label)
        }
    }

    /// An error about the file as a whole.
    #[must_use]
    pub fn general(message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            message: message.into(),
            labels: Vec::new(),
            help: None,
        }
    }

    /// Adds a span.
    #[must_use]
    pub fn label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label {
            span,
            text: text.into(),
        });
        self
    }

    /// Adds advice.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// The diagnostics about one file, limited in number: the first [`Diagnostics::MAX`] are kept, and
/// the others are only counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    diagnostics: Vec<Diagnostic>,
    dropped: usize,
    has_errors: bool,
}

impl Diagnostics {
    /// The maximum number of diagnostics that are kept.
    pub const MAX: usize = 50;

    /// Adds a diagnostic.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.has_errors |= diagnostic.severity == Severity::Error;
        if self.diagnostics.len() < Self::MAX {
            self.diagnostics.push(diagnostic);
        } else {
            self.dropped += 1;
        }
    }

    /// Whether there are no diagnostics.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.diagnostics.is_empty()
    }

    /// Whether further diagnostics are only counted.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.diagnostics.len() >= Self::MAX
    }

    /// Whether any diagnostic is an error, including those that were not kept.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.has_errors
    }

    /// The diagnostics in the order of their spans. If some were not kept, the last one says how
    /// many.
    #[must_use]
    pub fn into_vec(self) -> Vec<Diagnostic> {
        let mut all = self.diagnostics;
        all.sort_by_key(|diagnostic| diagnostic.labels.first().map(|label| label.span.start));
        if self.dropped > 0 {
            let severity = if self.has_errors {
                Severity::Error
            } else {
                Severity::Warning
            };
            all.push(Diagnostic {
                severity,
                ..Diagnostic::general(format!("{} more not shown", self.dropped))
            });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_diagnostics_is_counted_and_keeps_its_severity() {
        let mut diagnostics = Diagnostics::default();
        for n in 0..Diagnostics::MAX {
            diagnostics.push(Diagnostic::warning(n..n, "odd", "here"));
        }
        diagnostics.push(Diagnostic::error(0..0, "wrong", "here"));
        assert!(diagnostics.has_errors());
        let all = diagnostics.into_vec();
        assert_eq!(all.len(), Diagnostics::MAX + 1);
        let last = all.last().unwrap();
        assert_eq!(
            (last.severity, last.message.as_str()),
            (Severity::Error, "1 more not shown")
        );
    }
}
