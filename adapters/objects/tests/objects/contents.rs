//! Writing, reading, listing and deleting contents.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use dormouse_objects::ObjectContents;
use dormouse_proto::id::ContentHash;

use crate::stores::{TestStore, content, file_url, name, open, put, read, servers, stores};

#[test]
fn what_was_written_is_read() {
    for store in stores() {
        let contents = store.open();
        for length in [0, 1, 100_000, 1 << 20, (3 << 20) + 17, (20 << 20) + 1] {
            let bytes = content(length, 1);
            let name = put(&contents, &bytes, "the index");
            let reader = open(&contents, name);
            assert_eq!(reader.length(), length as u64);
            assert_eq!(reader.index().unwrap(), "the index");
            assert_eq!(reader.slice(0..length as u64).unwrap(), bytes);
            let middle = length as u64 / 3..length as u64 / 2;
            let expected = bytes.slice(middle.start as usize..middle.end as usize);
            assert_eq!(reader.slice(middle).unwrap(), expected);
            for outside in [0..length as u64 + 1, u64::MAX - 1..u64::MAX] {
                assert!(reader.slice(outside).is_err());
            }
        }
    }
}

#[test]
fn an_absent_content_is_none() {
    for store in stores() {
        assert!(
            store
                .open()
                .open_content(name(b"absent"))
                .unwrap()
                .is_none()
        );
    }
}

#[test]
fn the_bytes_of_the_first_writer_stay() {
    for store in stores() {
        for length in [1000, 17 << 20] {
            let name = ContentHash([length as u8; 32]);
            let [first, second] = [content(length, 1), content(length, 2)];
            let contents = store.open();
            contents
                .put_if_absent(name, first.clone(), "1".into())
                .unwrap();
            contents.put_if_absent(name, second, "2".into()).unwrap();
            let opened = store.open();
            assert_eq!(open(&opened, name).index().unwrap(), "1");
            assert_eq!(read(&opened, name), first);
            contents.delete(&[name]).unwrap();
        }
    }
}

#[test]
fn writers_of_one_name_at_the_same_time_all_succeed() {
    for store in stores() {
        for (length, writers) in [(100_000, 8), (17 << 20, 3)] {
            let bytes = content(length, 3);
            let name = name(&bytes);
            std::thread::scope(|scope| {
                for _ in 0..writers {
                    scope.spawn(|| put(&store.open(), &bytes, "index"));
                }
            });
            assert_eq!(read(&store.open(), name), bytes);
        }
        assert_eq!(store.open().list().count(), 2);
    }
}

/// Of two writers of a large content the last one wins, whatever the first one wrote.
#[test]
fn a_reader_follows_an_object_that_is_replaced_by_one_that_is_encrypted_anew() {
    let store = crate::stores::folder();
    let bytes = [content(3 << 20, 1), content(3 << 20, 2)];
    let same_name = ContentHash([7; 32]);
    let write = |bytes: &Bytes, index: &'static str| {
        let contents = store.open();
        contents.delete(&[same_name]).unwrap();
        contents
            .put_if_absent(same_name, bytes.clone(), index.into())
            .unwrap();
    };
    write(&bytes[0], "a");
    let contents = store.open();
    let reader = open(&contents, same_name);
    assert_eq!(reader.slice(0..100).unwrap(), bytes[0].slice(..100));
    write(&bytes[1], "b");
    let end = 2 << 20..3 << 20;
    assert_eq!(
        reader.slice(end.clone()).unwrap(),
        bytes[1].slice(2 << 20..)
    );
    assert_eq!(reader.slice(0..100).unwrap(), bytes[1].slice(..100));
    write(&content(4 << 20, 1), "c");
    let error = reader.slice(1 << 20..2 << 20).unwrap_err().to_string();
    assert!(error.contains("Open the content again"), "{error}");
    contents.delete(&[same_name]).unwrap();
    let error = reader.slice(1 << 20..2 << 20).unwrap_err().to_string();
    assert!(error.contains(&same_name.to_string()), "{error}");
}

#[test]
fn contents_are_listed_with_length_and_time_and_deleted() {
    for store in stores() {
        let contents = store.open();
        let mut names: Vec<_> = (0..1_100u64)
            .map(|seed| content(10, seed))
            .map(|bytes| name(&bytes))
            .collect();
        let count = if store.folder.is_some() { 1_100 } else { 30 };
        names.truncate(count);
        for (seed, name) in (0..).zip(&names) {
            let bytes = content(10, seed);
            contents.put_if_absent(*name, bytes, "".into()).unwrap();
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let mut listed = Vec::new();
        for object in contents.list() {
            let object = object.unwrap();
            assert!(object.bytes > 10 && object.bytes < 300, "{object:?}");
            let age = now.abs_diff(Duration::from_millis(object.written_ms));
            assert!(age < Duration::from_secs(600), "{object:?}");
            listed.push(object.name);
        }
        listed.sort_unstable();
        names.sort_unstable();
        assert_eq!(listed, names);
        let (deleted, kept) = names.split_at(count - 2);
        contents
            .delete(&[deleted, &[name(b"absent")]].concat())
            .unwrap();
        contents.delete(deleted).unwrap();
        contents.delete(&[]).unwrap();
        assert!(contents.open_content(deleted[0]).unwrap().is_none());
        assert!(contents.open_content(kept[0]).unwrap().is_some());
        assert_eq!(contents.list().count(), 2);
    }
}

#[test]
fn more_than_one_page_is_listed_and_deleted_on_a_server() {
    let Some(store) = servers().pop() else {
        panic!("no server");
    };
    let contents = store.open();
    let names: Vec<_> = (0..1_050u64).map(|seed| name(&content(10, seed))).collect();
    std::thread::scope(|scope| {
        for part in names.chunks(300) {
            let contents = &contents;
            scope.spawn(move || {
                for name in part {
                    contents
                        .put_if_absent(*name, "x".into(), "".into())
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(contents.list().count(), names.len());
    contents.delete(&names).unwrap();
    assert_eq!(contents.list().count(), 0);
}

#[test]
fn prefixes_are_taken_as_they_are_and_do_not_mix() {
    for store in stores() {
        let mut stores = Vec::new();
        for prefix in ["a b", "a%20b", "ü/☃", "x+y&z=1", "a b/c", "~(*)'!@$,;"] {
            let url = match &store.folder {
                Some(folder) => file_url(&folder.path().join(prefix.replace('%', "%25"))),
                None => format!("{}/{prefix}", store.url),
            };
            let endpoint = store.endpoint.clone();
            let inner = TestStore {
                url,
                endpoint,
                folder: None,
            };
            let contents = inner.open();
            let bytes = content(1000, stores.len() as u64);
            stores.push((contents.clone(), put(&contents, &bytes, ""), bytes));
        }
        for (contents, name, bytes) in &stores {
            assert_eq!(read(contents, *name), bytes, "{contents:?}");
            assert_eq!(
                contents.list().map(Result::unwrap).next().unwrap().name,
                *name
            );
            assert_eq!(contents.list().count(), 1, "{contents:?}");
        }
    }
}

#[test]
fn objects_of_others_below_the_prefix_are_no_contents() {
    let store = crate::stores::folder();
    let contents = store.open();
    let name = put(&contents, &content(10, 1), "");
    let folder = store.folder.as_ref().unwrap().path();
    std::fs::write(folder.join("notes.txt"), "x").unwrap();
    std::fs::write(folder.join(name.to_string()), "x").unwrap();
    std::fs::create_dir(folder.join("zz")).unwrap();
    std::fs::write(folder.join("zz").join(name.to_string()), "x").unwrap();
    std::fs::write(store.file(name).with_extension("x"), "x").unwrap();
    let listed: Vec<_> = contents.list().map(|object| object.unwrap().name).collect();
    assert_eq!(listed, [name]);
}

#[test]
fn a_store_is_used_and_dropped_on_threads_of_another_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    for store in stores() {
        let contents = store.open();
        let bytes = content(100_000, 1);
        let used = {
            let (contents, bytes) = (contents.clone(), bytes.clone());
            runtime.spawn_blocking(move || read(&contents, put(&contents, &bytes, "")))
        };
        assert_eq!(runtime.block_on(used).unwrap(), bytes);
        runtime.block_on(async move {
            let _in_an_asynchronous_task = read(&contents, name(&bytes));
            drop(contents);
        });
    }
}

#[test]
fn a_missing_bucket_or_folder_is_an_error_and_no_empty_store() {
    for (store, makes_buckets) in servers().into_iter().zip([true, false]) {
        let url = format!("s3://no-such-bucket-{}/prefix", std::process::id());
        let contents = TestStore { url, ..store }.open();
        let error = contents.open_content(name(b"x")).err().unwrap().to_string();
        assert!(error.contains("Create the bucket"), "{error}");
        // SeaweedFS makes a bucket with the first object in it.
        if !makes_buckets {
            check_writes_to_missing_bucket(&contents);
        }
    }
    let store = crate::stores::folder();
    let contents = store.open();
    drop(store);
    assert!(contents.open_content(name(b"x")).is_err());
}

fn check_writes_to_missing_bucket(contents: &ObjectContents) {
    let small = contents.put_if_absent(name(b"x"), "x".into(), "".into());
    let error = small.unwrap_err().to_string();
    assert!(error.contains("Create the bucket"), "{error}");
    let large = content(17 << 20, 1);
    let large = contents.put_if_absent(name(&large), large, "".into());
    let error = large.unwrap_err().to_string();
    assert!(error.contains("Create the bucket"), "{error}");
    assert!(contents.list().next().unwrap().is_err());
}
