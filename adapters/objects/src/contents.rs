//! Contents in an object store: one object each, under a key that is made of the content's name.

use std::path::Path as FsPath;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dormouse_actors::ports::{BlobReader, StoreError};
use dormouse_proto::id::ContentHash;
use futures_util::stream::{self, StreamExt};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt};

use crate::cache::Cache;
use crate::connect::connect;
use crate::error::{damaged, is_missing_object, is_outside_of_object, request_failed};
use crate::listing::StoredObjects;
use crate::local::LocalFolder;
use crate::location::{Location, Place};
use crate::object::{self, HEAD_BYTES, Head};
use crate::options::{ObjectOptions, without_credentials};
use crate::put;
use crate::reader::ObjectReader;
use crate::worker::Worker;

/// How many bytes of an object are read to open it: the head, and of most contents the index.
const OPENED_BYTES: u64 = 64 << 10;

/// Contents in an object store. The methods block the thread that calls them, which may be one of a
/// runtime's blocking threads. A clone is the same store.
#[derive(Clone, Debug)]
pub struct ObjectContents(Arc<Objects>);

/// What all operations and readers of a store share.
pub(crate) struct Objects {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) cache: Cache,
    pub(crate) worker: Worker,
    pub(crate) retry_for: Duration,
    prefix: Path,
    /// The folder of a local store.
    pub(crate) folder: Option<LocalFolder>,
    /// The address, as errors show it.
    shown: String,
}

impl ObjectContents {
    /// Opens the store. Makes no request, so that credentials and the bucket are checked by the
    /// first operation; the folder of a local store is created.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the address, the endpoint or what the environment configures cannot be
    /// used.
    pub fn open(options: ObjectOptions) -> Result<Self, StoreError> {
        let location = Location::parse(&options.url)?;
        let folder = match &location.place {
            Place::Folder(folder) => Some(LocalFolder::open(folder)?),
            _ => None,
        };
        let store = connect(&location, &options)?;
        let mut shown = without_credentials(&options.url);
        if let Some(endpoint) = &options.endpoint {
            shown.push_str(&format!(" at {}", without_credentials(endpoint)));
        }
        Ok(Self(Arc::new(Objects {
            store,
            cache: Cache::open(options.cache.as_ref()),
            worker: Worker::start()?,
            retry_for: options.retry_for,
            prefix: location.prefix,
            folder,
            shown,
        })))
    }

    /// The folder that contains the objects, if they are in the local file system.
    #[must_use]
    pub fn folder(&self) -> Option<&FsPath> {
        self.0.folder.as_ref().map(LocalFolder::path)
    }

    /// Writes a content, unless the store has one of this name. When it returns, the content is as
    /// durable as the store makes it; a local folder and its files are synced.
    ///
    /// `bytes` is what [`BlobReader::slice`] returns later, and `index` what [`BlobReader::index`]
    /// returns. Contents of equal names are equal, though their bytes can be encrypted or
    /// compressed differently: the bytes of the first writer stay.
    ///
    /// Costs one request for up to 16 MiB, and one more if the content exists; beyond that, one to
    /// look for it, one for each 8 MiB, four at once, and two. Hashes the bytes once and copies
    /// nothing. An existing object that is damaged is replaced.
    ///
    /// # Errors
    /// [`StoreError::Io`]. The content may be in the store nevertheless; writing it again is safe.
    pub fn put_if_absent(
        &self,
        name: ContentHash,
        bytes: Bytes,
        index: Bytes,
    ) -> Result<(), StoreError> {
        let head = object::encode(name, &bytes, &index);
        let objects = self.0.clone();
        self.0
            .worker
            .wait_for(async move { put::put(&objects, name, head, bytes).await })?;
        match &self.0.folder {
            Some(folder) => folder.sync(self.0.key(name).as_ref()),
            None => Ok(()),
        }
    }

    /// Opens a content; `None` if the store does not have it.
    ///
    /// Costs one request for 64 KiB, and a second one if the index is longer and is not in the
    /// cache. The reader keeps the index in memory. [`BlobReader::slice`] costs one request for each
    /// 8 MiB that are not in the cache, in whole blocks of 1 MiB; so a page costs one request or
    /// none. Blocks are verified when they are read from the store or from the cache.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the object is not what was written under this name, and
    /// [`StoreError::Newer`] or [`StoreError::Io`].
    pub fn open_content(
        &self,
        name: ContentHash,
    ) -> Result<Option<Arc<dyn BlobReader>>, StoreError> {
        let opened = ObjectReader::open(&self.0, name)?;
        Ok(opened.map(|reader| Arc::new(reader) as _))
    }

    /// Deletes contents. Absent ones are ignored. A content that is deleted while it is read becomes
    /// unreadable, apart from what the cache has of it.
    ///
    /// Costs a request for each 1,000 contents (S3), 256 (Azure) or one (Google Cloud).
    ///
    /// # Errors
    /// [`StoreError::Io`]. Some of the contents may be deleted.
    pub fn delete(&self, names: &[ContentHash]) -> Result<(), StoreError> {
        let objects = self.0.clone();
        let keys: Vec<_> = names.iter().map(|name| Ok(objects.key(*name))).collect();
        self.0.worker.wait_for(async move {
            let mut deletions = objects.store.delete_stream(stream::iter(keys).boxed());
            while let Some(deleted) = deletions.next().await {
                match deleted {
                    Err(error) if !is_missing_object(&error) => {
                        return Err(objects.error("delete contents from", &error));
                    }
                    _ => {}
                }
            }
            Ok(())
        })
    }

    /// All contents below the prefix, in no particular order. Other objects are left out. Costs a
    /// request for each 1,000 objects, made when the iterator comes to them, and keeps no more than
    /// 1,000 in memory. What is written or deleted meanwhile may be listed or not.
    pub fn list(&self) -> StoredObjects {
        StoredObjects::of(&self.0)
    }
}

impl Objects {
    /// The key of a content: a folder of its first byte, so that no folder has too many files, and
    /// its name.
    pub(crate) fn key(&self, name: ContentHash) -> Path {
        let name = name.to_string();
        self.prefix.clone().join(&name[..2]).join(name.as_str())
    }

    /// What the keys of all objects begin with.
    pub(crate) fn prefix(&self) -> Option<&Path> {
        Some(&self.prefix).filter(|prefix| !prefix.as_ref().is_empty())
    }

    /// The error for a request about the whole store.
    pub(crate) fn error(&self, doing: &str, error: &object_store::Error) -> StoreError {
        request_failed(format!("{doing} {}", self.shown), error)
    }

    /// The error for a request about the object of a content.
    pub(crate) fn object_error(
        &self,
        doing: &str,
        name: ContentHash,
        error: &object_store::Error,
    ) -> StoreError {
        let key = self.key(name);
        request_failed(format!("{doing} the object {key} of {}", self.shown), error)
    }

    /// Reads the beginning of an object; `None` if there is none. Returns the object's length, and
    /// its first `bytes` at most.
    pub(crate) async fn read_start(
        &self,
        name: ContentHash,
        bytes: u64,
    ) -> Result<Option<(u64, Bytes)>, StoreError> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(0..bytes)),
            ..GetOptions::default()
        };
        let key = self.key(name);
        let read = async {
            let object = self.store.get_opts(&key, options).await?;
            Ok((object.meta.size, object.bytes().await?))
        };
        match read.await {
            Ok(start) => Ok(Some(start)),
            Err(error) if is_missing_object(&error) => match &self.folder {
                Some(folder) => folder.check().map(|()| None),
                None => Ok(None),
            },
            // An empty object has no first byte.
            Err(error) if is_outside_of_object(&error) => Err(damaged(format!(
                "the object of the content {name} is empty. Writing the content again replaces it; \
                 everything else can still be read"
            ))),
            Err(error) => Err(self.object_error("open", name, &error)),
        }
    }

    /// Opens an object: its head, and as much of what follows as one request brings.
    pub(crate) async fn read_head(
        &self,
        name: ContentHash,
    ) -> Result<Option<(Head, Bytes)>, StoreError> {
        let Some((size, start)) = self.read_start(name, OPENED_BYTES).await? else {
            return Ok(None);
        };
        let head = Head::read(name, size, &start)?;
        Ok(Some((head, start.slice(HEAD_BYTES as usize..))))
    }

    /// Reads a part of an object.
    pub(crate) async fn read_range(
        &self,
        name: ContentHash,
        range: std::ops::Range<u64>,
    ) -> Result<Bytes, StoreError> {
        let read = self.store.get_range(&self.key(name), range).await;
        read.map_err(|error| self.object_error("read", name, &error))
    }
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The client of the store is left out: it contains credentials.
        f.debug_struct("Objects")
            .field("at", &self.shown)
            .finish_non_exhaustive()
    }
}
