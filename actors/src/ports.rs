//! The doors to the outside: what adapters implement. Nothing here runs by itself.

pub mod host;
pub mod model;
pub mod store;
pub mod tool;

pub use dormouse_kernel::content::Collected;
pub use host::{Host, NoHost};
pub use model::{Model, Provider};
pub use store::{
    Backing, Batch, Entry, Journal, KeyFault, OwnerToken, Store, StoreError, TempFileChange, Unreadable, Until, Written,
};
pub use tool::{OutputFull, OutputSink, Tool};
