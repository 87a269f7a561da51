//! The table `[preload]`: files whose content the model gets from the start.
//!
//! `program.rs` says what `Section`, `Value` and `Reader` are.

use serde_json::{Value as Json, json};

use super::{Diagnostic, Keyword, Node, Reader, Rules, Section, Value, WithSpan};

/// `[preload]` as written.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
pub struct PreloadSection {
    /// The files, each a path, or a table that says how much of the file the model gets. They are
    /// read when the program is compiled, so that processes need no permission to read them. Of a
    /// file over the limits for direct output the system prompt shows a preview, and the file is a
    /// descriptor; a program without descriptors shows it in full.
    #[key(max_items = 1024)]
    pub files: Vec<PreloadFile>,
    /// Where relative paths in `files` start.
    pub relative_to: RelativeTo,
}

/// An entry of `files`: a path, or a table.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
#[section(
    shorthand = path,
    check = PreloadFile::check,
    expected = "a path, or a table with `path`",
    list = "a list of paths, or of tables with `path`"
)]
pub struct PreloadFile {
    /// The file.
    #[key(required)]
    pub path: WithSpan<String>,
    /// The only lines that the model gets, such as `"10-40"`. They are shown in full.
    pub lines: Option<WithSpan<LineRange>>,
    /// Whether the whole file is shown, however large it is.
    pub full: Option<WithSpan<bool>>,
}

impl PreloadFile {
    /// Whether the whole file is shown, however large it is.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full.as_ref().is_some_and(|full| full.value)
    }

    /// Refuses two answers to the question how much is shown. Drops an entry without a path, which
    /// was reported.
    fn check(self, table: &mut Reader<'_>) -> Option<Self> {
        if self.path.value.is_empty() {
            return None;
        }
        if let (Some(full), Some(_)) = (&self.full, &self.lines) {
            let message = "`lines` names a part of the file, and `full` is about all of it";
            let error = Diagnostic::error(full.span.clone(), message, "contradicts `lines`");
            table.report(error.help("keep one of them"));
            return None;
        }
        Some(self)
    }
}

/// Lines of a file, counted from 1: `10-40`, or `10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRange {
    /// The first line.
    pub first: u64,
    /// The last line. The file may end before it.
    pub last: u64,
}

impl LineRange {
    /// Parses `10-40` or `10`. `None` if it is neither, if a line is 0, or if the range is empty.
    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (1 <= first && first <= last).then_some(Self { first, last })
    }
}

impl std::fmt::Display for LineRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl Value for LineRange {
    const EXPECTED: &'static str = "lines, such as \"10-40\" or \"7\"";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let Some(text) = node.get_ref().as_str() else {
            table.report_wrong_type(key, node, rules.expected::<Self>());
            return None;
        };
        let range = Self::parse(text);
        if range.is_none() {
            let valid = "a line from 1 on, or the first and the last line, as in \"10-40\"";
            table.report_out_of_range(key, node, valid);
        }
        range
    }

    fn schema(_rules: &Rules) -> Json {
        json!({ "type": "string", "pattern": "^ *[0-9]+ *(- *[0-9]+ *)?$" })
    }
}

/// Where the relative paths of `[preload]` start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Keyword)]
pub enum RelativeTo {
    /// In the folder of the program file.
    #[default]
    Program,
    /// In the working directory of the program that embeds the compiler.
    #[word("cwd")]
    WorkingDirectory,
}
