//! Line ends in patterns. Text whose lines end with CR LF is shown with LF, so a pattern that was
//! written for what is shown must match both.

use memchr::memmem;
use regex_syntax::hir::{Hir, HirKind, Repetition};

/// The line ends of a text, for which a pattern is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum LineEnds {
    Lf,
    /// CR LF, at least once: `^` and `$` match around it, and an LF of the pattern matches it.
    CrLf,
}

impl LineEnds {
    /// The line ends of this text. O(n), at memory bandwidth.
    pub(in super::super) fn of(text: &str) -> Self {
        match memmem::find(text.as_bytes(), b"\r\n") {
            Some(_) => Self::CrLf,
            None => Self::Lf,
        }
    }
}

/// The same pattern with an optional CR before each LF that it names.
pub(super) fn with_optional_cr(hir: Hir) -> Hir {
    match hir.into_kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Look(look) => Hir::look(look),
        HirKind::Class(class) => Hir::class(class),
        HirKind::Literal(literal) => literal_with_optional_cr(&literal.0),
        HirKind::Repetition(repetition) => Hir::repetition(Repetition {
            sub: with_optional_cr(*repetition.sub).into(),
            ..repetition
        }),
        HirKind::Capture(mut capture) => {
            capture.sub = with_optional_cr(*capture.sub).into();
            Hir::capture(capture)
        }
        HirKind::Concat(parts) => Hir::concat(parts.into_iter().map(with_optional_cr).collect()),
        HirKind::Alternation(parts) => {
            Hir::alternation(parts.into_iter().map(with_optional_cr).collect())
        }
    }
}

fn literal_with_optional_cr(literal: &[u8]) -> Hir {
    let mut parts = Vec::new();
    for (index, line) in literal.split(|byte| *byte == b'\n').enumerate() {
        if index > 0 {
            parts.push(line_end());
        }
        parts.push(Hir::literal(line));
    }
    Hir::concat(parts)
}

/// `\r?\n`.
fn line_end() -> Hir {
    let optional_cr = Hir::repetition(Repetition {
        min: 0,
        max: Some(1),
        greedy: true,
        sub: Hir::literal(*b"\r").into(),
    });
    Hir::concat(vec![optional_cr, Hir::literal(*b"\n")])
}
