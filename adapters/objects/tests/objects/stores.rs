//! The stores under test.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dormouse_actors::ports::BlobReader;
use dormouse_objects::{ObjectContents, ObjectOptions};
use dormouse_proto::id::ContentHash;
use tempfile::TempDir;

/// A store of its own, which is empty.
pub(crate) struct TestStore {
    pub(crate) url: String,
    pub(crate) endpoint: Option<String>,
    pub(crate) folder: Option<TempDir>,
}

impl TestStore {
    pub(crate) fn options(&self) -> ObjectOptions {
        let options = ObjectOptions::new(&self.url)
            .request_timeout(Duration::from_secs(60))
            .retry_for(Duration::from_secs(10));
        match &self.endpoint {
            Some(endpoint) => options.endpoint(endpoint),
            None => options,
        }
    }

    pub(crate) fn open(&self) -> ObjectContents {
        ObjectContents::open(self.options()).unwrap()
    }

    /// The file of a content in a local folder.
    pub(crate) fn file(&self, name: ContentHash) -> std::path::PathBuf {
        let folder = self.folder.as_ref().expect("it is a folder").path();
        let name = name.to_string();
        folder.join(&name[..2]).join(name)
    }
}

/// One store on each server, and one in a folder.
pub(crate) fn stores() -> Vec<TestStore> {
    let mut stores = servers();
    stores.push(folder());
    stores
}

/// One store on each server: `URL=ENDPOINT` for each, with commas between them.
pub(crate) fn servers() -> Vec<TestStore> {
    let named = std::env::var("DORMOUSE_OBJECT_STORES").expect(
        "DORMOUSE_OBJECT_STORES names no servers, such as s3://bucket=http://127.0.0.1:8333. Run \
         .ci/objects",
    );
    let servers = named.split(',').map(|server| {
        let (url, endpoint) = server.rsplit_once('=').expect("a server is URL=ENDPOINT");
        TestStore {
            url: format!("{url}/{}", unused_prefix()),
            endpoint: Some(endpoint.to_owned()),
            folder: None,
        }
    });
    servers.collect()
}

/// A store in a folder.
pub(crate) fn folder() -> TestStore {
    let folder = tempfile::tempdir().unwrap();
    TestStore {
        url: file_url(folder.path()),
        endpoint: None,
        folder: Some(folder),
    }
}

pub(crate) fn file_url(folder: &Path) -> String {
    format!("file://{}", folder.display())
}

fn unused_prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("test-{}-{number}", std::process::id())
}

/// The name of a content, as it is in a log that is not encrypted.
pub(crate) fn name(content: &[u8]) -> ContentHash {
    ContentHash(*blake3::hash(content).as_bytes())
}

/// Bytes of which no two blocks are equal.
pub(crate) fn content(length: usize, seed: u64) -> Bytes {
    let words = (0..length.div_ceil(8) as u64).flat_map(|i| {
        (i ^ seed << 40)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .to_le_bytes()
    });
    let mut bytes: Vec<u8> = words.collect();
    bytes.truncate(length);
    bytes.into()
}

pub(crate) fn put(contents: &ObjectContents, content: &Bytes, index: &'static str) -> ContentHash {
    let name = name(content);
    let index = Bytes::from(index);
    contents
        .put_if_absent(name, content.clone(), index)
        .unwrap();
    name
}

pub(crate) fn open(contents: &ObjectContents, name: ContentHash) -> Arc<dyn BlobReader> {
    contents
        .open_content(name)
        .unwrap()
        .expect("the store has the content")
}

pub(crate) fn read(contents: &ObjectContents, name: ContentHash) -> Bytes {
    let reader = open(contents, name);
    reader.slice(0..reader.length()).unwrap()
}
