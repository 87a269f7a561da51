//! Servers that refuse, are slow, or are cut off.

use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dormouse_actors::ports::StoreError;
use dormouse_objects::ObjectContents;

use crate::fake_server::{FakeServer, impatient};
use crate::proxy::{Fault, Proxy};
use crate::stores::{content, name, put, read, servers};

/// The errors of all operations.
pub(crate) fn errors(contents: &ObjectContents) -> Vec<StoreError> {
    let large = content(17 << 20, 1);
    vec![
        contents.open_content(name(b"x")).err().unwrap(),
        contents
            .put_if_absent(name(b"x"), "x".into(), "".into())
            .unwrap_err(),
        contents
            .put_if_absent(name(&large), large, "".into())
            .unwrap_err(),
        contents.delete(&[name(b"x")]).unwrap_err(),
        contents.list().find_map(Result::err).unwrap(),
    ]
}

fn check_errors(contents: &ObjectContents, why: &str, advice: &str) {
    for (error, doing) in errors(contents)
        .iter()
        .zip(["open", "write", "", "delete", "list"])
    {
        let StoreError::Io {
            doing: done,
            source,
        } = error
        else {
            panic!("{error}");
        };
        assert!(
            done.starts_with(doing) && done.contains("s3://bucket/prefix"),
            "{done}"
        );
        let source = source.to_string();
        assert!(source.contains(why) && source.contains(advice), "{source}");
    }
}

#[test]
fn a_server_that_is_not_there_is_an_error_that_says_so() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let contents = impatient(&format!("http://{address}"));
    check_errors(
        &contents,
        "no connection to the server: ",
        "check the network",
    );
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let server = FakeServer::silent();
    check_errors(&server.open(), "did not answer in time", "Try again");
}

#[test]
fn a_server_that_fails_is_asked_again_and_then_given_up() {
    let server = FakeServer::answering("503 Slow Down", "<Error><Code>SlowDown</Code></Error>");
    check_errors(&server.open(), "the server answered 503", "Try again");
    let connections = server.connections.load(Ordering::Relaxed);
    assert!(
        (10..100).contains(&connections),
        "{connections} connections"
    );
}

#[test]
fn a_server_that_refuses_is_not_asked_again() {
    let server = FakeServer::answering("403 Forbidden", "<Error><Code>AccessDenied</Code></Error>");
    check_errors(&server.open(), "answered 403 (AccessDenied)", "credentials");
    let connections = server.connections.load(Ordering::Relaxed);
    assert!(connections <= 6, "{connections} connections");
}

#[test]
fn an_answer_that_is_lost_after_the_write_is_no_error() {
    for mut store in servers() {
        let proxy = Proxy::before(&mut store);
        let contents = store.open();
        let uploads = [
            ("POST /", "uploads"),
            ("PUT /", "partNumber=2"),
            ("POST /", "uploadId"),
        ];
        let writes = uploads.map(|cut| (17 << 20, cut));
        for (length, (method, query)) in [(1000, ("PUT /", ""))].into_iter().chain(writes) {
            let bytes = content(length, query.len() as u64);
            proxy.spoil(method, query, Fault::Cut);
            put(&contents, &bytes, "index");
            assert!(proxy.has_spoiled_all(), "{method} {query}");
            assert_eq!(read(&store.open(), name(&bytes)), bytes);
        }
        assert_eq!(contents.list().count(), 4);
    }
}

#[test]
fn an_upload_that_the_store_has_finished_and_forgotten_is_no_error() {
    const NO_SUCH_UPLOAD: &str = "HTTP/1.1 404 Not Found\r\nconnection: close\r\n\
                                  content-length: 40\r\n\r\n\
                                  <Error><Code>NoSuchUpload</Code></Error>";
    for mut store in servers() {
        let proxy = Proxy::before(&mut store);
        let bytes = content(17 << 20, 1);
        proxy.spoil("POST /", "uploadId", Fault::Answer(NO_SUCH_UPLOAD));
        put(&store.open(), &bytes, "index");
        assert!(proxy.has_spoiled_all());
        assert_eq!(read(&store.open(), name(&bytes)), bytes);
    }
}

/// A client does not repeat such a request by itself, since it cannot know that this is safe.
#[test]
fn a_write_that_is_not_answered_in_time_is_made_again() {
    for mut store in servers() {
        let proxy = Proxy::before(&mut store);
        let bytes = content(1000, 1);
        proxy.spoil("PUT /", "", Fault::Silence);
        let options = store.options().request_timeout(Duration::from_secs(2));
        put(&ObjectContents::open(options).unwrap(), &bytes, "index");
        assert!(proxy.has_spoiled_all());
        assert_eq!(read(&store.open(), name(&bytes)), bytes);
    }
}

#[test]
fn reads_and_deletions_are_made_again_when_a_connection_is_cut() {
    for mut store in servers() {
        let bytes = content(3 << 20, 1);
        put(&store.open(), &bytes, "index");
        let proxy = Proxy::before(&mut store);
        let contents = store.open();
        proxy.spoil("GET /", "", Fault::Cut);
        assert_eq!(read(&contents, name(&bytes)), bytes);
        proxy.spoil("GET /", "", Fault::Cut);
        assert_eq!(contents.list().count(), 1);
        proxy.spoil("POST /", "delete", Fault::Cut);
        contents.delete(&[name(&bytes)]).unwrap();
        assert!(proxy.has_spoiled_all());
        assert_eq!(contents.list().count(), 0);
    }
}
