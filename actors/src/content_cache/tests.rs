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

struct Run {
    disk: Arc<Disk>,
    content_cache: ContentCache,
}

impl Run {
    fn new(limit_bytes: Option<u64>) -> Self {
        let disk = Arc::new(Disk::default());
        Self {
            content_cache: ContentCache::new(disk.clone(), limit_bytes),
            disk,
        }
    }

    /// Returns a content that has become durable.
    fn kept(&self, text: impl Into<Bytes>) -> Content {
        let content = Content::new(text);
        self.disk
            .0
            .lock()
            .unwrap()
            .insert(content.hash(), content.unbounded().bytes().unwrap());
        self.content_cache.insert_durable(vec![content.clone()]);
        content
    }
}

fn text(number: usize) -> String {
    format!("content {number:03}\n").repeat(100)
}

#[test]
fn a_content_counts_once_and_for_as_long_as_somebody_holds_it() {
    let run = Run::new(None);
    let first = run.kept(text(1));
    let clones = vec![first.clone(); 10];
    let second = run.kept(text(1));
    let other = run.kept(text(2));
    assert_eq!(run.content_cache.bytes(), 2_400);
    assert_eq!(
        first.unbounded().bytes().unwrap().as_ptr(),
        second.unbounded().bytes().unwrap().as_ptr(),
        "the bytes are shared"
    );
    drop((first, clones, other));
    assert_eq!(run.content_cache.bytes(), 1_200);
    drop(second);
    assert_eq!(run.content_cache.bytes(), 0);
    run.kept("again");
    assert_eq!(
        run.content_cache.bytes(),
        0,
        "it went before it was counted"
    );
}

#[test]
fn the_least_recently_read_leave_and_answer_all_the_same() {
    let run = Run::new(Some(12_000));
    let mut contents: Vec<_> = (0..10).map(|number| run.kept(text(number))).collect();
    assert_eq!(run.content_cache.bytes(), 12_000);
    contents[0].unbounded().text().unwrap();
    contents.extend((10..13).map(|number| run.kept(text(number))));
    let resident = |content: &Content| content.is_resident();
    assert!(resident(&contents[0]) && !resident(&contents[1]) && resident(&contents[12]));
    for (number, content) in contents.iter().enumerate() {
        assert_eq!(content.unbounded().text().unwrap(), text(number));
    }
}

#[test]
fn ten_times_as_much_as_the_limit_stays_within_it() {
    let run = Run::new(Some(12_000));
    let contents: Vec<_> = (0..100)
        .map(|number| {
            let content = run.kept(text(number));
            assert!(run.content_cache.bytes() <= 12_000);
            content
        })
        .collect();
    assert!(
        contents
            .iter()
            .enumerate()
            .all(|(number, content)| content.unbounded().text().unwrap() == text(number))
    );
    assert!(run.content_cache.bytes() <= 12_000 && run.content_cache.bytes() > 9_000);
}

#[test]
fn what_a_read_makes_counts_and_leaves_with_its_content() {
    let run = Run::new(Some(20_000));
    let json = run.kept(format!("[{}1]", "1,".repeat(2_000)));
    let pretty = json.unbounded().pretty().unwrap().content().clone();
    assert_eq!(
        run.content_cache.bytes(),
        json.len_bytes() + pretty.len_bytes()
    );
    let others: Vec<_> = (0..3).map(|number| run.kept(text(number))).collect();
    assert!(
        run.content_cache.bytes() <= 20_000,
        "{}",
        run.content_cache.bytes()
    );
    assert_eq!(*json.unbounded().pretty().unwrap().content(), pretty);
    drop((pretty, others));
    run.kept("x");
    assert_eq!(run.content_cache.bytes(), json.resident_bytes());
}

#[test]
fn every_holder_of_a_hash_is_evicted_with_the_others() {
    let run = Run::new(Some(3_000));
    let twins = [run.kept(text(1)), run.kept(text(1))];
    let more = [run.kept(text(2)), run.kept(text(3))];
    assert!(
        twins.iter().all(|twin| !twin.is_resident()),
        "both are as old"
    );
    assert!(more[1].is_resident());
}

#[test]
fn a_part_that_stays_does_not_keep_the_whole_in_memory() {
    let run = Run::new(Some(20_000));
    let whole = run.kept(text(1));
    let part = whole.unbounded().extract(0..12).unwrap();
    let before = part.unbounded().bytes().unwrap().as_ptr();
    run.content_cache.insert_durable(vec![part.clone()]);
    assert_ne!(part.unbounded().bytes().unwrap().as_ptr(), before);
}

#[test]
fn reading_back_returns_the_existing_content() {
    let run = Run::new(None);
    let content = run.kept(text(1));
    assert!(
        run.content_cache
            .content(content.reference())
            .is_same(&content)
    );
    let reference = content.reference();
    drop(content);
    let stored = run.content_cache.content(reference);
    assert!(!stored.is_resident() && run.content_cache.content(reference).is_same(&stored));
    assert_eq!(
        (
            &*stored.unbounded().text().unwrap(),
            run.content_cache.bytes()
        ),
        (&*text(1), 0)
    );
}

#[test]
fn contents_that_are_gone_leave_no_entries_behind() {
    let run = Run::new(None);
    (0..5_000).for_each(|number| drop(run.kept(format!("{number}"))));
    assert!(run.content_cache.lock().contents.len() <= SPARE_ENTRIES + 1);
}
