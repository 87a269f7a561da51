//! The cost of durability. Each figure is printed next to the limit of the same disk, measured in
//! the same run.
//!
//! `durability [SECTION] [FOLDER]`: runs one section or all, each in a program of its own, so that
//! their peaks of memory are not mixed. The folder is on the disk to be measured (by default the
//! working directory) and is left unchanged.

mod commits;
mod contents;
mod conversation;
mod rebuilt;
mod restored;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use dormouse_bench::{Outcome, print_line};

/// Runs a section in a folder, and prints its figures.
type Section = fn(&Path) -> Outcome;

const SECTIONS: [(&str, Section); 9] = [
    ("one_fact", commits::one_fact),
    ("many_processes", commits::many_processes),
    ("small_contents", contents::small),
    ("large_contents", contents::large),
    ("second_checkpoint", contents::second_checkpoint),
    ("forks", contents::forks),
    ("conversation", conversation::conversation),
    ("restored", restored::restored),
    ("rebuilt", rebuilt::rebuild_index),
];

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let section = arguments.first().map_or("all", String::as_str);
    let base = arguments
        .get(1)
        .map_or_else(std::env::current_dir, |folder| Ok(PathBuf::from(folder)))?;
    if section == "all" {
        return SECTIONS
            .iter()
            .try_for_each(|(name, _)| run_in_subprocess(name, &base));
    }
    let known = SECTIONS.iter().find(|(name, _)| *name == section);
    let (name, run) =
        known.ok_or_else(|| format!("there is no section {section}: {}", section_names()))?;
    let folder = base.join(format!("dormouse-durability-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let outcome = run(&folder);
    std::fs::remove_dir_all(&folder)?;
    outcome
}

fn section_names() -> String {
    SECTIONS.map(|(name, _)| name).join(", ")
}

fn run_in_subprocess(section: &str, base: &Path) -> Outcome {
    print_line(format_args!("\n{section}"))?;
    let done = Command::new(std::env::current_exe()?)
        .arg(section)
        .arg(base)
        .status()?;
    if done.success() {
        Ok(())
    } else {
        Err(format!("{section} failed").into())
    }
}

/// The result of `operation`, and how long it took.
fn timed<T>(operation: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = operation();
    (value, start.elapsed())
}

/// The disk space of the files below a folder, in bytes.
fn disk_bytes(folder: &Path) -> Outcome<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() {
            disk_bytes(&entry.path())?
        } else {
            metadata.blocks() * 512
        };
    }
    Ok(bytes)
}

/// Bytes that cannot be compressed, and that no other content shares.
fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 80);
    while bytes.len() < length {
        for _ in 0..79 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.push(b' ' + (state % 95) as u8);
        }
        bytes.push(b'\n');
    }
    bytes.truncate(length);
    bytes
}
