//! Dormouse: a process kernel for LLM agents.
//!
//! An agent is a process. It runs a [program], owns a table of file descriptors that hold what is
//! too large for a model's context, forks, spawns, and is durable: kill the program at any moment,
//! open its store again, and every process continues where it was.
//!
#![cfg_attr(feature = "scripted", doc = "```")]
#![cfg_attr(not(feature = "scripted"), doc = "```ignore")]
//! use dormouse::models::Scripted;
//! use dormouse::program::Program;
//! use dormouse::{FnTool, Kernel};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Add {
//!     a: i64,
//!     b: i64,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Scripted::parse(
//!     r#"
//!     [[turn]]
//!     when.round = 0
//!     calls = [{ tool = "add", args = { a = 20, b = 22 } }]
//!     [[turn]]
//!     text = "It is {{ last }}."
//!     "#,
//!     "sums",
//! )?;
//! let kernel = Kernel::builder()
//!     .model("sums", model)
//!     .tool(FnTool::new("add", "Adds two numbers.", |Add { a, b }: Add| async move {
//!         a.checked_add(b).map(|sum| sum.to_string()).ok_or("the sum is too large")
//!     }))
//!     .build()
//!     .await?;
//! let program = kernel.parse(
//!     r#"
//!     [model]
//!     name = "sums"
//!     provider = "scripted"
//!     [tools]
//!     enabled = ["add"]
//!     "#,
//! )?;
//! let process = kernel.start(program.program).input("What is 20 and 22?").await?;
//! assert_eq!(&*process.wait().await?.message, "It is 42.");
//! # Ok(())
//! # }
//! ```
//!
//! This crate re-exports the items that an embedder needs. ARCHITECTURE.md describes the crates
//! that define them.
//!
//! # Features
//!
//! All features except `api`, `grammars`, `bedrock` and `vertex` are enabled by default; `store` enables
//! `compression`. Each feature only adds items. With `default-features = false`, this crate contains
//! only the kernel, and an embedder supplies models, tools and a store.
//!
//! | feature | adds | compiled crates with this feature alone |
//! |---|---|---|
//! | `scripted` | the scripted model, recordings of runs, the table of prices: [`models`], without HTTP | about 165 |
//! | `models` | `scripted`, and the models of providers: HTTP and TLS | about 205 |
//! | `bedrock` | `models`, and Anthropic's models at Amazon Bedrock | about 230 |
//! | `vertex` | `models`, and Anthropic's and Google's models at Google Vertex AI | about 215 |
//! | `mcp` | tool servers of the Model Context Protocol, [`mcp`]: HTTP, TLS and OAuth | about 230 |
//! | `host` | commands and files of this machine under permissions, [`host`] | about 175 |
//! | `api` | the control API, [`api`]: a kernel over HTTP | about 205 |
//! | `store` | the durable store on disk, [`store`]; without a store a kernel forgets its processes when it ends | about 180 |
//! | `compression` | compression for a store of your own, [`records`]: C code of zstd; `store` enables it | about 165 |
//! | `grammars` | functions and classes as units of source code: C parsers | about 170 |
//!
//! Without any of them about 160 crates are compiled, with all of them about 290.

#[doc(inline)]
pub use dormouse_actors::handle::{
    Branch, Candidate, Commit, Commits, Conversation, Events, Export, FnTool, Import, ImportedTree,
    JudgeError, Kernel, KernelBuilder, LogLine, LogPage, LogSlice, Loser, LossReason,
    MissedCommits, MissingPermission, PendingCalls, Position, Process, ProcessEffect,
    ProcessEffects, ProcessInfo, Race, RaceResult, Recovery, RecoveryAction, RecoveryFn, Start,
    Tree,
};
/// Items that the expansion of [`macro@tool`] uses.
#[doc(hidden)]
pub mod derive {
    pub use {schemars, serde};
}

#[doc(inline)]
pub use dormouse_actors::{
    CloseReason, DescriptorView, Durability, Event, ExportFailure, Fact, HeldCall, KernelError,
    LoadError, ModelPermits, NameError, NotFound, ProcessError, ProcessStatus, ProcessView,
    RaceError, ServerQuestion, ServerQuestionError, StartError, StoreFailure, WantedAnswer,
    garbage, ports,
};
#[cfg(feature = "api")]
#[doc(inline)]
pub use dormouse_api as api;
#[doc(inline)]
pub use dormouse_content as content;
#[cfg(feature = "host")]
#[doc(inline)]
pub use dormouse_host as host;
pub use dormouse_kernel::budget::{Account, ReachedLimit};
pub use dormouse_kernel::labels::{LabelStatus, check_label_budget};
pub use dormouse_kernel::process::{AnswerError, Question, Verdict};
pub use dormouse_kernel::race::{Judgement, RacePolicy};
pub use dormouse_macros::tool;
/// The differences between two positions of processes, and between two texts.
pub mod diff {
    pub use dormouse_kernel::process::{
        DescriptorDifference, DescriptorSummary, Diff, MessageSummary, Pair,
    };
    pub use dormouse_kernel::syscall::diff_fd::unified_diff;
}
/// Exports: processes as files that other stores can import.
pub mod export {
    pub use dormouse_actors::handle::log_lines;
    pub use dormouse_actors::{ExportSummary, read_export, scan_export};
    pub use dormouse_kernel::export::{ExportError, ExportVisitor, Manifest, MaskTarget, Redact};
    pub use dormouse_proto::export::{Facts, Head, Member, Redaction};
}
/// Limits of servers of models, for programs that share them with others.
pub mod permits {
    pub use dormouse_actors::{ModelServer, ServerDemand};
    pub use dormouse_kernel::permits::{PermitDemand, PermitShare, PermitTicket, TokenShare};
}
#[doc(inline)]
pub use dormouse_kernel::{inventory, program, retention, schedule};
#[cfg(feature = "mcp")]
#[doc(inline)]
pub use dormouse_mcp as mcp;
#[cfg(feature = "scripted")]
#[doc(inline)]
pub use dormouse_models as models;
pub use dormouse_proto::budget::{Amount, Budget, Paused, Price, RaiseSource};
#[doc(inline)]
pub use dormouse_proto::{
    alarm, checkpoint, command, descriptor, effect, file, id, label, mail, message, model, process,
    provider_tools, record, server, server_tool, shown, tool, user_input,
};
/// Your own store, on top of any log of records.
#[doc(inline)]
pub use dormouse_records as records;
#[cfg(feature = "store")]
#[doc(inline)]
pub use dormouse_store as store;

/// The README and chapters of the book, whose Rust code is run as documentation tests.
#[cfg(all(
    doctest,
    feature = "host",
    feature = "mcp",
    feature = "models",
    feature = "store"
))]
mod book {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/getting-started.md")]
    struct GettingStarted;
    #[doc = include_str!("../docs/embedding.md")]
    struct Embedding;
    #[doc = include_str!("../docs/approval.md")]
    struct Approval;
    #[doc = include_str!("../docs/limits.md")]
    struct Limits;
    #[doc = include_str!("../docs/speculation.md")]
    struct Speculation;
    #[cfg(feature = "api")]
    #[doc = include_str!("../docs/control-api.md")]
    struct ControlApi;
    #[doc = include_str!("../docs/alarms.md")]
    struct Alarms;
    #[doc = include_str!("../docs/confinement.md")]
    struct Confinement;
}
