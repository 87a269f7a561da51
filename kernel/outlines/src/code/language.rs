//! The supported languages, and how the language of a text is recognised.

use std::collections::HashSet;
use std::sync::OnceLock;

use tree_sitter::Query;

/// A language, in order of preference if a text could be several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Rust,
    Python,
    Go,
    Java,
    C,
    Cpp,
    JavaScript,
    TypeScript,
    Tsx,
}

const TYPESCRIPT: &str = concat!(
    include_str!("queries/ecmascript.scm"),
    include_str!("queries/typescript.scm")
);

impl Language {
    pub(super) const ALL: [Self; 9] = [
        Self::Rust,
        Self::Python,
        Self::Go,
        Self::Java,
        Self::C,
        Self::Cpp,
        Self::JavaScript,
        Self::TypeScript,
        Self::Tsx,
    ];

    /// Recognises a language by the last word of the source that has a known file extension, as in
    /// `file:src/main.rs` or `tool:read /a/b.py`.
    pub(super) fn of_source(source: &str) -> Option<Self> {
        source.split_whitespace().rev().find_map(|word| {
            let (_, extension) = word
                .trim_end_matches(|c: char| !c.is_alphanumeric() && c != '+')
                .rsplit_once('.')?;
            Self::ALL
                .into_iter()
                .find(|language| language.extensions().contains(&extension))
        })
    }

    /// Recognises a language by the shebang line.
    pub(super) fn of_shebang(text: &str) -> Option<Self> {
        let line = text.strip_prefix("#!")?.lines().next()?;
        let program = line
            .split(['/', ' ', '\t'])
            .rfind(|word| word.chars().any(char::is_alphabetic))?;
        match program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') {
            "python" | "pypy" => Some(Self::Python),
            "node" => Some(Self::JavaScript),
            "deno" | "bun" | "ts-node" | "tsx" => Some(Self::TypeScript),
            "rust-script" => Some(Self::Rust),
            _ => None,
        }
    }

    /// File extensions. C headers are read as C++, whose grammar accepts both.
    fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Rust => &["rs"],
            Self::Python => &["py", "pyi", "pyw"],
            Self::Go => &["go"],
            Self::Java => &["java"],
            Self::C => &["c"],
            Self::Cpp => &[
                "h", "cc", "cpp", "cxx", "c++", "hh", "hpp", "hxx", "h++", "C", "H",
            ],
            Self::JavaScript => &["js", "jsx", "mjs", "cjs"],
            Self::TypeScript => &["ts", "mts", "cts"],
            Self::Tsx => &["tsx"],
        }
    }

    pub(super) fn grammar(self) -> tree_sitter::Language {
        match self {
            Self::Rust => tree_sitter_rust::LANGUAGE,
            Self::Python => tree_sitter_python::LANGUAGE,
            Self::Go => tree_sitter_go::LANGUAGE,
            Self::Java => tree_sitter_java::LANGUAGE,
            Self::C => tree_sitter_c::LANGUAGE,
            Self::Cpp => tree_sitter_cpp::LANGUAGE,
            Self::JavaScript => tree_sitter_javascript::LANGUAGE,
            Self::TypeScript => tree_sitter_typescript::LANGUAGE_TYPESCRIPT,
            Self::Tsx => tree_sitter_typescript::LANGUAGE_TSX,
        }
        .into()
    }

    /// The patterns of its definitions. Compiled once.
    pub(super) fn patterns(self) -> &'static Patterns {
        static PATTERNS: [OnceLock<Patterns>; Language::ALL.len()] =
            [const { OnceLock::new() }; Language::ALL.len()];
        PATTERNS[self as usize].get_or_init(|| Patterns::new(&self.grammar(), self.query_text()))
    }

    fn query_text(self) -> &'static str {
        match self {
            Self::Rust => include_str!("queries/rust.scm"),
            Self::Python => include_str!("queries/python.scm"),
            Self::Go => include_str!("queries/go.scm"),
            Self::Java => include_str!("queries/java.scm"),
            Self::C => include_str!("queries/c.scm"),
            Self::Cpp => concat!(
                include_str!("queries/c.scm"),
                include_str!("queries/cpp.scm")
            ),
            Self::JavaScript => {
                concat!(
                    include_str!("queries/ecmascript.scm"),
                    include_str!("queries/javascript.scm")
                )
            }
            Self::TypeScript | Self::Tsx => TYPESCRIPT,
        }
    }
}

/// The query that finds the definitions of a language.
#[derive(Debug)]
pub(super) struct Patterns {
    pub(super) query: Query,
    /// The kinds of the nodes that are definitions: those at which patterns of the query start.
    pub(super) definition_kinds: HashSet<u16>,
}

impl Patterns {
    fn new(grammar: &tree_sitter::Language, text: &str) -> Self {
        let query = Query::new(grammar, text)
            .expect("a query is written for its grammar: tests compile each");
        let kind = |pattern: usize| {
            let pattern = text[query.start_byte_for_pattern(pattern)..].trim_start_matches('(');
            let kind = pattern
                .split(|c: char| c != '_' && !c.is_ascii_lowercase())
                .next()
                .unwrap_or_default();
            grammar.id_for_node_kind(kind, true)
        };
        let definition_kinds = (0..query.pattern_count()).map(kind).collect();
        Self {
            query,
            definition_kinds,
        }
    }
}
