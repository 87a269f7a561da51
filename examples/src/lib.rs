//! Examples of the kernel. Each shows one feature.
//!
//! * `audit/`: a process tree that audits the dependencies of a Rust workspace. The metadata from
//!   cargo has more than a megabyte on one line. The auditor reads a few pages of it, forks workers
//!   that count matches of searches, spawns an editor that composes their findings, and exports
//!   the report. `auditor.toml` reads a metadata file, offline; `live.toml` calls cargo. Every
//!   figure in the report is computed from tool output, and less than 2 % of that output enters a
//!   context.
//!
//! ```sh
//! dormouse run examples/audit/auditor.toml --store target/audit --allow-read=examples/audit --allow-write=target/report
//! ```
//!
//! * `review/`: a process tree that reviews a change of 7,000 lines. Workers count risks, tests and
//!   public items, and write their sections into one temporary file that the tree shares.
//!
//! ```sh
//! dormouse run examples/review/reviewer.toml --store target/review --allow-read=examples/review --allow-write=target/report
//! ```
//!
//! Each file in `examples/` is a program that embeds the kernel. The comment at its top shows its
//! output:
//!
//! | file | feature |
//! |---|---|
//! | `embed.rs` | a tool of the host, a durable session, its events, and a second kernel that continues it |
//! | `host_tool.rs` | a function as a tool, whose long output becomes a descriptor |
//! | `own_model.rs` | your own implementation of a model |
//! | `fork.rs` | copies of a process, which share its descriptors |
//! | `spawn.rs` | a new process of another program, with a part of a descriptor |
//! | `messages.rs` | two sessions that send messages to each other |
//! | `budget.rs` | a limit for a process and all its descendants |
//! | `branch.rs` | a checkpoint with two continuations |
//! | `hibernate.rs` | ten thousand sessions that hibernate on disk |
//! | `crash_and_resume.rs` | a killed program, and a second one that continues its work |
//! | `picture.rs` | draws the processes of a store, as `docs/pictures/audit.svg` |
//! | `tool_server.rs` | a server of the Model Context Protocol that the kernel starts |
//! | `orchestrator.rs` | jobs that run two at a time, with budgets; a failed job is continued |
//! | `priorities.rs` | the order of processes that wait for a model call |
//!
//! `own-store/` is your own store on SQLite, in a workspace of its own.
//!
//! ```sh
//! cargo run -p dormouse-examples --example fork
//! ```

/// A chapter of the book whose Rust code uses `dormouse-mcp-server`. The code is tested here,
/// because the crate `dormouse` does not depend on that crate.
#[cfg(doctest)]
#[doc = include_str!("../../docs/mcp-proxy.md")]
struct Proxy;
