//! Large real files through a whole kernel: opened, paged to the end, searched, exported, compared
//! byte for byte. Each text also in other encodings, with CR LF, and with a broken byte; what
//! Python reads in it is compared with what is shown.
//!
//! Needs the folder `DORMOUSE_LARGE` with the files that `.ci/large` fetches, which runs this, and
//! Python.

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
        .model("m", Scripted::without_script())
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

/// The text of an answer, with the line ends that it states.
fn shown(xml: &str) -> String {
    let document = Document::parse(xml).unwrap();
    let root = document.root_element();
    let text: String = root.children().filter_map(|node| node.text()).collect();
    match root.attribute("line_ending") {
        Some("crlf") => text.replace('\n', "\r\n"),
        _ => text,
    }
}

/// A text in another encoding or with other line ends: its bytes, and how Python decodes them.
struct Variant {
    name: &'static str,
    python_encoding: &'static str,
    bytes: Vec<u8>,
    /// What an answer states of it.
    attribute: Option<(&'static str, &'static str)>,
}

/// The variants of a text, which begins with a line that is not ASCII.
fn variants(text: &str) -> [Variant; 4] {
    let text = format!("Gr\u{f6}\u{df}e 12 \u{b0}C, Caf\u{e9}\n{text}");
    let middle = text.floor_char_boundary(text.len() / 2);
    let broken = [
        &text.as_bytes()[..middle],
        &[0xff],
        &text.as_bytes()[middle..],
    ]
    .concat();
    let utf16 = ['\u{feff}']
        .into_iter()
        .chain(text.chars())
        .collect::<String>();
    // Characters that Windows-1252 does not have become question marks.
    let latin = text
        .chars()
        .map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?'));
    let latin = latin.map(|byte| {
        if (0x80..0xa0).contains(&byte) {
            b'?'
        } else {
            byte
        }
    });
    [
        Variant {
            name: "Windows-1252",
            python_encoding: "cp1252",
            bytes: latin.collect(),
            attribute: Some(("encoding", "windows-1252")),
        },
        Variant {
            name: "UTF-16LE",
            python_encoding: "utf-16",
            bytes: utf16.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            attribute: Some(("encoding", "utf-16le")),
        },
        Variant {
            name: "CRLF",
            python_encoding: "utf-8",
            bytes: text
                .replace("\r\n", "\n")
                .replace('\n', "\r\n")
                .into_bytes(),
            attribute: None,
        },
        Variant {
            name: "a broken byte",
            python_encoding: "utf-8",
            bytes: broken,
            attribute: Some(("replaced_bytes", "1")),
        },
    ]
}

/// What Python reads in a file: the decoded text, how often the needle occurs in it, and how many
/// lines end with this character, and how many are empty.
fn python(path: &Path, encoding: &str, needle: &str, last: &str) -> (String, [u64; 3]) {
    const SCRIPT: &str = "import re, sys\n\
        path, encoding, needle, last = sys.argv[1:]\n\
        text = open(path, 'rb').read().decode(encoding, 'replace')\n\
        lines = re.split('\\r?\\n', text)\n\
        lines = lines[:-1] if lines[-1] == '' else lines\n\
        print(text.count(needle), sum(line.endswith(last) for line in lines), lines.count(''))\n\
        sys.stdout.flush()\n\
        sys.stdout.buffer.write(text.encode())\n";
    let output = std::process::Command::new("python3")
        .args(["-c", SCRIPT])
        .arg(path)
        .args([encoding, needle, last])
        .output()
        .expect("python3 runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let output = String::from_utf8(output.stdout).unwrap();
    let (counts, text) = output.split_once('\n').unwrap();
    let counts: Vec<_> = counts
        .split(' ')
        .map(|count| count.parse().unwrap())
        .collect();
    (text.to_owned(), counts.try_into().unwrap())
}

/// Checks all variants of the file at `path`. `last` is a character that ends lines of it.
async fn check_variants(path: &Path, needle: &str, last: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    for variant in variants(&text) {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("variant");
        std::fs::write(&file, &variant.bytes).unwrap();
        let (decoded, counts) = python(&file, variant.python_encoding, needle, last);
        let process = process(root.path()).await;
        let opened = process.open_file("variant", Some(4_000)).await.unwrap();
        let name = format!("{} in {}", path.display(), variant.name);
        if let Some((key, value)) = variant.attribute {
            assert!(
                opened.text.contains(&format!(" {key}=\"{value}\"")),
                "{name}"
            );
        }
        check_pages(&process, attribute(&opened.text, "pages"), &decoded, &name).await;
        check_counts(&process, needle, last, counts, &name).await;
        check_exports(&process, root.path(), &opened.text, &variant.bytes).await;
        let pages = attribute(&opened.text, "pages");
        eprintln!(
            "{name}: {} bytes, {pages} pages, {counts:?} matches",
            variant.bytes.len()
        );
    }
}

async fn check_pages(process: &Process, pages: u64, expected: &str, name: &str) {
    let mut read = String::with_capacity(expected.len());
    for page in 1..=pages {
        let answer = call(process, "read_fd", json!({ "fd": "fd:1", "page": page })).await;
        assert!(!answer.contains("&#13;"), "{name}, page {page}");
        read.push_str(&shown(&answer));
    }
    assert_joined(&read, &with_visible_controls(expected), name);
}

/// The text with its control characters and marks of direction as answers show them: pictures, and
/// numbers such as `[U+200F]`.
fn with_visible_controls(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' | '\n' | '\r' => shown.push(c),
            '\0'..' ' => shown.extend(char::from_u32(0x2400 + u32::from(c))),
            '\u{7f}' => shown.push('\u{2421}'),
            '\u{80}'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' => {
                shown.push_str(&format!("[U+{:04X}]", u32::from(c)));
            }
            _ => shown.push(c),
        }
    }
    shown
}

/// The joined pages are the text. A failure shows where they first differ.
fn assert_joined(read: &str, expected: &str, name: &str) {
    if read == expected {
        return;
    }
    let same = read.chars().zip(expected.chars());
    let at = same.take_while(|(read, expected)| read == expected).count();
    let around =
        |text: &str| -> String { text.chars().skip(at.saturating_sub(40)).take(80).collect() };
    panic!(
        "{name}: the pages, joined, differ from the text at character {at}:\n{:?}\n{:?}",
        around(read),
        around(expected)
    );
}

async fn check_counts(process: &Process, needle: &str, last: &str, counts: [u64; 3], name: &str) {
    let last = format!("[{last}]$");
    for ((query, is_regex), count) in [(needle, false), (&last, true), ("^$", true)]
        .into_iter()
        .zip(counts)
    {
        let args = json!({ "fd": "fd:1", "query": query, "regex": is_regex, "max_matches": 1 });
        let found = call(process, "search_fd", args).await;
        assert_eq!(attribute(&found, "matches"), count, "{name}: {query}");
    }
}

/// The export of all, and that of the lines in three parts, are the bytes.
async fn check_exports(process: &Process, root: &Path, opened: &str, bytes: &[u8]) {
    call(
        process,
        "fd_to_file",
        json!({ "fd": "fd:1", "file_path": "whole" }),
    )
    .await;
    let lines = attribute(opened, "total_lines");
    let third = lines.div_ceil(3);
    for first in (1..=lines).step_by(third as usize) {
        let args = json!({
            "fd": "fd:1", "file_path": "parts", "mode": "append",
            "start_line": first, "end_line": lines.min(first + third - 1),
        });
        call(process, "fd_to_file", args).await;
    }
    for export in ["whole", "parts"] {
        assert!(
            std::fs::read(root.join(export)).unwrap() == bytes,
            "{export} differs"
        );
    }
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

    // What is shown of binary content is its base64.
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
    assert_joined(&read, &with_visible_controls(&text), name);

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

/// A test of each file: its name, a text to search for, and a character that ends lines of it.
macro_rules! checks {
    ($($test:ident: $file:literal, $needle:literal, $last:literal;)*) => {$(
        #[tokio::test]
        #[ignore = "needs the files of .ci/large"]
        async fn $test() {
            let path = folder().join($file);
            check(&path, $needle).await;
            check_variants(&path, $needle, $last).await;
        }
    )*};
}

checks! {
    json_of_20_mb_on_one_line: "data.json", "chrome_android", "}";
    source_code_of_9_mb: "typescript.js", "function createScanner(", ";";
    lines_of_8_mb: "BidiTest.txt", "L R AL", "7";
    minified_code: "plotly.min.js", "prototype", ";";
    records: "UnicodeData.txt", "LATIN SMALL", ";";
    indented_json: "iso_639-3.json", "alpha_3", ",";
    xml_in_many_languages: "freedesktop.org.xml", "mime-type", ">";
    an_indented_list: "pci.ids", "Ethernet", "r";
}

#[tokio::test]
#[ignore = "needs the files of .ci/large"]
async fn a_binary() {
    check(&std::env::current_exe().unwrap(), "AAAAAAAA").await;
}
