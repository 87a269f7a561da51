//! The code blocks of the book: programs and scripts are compiled, JSON and XML are parsed, and
//! blocks of Rust are known to be documentation tests. Command lines are tested where the program
//! `dormouse` is (`cli/src/book_tests.rs`, `cli/tests/cli/book.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use dormouse::Kernel;
use dormouse::models::Scripted;
use dormouse::program::read_prices;
use dormouse_proto::program::{ProgramFile, Provider, parse};
use dormouse_tests::book::{CodeBlock, blocks, blocks_of, page, pages};
use dormouse_tests::{FnModel, says};

/// What a block can be.
const KINDS: [&[&str]; 11] = [
    &["rust"],
    &["rust", "no_run"],
    &["toml"],
    &["toml", "script"],
    &["toml", "prices"],
    &["sh"],
    &["sh", "cluster"],
    &["json"],
    &["xml"],
    &["text"],
    &["text", "output"],
];

/// A program of nothing but a model.
const MODEL: &str = "[model]\nprovider = \"scripted\"\n";

#[test]
fn every_block_is_of_a_kind_that_is_tested() {
    for block in blocks() {
        assert!(
            KINDS.iter().any(|kind| block.is(kind)),
            "{}: no test knows a block of the kind {:?}: docs/introduction.md lists those there are",
            block.place(),
            block.tags
        );
    }
}

/// The crates whose documentation tests contain chapters.
const CRATES: [&str; 3] = [
    "src/lib.rs",
    "examples/src/lib.rs",
    "adapters/cluster/src/lib.rs",
];

#[test]
fn every_page_with_rust_is_a_documentation_test() {
    let sources = CRATES.map(page).concat();
    for name in pages() {
        let has_rust = blocks_of(&name).iter().any(|block| block.tags[0] == "rust");
        assert!(
            !has_rust || sources.contains(&format!("/{name}\")]")),
            "{name} has blocks of Rust that nothing compiles: include it as the other pages in {CRATES:?}"
        );
    }
}

/// What stands in for the files that a program names.
fn stubs(written: &ProgramFile) -> Vec<(String, String)> {
    let mut stubs = Vec::new();
    for link in &written.linked {
        stubs.push((link.value.path.value.clone(), MODEL.to_owned()));
    }
    let texts = written.preload.files.iter().map(|file| &file.path);
    for name in texts.chain(&written.prompt.system_prompt_file) {
        stubs.push((name.value.clone(), "A text.".to_owned()));
    }
    if let Some(script) = &written.model.model.script {
        let turn = "[[turn]]\ntext = \"Yes.\"\n";
        stubs.push((script.value.clone(), turn.to_owned()));
    }
    if let Some(path) = &written.mcp.config_path {
        let declared: Vec<_> = written
            .mcp
            .servers
            .iter()
            .map(|it| &*it.value.name)
            .collect();
        let servers: Vec<_> = written
            .tools
            .tool_servers
            .iter()
            .map(|served| &*served.name.value)
            .filter(|name| !declared.contains(name))
            .map(|name| format!("{name:?}: {{\"command\": \"server\"}}"))
            .collect();
        let text = format!("{{\"mcpServers\": {{{}}}}}", servers.join(", "));
        stubs.push((path.value.clone(), text));
    }
    stubs
}

/// The program of a block, completed: the files that it is compiled from, by name.
fn files(block: &CodeBlock, chapter: &[CodeBlock]) -> (String, BTreeMap<String, Bytes>) {
    let entry = block.file_name().unwrap_or("program.toml").to_owned();
    let mut text = block.text.clone();
    if !text.lines().any(|line| line.trim() == "[model]") {
        text.insert_str(0, MODEL);
    }
    let mut files: BTreeMap<String, Bytes> = chapter
        .iter()
        .filter_map(|block| Some((block.file_name()?.to_owned(), block.text.clone().into())))
        .collect();
    files.insert(entry.clone(), text.into());
    for text in files.values().cloned().collect::<Vec<_>>() {
        let text = String::from_utf8(text.to_vec()).unwrap();
        for (name, stub) in stubs(&parse(&text).file) {
            files.entry(name).or_insert(stub.into());
        }
    }
    (entry, files)
}

#[tokio::test]
async fn programs_scripts_and_prices_of_the_book_compile() {
    let model = || Arc::new(FnModel(|_| async { Ok(says("Yes.")) }));
    let builder = Provider::words().fold(Kernel::builder(), |builder, word| {
        builder.provider(word, model())
    });
    let kernel = builder.build().await.unwrap();
    let mut compiled = 0;
    for name in pages() {
        let chapter = blocks_of(&name);
        for block in chapter.iter().filter(|block| block.tags[0] == "toml") {
            let place = block.place();
            if block.is(&["toml", "script"]) {
                let script = Scripted::parse(&block.text, "script.toml");
                assert!(script.is_ok(), "{place}: {:?}", script.err());
                continue;
            }
            if block.is(&["toml", "prices"]) {
                let prices = read_prices("prices.toml", &block.text);
                assert!(prices.is_ok(), "{place}: {:?}", prices.err());
                continue;
            }
            let (entry, files) = files(block, &chapter);
            match kernel.compile(&entry, &files) {
                Ok(program) => assert!(
                    program.warnings.is_empty(),
                    "{place}: {:?}",
                    program.warnings
                ),
                Err(errors) => panic!("{place}: {errors}"),
            }
            compiled += 1;
        }
    }
    assert!(compiled > 10, "{compiled}");
}

#[test]
fn json_and_xml_of_the_book_can_be_read() {
    for block in blocks() {
        let place = block.place();
        if block.is(&["json"]) {
            let read = serde_json::from_str::<serde_json::Value>(&block.text);
            assert!(read.is_ok(), "{place}: {:?}", read.err());
        }
        if block.is(&["xml"]) {
            let read = roxmltree::Document::parse(&block.text);
            assert!(read.is_ok(), "{place}: {:?}", read.err());
        }
    }
}

/// `.ci/cluster-demo` runs these.
#[test]
fn command_lines_on_a_cluster_can_be_read_by_bash() {
    let blocks = blocks();
    let of_clusters = blocks.iter().filter(|it| it.is(&["sh", "cluster"]));
    for block in of_clusters {
        let bash = std::process::Command::new("bash")
            .args(["-n", "-c", &block.text])
            .output()
            .expect("the tests need bash");
        assert!(bash.status.success(), "{}: {bash:?}", block.place());
    }
}

/// A page without what no reader sees.
fn without_comments(page: &str) -> String {
    let hidden = page.split("<!--").skip(1);
    let shown = hidden.map(|part| part.split_once("-->").map_or("", |(_, shown)| shown));
    page.split("<!--").take(1).chain(shown).collect()
}

/// Links from page to page lead to pages and headings that exist.
#[test]
fn links_between_pages_lead_somewhere() {
    let anchors = |name: &str| -> Vec<String> {
        let text = page(name);
        let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
        headings
            .map(|line| {
                let title = line.trim_start_matches('#').trim().to_lowercase();
                let kept = title
                    .chars()
                    .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
                kept.collect::<String>().replace(' ', "-")
            })
            .collect()
    };
    let all = pages();
    for name in &all {
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        for target in without_comments(&page(name)).split("](").skip(1) {
            let target = target.split(')').next().unwrap_or_default();
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            if path.contains("://") {
                continue;
            }
            let path = match (path, folder) {
                ("", _) => name.clone(),
                (path, "") => path.to_owned(),
                (path, folder) => format!("{folder}/{path}"),
            };
            let file = dormouse_tests::book::root().join(&path);
            assert!(
                file.exists(),
                "{name} links to {target}, which does not exist"
            );
            assert!(
                anchor.is_empty()
                    || !path.ends_with(".md")
                    || anchors(&path).iter().any(|it| it == anchor),
                "{name} links to {target}: {path} has no such heading"
            );
        }
    }
}

/// Each chapter is in the table of contents, but the table itself.
#[test]
fn every_chapter_is_in_the_summary() {
    let summary = page("docs/SUMMARY.md");
    for name in pages() {
        if let Some(chapter) = name.strip_prefix("docs/").filter(|it| *it != "SUMMARY.md") {
            assert!(
                summary.contains(&format!("({chapter})")),
                "{chapter} is not in docs/SUMMARY.md"
            );
        }
    }
}
