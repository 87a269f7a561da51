//! A store of the kernel on PostgreSQL (docs follow).

mod batch;
mod claim;
mod content;
mod database;
mod error;
mod log;
mod migrate;
mod number;
mod objects;
mod options;
mod password;
mod shard;
mod tls;
mod write;

pub use claim::{Claim, ClaimMode};
pub use database::Database;
pub use error::DatabaseError;
pub use log::PostgresLog;
pub use objects::{LargeContent, LargeContents, ObjectCollection};
pub use options::DatabaseOptions;
pub use password::PASSWORD_FILE_VARIABLE;
pub use shard::{ShardId, ShardStatus};
