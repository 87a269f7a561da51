//! Contents on disk: read in parts, the same value as in memory, and damaged without harm.

use std::ops::Range;
use std::sync::Mutex;

use proptest::prelude::*;

use super::units::Unit;
use super::*;

const CHUNK: u64 = 64 << 10;

/// One content as a store has it, which notes what is read, chunk by chunk.
#[derive(Default)]
struct Disk {
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

/// A content as it was in memory, and the same from the disk with this index and damage.
fn kept(
    bytes: impl Into<Bytes>,
    page_chars: u32,
    damaged: Vec<u64>,
) -> (Content, Content, Arc<Disk>) {
    let here = Content::new(bytes);
    here.unbounded().total_pages(page_chars).unwrap();
    let disk = Arc::new(Disk {
        bytes: here.unbounded().bytes().unwrap(),
        index: here.serialized_index(),
        damaged,
        ..Disk::default()
    });
    (
        here.clone(),
        Content::stored(here.reference(), disk.clone()),
        disk,
    )
}

fn touched(disk: &Disk) -> Vec<u64> {
    let mut touched = std::mem::take(&mut *disk.touched.lock().unwrap());
    touched.sort_unstable();
    touched.dedup();
    touched
}

#[test]
fn a_page_of_a_large_content_touches_its_chunks_alone() {
    for line in [
        "a line of a log that goes on for a while\n",
        "é and 一 and 😀\n",
        "no line feed at all, ",
    ] {
        let (here, there, disk) = kept(line.repeat(100_000), 4000, Vec::new());
        let pages = there.unbounded().total_pages(4000).unwrap();
        assert_eq!(
            (
                there.unbounded().total_lines(),
                there.unbounded().total_chars()
            ),
            (
                here.unbounded().total_lines(),
                here.unbounded().total_chars()
            )
        );
        assert_eq!(touched(&disk).len(), 0, "extents are in the index");
        for page in [1, 2, pages / 2, pages - 1, pages] {
            let slice = there.unbounded().page(4000, page).unwrap().unwrap();
            assert_eq!(
                Some(&slice),
                here.unbounded().page(4000, page).unwrap().as_ref()
            );
            let chunks = touched(&disk);
            let bytes = slice.bytes();
            let (first, last) = (
                bytes.start.saturating_sub(4097) as u64 / CHUNK,
                (bytes.end as u64 - 1) / CHUNK,
            );
            assert!(
                chunks.iter().all(|chunk| (first..=last).contains(chunk)),
                "{chunks:?} for {bytes:?}"
            );
        }
        assert_eq!(
            there
                .unbounded()
                .extract(0..here.unbounded().shown_bytes().unwrap())
                .unwrap(),
            here
        );
        assert_eq!(touched(&disk).len(), 0, "the whole is the content itself");
    }
    let (_, there, disk) = kept([0xff, 0, 7].repeat(100_000), 4000, Vec::new());
    assert_eq!(
        there
            .unbounded()
            .page(4000, 70)
            .unwrap()
            .unwrap()
            .text
            .len(),
        4000
    );
    assert_eq!(touched(&disk), [3], "base64 is made of what it shows");
}

#[test]
fn nothing_is_read_of_a_stored_content_before_somebody_asks() {
    let (here, there, disk) = kept("text\n".repeat(100_000), 4000, Vec::new());
    assert_eq!(
        (there.len_bytes(), there.reference()),
        (500_000, here.reference())
    );
    assert!(there.clone() == here && there.serialized_index().is_empty() && !there.is_resident());
    there.unbounded().prepare(100);
    assert_eq!(
        (touched(&disk).len(), *disk.opened.lock().unwrap()),
        (0, 0),
        "pages of it are counted when they are asked for"
    );
}

#[test]
fn a_damaged_chunk_is_an_error_of_whoever_reads_it_and_of_nobody_else() {
    let (here, there, _) = kept("0123456789abcde\n".repeat(20_000), 4000, vec![2]);
    let pages = here.unbounded().total_pages(4000).unwrap();
    let served: Vec<_> = (1..=pages)
        .map(|page| there.unbounded().page(4000, page))
        .collect();
    let (lost, readable): (Vec<_>, Vec<_>) =
        (1..).zip(served).partition(|(_, slice)| slice.is_err());
    for (page, slice) in readable {
        assert_eq!(slice, here.unbounded().page(4000, page));
    }
    let lost: Vec<u64> = lost.into_iter().map(|(page, _)| page).collect();
    assert!(!lost.is_empty() && lost.len() < 22, "{lost:?}");
    assert!(
        there.unbounded().text().is_err()
            && there.unbounded().bytes().is_err()
            && there.unbounded().loaded().is_err()
            && there.unbounded().pretty().is_err()
    );
    assert!(matches!(
        there.unbounded().units(Unit::Paragraph, ""),
        Err(units::UnitError::Unreadable(_))
    ));
    assert_eq!(
        (
            there.unbounded().total_lines(),
            there.unbounded().total_pages(4000)
        ),
        (here.unbounded().total_lines(), Ok(pages))
    );
}

#[test]
fn without_an_index_a_content_is_read_once_and_indexed_anew() {
    for index in [
        Bytes::new(),
        Bytes::from_static(&[1, 0, 0xff, 0xff]),
        Bytes::from(vec![0; 10_000]),
    ] {
        let (here, _, disk) = kept("é line\n".repeat(50_000), 4000, Vec::new());
        let disk = Arc::new(Disk {
            index,
            bytes: disk.bytes.clone(),
            ..Disk::default()
        });
        let there = Content::stored(here.reference(), disk.clone());
        assert_eq!(
            there.unbounded().total_pages(4000),
            here.unbounded().total_pages(4000)
        );
        assert_eq!(touched(&disk).len(), 7);
        assert_eq!(
            there.unbounded().page(4000, 80),
            here.unbounded().page(4000, 80)
        );
        assert!(touched(&disk).len() <= 2);
    }
}

#[test]
fn what_a_source_hands_out_is_not_trusted_to_fit() {
    let (here, _, _) = kept("é".repeat(100_000), 4000, Vec::new());
    let other = Arc::new(Disk {
        bytes: vec![0xff; 200_000].into(),
        index: here.serialized_index(),
        ..Disk::default()
    });
    let there = Content::stored(here.reference(), other);
    assert!(
        there.unbounded().page(4000, 3).is_err()
            && there.unbounded().text().is_err()
            && there.unbounded().extract(0..2).is_err()
    );
    let reversed = std::ops::Range { start: 5, end: 2 };
    assert!(
        there.unbounded().slice(reversed).is_err()
            && there.unbounded().slice(0..1_000_000).is_err()
    );
    let shorter = Content::stored(
        here.reference(),
        Arc::new(Disk {
            bytes: vec![b'a'; 9].into(),
            ..Disk::default()
        }),
    );
    assert!(shorter.unbounded().page(4000, 1).is_err() && shorter.unbounded().text().is_err());
}

/// Everything that can be asked of a content, with these numbers.
fn answers(content: &Content, page_chars: u32, first: u64, count: u64) -> String {
    let read = |slice: Result<Option<Slice>, Unreadable>| format!("{:?}\n", slice.unwrap());
    let at = content.unbounded().byte_at(first).unwrap();
    [
        read(content.unbounded().pages(page_chars, first, count)),
        read(content.unbounded().lines(first, count)),
        read(content.unbounded().chars(first, count)),
        read(content.unbounded().all().map(Some)),
        format!(
            "{:?}",
            (
                content.unbounded().total_pages(page_chars),
                content.unbounded().total_lines(),
                content.unbounded().total_chars()
            )
        ),
        format!(
            "{:?}",
            (
                content.unbounded().char_at(at),
                content.unbounded().line_at(at),
                content.unbounded().page_at(page_chars, at)
            )
        ),
        format!(
            "{:?}",
            (
                content.unbounded().line_start(first),
                content.unbounded().is_binary(),
                content.unbounded().text(),
                content.unbounded().bytes()
            )
        ),
        format!(
            "{:?}",
            (
                content
                    .unbounded()
                    .pretty()
                    .map(|pretty| pretty.text())
                    .ok(),
                content.unbounded().may_be_json_line()
            )
        ),
        format!(
            "{:?}",
            Unit::ALL.map(|unit| content.unbounded().units(unit, "file:a.rs"))
        ),
        format!(
            "{:?}",
            (
                content.reference(),
                content
                    .unbounded()
                    .extract(0..at)
                    .map(|part| part.unbounded().text())
            )
        ),
    ]
    .concat()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn offloading_is_seen_by_no_holder(
        pieces in prop::collection::vec(prop_oneof![
            Just("word "), Just("\n"), Just("é一😀"), Just("[1,2]"), Just("# head\n"), Just("fn f() \
                 {}\n"), Just("\u{1b}"),
        ], 0..12),
        times in prop_oneof![4 => 1..20_usize, 1 => 2_000..6_000_usize],
        binary in any::<bool>(),
        page_chars in 1_u32..500,
        (first, count) in (0_u64..300, 0_u64..300),
        asked_before in any::<bool>(),
    ) {
        let mut bytes = pieces.concat().repeat(times).into_bytes();
        bytes.extend(binary.then_some(0xff));
        let here = Content::new(bytes.clone());
        let expected = answers(&here, page_chars, first, count);
        let (offloaded, _, disk) = kept(bytes, page_chars, Vec::new());
        let holder = offloaded.clone();
        let early = offloaded.unbounded().page(page_chars, 1).unwrap();
        if asked_before {
            let _ = (offloaded.unbounded().pretty(), offloaded.unbounded().units(Unit::Paragraph, ""));
        }
        let source: Arc<dyn BlobStore> = disk.clone();
        offloaded.evict(&source);
        prop_assert_eq!((holder.is_resident(), holder.resident_bytes()), (false, 0));
        prop_assert_eq!(&answers(&holder, page_chars, first, count), &expected);
        let stored = Content::stored(here.reference(), source);
        prop_assert_eq!(&answers(&stored, page_chars, first, count), &expected);
        prop_assert_eq!(&answers(stored.unbounded().loaded().unwrap().content(), page_chars, first, count), &expected);
        prop_assert_eq!(early, here.unbounded().page(page_chars, 1).unwrap());
        prop_assert!(holder == here && stored == holder);
    }
}

#[test]
fn contents_of_the_same_bytes_share_them() {
    let (first, second) = (
        Content::new("the same"),
        Content::new("the same".to_owned()),
    );
    let at = |content: &Content| content.unbounded().bytes().unwrap().as_ptr();
    assert_ne!(at(&first), at(&second));
    second.share(&first);
    assert_eq!(at(&first), at(&second));
    Content::new("another").share(&first);
    first.share(&Content::new("another"));
    assert_eq!(second, first);
}

#[test]
fn a_part_that_is_detached_keeps_no_more_than_itself() {
    let whole = Content::new("0123456789".repeat(1000));
    let part = whole.unbounded().extract(10..20).unwrap();
    let at = |content: &Content| content.unbounded().bytes().unwrap().as_ptr();
    let shared = at(&part);
    part.detach();
    assert!(at(&part) != shared && part.unbounded().text().unwrap() == "0123456789");
    let detached = at(&part);
    part.detach();
    assert_eq!(at(&part), detached, "it is copied once");
}

#[test]
fn reads_are_told_in_their_order_and_so_is_what_grows() {
    let reads = Arc::new(AccessClock::default());
    let (old, new) = (Content::new("[1]"), Content::new("# a\n"));
    assert_eq!(old.last_read(), 0);
    [&old, &new]
        .into_iter()
        .for_each(|content| content.use_clock(&reads));
    assert!(old.last_read() < new.last_read());
    old.unbounded().text().unwrap();
    assert!(old.last_read() > new.last_read());
    let before = old.resident_bytes();
    let pretty = old.unbounded().pretty().unwrap();
    assert_eq!(
        (reads.grown_bytes(), old.resident_bytes()),
        (
            pretty.content().len_bytes(),
            before + pretty.content().len_bytes()
        )
    );
    new.unbounded().units(Unit::Section, "").unwrap();
    assert!(reads.grown_bytes() > pretty.content().len_bytes() && new.resident_bytes() > 4);
}
