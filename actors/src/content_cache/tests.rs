//! The cache counts each content once, stays within its limit, and drops entries that have no
//! owner.

use std::collections::HashMap as Map;
use std::ops::Range;

use bytes::Bytes;
use dormouse_content::{BlobReader, Unreadable};

use super::*;

/// The durable contents, by hash.
#[derive(Debug, Default)]
struct Disk(Mutex<Map<ContentHash, Bytes>>);

struct File(Bytes);

impl BlobStore for Disk {
    fn open(&self, reference: ContentRef) -> Result<Arc<dyn BlobReader>, Unreadable> {
        let bytes = self.0.lock().unwrap().get(&reference.hash).cloned();
        bytes
            .map(|bytes| Arc::new(File(bytes)) as _)
            .ok_or_else(|| Unreadable::new("it is not there"))
    }
}

impl BlobReader for File {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn index(&self) -> Option<Bytes> {
        None
    }

    fn slice(&self, bytes: Range<u64>) -> Result<Bytes, Unreadable> {
        Ok(self.0.slice(bytes.start as usize..bytes.end as usize))
    }
}

/// A cache over a store in memory.
struct Fixture {
    disk: Arc<Disk>,
    content_cache: ContentCache,
}

impl Fixture {
    fn new(limit_bytes: Option<u64>) -> Self {
        let disk = Arc::new(Disk::default());
        Self {
            content_cache: ContentCache::new(disk.clone(), limit_bytes),
            disk,
        }
    }

    /// Adds a content to the store and to the cache.
    fn insert_durable(&self, text: impl Into<Bytes>) -> Content {
        let content = Content::new(text);
        self.disk
            .0
            .lock()
            .unwrap()
            .insert(content.hash(), content.unlimited_reader().bytes().unwrap());
        self.content_cache.insert_durable(vec![content.clone()]);
        content
    }
}

fn text(number: usize) -> String {
    format!("content {number:03}\n").repeat(100)
}

#[test]
fn a_content_is_counted_once_while_it_has_an_owner() {
    let fixture = Fixture::new(None);
    let first = fixture.insert_durable(text(1));
    let clones = vec![first.clone(); 10];
    let second = fixture.insert_durable(text(1));
    let other = fixture.insert_durable(text(2));
    assert_eq!(fixture.content_cache.resident_bytes(), 2_400);
    assert_eq!(
        first.unlimited_reader().bytes().unwrap().as_ptr(),
        second.unlimited_reader().bytes().unwrap().as_ptr(),
        "the bytes are shared"
    );
    drop((first, clones, other));
    assert_eq!(fixture.content_cache.resident_bytes(), 1_200);
    drop(second);
    assert_eq!(fixture.content_cache.resident_bytes(), 0);
    fixture.insert_durable("again");
    assert_eq!(
        fixture.content_cache.resident_bytes(),
        0,
        "the content has no owner any more"
    );
}

#[test]
fn a_content_that_comes_and_goes_has_one_entry() {
    let fixture = Fixture::new(None);
    let reference = fixture.insert_durable(text(1)).reference();
    for _ in 0..10 {
        drop(fixture.content_cache.content(reference));
    }
    let accounting = fixture.content_cache.lock();
    assert_eq!(accounting.contents[&reference.hash].len(), 1);
}

#[test]
fn the_least_recently_read_contents_are_evicted_and_stay_readable() {
    let fixture = Fixture::new(Some(12_000));
    let mut contents: Vec<_> = (0..10)
        .map(|number| fixture.insert_durable(text(number)))
        .collect();
    assert_eq!(fixture.content_cache.resident_bytes(), 12_000);
    contents[0].unlimited_reader().text().unwrap();
    contents.extend((10..13).map(|number| fixture.insert_durable(text(number))));
    let resident = |content: &Content| content.is_resident();
    assert!(resident(&contents[0]) && !resident(&contents[1]) && resident(&contents[12]));
    for (number, content) in contents.iter().enumerate() {
        assert_eq!(content.unlimited_reader().text().unwrap(), text(number));
    }
}

#[test]
fn contents_of_ten_times_the_limit_stay_within_the_limit() {
    let fixture = Fixture::new(Some(12_000));
    let contents: Vec<_> = (0..100)
        .map(|number| {
            let content = fixture.insert_durable(text(number));
            assert!(fixture.content_cache.resident_bytes() <= 12_000);
            content
        })
        .collect();
    assert!(
        contents.iter().enumerate().all(|(number, content)| content
            .unlimited_reader()
            .text()
            .unwrap()
            == text(number))
    );
    assert!(
        fixture.content_cache.resident_bytes() <= 12_000
            && fixture.content_cache.resident_bytes() > 9_000
    );
}

#[test]
fn derived_data_is_counted_and_evicted_with_its_content() {
    let fixture = Fixture::new(Some(20_000));
    let json = fixture.insert_durable(format!("[{}1]", "1,".repeat(2_000)));
    let pretty = json.unlimited_reader().pretty().unwrap().content().clone();
    assert_eq!(
        fixture.content_cache.resident_bytes(),
        json.len_bytes() + pretty.len_bytes()
    );
    let others: Vec<_> = (0..3)
        .map(|number| fixture.insert_durable(text(number)))
        .collect();
    assert!(
        fixture.content_cache.resident_bytes() <= 20_000,
        "{}",
        fixture.content_cache.resident_bytes()
    );
    assert_eq!(*json.unlimited_reader().pretty().unwrap().content(), pretty);
    drop((pretty, others));
    fixture.insert_durable("x");
    assert_eq!(
        fixture.content_cache.resident_bytes(),
        json.resident_bytes()
    );
}

#[test]
fn all_contents_of_one_hash_are_evicted_together() {
    let fixture = Fixture::new(Some(3_000));
    let same_hash = [
        fixture.insert_durable(text(1)),
        fixture.insert_durable(text(1)),
    ];
    let others = [
        fixture.insert_durable(text(2)),
        fixture.insert_durable(text(3)),
    ];
    assert!(
        same_hash.iter().all(|content| !content.is_resident()),
        "contents of one hash share their last read"
    );
    assert!(others[1].is_resident());
}

#[test]
fn an_extracted_part_does_not_keep_the_whole_content_in_memory() {
    let fixture = Fixture::new(Some(20_000));
    let whole = fixture.insert_durable(text(1));
    let part = whole.unlimited_reader().extract(0..12).unwrap();
    let before = part.unlimited_reader().bytes().unwrap().as_ptr();
    fixture.content_cache.insert_durable(vec![part.clone()]);
    assert_ne!(part.unlimited_reader().bytes().unwrap().as_ptr(), before);
}

#[test]
fn reading_back_returns_the_existing_content() {
    let fixture = Fixture::new(None);
    let content = fixture.insert_durable(text(1));
    assert!(
        fixture
            .content_cache
            .content(content.reference())
            .is_same_instance(&content)
    );
    let reference = content.reference();
    drop(content);
    let stored = fixture.content_cache.content(reference);
    assert!(
        !stored.is_resident()
            && fixture
                .content_cache
                .content(reference)
                .is_same_instance(&stored)
    );
    assert_eq!(
        (
            &*stored.unlimited_reader().text().unwrap(),
            fixture.content_cache.resident_bytes()
        ),
        (&*text(1), 0)
    );
}

#[test]
fn dropped_contents_leave_no_entries() {
    let fixture = Fixture::new(None);
    (0..5_000).for_each(|number| drop(fixture.insert_durable(format!("{number}"))));
    assert!(fixture.content_cache.lock().contents.len() <= SPARE_ENTRIES + 1);
}
