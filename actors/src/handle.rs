//! The embedding API: the types that a program uses to run a kernel. The actors stay private.

mod alarms;
mod branch;
mod builder;
mod conversation;
mod events;
mod export;
mod file_tools;
mod garbage;
mod history;
mod host_call;
mod import;
mod kernel;
mod permission;
mod process;
mod recovery;
mod server_requests;
mod start;
mod temporary_checkpoint;
mod tool;
mod tree;
mod turn;

pub use branch::{Branch, Position};
pub use builder::KernelBuilder;
pub use conversation::Conversation;
pub use events::Events;
pub use export::Export;
pub use history::{LogLine, log_lines};
pub use import::{Import, ImportedTree};
pub use kernel::{Kernel, ProcessInfo};
pub use permission::MissingPermission;
pub use process::Process;
pub use recovery::{Recovery, RecoveryAction, RecoveryFn};
pub use start::Start;
pub use tool::FnTool;
pub use tree::Tree;
