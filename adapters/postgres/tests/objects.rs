//! Large contents in an object store that all shards share.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(feature = "objects")]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use common::{FACTS, SHARDS, append_all, content, for_each_server, put};
use dormouse_actors::ports::{BlobReader, OwnerToken, StoreError};
use dormouse_objects::{ObjectContents, ObjectOptions};
use dormouse_postgres::{
    Database, LargeContent, LargeContents, ObjectCollection, PostgresLog, ShardId,
};
use dormouse_proto::id::ContentHash;
use dormouse_records::{RecordLog, RecordStore};
use dormouse_store_conformance::check_store;

const LARGE: usize = 64 << 10;

/// An object store in a folder, which calls a function before a deletion.
#[derive(Clone)]
struct Objects {
    objects: ObjectContents,
    before_deletion: Arc<Mutex<Option<Hook>>>,
    _folder: Arc<tempfile::TempDir>,
}

type Hook = Box<dyn FnOnce() -> Result<(), StoreError> + Send>;

impl Objects {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}", folder.path().display());
        Self {
            objects: ObjectContents::open(ObjectOptions::new(url)).unwrap(),
            before_deletion: Arc::default(),
            _folder: Arc::new(folder),
        }
    }

    fn before_deletion(&self, hook: impl FnOnce() -> Result<(), StoreError> + Send + 'static) {
        *self.before_deletion.lock().unwrap() = Some(Box::new(hook));
    }

    fn log(&self, database: &Database, shard: u32) -> PostgresLog {
        let log = PostgresLog::unleased(database, ShardId(shard));
        log.large_contents(Arc::new(self.clone()), LARGE)
    }

    fn names(&self) -> Vec<u8> {
        let mut names: Vec<_> = self
            .list()
            .map(|object| object.unwrap().name.0[0])
            .collect();
        names.sort_unstable();
        names
    }
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.objects.fmt(f)
    }
}

impl LargeContents for Objects {
    fn put_if_absent(
        &self,
        name: ContentHash,
        bytes: Bytes,
        index: Bytes,
    ) -> Result<(), StoreError> {
        LargeContents::put_if_absent(&self.objects, name, bytes, index)
    }

    fn open(&self, name: ContentHash) -> Result<Option<Arc<dyn BlobReader>>, StoreError> {
        LargeContents::open(&self.objects, name)
    }

    fn delete(&self, names: &[ContentHash]) -> Result<(), StoreError> {
        if let Some(hook) = self.before_deletion.lock().unwrap().take() {
            hook()?;
        }
        LargeContents::delete(&self.objects, names)
    }

    fn list(&self) -> Box<dyn Iterator<Item = Result<LargeContent, StoreError>> + '_> {
        LargeContents::list(&self.objects)
    }
}

fn claimed(objects: &Objects, database: &Database, shard: u32) -> (PostgresLog, OwnerToken) {
    let log = objects.log(database, shard);
    let owner = log.claim().unwrap();
    (log, owner)
}

fn read(log: &PostgresLog, name: u8) -> Option<Bytes> {
    let reader = log.content(ContentHash([name; 32])).unwrap()?;
    assert_eq!(
        reader.index(),
        Some(Bytes::from(format!("index of {name}")))
    );
    Some(reader.slice(0..reader.length()).unwrap())
}

fn count(server: &common::Server, database: &Database, table: &str) -> String {
    server
        .sql(&format!(
            "SELECT count(*) FROM {}.{table}",
            database.schema()
        ))
        .remove(0)
}

#[test]
fn a_store_with_an_object_store_conforms() {
    for_each_server(|server| {
        let database = server.database();
        let objects = Objects::new();
        let mut shards = 0..SHARDS;
        check_store(|| {
            let shard = shards.next().unwrap();
            let (database, objects) = (database.clone(), objects.clone());
            Box::new(move |operation| {
                operation(&RecordStore::new_on(objects.log(&database, shard)))
            })
        });
    });
}

#[test]
fn an_object_lives_as_long_as_a_shard_refers_to_it() {
    for_each_server(|server| {
        let database = server.database();
        let objects = Objects::new();
        let (first, first_owner) = claimed(&objects, &database, 0);
        let (second, second_owner) = claimed(&objects, &database, 1);
        let (small, large) = (content(1, vec![1; LARGE - 1]), content(2, vec![2; LARGE]));
        for (log, owner) in [(&first, first_owner), (&second, second_owner)] {
            append_all(
                log,
                owner,
                &[small.clone(), large.clone()],
                &[put(FACTS, 1, "x")],
            )
            .unwrap();
            let mut listed = log.contents().unwrap();
            listed.sort_unstable_by_key(|(name, _)| name.0);
            assert_eq!(
                listed,
                [(small.name, LARGE as u64 - 1), (large.name, LARGE as u64)]
            );
            assert_eq!(read(log, 1), Some(small.bytes.clone()));
            assert_eq!(read(log, 2), Some(large.bytes.clone()));
        }
        assert_eq!(objects.names(), [2]);
        assert_eq!(count(server, &database, "content"), "2");

        let collect = |grace| database.collect_objects(&objects, grace).unwrap();
        first.delete_contents(first_owner, &[large.name]).unwrap();
        assert_eq!(
            collect(Duration::ZERO),
            ObjectCollection {
                objects: 1,
                ..ObjectCollection::default()
            }
        );
        assert_eq!(read(&first, 2), None);
        assert_eq!(read(&second, 2), Some(large.bytes.clone()));

        second.delete_contents(second_owner, &[large.name]).unwrap();
        assert_eq!(
            collect(Duration::from_secs(600)).deleted,
            0,
            "it is too young"
        );
        let collection = collect(Duration::ZERO);
        assert!(
            collection.deleted == 1 && collection.deleted_bytes > LARGE as u64,
            "{collection:?}"
        );
        assert_eq!(
            (objects.names(), count(server, &database, "object_deletion")),
            (vec![], "0".into())
        );
        // And again.
        append_all(&first, first_owner, std::slice::from_ref(&large), &[]).unwrap();
        assert_eq!(read(&first, 2), Some(large.bytes.clone()));
        let without_objects = PostgresLog::unleased(&database, ShardId(0));
        let error = without_objects.content(large.name).err().unwrap();
        assert!(error.to_string().contains("object store"), "{error}");
    });
}

#[test]
fn a_content_that_is_written_while_its_object_is_deleted_is_kept() {
    for_each_server(|server| {
        let database = server.database();
        let objects = Objects::new();
        let (log, owner) = claimed(&objects, &database, 0);
        let large = content(2, vec![2; LARGE]);
        append_all(&log, owner, std::slice::from_ref(&large), &[]).unwrap();
        log.delete_contents(owner, &[large.name]).unwrap();
        // After the collection has found that nobody refers to the object, and before it deletes
        // it.
        let log = Arc::new(log);
        let (writer, again) = (Arc::clone(&log), large.clone());
        objects.before_deletion(move || append_all(&writer, owner, &[again], &[]).map(drop));
        assert_eq!(
            database
                .collect_objects(&objects, Duration::ZERO)
                .unwrap()
                .deleted,
            1
        );
        assert_eq!(objects.names(), [0_u8; 0]);
        assert_eq!(read(&log, 2), Some(large.bytes.clone()));
        assert_eq!(log.contents().unwrap(), [(large.name, LARGE as u64)]);
        log.delete_contents(owner, &[large.name]).unwrap();
        assert_eq!(read(&log, 2), None);
    });
}

#[test]
fn a_deletion_that_did_not_end_is_made_again() {
    for_each_server(|server| {
        let database = server.database();
        let objects = Objects::new();
        let (log, owner) = claimed(&objects, &database, 0);
        let large = content(2, vec![2; LARGE]);
        append_all(&log, owner, std::slice::from_ref(&large), &[]).unwrap();
        log.delete_contents(owner, &[large.name]).unwrap();
        objects.before_deletion(|| Err(StoreError::Failed("the collection ends here".into())));
        database
            .collect_objects(&objects, Duration::ZERO)
            .unwrap_err();
        assert_eq!(count(server, &database, "object_deletion"), "1");
        // Meanwhile the content goes to the database, since the deletion may be on its way.
        append_all(&log, owner, std::slice::from_ref(&large), &[]).unwrap();
        assert_eq!(
            (
                count(server, &database, "content"),
                count(server, &database, "content_ref")
            ),
            ("1".into(), "0".into())
        );
        assert_eq!(
            database
                .collect_objects(&objects, Duration::ZERO)
                .unwrap()
                .deleted,
            0
        );
        server.sql(&format!(
            "UPDATE {}.object_deletion SET begun_at = begun_at - interval '2 hours'",
            database.schema()
        ));
        database.collect_objects(&objects, Duration::ZERO).unwrap();
        assert_eq!(
            (objects.names(), count(server, &database, "object_deletion")),
            (vec![], "0".into())
        );
        assert_eq!(read(&log, 2), Some(large.bytes.clone()));
    });
}

/// A writer that ended between its reference and its object.
#[test]
fn a_reference_without_an_object_is_a_content_that_is_not_there() {
    for_each_server(|server| {
        let database = server.database();
        let objects = Objects::new();
        let (log, owner) = claimed(&objects, &database, 0);
        let large = content(2, vec![2; LARGE]);
        server.sql(&format!(
            "SELECT {}.refer_to_objects(0, ARRAY['\\x{}'::bytea], ARRAY[70000])",
            database.schema(),
            "02".repeat(32)
        ));
        assert!(log.content(large.name).unwrap().is_none());
        append_all(&log, owner, std::slice::from_ref(&large), &[]).unwrap();
        assert_eq!(read(&log, 2), Some(large.bytes.clone()));
    });
}

#[test]
fn writers_and_collections_at_once_lose_no_content() {
    for_each_server(|server| {
        let database = server.database();
        let objects = Objects::new();
        std::thread::scope(|scope| {
            for shard in 0..4 {
                let (database, objects) = (&database, &objects);
                scope.spawn(move || {
                    let (log, owner) = claimed(objects, database, shard);
                    for round in 0..40 {
                        let name = 1 + (round + shard as u8) % 3;
                        let large = content(name, vec![name; LARGE]);
                        append_all(&log, owner, std::slice::from_ref(&large), &[]).unwrap();
                        assert_eq!(read(&log, name), Some(large.bytes), "round {round}");
                        log.delete_contents(owner, &[large.name]).unwrap();
                    }
                });
            }
            for _ in 0..40 {
                database.collect_objects(&objects, Duration::ZERO).unwrap();
            }
        });
    });
}
