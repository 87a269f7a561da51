//! The code blocks of the book (`docs/`), of `README.md` and of the other pages at the root, so
//! that tests can compile and run them. `docs/introduction.md` says what is done with each kind.

use std::path::{Path, PathBuf};

/// A fenced code block.
#[derive(Clone, Debug)]
pub struct CodeBlock {
    /// The page, by its path from the root of the repository.
    pub page: String,
    /// The line of its opening fence, from 1.
    pub line: usize,
    /// What stands behind the fence, split at spaces and commas: `rust`, `no_run`.
    pub tags: Vec<String>,
    /// Its text.
    pub text: String,
}

impl CodeBlock {
    /// Whether these are its tags.
    #[must_use]
    pub fn is(&self, tags: &[&str]) -> bool {
        self.tags.iter().eq(tags)
    }

    /// The file that its first line names, in a comment: `# reviewer.toml`.
    #[must_use]
    pub fn file_name(&self) -> Option<&str> {
        let name = self.text.lines().next()?.strip_prefix("# ")?;
        name.ends_with(".toml").then_some(name)
    }

    /// Where it stands, for an error.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }
}

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The pages, by their paths from the root.
///
/// # Panics
/// If they cannot be listed.
#[must_use]
pub fn pages() -> Vec<String> {
    let chapters = std::fs::read_dir(root().join("docs")).expect("the folder of the book is there");
    let mut pages: Vec<_> = chapters
        .map(|entry| entry.expect("it can be listed").file_name())
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("docs/{name}"))
        .collect();
    pages.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(str::to_owned));
    pages.sort();
    pages
}

/// The text of a page.
///
/// # Panics
/// If it cannot be read.
#[must_use]
pub fn page(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The code blocks of a page, in order.
///
/// # Panics
/// Where a fence has no tag, or is not closed.
#[must_use]
pub fn blocks_of(name: &str) -> Vec<CodeBlock> {
    let text = page(name);
    let mut blocks = Vec::new();
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let Some(tags) = line.trim_start().strip_prefix("```") else {
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let place = format!("{name}:{number}");
        assert!(
            !tags.trim().is_empty(),
            "{place}: say what the block is; docs/introduction.md lists the kinds"
        );
        let mut block = String::new();
        loop {
            let (line, _) = lines
                .next()
                .unwrap_or_else(|| panic!("{place}: the block is not closed"));
            if line.trim() == "```" {
                break;
            }
            block += line.get(indent..).unwrap_or_default();
            block.push('\n');
        }
        let tags = tags.split([' ', ',']).filter(|tag| !tag.is_empty());
        blocks.push(CodeBlock {
            page: name.to_owned(),
            line: number,
            tags: tags.map(str::to_owned).collect(),
            text: block,
        });
    }
    blocks
}

/// The code blocks of all pages.
#[must_use]
pub fn blocks() -> Vec<CodeBlock> {
    pages().iter().flat_map(|page| blocks_of(page)).collect()
}
