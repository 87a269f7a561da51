//! Objects that are not what was written.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use dormouse_actors::ports::StoreError;

use crate::stores::{TestStore, content, folder, name, open, put, read, servers};

fn opening_error(store: &TestStore, content: &[u8]) -> StoreError {
    let opened = store.open().open_content(name(content));
    opened.err().expect("the object is damaged")
}

#[test]
fn an_object_that_was_cut_off_is_detected_and_replaced_by_the_next_put() {
    for length in [100, 3 << 20, 17 << 20] {
        let bytes = content(length, 1);
        let store = folder();
        put(&store.open(), &bytes, "index");
        let file = store.file(name(&bytes));
        let whole = fs::read(&file).unwrap();
        for cut in [0, 1, 119, 120, 130, whole.len() / 2, whole.len() - 1] {
            fs::write(&file, &whole[..cut.min(whole.len() - 1)]).unwrap();
            let error = opening_error(&store, &bytes);
            assert!(
                matches!(error, StoreError::Damaged { .. }),
                "{cut}: {error}"
            );
            put(&store.open(), &bytes, "index");
            assert_eq!(fs::read(&file).unwrap(), whole, "{cut}");
        }
        fs::write(&file, [&whole[..], b"more"].concat()).unwrap();
        opening_error(&store, &bytes);
    }
}

/// Writes an object as it is to a server that verifies no signatures.
fn put_object(store: &TestStore, content: &[u8], object: &[u8]) {
    let server = store.endpoint.as_ref().unwrap();
    let mut server = TcpStream::connect(server.trim_start_matches("http://")).unwrap();
    let path = store.url.trim_start_matches("s3://");
    let name = name(content).to_string();
    let request = format!(
        "PUT /{path}/{}/{name} HTTP/1.1\r\nhost: localhost\r\nauthorization: \
         AWS4-HMAC-SHA256 Credential=x/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, \
         Signature=x\r\nconnection: close\r\ncontent-length: \
         {}\r\n\r\n",
        &name[..2],
        object.len()
    );
    server.write_all(request.as_bytes()).unwrap();
    server.write_all(object).unwrap();
    let mut answer = String::new();
    server.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_damaged_object_on_a_server_is_detected_and_replaced_by_the_next_put() {
    let store = servers().pop().unwrap();
    for length in [100, 17 << 20] {
        let bytes = content(length, 1);
        for object in [&b""[..], b"x", &[0; 200], &[0; 100_000]] {
            put_object(&store, &bytes, object);
            let error = opening_error(&store, &bytes);
            assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
            put(&store.open(), &bytes, "index");
            assert_eq!(read(&store.open(), name(&bytes)), bytes);
        }
    }
}

#[test]
fn an_object_of_another_content_is_detected() {
    let store = folder();
    let [first, second] = [content(100_000, 1), content(100_000, 2)];
    put(&store.open(), &first, "index");
    put(&store.open(), &second, "index");
    fs::copy(store.file(name(&second)), store.file(name(&first))).unwrap();
    let error = opening_error(&store, &first).to_string();
    assert!(error.contains("the object of another content"), "{error}");
    put(&store.open(), &first, "index");
    assert_eq!(read(&store.open(), name(&first)), first);
}

#[test]
fn an_object_of_a_later_version_is_neither_read_nor_replaced() {
    let store = folder();
    let bytes = content(100, 1);
    put(&store.open(), &bytes, "index");
    let mut object = fs::read(store.file(name(&bytes))).unwrap();
    object[7] += 1;
    fs::write(store.file(name(&bytes)), &object).unwrap();
    let error = opening_error(&store, &bytes);
    assert!(matches!(error, StoreError::Newer { .. }), "{error}");
    let put = store
        .open()
        .put_if_absent(name(&bytes), bytes.clone(), "index".into());
    assert!(matches!(put, Err(StoreError::Newer { .. })));
    assert_eq!(fs::read(store.file(name(&bytes))).unwrap(), object);
}

#[test]
fn a_changed_block_is_never_returned_and_other_blocks_are_read() {
    let store = folder();
    let bytes = content(4 << 20, 1);
    put(&store.open(), &bytes, "index");
    let file = store.file(name(&bytes));
    let mut object = fs::read(&file).unwrap();
    let at = object.len() - bytes.len() + (2 << 20) + 7;
    object[at] ^= 1;
    fs::write(&file, &object).unwrap();
    let contents = store.open();
    let reader = open(&contents, name(&bytes));
    for range in [
        2 << 20..3 << 20,
        0..4 << 20,
        (2 << 20) + 100..(2 << 20) + 101,
    ] {
        let error = reader.slice(range).unwrap_err().to_string();
        assert!(error.contains("changed"), "{error}");
    }
    for range in [0..2 << 20, 3 << 20..4 << 20] {
        let expected = bytes.slice(range.start as usize..range.end as usize);
        assert_eq!(reader.slice(range).unwrap(), expected);
    }
}

#[test]
fn a_changed_index_is_detected() {
    let store = folder();
    let bytes = content(100_000, 1);
    for (index, at) in [("index", 120 + 32), ("", 120)] {
        put(&store.open(), &bytes, index);
        let file = store.file(name(&bytes));
        let mut object = fs::read(&file).unwrap();
        object[at] ^= 1;
        fs::write(&file, &object).unwrap();
        let error = opening_error(&store, &bytes);
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        store.open().delete(&[name(&bytes)]).unwrap();
    }
}
