//! What operations on a large content cost in requests.

use bytes::Bytes;

use crate::proxy::Proxy;
use crate::stores::{content, name, open, put, servers};

const LENGTH: usize = 200 << 20;

fn count(requests: &[String], method: &str) -> usize {
    requests
        .iter()
        .filter(|request| request.starts_with(method))
        .count()
}

#[test]
fn a_page_of_a_large_content_costs_one_request() {
    let bytes = content(LENGTH, 1);
    for mut store in servers() {
        let proxy = Proxy::before(&mut store);
        let writer = store.open();
        put(&writer, &bytes, "index");
        let written = proxy.requests();
        // To look for it, to begin and to end the upload, and its parts.
        assert_eq!(count(&written, "GET /"), 1, "{written:?}");
        assert_eq!(count(&written, "POST /"), 2, "{written:?}");
        assert_eq!(
            count(&written, "PUT /"),
            LENGTH / (8 << 20) + 1,
            "{written:?}"
        );
        put(&writer, &bytes, "index");
        assert_eq!(proxy.requests().len(), 1);

        let contents = store.open();
        let reader = open(&contents, name(&bytes));
        assert_eq!(proxy.requests().len(), 1);
        let page = |start: usize, requests: usize| {
            let read = reader.slice(start as u64..start as u64 + 8192).unwrap();
            assert_eq!(read, bytes.slice(start..start + 8192));
            let made = proxy.requests();
            assert_eq!(made.len(), requests, "{start}: {made:?}");
        };
        page(150_000_000, 1);
        page(150_000_000, 0);
        page(150_008_192, 0);
        page(0, 1);
        page(LENGTH - 8192, 1);
        // Over the border of two blocks, one of which is here.
        page((1 << 20) - 10, 1);
        assert_eq!(reader.slice(0..LENGTH as u64).unwrap(), bytes);
        assert_eq!(proxy.requests().len(), LENGTH / (8 << 20));
    }
}

#[test]
fn a_small_content_costs_one_request_to_write_and_two_to_open_and_read() {
    for mut store in servers() {
        let proxy = Proxy::before(&mut store);
        let bytes = content(100_000, 1);
        put(&store.open(), &bytes, "index");
        assert_eq!(proxy.requests().len(), 1);
        put(&store.open(), &bytes, "index");
        assert_eq!(
            proxy.requests().len(),
            2,
            "a write that is refused, and a look"
        );
        let contents = store.open();
        let reader = open(&contents, name(&bytes));
        assert_eq!(proxy.requests().len(), 1);
        assert_eq!(reader.slice(0..bytes.len() as u64).unwrap(), bytes);
        assert_eq!(proxy.requests().len(), 1);
        assert!(contents.open_content(name(b"absent")).unwrap().is_none());
        assert_eq!(proxy.requests().len(), 1);
        assert_eq!(contents.list().count(), 1);
        assert_eq!(proxy.requests().len(), 1);
        contents.delete(&[name(&bytes), name(b"absent")]).unwrap();
        assert_eq!(proxy.requests().len(), 1);
    }
}

#[test]
fn a_long_index_costs_one_more_request_until_it_is_in_the_cache() {
    let index = content(500_000, 2);
    let bytes = content(100_000, 1);
    for mut store in servers() {
        let folder = tempfile::tempdir().unwrap();
        let proxy = Proxy::before(&mut store);
        let options = || store.options().cache(folder.path(), 10 << 20);
        let opened = |requests: usize| {
            let contents = dormouse_objects::ObjectContents::open(options()).unwrap();
            proxy.requests();
            let reader = open(&contents, name(&bytes));
            assert_eq!(reader.index().unwrap(), index);
            assert_eq!(proxy.requests().len(), requests);
        };
        let put = store
            .open()
            .put_if_absent(name(&bytes), bytes.clone(), Bytes::clone(&index));
        put.unwrap();
        opened(2);
        opened(1);
    }
}
