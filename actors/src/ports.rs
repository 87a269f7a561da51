//! The ports: the traits that adapters implement, and the types of their signatures. This module
//! has no behaviour of its own.

pub mod garbage_collection;
pub mod history;
pub mod host;
mod label_slices;
mod lease;
pub mod model;
mod peers;
pub mod server_protocol;
mod servers;
pub mod store;
pub mod tool;

pub use dormouse_content::CappedBytes;
pub use dormouse_kernel::inventory;
pub use dormouse_kernel::program::FileUse;
pub use garbage_collection::{
    Deletions, InventoryReport, InventoryUpdate, KeptContents, MarkToken, SweepLimits, SweepMode,
    SweepOutcome, SweepReport, SweepRequest, SweepStep,
};
pub use history::{CommittedFacts, History, LostHistory};
pub use host::{Host, HostError, NoHost, ServerChild};
pub use label_slices::{LabelSlice, LabelSlices};
pub use lease::Lease;
pub use model::{Model, Provider, ProviderRequest};
pub use peers::{PeerError, Peers};
pub use server_protocol::{ServerAnswer, ServerClient, ServerRequestError};
pub use servers::{OffersTo, ToolServers};
pub use store::{
    Batch, BlobReader, Journal, KeyFault, OwnerToken, ProcessListing, Store, StoreError, SyncLevel,
    TempFileChange, Unreadable, WriteOp,
};
pub(crate) use tool::SharedObserver;
pub use tool::{CallObserver, OutputFull, OutputSink, Tool, ToolError};
