//! What a descriptor costs, beside what the machine can do with the same bytes in the same run: copying them, checking them
//! as UTF-8 and counting their lines, searching them.

use std::hint::black_box;

use bytes::Bytes;
use divan::Bencher;
use divan::counter::BytesCount;
use dormouse_kernel::content::Content;
use dormouse_kernel::syscall::search_fd;
use dormouse_kernel::table::Table;
use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::record::Entry;

const MB: usize = 1_000_000;
const PAGE_CHARS: u32 = 4000;
const TEXTS: [&str; 3] = ["lines_of_80", "one_line", "lines_not_ascii"];

fn main() {
    divan::main();
}

fn text(kind: &str, len: usize) -> Bytes {
    let line = match kind {
        "lines_of_80" => "the quick brown fox jumps over the lazy dog, and then it goes to sleep at noon.\n",
        "one_line" => "{\"name\":\"value\",\"list\":[1,2,3,4,5,6,7,8,9]},",
        _ => "der flinke Fuchs springt über den müden Hund, 机敏的狐狸跳过懒狗, and then it sleeps.\n",
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
    bencher.counter(BytesCount::new(bytes.len())).bench_local(|| black_box(&mut copy).copy_from_slice(&bytes));
}

#[divan::bench(args = TEXTS, sample_count = 20)]
fn limit_utf8_and_newlines_100_mb(bencher: Bencher<'_, '_>, kind: &str) {
    let bytes = text(kind, 100 * MB);
    bencher.counter(BytesCount::new(bytes.len())).bench_local(|| {
        (std::str::from_utf8(black_box(&bytes)).is_ok(), memchr::memchr_iter(b'\n', black_box(&bytes)).count())
    });
}

#[divan::bench(args = TEXTS, sample_count = 20)]
fn create_100_mb(bencher: Bencher<'_, '_>, kind: &str) {
    let bytes = text(kind, 100 * MB);
    bencher.counter(BytesCount::new(bytes.len())).bench_local(|| Content::new(black_box(&bytes).clone()));
}

#[divan::bench(args = TEXTS, sample_count = 20)]
fn create_and_paginate_100_mb(bencher: Bencher<'_, '_>, kind: &str) {
    let bytes = text(kind, 100 * MB);
    bencher
        .counter(BytesCount::new(bytes.len()))
        .bench_local(|| Content::new(black_box(&bytes).clone()).total_pages(PAGE_CHARS));
}

#[divan::bench(args = ["first", "middle", "last"], consts = [1, 100])]
fn read_page_of_mb<const SIZE: usize>(bencher: Bencher<'_, '_>, place: &str) {
    let content = entry(text("lines_of_80", SIZE * MB)).content;
    let total = content.total_pages(PAGE_CHARS);
    let page = match place {
        "first" => 1,
        "middle" => total / 2,
        _ => total,
    };
    bencher.bench_local(|| content.page(PAGE_CHARS, black_box(page)));
}

#[divan::bench(args = TEXTS, sample_count = 20)]
fn limit_memmem_100_mb(bencher: Bencher<'_, '_>, kind: &str) {
    let bytes = text(kind, 100 * MB);
    let finder = memchr::memmem::Finder::new("zebra crossing");
    bencher.counter(BytesCount::new(bytes.len())).bench_local(|| finder.find_iter(black_box(&bytes)).count());
}

#[divan::bench(args = TEXTS, sample_count = 20)]
fn search_100_mb(bencher: Bencher<'_, '_>, kind: &str) {
    let bytes = text(kind, 100 * MB);
    let len = bytes.len();
    let mut table = Table::new();
    table.insert(table.next_id(), entry(bytes));
    let settings = DescriptorSettings::default();
    let args = r#"{"fd": "fd:1", "query": "zebra crossing"}"#;
    bencher.counter(BytesCount::new(len)).bench_local(|| search_fd(black_box(&table), args, &settings, 0));
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
        .bench_local_values(|content| content.pretty().map(Content::total_lines).is_ok());
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
