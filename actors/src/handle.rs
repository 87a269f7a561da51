//! The embedding API: what a program that uses the kernel holds. It hides the actors behind it.

mod builder;
mod events;
mod garbage;
mod kernel;
mod process;
mod start;
mod tool;
mod tree;

pub use builder::KernelBuilder;
pub use events::Events;
pub use kernel::{Kernel, ProcessInfo};
pub use process::Process;
pub use start::Start;
pub use tool::FnTool;
pub use tree::Tree;
