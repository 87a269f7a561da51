//! Programs that are killed while they write.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dormouse_objects::{ObjectContents, ObjectOptions};

use crate::stores::{content, name, put, read, stores};

/// A small content, or one that is uploaded in parts.
fn length(seed: u64) -> usize {
    if seed % 10 == 9 { 17 << 20 } else { 100_000 }
}

/// A program that writes contents, and the number of each in a file once it is acknowledged.
fn writer(url: &str, endpoint: Option<&str>, acknowledged: &Path, first: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "kills::the_child_writes_until_it_is_killed",
            "--ignored",
        ])
        .env("URL", url)
        .env("ACKNOWLEDGED", acknowledged)
        .env("FIRST", first.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(endpoint) = endpoint {
        command.env("ENDPOINT", endpoint);
    }
    command.spawn().unwrap()
}

#[test]
#[ignore = "run and killed by the test below"]
fn the_child_writes_until_it_is_killed() {
    let variable = |name: &str| std::env::var(name).ok();
    let mut options = ObjectOptions::new(variable("URL").unwrap());
    if let Some(endpoint) = variable("ENDPOINT") {
        options = options.endpoint(endpoint);
    }
    let contents = ObjectContents::open(options).unwrap();
    let first: u64 = variable("FIRST").unwrap().parse().unwrap();
    let mut acknowledged = File::options()
        .append(true)
        .create(true)
        .open(variable("ACKNOWLEDGED").unwrap())
        .unwrap();
    for seed in first.. {
        put(&contents, &content(length(seed), seed), "index");
        acknowledged
            .write_all(format!("{seed}\n").as_bytes())
            .unwrap();
    }
}

#[test]
fn what_was_acknowledged_is_there_and_whole_after_a_kill() {
    let scratch = tempfile::tempdir().unwrap();
    for store in stores() {
        let file = scratch.path().join("acknowledged");
        let endpoint = store.endpoint.as_deref();
        for round in 0..6 {
            let mut child = writer(&store.url, endpoint, &file, round * 1000);
            std::thread::sleep(Duration::from_millis(300 + 197 * round));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let contents = store.open();
        let acknowledged = fs::read_to_string(&file).unwrap();
        for seed in acknowledged.lines().map(|seed| seed.parse().unwrap()) {
            let bytes = content(length(seed), seed);
            assert_eq!(read(&contents, name(&bytes)), bytes, "{seed}");
        }
        assert!(acknowledged.lines().count() > 5, "{acknowledged}");
        // What was not acknowledged is whole or absent.
        for object in contents.list() {
            let name = object.unwrap().name;
            assert_eq!(crate::stores::name(&read(&contents, name)), name);
        }
        fs::remove_file(&file).unwrap();
    }
}
