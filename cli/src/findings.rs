//! Shows the errors and warnings of a program file, with the lines that they point to. All text is
//! made visible, since the file may be hostile: characters that a terminal obeys, or that hide
//! text, are replaced by signs (`terminal::printable`).

use std::fmt;
use std::io::Write;

use dormouse::program::Finding;
use miette::{Diagnostic, LabeledSpan, NamedSource, Report, Severity, SourceSpan};

use crate::terminal::{coloured_stderr, printable};

/// Shows findings on standard error, in colours if that is a terminal with colours.
pub(crate) fn show(findings: &[Finding]) {
    for finding in findings {
        let report = Report::new(PrintableFinding::from(finding));
        // If standard error is closed, nothing can be shown.
        let _ = writeln!(coloured_stderr(), "{report:?}");
    }
}

/// A finding whose whole text is made visible. Its labels are moved to the positions that they have
/// in the visible text.
#[derive(Debug)]
struct PrintableFinding {
    message: String,
    help: Option<String>,
    severity: Option<Severity>,
    source: NamedSource<String>,
    labels: Vec<LabeledSpan>,
}

impl From<&Finding> for PrintableFinding {
    fn from(finding: &Finding) -> Self {
        let move_label = |label: LabeledSpan| {
            let from = printable_offset(finding.text(), label.offset());
            let to = printable_offset(finding.text(), label.offset() + label.len());
            let text = label.label().map(|text| printable(text).into_owned());
            LabeledSpan::new_with_span(text, SourceSpan::from(from..to))
        };
        Self {
            message: printable(&finding.to_string()).into_owned(),
            help: finding.advice().map(|help| printable(help).into_owned()),
            severity: Diagnostic::severity(finding),
            source: NamedSource::new(
                printable(finding.file()),
                printable(finding.text()).into_owned(),
            ),
            labels: finding
                .labels()
                .into_iter()
                .flatten()
                .map(move_label)
                .collect(),
        }
    }
}

/// The offset in the visible text that corresponds to the offset `offset` of the text.
fn printable_offset(text: &str, offset: usize) -> usize {
    printable(&text[..text.floor_char_boundary(offset)]).len()
}

impl fmt::Display for PrintableFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PrintableFinding {}

impl Diagnostic for PrintableFinding {
    fn severity(&self) -> Option<Severity> {
        self.severity
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help
            .as_ref()
            .map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        Some(&self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        (!self.labels.is_empty())
            .then(|| Box::new(self.labels.iter().cloned()) as Box<dyn Iterator<Item = _>>)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;
    use dormouse::program::{Program, compile};

    use super::*;

    fn wrong(text: &'static str) -> Finding {
        let compiled = compile(
            Path::new("p\u{1b}.toml"),
            &mut |_| Ok(Bytes::from(text)),
            &[],
        );
        compiled
            .map(|compiled| Program::name(&compiled.program).to_owned())
            .unwrap_err()
            .errors()[0]
            .clone()
    }

    #[test]
    fn a_span_is_underlined_where_its_visible_text_is() {
        // TOML refuses the control characters of ASCII, and accepts all others.
        let shown = PrintableFinding::from(&wrong(
            "# \u{202e}\u{9b}é\n[model]\nprovider = \"scripted\"\n\"\u{202e}\" = 1\n[tool]\n",
        ));
        let text = shown.source.inner();
        assert!(
            text.starts_with("# \\u{202e}\\u{9b}é\n") && shown.source.name() == "p␛.toml",
            "{text}"
        );
        let at: Vec<_> = shown
            .labels
            .iter()
            .map(|label| &text[label.offset()..label.offset() + label.len()])
            .collect();
        assert_eq!(at, ["\"\\u{202e}\""], "{shown:?}");
        assert!(!shown.message.contains('\u{202e}'), "{}", shown.message);
    }
}
