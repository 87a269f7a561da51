//! Examples of the kernel, one idea each.
//!
//! * `audit/`: a swarm that audits the dependencies of a Rust workspace. What cargo knows of it is
//!   more than a megabyte on one line; the auditor looks at a few pages, forks workers that count
//!   what they search for, has an editor compose their findings and exports the report.
//!   `auditor.toml` reads captured metadata, offline; `live.toml` asks cargo. Every fact of the
//!   report is computed from what the tools returned, and less than 2 % of that enters a context.
//!
//! ```sh
//! dormouse run examples/audit/auditor.toml --store target/audit --allow-read=examples/audit --allow-write=target/report
//! ```
//!
//! * `review/`: a swarm that reviews a change of 7,000 lines. Workers count risks, tests and public
//!   items, and write their sections into one temporary file that the tree shares.
//!
//! ```sh
//! dormouse run examples/review/reviewer.toml --store target/review --allow-read=examples/review --allow-write=target/report
//! ```
//!
//! Each file in `examples/` embeds the kernel, and says in its head what it prints:
//!
//! | file | idea |
//! |---|---|
//! | `embed.rs` | a tool of the host, a durable session, its events, a second life |
//! | `host_tool.rs` | a function as a tool, whose long output is a descriptor |
//! | `own_model.rs` | a model of one's own |
//! | `fork.rs` | copies of a process, which share its descriptors |
//! | `spawn.rs` | a fresh process of another program, given a part of a descriptor |
//! | `messages.rs` | two sessions that write to each other |
//! | `budget.rs` | a limit for a process and all that it starts |
//! | `branch.rs` | a checkpoint, and two ways on from it |
//! | `hibernate.rs` | ten thousand sessions that sleep on disk |
//! | `crash_and_resume.rs` | a killed program, and one that continues its work |
//! | `picture.rs` | draws the processes of a store, as `docs/pictures/audit.svg` |
//! | `tool_server.rs` | a server of the Model Context Protocol, started by the kernel |
//! | `orchestrator.rs` | jobs a few at a time, with budgets; what fails is continued |
//! | `priorities.rs` | who is served first where model calls are scarce |
//!
//! `own-store/` is a store on SQLite, in a workspace of its own.
//!
//! ```sh
//! cargo run -p dormouse-examples --example fork
//! ```

/// A chapter of the book whose blocks of Rust use `dormouse-mcp-server`: they are compiled as
/// documentation tests here, since the facade does not contain that crate.
#[cfg(doctest)]
#[doc = include_str!("../../docs/mcp-proxy.md")]
struct Proxy;
