//! Errors and warnings about a program file: with the place, what is valid and what to try.

use super::Span;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The program runs, but perhaps not as meant.
    Warning,
    /// The program does not run.
    Error,
}

/// A place that a diagnostic points to, and what is said there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The place.
    pub span: Span,
    /// A few words.
    pub text: String,
}

/// Something that is wrong or odd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether it is an error.
    pub severity: Severity,
    /// What it is, in one sentence.
    pub message: String,
    /// Where it is; empty for a diagnostic about the file as a whole.
    pub labels: Vec<Label>,
    /// What is valid, and what to try.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error at a place.
    #[must_use]
    pub fn error(span: Span, message: impl Into<String>, label: impl Into<String>) -> Self {
        Self::general(message).label(span, label)
    }

    /// A warning at a place.
    #[must_use]
    pub fn warning(span: Span, message: impl Into<String>, label: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(span, message, label)
        }
    }

    /// An error of the file as a whole.
    #[must_use]
    pub fn general(message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            message: message.into(),
            labels: Vec::new(),
            help: None,
        }
    }

    /// The same, pointing to one place more.
    #[must_use]
    pub fn label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label {
            span,
            text: text.into(),
        });
        self
    }

    /// The same, with advice.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// The diagnostics about one file, bounded: of a file that is wrong everywhere the first
/// [`Diagnostics::MAX`] are kept, and the rest is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    kept: Vec<Diagnostic>,
    dropped: usize,
    has_errors: bool,
}

impl Diagnostics {
    /// How many are kept.
    pub const MAX: usize = 50;

    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.has_errors |= diagnostic.severity == Severity::Error;
        if self.kept.len() < Self::MAX {
            self.kept.push(diagnostic);
        } else {
            self.dropped += 1;
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether what is added now would only be counted.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.kept.len() >= Self::MAX
    }

    /// Whether there is an error among them, those not kept included.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.has_errors
    }

    /// All of them in the order of their places; if some were not kept, the last one says how many.
    #[must_use]
    pub fn into_vec(self) -> Vec<Diagnostic> {
        let mut all = self.kept;
        all.sort_by_key(|diagnostic| diagnostic.labels.first().map(|label| label.span.start));
        if self.dropped > 0 {
            let severity = if self.has_errors {
                Severity::Error
            } else {
                Severity::Warning
            };
            all.push(Diagnostic {
                severity,
                ..Diagnostic::general(format!("and {} remarks more", self.dropped))
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
            (Severity::Error, "and 1 remarks more")
        );
    }
}
