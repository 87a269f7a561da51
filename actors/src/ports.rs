//! The doors to the outside: what adapters implement. Nothing here runs by itself.

pub mod history;
pub mod host;
pub mod model;
pub mod servers;
pub mod store;
pub mod sweep;
pub mod tool;

pub use dormouse_kernel::content::Collected;
pub use dormouse_kernel::inventory;
pub use dormouse_kernel::program::FileUse;
pub use history::{History, LostHistory, Written};
pub use host::{Host, HostError, NoHost, ServerChild};
pub use model::{Asked, Model, Provider};
pub use servers::ToolServers;
pub use store::{
    Backing, Batch, Journal, KeyFault, Listing, OwnerToken, Store, StoreError, SyncLevel,
    TempFileChange, Unreadable, WriteOp,
};
pub use sweep::{
    Bounds, Contents, Forgotten, MarkToken, Progress, Purpose, Step, StockTaken, StockTaking,
    Sweep, Swept,
};
pub(crate) use tool::Watcher;
pub use tool::{OutputFull, OutputSink, Tool, ToolError};
