//! Large real files through a whole kernel: opened, paged to the end, searched, exported, compared
//! byte for byte.
//!
//! Needs the folder `DORMOUSE_LARGE` with the files that `.ci/large` fetches, which runs this.

use std::path::{Path, PathBuf};
use std::time::Instant;

use dormouse::content::Content;
use dormouse::host::{LocalHost, Permissions};
use dormouse::models::Scripted;
use dormouse::{Kernel, Process};
use dormouse_tests::program;
use roxmltree::Document;
use serde_json::json;

const TOOLS: &str = "[tools]\nenabled = [\"read_fd\", \"search_fd\", \"fd_to_file\"]\n";

fn folder() -> PathBuf {
    PathBuf::from(
        std::env::var_os("DORMOUSE_LARGE").expect("DORMOUSE_LARGE names the folder: run .ci/large"),
    )
}

async fn process(root: &Path) -> Process {
    let permissions = Permissions::none().allow_read(root).allow_write(root);
    let host = LocalHost::new(permissions, root).unwrap();
    let kernel = Kernel::builder()
        .model("m", Scripted::silent())
        .host(host)
        .build()
        .await
        .unwrap();
    kernel
        .start(program(&kernel, TOOLS))
        .session()
        .without_input()
        .await
        .unwrap()
}

async fn call(process: &Process, tool: &str, args: serde_json::Value) -> String {
    let answer = process.call(tool, args.to_string()).await.unwrap();
    assert!(!answer.is_error, "{tool}: {}", answer.text);
    answer.text.to_string()
}

fn attribute(xml: &str, name: &str) -> u64 {
    let document = Document::parse(xml).unwrap();
    document
        .root_element()
        .attribute(name)
        .unwrap()
        .parse()
        .unwrap()
}

fn shown(xml: &str) -> String {
    let document = Document::parse(xml).unwrap();
    document
        .root_element()
        .children()
        .filter_map(|node| node.text())
        .collect()
}

/// The file at `path`, in pages of 4,000 characters; `needle` is searched for.
async fn check(path: &Path, needle: &str) {
    let bytes = std::fs::read(path).unwrap();
    let root = tempfile::tempdir().unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    std::fs::copy(path, root.path().join(name)).unwrap();
    let process = process(root.path()).await;

    let start = Instant::now();
    let opened = process.open_file(name, Some(4_000)).await.unwrap();
    let opening = start.elapsed();
    let pages = attribute(&opened.text, "pages");

    // What is shown of binary content is its base64; control characters would be shown as pictures.
    let text = Content::new(bytes.clone())
        .unlimited_reader()
        .text()
        .unwrap()
        .to_string();
    assert_eq!(
        attribute(&opened.text, "total_chars"),
        text.chars().count() as u64
    );
    let start = Instant::now();
    let mut read = String::with_capacity(text.len());
    for page in 1..=pages {
        read.push_str(&shown(
            &call(&process, "read_fd", json!({ "fd": "fd:1", "page": page })).await,
        ));
    }
    let reading = start.elapsed();
    assert!(read == text, "{name}: the pages, joined, are not the text");

    let found = call(
        &process,
        "search_fd",
        json!({ "fd": "fd:1", "query": needle, "max_matches": 3 }),
    )
    .await;
    assert_eq!(
        attribute(&found, "matches"),
        text.matches(needle).count() as u64,
        "{name}"
    );

    call(
        &process,
        "fd_to_file",
        json!({ "fd": "fd:1", "file_path": "copy" }),
    )
    .await;
    assert!(
        std::fs::read(root.path().join("copy")).unwrap() == bytes,
        "{name}: the export differs"
    );
    let matches = attribute(&found, "matches");
    eprintln!(
        "{name}: {} bytes, {pages} pages, {matches} of '{needle}'; opened in {opening:?}, read in \
         {reading:?}",
        bytes.len()
    );
}

#[tokio::test]
#[ignore = "needs the files of .ci/large"]
async fn json_of_20_mb_on_one_line() {
    check(&folder().join("data.json"), "chrome_android").await;
}

#[tokio::test]
#[ignore = "needs the files of .ci/large"]
async fn source_code_of_9_mb() {
    check(&folder().join("typescript.js"), "function createScanner(").await;
}

#[tokio::test]
#[ignore = "needs the files of .ci/large"]
async fn lines_of_8_mb() {
    check(&folder().join("BidiTest.txt"), "L R AL").await;
}

#[tokio::test]
#[ignore = "needs the files of .ci/large"]
async fn a_binary() {
    check(&std::env::current_exe().unwrap(), "AAAAAAAA").await;
}
