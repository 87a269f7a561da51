//! Examples of the kernel, one idea each.
//!
//! * `audit/`: a swarm that audits the dependencies of a Rust workspace. What cargo knows of it is
//!   more than a megabyte on one line; the auditor looks at a few pages, forks workers that count
//!   what they search for, has an editor compose their findings and exports the report.
//!   `auditor.toml` reads captured metadata, offline; `live.toml` asks cargo. Every fact of the
//!   report is computed from what the tools returned, and less than 2 % of that enters a context.
//!
//! * `examples/embed.rs`: the kernel as a library, with a tool of the host, a durable session and
//!   its events.
//!
//! * `examples/picture.rs`: draws the processes of a store, with what of their tools' output entered
//!   a context. `docs/pictures/audit.svg` is the audit, drawn by it.
//!
//! ```sh
//! dormouse run examples/audit/auditor.toml --store target/audit --allow-read=examples/audit --allow-write=target/report
//! ```

/// A chapter of the book whose blocks of Rust use `dormouse-mcp-server`: they are compiled as
/// documentation tests here, since the facade does not contain that crate.
#[cfg(doctest)]
#[doc = include_str!("../../docs/mcp-proxy.md")]
struct Proxy;
