//! The first steps of the book, taken in an empty folder, offline.

use std::process::Command;

use dormouse_tests::book::blocks_of;

/// Runs each block in order, and compares what it printed with the next block of output.
#[test]
fn getting_started_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = blocks_of("docs/getting-started.md");
    for block in blocks.iter().filter(|block| block.tags[0] == "toml") {
        let name = block.file_name().expect("a file says its name");
        std::fs::write(folder.path().join(name), &block.text).unwrap();
    }
    let mut ran = 0;
    for (at, block) in blocks
        .iter()
        .enumerate()
        .filter(|(_, block)| block.is(&["sh"]))
    {
        let program = env!("CARGO_BIN_EXE_dormouse");
        let script = format!(
            "set -eo pipefail\ndormouse() {{ '{program}' \"$@\"; }}\n{}",
            block.text
        );
        let bash = Command::new("bash")
            .args(["-c", &script])
            .current_dir(&folder)
            .env_remove("DORMOUSE_LOG")
            .env_remove("DORMOUSE_STORE_KEY")
            .output()
            .unwrap();
        let place = block.place();
        assert!(bash.status.success(), "{place}: {bash:?}");
        let rest = blocks[at + 1..].iter().take_while(|next| !next.is(&["sh"]));
        if let Some(output) = rest.into_iter().find(|next| next.is(&["text", "output"])) {
            let printed = String::from_utf8(bash.stdout).unwrap();
            let trimmed = |text: &str| {
                text.lines()
                    .map(str::trim_end)
                    .collect::<Vec<_>>()
                    .join("\n")
            };
            assert_eq!(trimmed(&printed), trimmed(&output.text), "{place}");
        }
        ran += 1;
    }
    assert!(ran > 4, "{ran}");
}
