//! The cost of descriptors, compared with what the machine can do with the same bytes in the same
//! run: copying them, checking them as UTF-8 and counting their lines, searching them. What the
//! index takes in memory is printed first.

use std::cell::Cell;
use std::hint::black_box;

use bytes::Bytes;
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use dormouse_content::{Content, Slice};
use dormouse_kernel::syscall::Call;
use dormouse_kernel::syscall::search_fd;
use dormouse_kernel::table::Table;
use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::record::Entry;
use serde_json::json;

const MB: usize = 1_000_000;
const PAGE_CHARS: u32 = 4000;
const TEXTS: [&str; 4] = [
    "lines_of_80",
    "one_line",
    "lines_not_ascii",
    "lines_of_emoji_and_cjk",
];

fn main() {
    TEXTS.iter().for_each(|kind| print_index_bytes(kind));
    divan::main();
}

fn print_index_bytes(kind: &str) {
    let content = Content::new(text(kind, 10 * MB));
    let (lines, index) = (
        content
            .unlimited_reader()
            .total_lines()
            .expect("it is in memory"),
        content.index_bytes(),
    );
    let pages = content
        .unlimited_reader()
        .total_pages(PAGE_CHARS)
        .expect("it is in memory");
    let table = content.index_bytes() - index;
    let (per_line, per_page) = (index as f64 / lines as f64, table as f64 / pages as f64);
    eprintln!(
        "index of 10 MB of {kind}: {index} bytes, {per_line:.3} a line; {table} bytes of pages, \
         {per_page:.2} a page"
    );
}

fn text(kind: &str, len: usize) -> Bytes {
    let line = match kind {
        "lines_of_80" => {
            "the quick brown fox jumps over the lazy dog, and then it goes to sleep at noon.\n"
        }
        "one_line" => "{\"name\":\"value\",\"list\":[1,2,3,4,5,6,7,8,9]},",
        "lines_of_emoji_and_cjk" => &format!("{}a\n", "😀🎉机敏的狐狸👍🏽跳过懒狗🐕。".repeat(5)),
        _ => {
            "der flinke Fuchs springt über den müden Hund, 机敏的狐狸跳过懒狗, and then it sleeps.\n"
        }
    };
    Bytes::from(line.repeat(len / line.len()))
}

fn entry(bytes: Bytes) -> Entry<Content> {
    Entry::new(Content::new(bytes), PAGE_CHARS, "tool:bench", 0)
}

#[divan::bench(args = TEXTS, sample_count = 20)]
fn limit_memcpy_100_mb(bencher: Bencher<'_, '_>, kind: &str) {
    let bytes = text(kind, 100 * MB);
    let mut copy = vec![0_u8; bytes.len()];
    bencher
        .counter(BytesCount::new(bytes.len()))
        .bench_local(|| black_box(&mut copy).copy_from_slice(&bytes));
}

#[divan::bench(args = TEXTS, sample_count = 20)]
fn limit_utf8_and_newlines_100_mb(bencher: Bencher<'_, '_>, kind: &str) {
    let bytes = text(kind, 100 * MB);
    bencher
        .counter(BytesCount::new(bytes.len()))
        .bench_local(|| {
            (
                std::str::from_utf8(black_box(&bytes)).is_ok(),
                memchr::memchr_iter(b'\n', black_box(&bytes)).count(),
            )
        });
}

#[divan::bench(args = TEXTS, sample_count = 20)]
fn create_100_mb(bencher: Bencher<'_, '_>, kind: &str) {
    let bytes = text(kind, 100 * MB);
    bencher
        .counter(BytesCount::new(bytes.len()))
        .bench_local(|| Content::new(black_box(&bytes).clone()));
}

#[divan::bench(args = TEXTS, sample_count = 20)]
fn create_and_paginate_100_mb(bencher: Bencher<'_, '_>, kind: &str) {
    let bytes = text(kind, 100 * MB);
    bencher
        .counter(BytesCount::new(bytes.len()))
        .bench_local(|| {
            Content::new(black_box(&bytes).clone())
                .unlimited_reader()
                .total_pages(PAGE_CHARS)
                .expect("it is in memory")
        });
}

/// So many pages are read in a run, since one costs by chance more or less than the next: what is
/// scanned depends on its position between two counts of the index.
const PAGES: u64 = 64;

/// `first`, `middle` and `last` are neighbours. `anywhere` are pages far from each other: they are
/// in no cache, and so cost what memory costs.
#[divan::bench(args = ["first", "middle", "last", "anywhere"], consts = [1, 100, 1000])]
fn read_64_pages_of_mb<const SIZE: usize>(bencher: Bencher<'_, '_>, place: &str) {
    let content = entry(text("lines_of_80", SIZE * MB)).content;
    let total = content
        .unlimited_reader()
        .total_pages(PAGE_CHARS)
        .expect("it is in memory");
    let turn = Cell::new(0);
    let page = |number| match place {
        "first" => 1 + number,
        "middle" => total / 2 + number,
        "last" => total - number,
        _ => 1 + turn.replace(turn.get() + 1) * 1_000_003 % total,
    };
    bencher.counter(ItemsCount::new(PAGES)).bench_local(|| {
        (0..PAGES)
            .filter_map(|number| {
                content
                    .unlimited_reader()
                    .page(PAGE_CHARS, black_box(page(number)))
                    .expect("it is in memory")
            })
            .for_each(keep)
    });
}

fn keep(page: Slice) {
    black_box(page);
}

#[divan::bench(args = TEXTS, sample_count = 20)]
fn limit_memmem_100_mb(bencher: Bencher<'_, '_>, kind: &str) {
    let bytes = text(kind, 100 * MB);
    let finder = memchr::memmem::Finder::new("zebra crossing");
    bencher
        .counter(BytesCount::new(bytes.len()))
        .bench_local(|| finder.find_iter(black_box(&bytes)).count());
}

#[divan::bench(args = TEXTS, sample_count = 20)]
fn search_100_mb(bencher: Bencher<'_, '_>, kind: &str) {
    search(
        bencher,
        kind,
        r#"{"fd": "fd:1", "query": "zebra crossing"}"#,
    );
}

/// Searches for which the scan is an automaton: its limit is that of the crate `regex`.
const PATTERNS: [(&str, &str); 3] = [
    ("case_insensitive", r"(?i)Zebra Crossing"),
    ("regex_with_literal", r"zebra\s+crossing"),
    ("regex_of_classes", r"[A-Z]\w+ing\b"),
];

fn pattern(name: &str) -> &'static str {
    PATTERNS
        .iter()
        .find(|(known, _)| *known == name)
        .expect("it is one of them")
        .1
}

#[divan::bench(args = PATTERNS.map(|(name, _)| name), sample_count = 20)]
fn limit_regex_100_mb(bencher: Bencher<'_, '_>, name: &str) {
    let bytes = text("lines_of_80", 100 * MB);
    let regex = regex::Regex::new(pattern(name)).expect("it is valid");
    let text = str::from_utf8(&bytes).expect("it is text");
    bencher
        .counter(BytesCount::new(bytes.len()))
        .bench_local(|| regex.find_iter(black_box(text)).count());
}

#[divan::bench(args = PATTERNS.map(|(name, _)| name), sample_count = 20)]
fn search_regex_100_mb(bencher: Bencher<'_, '_>, name: &str) {
    let args = match name {
        "case_insensitive" => {
            json!({"fd": "fd:1", "query": "Zebra Crossing", "case_sensitive": false})
        }
        _ => json!({"fd": "fd:1", "query": pattern(name), "regex": true}),
    };
    search(bencher, "lines_of_80", &args.to_string());
}

fn search(bencher: Bencher<'_, '_>, kind: &str, args: &str) {
    let bytes = text(kind, 100 * MB);
    let len = bytes.len();
    let mut table = Table::new();
    table.insert(table.next_id(), entry(bytes));
    let settings = DescriptorSettings::default();
    bencher
        .counter(BytesCount::new(len))
        .bench_local(|| search_fd(&Call::unlimited(black_box(&table), args, &settings, 0)));
}

fn json(len: usize) -> Bytes {
    let item = r#"{"id":12345,"name":"a name of some length","tags":["one","two"],"score":0.75,"none":null}"#;
    Bytes::from(format!("[{}]", vec![item; len / item.len()].join(",")))
}

/// Reading JSON into nothing, which reformatting it does first.
#[divan::bench(sample_count = 20)]
fn limit_parse_20_mb_of_json(bencher: Bencher<'_, '_>) {
    let bytes = json(20 * MB);
    bencher
        .counter(BytesCount::new(bytes.len()))
        .bench_local(|| serde_json::from_slice::<serde::de::IgnoredAny>(black_box(&bytes)).is_ok());
}

#[divan::bench(sample_count = 20)]
fn reformat_20_mb_of_json(bencher: Bencher<'_, '_>) {
    let bytes = json(20 * MB);
    bencher
        .counter(BytesCount::new(bytes.len()))
        .with_inputs(|| Content::new(bytes.clone()))
        .bench_local_values(|content| {
            content
                .unlimited_reader()
                .pretty()
                .map(|pretty| pretty.total_lines())
                .is_ok()
        });
}

#[divan::bench]
fn fork_table_of_100_x_1_mb(bencher: Bencher<'_, '_>) {
    let bytes = text("lines_of_80", MB);
    let mut table = Table::new();
    for _ in 0..100 {
        table.insert(table.next_id(), entry(bytes.to_vec().into()));
    }
    bencher.bench_local(|| black_box(&table).clone());
}

#[divan::bench(sample_count = 20)]
fn limit_deep_copy_of_100_x_1_mb(bencher: Bencher<'_, '_>) {
    let contents: Vec<Vec<u8>> = (0..100).map(|_| text("lines_of_80", MB).to_vec()).collect();
    bencher.bench_local(|| black_box(&contents).clone());
}
