//! Contents of Dormouse in an object store: Amazon S3 and servers that speak its protocol, Google
//! Cloud Storage, Azure Blob Storage, or a folder.
//!
//! [`ObjectContents`] keeps contents by name, one object each. [`WithObjects`] makes a log of
//! records of it and another log, which keeps the records: a laptop with SQLite and a bucket.
//!
//! ```
//! use dormouse_actors::ports::Store;
//! use dormouse_objects::{ObjectContents, ObjectOptions, WithObjects};
//! use dormouse_records::{MemoryLog, RecordStore};
//! # let folder = std::env::temp_dir().join(format!("dormouse-objects-{}", std::process::id()));
//! # let url = format!("file://{}", folder.display());
//!
//! // Such as "s3://my-bucket/contents".
//! let options = ObjectOptions::new(url);
//! let contents = ObjectContents::open(options)?;
//! // In place of MemoryLog, a log of yours.
//! let store = RecordStore::new_on(WithObjects::new(MemoryLog::default(), contents));
//! let owner = store.claim()?;
//! # std::fs::remove_dir_all(folder).unwrap();
//! # Ok::<(), dormouse_actors::ports::StoreError>(())
//! ```
//!
//! # What a store must offer
//!
//! * A write on the condition that there is no object of that key (`If-None-Match: *`), as Amazon
//!   S3, Google Cloud Storage, Azure, Cloudflare R2, MinIO, SeaweedFS and Ceph do. A server that
//!   ignores the condition loses nothing: a later writer replaces a content by an equal one.
//! * Reads of ranges, which see every write that was acknowledged, and multipart uploads.
//! * For a folder, a file system with hard links. An object store that only a network file system
//!   shares is better reached by its own protocol.
//!
//! Give the bucket a rule that deletes unfinished multipart uploads after a day, because a program
//! that is killed leaves them behind, and no rule that deletes objects by age.
//!
//! # Cost
//!
//! | operation | requests |
//! |---|---|
//! | write up to 16 MiB | 1; 2 if the content exists |
//! | write more | 3, and 1 for each 8 MiB, four at once; 1 if the content exists |
//! | open | 1 for 64 KiB; 2 if the index is longer and not in the cache |
//! | read a page | 1 for the 1 MiB around it; none if that is in memory or in the cache |
//! | read a range | 1 for each 8 MiB that are not in the cache |
//! | list | 1 for each 1,000 objects |
//! | delete | 1 for each 1,000 (S3), 256 (Azure) or 1 (Google Cloud) |
//!
//! A commit through [`WithObjects`] costs one write for each large content that is new, one after
//! another, and one look before it. While they last, no other commit of the store is made.
//!
//! Memory: 16 MiB of blocks that were read last; for each open content its index and 32 bytes for
//! each MiB; what a read asks for. A write copies nothing of the content.
//!
//! # Durability
//!
//! A write returns once the store has acknowledged it. In a folder, the file and the folders that
//! lead to it are synced first, also if another program has just written the file. If the answer to
//! a write is lost, the write is made again and finds the object. Objects are never changed, only
//! written and deleted: the bytes of the first writer stay. Of two writers of one content of more
//! than 16 MiB at the same time, the last one wins, which no reader notices (`put`).
//!
//! # Damage
//!
//! Each object has a head with its content's name, lengths and hashes (`object`). An object that
//! was cut off, or is stored under another key, is refused when it is opened, a changed block when
//! it is read; other blocks can still be read. Writing a content again replaces an object whose head
//! is damaged. Blocks in the cache are verified by the same hashes, and read from the store again if
//! they are damaged. What encrypts, authenticates and names the contents is the layer above,
//! [`RecordStore`](dormouse_records::RecordStore).
//!
//! # Security
//!
//! Credentials are never options of this crate, and are in no error, log or `Debug` output:
//!
//! * S3: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`; a web identity or a
//!   container's credentials, as their variables name them; the keys of `AWS_PROFILE` in
//!   `~/.aws/credentials`; the role of the machine. Profiles that sign in elsewhere are not read:
//!   `aws configure export-credentials` makes keys of them. Also read are the other `AWS_` variables
//!   of the [`object_store`] crate, such as `AWS_REGION`, `AWS_ENDPOINT_URL_S3` and
//!   `AWS_SERVER_SIDE_ENCRYPTION`.
//! * Google Cloud: `GOOGLE_APPLICATION_CREDENTIALS`, the file that `gcloud auth
//!   application-default login` writes, or the role of the machine.
//! * Azure: `AZURE_STORAGE_ACCOUNT_NAME` with `AZURE_STORAGE_ACCOUNT_KEY`, the variables of a
//!   service principal or a workload identity, `AZURE_USE_AZURE_CLI=true`, or the machine's identity.
//!
//! Requests to other machines are encrypted unless [`ObjectOptions::allow_http`] permits otherwise;
//! redirects are not followed. The cache is readable by its owner only. It has contents as the store
//! has them: encrypted if the [`RecordStore`](dormouse_records::RecordStore) has a key. Without a
//! key, who can read the bucket can read the contents, and who lists it sees which contents are
//! equal to known ones.
//!
//! # What is not promised
//!
//! * Deleting is not tied to the records that refer to a content: the caller knows which contents no
//!   record needs. [`WithObjects`] needs the bucket and prefix for itself.
//! * A bucket that keeps versions, or is locked, keeps contents that were deleted.
//! * A bound on the cache holds for one program. Each further one in the same folder can add an
//!   eighth until it looks at the folder again.
//! * Two threads that read the same block at the same time may both request it.
//! * Google Cloud and Azure are built of the same parts, and are not among the stores that the tests
//!   run on.

mod aws_profile;
mod cache;
mod cause;
mod connect;
mod contents;
mod credentials;
mod error;
mod listing;
mod local;
mod location;
mod object;
mod options;
mod put;
mod reader;
mod recent;
mod with_objects;
mod worker;

pub use contents::ObjectContents;
pub use listing::{StoredObject, StoredObjects};
pub use options::ObjectOptions;
pub use with_objects::WithObjects;
