//! Contents of Dormouse in an object store.

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
