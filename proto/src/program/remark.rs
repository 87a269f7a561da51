//! Remarks about a program file: errors and warnings, with the place, what is valid and what to
//! try.

use super::Span;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The program runs, but perhaps not as meant.
    Warning,
    /// The program does not run.
    Error,
}

/// A place that a remark points to, and what is said there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The place.
    pub span: Span,
    /// A few words.
    pub text: String,
}

/// Something that is wrong or odd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Whether it is an error.
    pub severity: Severity,
    /// What it is, in one sentence.
    pub message: String,
    /// Where it is; empty for a remark about the file as a whole.
    pub labels: Vec<Label>,
    /// What is valid, and what to try.
    pub help: Option<String>,
}

impl Remark {
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

/// The remarks about one file, bounded: of a file that is wrong everywhere the first
/// [`Remarks::MAX`] are kept, and the rest is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remarks {
    kept: Vec<Remark>,
    dropped: usize,
    has_errors: bool,
}

impl Remarks {
    /// How many are kept.
    pub const MAX: usize = 50;

    /// Adds one.
    pub fn push(&mut self, remark: Remark) {
        self.has_errors |= remark.severity == Severity::Error;
        if self.kept.len() < Self::MAX {
            self.kept.push(remark);
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
    pub fn into_vec(self) -> Vec<Remark> {
        let mut all = self.kept;
        all.sort_by_key(|remark| remark.labels.first().map(|label| label.span.start));
        if self.dropped > 0 {
            let severity = if self.has_errors {
                Severity::Error
            } else {
                Severity::Warning
            };
            all.push(Remark {
                severity,
                ..Remark::general(format!("and {} remarks more", self.dropped))
            });
        }
        all
    }
}

/// The candidate that `word` was most likely meant to be, if one is near.
///
/// ```
/// use dormouse_proto::program::nearest;
///
/// assert_eq!(nearest("max_token", ["temperature", "max_tokens"]), Some("max_tokens"));
/// assert_eq!(nearest("colour", ["temperature", "max_tokens"]), None);
/// ```
#[must_use]
pub fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str> + Clone,
) -> Option<&'a str> {
    const LONGEST_NAME: usize = 128;
    const SHORTEST_BEGINNING: usize = 4;
    if word.len() > LONGEST_NAME {
        return None;
    }
    let reach = 1 + word.chars().count() / 4;
    let beginning = candidates
        .clone()
        .into_iter()
        .find(|candidate| candidate.starts_with(word));
    let scored = candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(word, candidate), candidate));
    let (distance, found) = scored.min_by_key(|(distance, _)| *distance)?;
    if distance <= reach {
        Some(found)
    } else {
        beginning.filter(|_| word.len() >= SHORTEST_BEGINNING)
    }
}

/// A text of a program file as it may stand in a message: at most 64 characters.
#[must_use]
pub fn shorten(text: &str) -> String {
    const MAX: usize = 64;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_remarks_is_counted_and_keeps_its_severity() {
        let mut remarks = Remarks::default();
        for n in 0..Remarks::MAX {
            remarks.push(Remark::warning(n..n, "odd", "here"));
        }
        remarks.push(Remark::error(0..0, "wrong", "here"));
        assert!(remarks.has_errors());
        let all = remarks.into_vec();
        assert_eq!(all.len(), Remarks::MAX + 1);
        let last = all.last().unwrap();
        assert_eq!(
            (last.severity, last.message.as_str()),
            (Severity::Error, "and 1 remarks more")
        );
    }

    #[test]
    fn the_nearest_word_is_near() {
        let known = ["name", "provider", "max_iterations"];
        let cases = [
            ("nmae", Some("name")),
            ("max_iteration", Some("max_iterations")),
            ("maxiterations", Some("max_iterations")),
            ("Provider", Some("provider")),
            ("max_iter", Some("max_iterations")),
            ("max", None),
            ("x", None),
            ("", None),
            ("something_else", None),
        ];
        for (word, expected) in cases {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
        assert_eq!(nearest(&"n".repeat(1 << 20), known), None);
    }
}
