//! Tests of contents on disk: a read touches only the chunks that it needs, its result equals that
//! of the same content in memory, and damage is reported.

use std::ops::Range;
use std::sync::Mutex;

use proptest::prelude::*;

use super::units::Unit;
use super::*;

const CHUNK: u64 = 64 << 10;
/// How many bytes before a page a read may touch: it begins with the block of the index (4096 bytes)
/// that contains the byte before the page.
const READ_BEFORE_PAGE: usize = 4096;

/// A blob store with one content. Records the number of each chunk that is read.
#[derive(Default)]
pub(crate) struct Disk {
    bytes: Bytes,
    index: Bytes,
    damaged: Vec<u64>,
    touched: Arc<Mutex<Vec<u64>>>,
    opened: Arc<Mutex<u64>>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk")
    }
}

struct File {
    bytes: Bytes,
    index: Bytes,
    damaged: Vec<u64>,
    touched: Arc<Mutex<Vec<u64>>>,
}

impl BlobStore for Disk {
    fn open(&self, _: ContentRef) -> Result<Arc<dyn BlobReader>, Unreadable> {
        *self.opened.lock().unwrap() += 1;
        let Self {
            bytes,
            index,
            damaged,
            touched,
            ..
        } = self;
        let (bytes, index) = (bytes.clone(), index.clone());
        Ok(Arc::new(File {
            bytes,
            index,
            damaged: damaged.clone(),
            touched: touched.clone(),
        }))
    }
}

impl BlobReader for File {
    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn index(&self) -> Option<Bytes> {
        (!self.index.is_empty()).then(|| self.index.clone())
    }

    fn slice(&self, bytes: Range<u64>) -> Result<Bytes, Unreadable> {
        for chunk in bytes.start / CHUNK..bytes.end.div_ceil(CHUNK) {
            self.touched.lock().unwrap().push(chunk);
            if self.damaged.contains(&chunk) {
                return Err(Unreadable::new(format!("chunk {chunk} is damaged")));
            }
        }
        Ok(self.bytes.slice(bytes.start as usize..bytes.end as usize))
    }
}

/// Returns a resident content, the same content on disk with these damaged chunks, and its store.
pub(crate) fn resident_and_stored(
    bytes: impl Into<Bytes>,
    page_chars: u32,
    damaged: Vec<u64>,
) -> (Content, Content, Arc<Disk>) {
    let resident = Content::new(bytes);
    resident.unlimited_reader().total_pages(page_chars).unwrap();
    let disk = Arc::new(Disk {
        bytes: resident.unlimited_reader().bytes().unwrap(),
        index: resident.serialized_index(),
        damaged,
        ..Disk::default()
    });
    (
        resident.clone(),
        Content::on_disk(resident.reference(), disk.clone()),
        disk,
    )
}

/// Returns the chunks that were read since the last call.
fn drain_touched(disk: &Disk) -> Vec<u64> {
    let mut touched = std::mem::take(&mut *disk.touched.lock().unwrap());
    touched.sort_unstable();
    touched.dedup();
    touched
}

#[test]
fn a_page_of_a_large_content_reads_only_its_chunks() {
    for line in [
        "a line of a log that goes on for a while\n",
        "é and 一 and 😀\n",
        "no line feed at all, ",
    ] {
        let (resident, stored, disk) = resident_and_stored(line.repeat(100_000), 4000, Vec::new());
        let pages = stored.unlimited_reader().total_pages(4000).unwrap();
        assert_eq!(
            (
                stored.unlimited_reader().total_lines(),
                stored.unlimited_reader().total_chars()
            ),
            (
                resident.unlimited_reader().total_lines(),
                resident.unlimited_reader().total_chars()
            )
        );
        assert_eq!(
            drain_touched(&disk).len(),
            0,
            "the totals come from the index"
        );
        for page in [1, 2, pages / 2, pages - 1, pages] {
            let slice = stored.unlimited_reader().page(4000, page).unwrap().unwrap();
            assert_eq!(
                Some(&slice),
                resident
                    .unlimited_reader()
                    .page(4000, page)
                    .unwrap()
                    .as_ref()
            );
            let chunks = drain_touched(&disk);
            let bytes = slice.bytes();
            let (first, last) = (
                bytes.start.saturating_sub(READ_BEFORE_PAGE) as u64 / CHUNK,
                (bytes.end as u64 - 1) / CHUNK,
            );
            assert!(
                chunks.iter().all(|chunk| (first..=last).contains(chunk)),
                "{chunks:?} for {bytes:?}"
            );
        }
        assert_eq!(
            stored
                .unlimited_reader()
                .extract(0..resident.unlimited_reader().shown_bytes().unwrap())
                .unwrap(),
            resident
        );
        assert_eq!(
            drain_touched(&disk).len(),
            0,
            "extracting the whole range reads nothing"
        );
    }
    let (_, stored, disk) = resident_and_stored([0xff, 0, 7].repeat(100_000), 4000, Vec::new());
    assert_eq!(
        stored
            .unlimited_reader()
            .page(4000, 70)
            .unwrap()
            .unwrap()
            .text
            .len(),
        4000
    );
    assert_eq!(
        drain_touched(&disk),
        [3],
        "only the bytes of the requested base64 page are read"
    );
}

#[test]
fn a_stored_content_is_not_read_before_its_first_use() {
    let (resident, stored, disk) = resident_and_stored("text\n".repeat(100_000), 4000, Vec::new());
    assert_eq!(
        (stored.len_bytes(), stored.reference()),
        (500_000, resident.reference())
    );
    assert!(
        stored.clone() == resident && stored.serialized_index().is_empty() && !stored.is_resident()
    );
    stored.unlimited_reader().prepare_page_table(100);
    assert_eq!(
        (drain_touched(&disk).len(), *disk.opened.lock().unwrap()),
        (0, 0),
        "pages of a stored content are counted on first use"
    );
}

#[test]
fn a_damaged_chunk_fails_only_the_reads_that_need_it() {
    let (resident, stored, _) =
        resident_and_stored("0123456789abcde\n".repeat(20_000), 4000, vec![2]);
    let pages = resident.unlimited_reader().total_pages(4000).unwrap();
    let results: Vec<_> = (1..=pages)
        .map(|page| stored.unlimited_reader().page(4000, page))
        .collect();
    let (lost, readable): (Vec<_>, Vec<_>) =
        (1..).zip(results).partition(|(_, slice)| slice.is_err());
    for (page, slice) in readable {
        assert_eq!(slice, resident.unlimited_reader().page(4000, page));
    }
    let lost: Vec<u64> = lost.into_iter().map(|(page, _)| page).collect();
    assert!(!lost.is_empty() && lost.len() < 22, "{lost:?}");
    assert!(
        stored.unlimited_reader().text().is_err()
            && stored.unlimited_reader().bytes().is_err()
            && stored.unlimited_reader().loaded().is_err()
            && stored.unlimited_reader().pretty().is_err()
    );
    assert!(matches!(
        stored.unlimited_reader().units(Unit::Paragraph, ""),
        Err(units::UnitError::Unreadable(_))
    ));
    assert_eq!(
        (
            stored.unlimited_reader().total_lines(),
            stored.unlimited_reader().total_pages(4000)
        ),
        (resident.unlimited_reader().total_lines(), Ok(pages))
    );
}

#[test]
fn without_an_index_a_content_is_read_once_and_indexed_anew() {
    for index in [
        Bytes::new(),
        Bytes::from_static(&[1, 0, 0xff, 0xff]),
        Bytes::from(vec![0; 10_000]),
    ] {
        let (resident, _, disk) = resident_and_stored("é line\n".repeat(50_000), 4000, Vec::new());
        let disk = Arc::new(Disk {
            index,
            bytes: disk.bytes.clone(),
            ..Disk::default()
        });
        let stored = Content::on_disk(resident.reference(), disk.clone());
        assert_eq!(
            stored.unlimited_reader().total_pages(4000),
            resident.unlimited_reader().total_pages(4000)
        );
        assert_eq!(drain_touched(&disk).len(), 7);
        assert_eq!(
            stored.unlimited_reader().page(4000, 80),
            resident.unlimited_reader().page(4000, 80)
        );
        assert!(drain_touched(&disk).len() <= 2);
    }
}

#[test]
fn bytes_that_contradict_the_reference_are_refused() {
    let (resident, _, _) = resident_and_stored("é".repeat(100_000), 4000, Vec::new());
    let other = Arc::new(Disk {
        bytes: vec![0xff; 200_000].into(),
        index: resident.serialized_index(),
        ..Disk::default()
    });
    let stored = Content::on_disk(resident.reference(), other);
    assert!(
        stored.unlimited_reader().page(4000, 3).is_err()
            && stored.unlimited_reader().text().is_err()
            && stored.unlimited_reader().extract(0..2).is_err()
    );
    let reversed = std::ops::Range { start: 5, end: 2 };
    assert!(
        stored.unlimited_reader().slice(reversed).is_err()
            && stored.unlimited_reader().slice(0..1_000_000).is_err()
    );
    let shorter = Content::on_disk(
        resident.reference(),
        Arc::new(Disk {
            bytes: vec![b'a'; 9].into(),
            ..Disk::default()
        }),
    );
    assert!(
        shorter.unlimited_reader().page(4000, 1).is_err()
            && shorter.unlimited_reader().text().is_err()
    );
}

/// Formats the results of all read methods for these arguments.
fn format_reads(content: &Content, page_chars: u32, first: u64, count: u64) -> String {
    let read = |slice: Result<Option<Slice>, Unreadable>| format!("{:?}\n", slice.unwrap());
    let at = content.unlimited_reader().byte_at(first).unwrap();
    [
        read(content.unlimited_reader().pages(page_chars, first, count)),
        read(content.unlimited_reader().lines(first, count)),
        read(content.unlimited_reader().chars(first, count)),
        read(content.unlimited_reader().all().map(Some)),
        format!(
            "{:?}",
            (
                content.unlimited_reader().total_pages(page_chars),
                content.unlimited_reader().total_lines(),
                content.unlimited_reader().total_chars()
            )
        ),
        format!(
            "{:?}",
            (
                content.unlimited_reader().char_at(at),
                content.unlimited_reader().line_at(at),
                content.unlimited_reader().page_at(page_chars, at)
            )
        ),
        format!(
            "{:?}",
            (
                content.unlimited_reader().line_start(first),
                content.unlimited_reader().is_binary(),
                content.unlimited_reader().text(),
                content.unlimited_reader().bytes()
            )
        ),
        format!(
            "{:?}",
            (
                content
                    .unlimited_reader()
                    .pretty()
                    .map(|pretty| pretty.text())
                    .ok(),
                content.unlimited_reader().may_be_json_line()
            )
        ),
        format!(
            "{:?}",
            Unit::ALL.map(|unit| content.unlimited_reader().units(unit, "file:a.rs"))
        ),
        format!(
            "{:?}",
            (
                content.reference(),
                content
                    .unlimited_reader()
                    .extract(0..at)
                    .map(|part| part.unlimited_reader().text())
            )
        ),
    ]
    .concat()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn eviction_changes_no_result_of_a_read(
        pieces in prop::collection::vec(prop_oneof![
            Just("word "), Just("\n"), Just("é一😀"), Just("[1,2]"), Just("# head\n"), Just("fn f() \
                 {}\n"), Just("\u{1b}"),
        ], 0..12),
        times in prop_oneof![4 => 1..20_usize, 1 => 2_000..6_000_usize],
        binary in any::<bool>(),
        page_chars in 1_u32..500,
        (first, count) in (0_u64..300, 0_u64..300),
        has_derived_data in any::<bool>(),
    ) {
        let mut bytes = pieces.concat().repeat(times).into_bytes();
        bytes.extend(binary.then_some(0xff));
        let resident = Content::new(bytes.clone());
        let expected = format_reads(&resident, page_chars, first, count);
        let (evicted, _, disk) = resident_and_stored(bytes, page_chars, Vec::new());
        let holder = evicted.clone();
        let early = evicted.unlimited_reader().page(page_chars, 1).unwrap();
        if has_derived_data {
            let _ = (evicted.unlimited_reader().pretty(), evicted.unlimited_reader().units(Unit::Paragraph, ""));
        }
        let source: Arc<dyn BlobStore> = disk.clone();
        evicted.evict(&source);
        prop_assert_eq!((holder.is_resident(), holder.resident_bytes()), (false, 0));
        prop_assert_eq!(&format_reads(&holder, page_chars, first, count), &expected);
        let stored = Content::on_disk(resident.reference(), source);
        prop_assert_eq!(&format_reads(&stored, page_chars, first, count), &expected);
        prop_assert_eq!(&format_reads(stored.unlimited_reader().loaded().unwrap().content(), page_chars, first, count), &expected);
        prop_assert_eq!(early, resident.unlimited_reader().page(page_chars, 1).unwrap());
        prop_assert!(holder == resident && stored == holder);
    }
}

#[test]
fn equal_contents_can_share_their_bytes() {
    let (first, second) = (
        Content::new("the same"),
        Content::new("the same".to_owned()),
    );
    let address = |content: &Content| content.unlimited_reader().bytes().unwrap().as_ptr();
    assert_ne!(address(&first), address(&second));
    second.share_bytes_with(&first);
    assert_eq!(address(&first), address(&second));
    Content::new("another").share_bytes_with(&first);
    first.share_bytes_with(&Content::new("another"));
    assert_eq!(second, first);
}

#[test]
fn a_detached_part_copies_its_bytes_once() {
    let whole = Content::new("0123456789".repeat(1000));
    let part = whole.unlimited_reader().extract(10..20).unwrap();
    let address = |content: &Content| content.unlimited_reader().bytes().unwrap().as_ptr();
    let shared = address(&part);
    part.copy_if_slice();
    assert!(address(&part) != shared && part.unlimited_reader().text().unwrap() == "0123456789");
    let detached = address(&part);
    part.copy_if_slice();
    assert_eq!(address(&part), detached, "it is copied once");
}

#[test]
fn the_access_clock_orders_reads_and_sums_derived_bytes() {
    let reads = Arc::new(AccessClock::default());
    let (old, new) = (Content::new("[1]"), Content::new("# a\n"));
    assert_eq!(old.last_read(), 0);
    [&old, &new]
        .into_iter()
        .for_each(|content| content.use_clock(&reads));
    assert!(old.last_read() < new.last_read());
    old.unlimited_reader().text().unwrap();
    assert!(old.last_read() > new.last_read());
    let before = old.resident_bytes();
    let pretty = old.unlimited_reader().pretty().unwrap();
    assert_eq!(
        (reads.grown_bytes(), old.resident_bytes()),
        (
            pretty.content().len_bytes(),
            before + pretty.content().len_bytes()
        )
    );
    new.unlimited_reader().units(Unit::Section, "").unwrap();
    assert!(reads.grown_bytes() > pretty.content().len_bytes() && new.resident_bytes() > 4);
}
