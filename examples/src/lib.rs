//! Examples of the kernel, one idea each.
//!
//! * `audit/`: a swarm that audits the dependencies of a Rust workspace. A command tool returns more than a megabyte on
//!   one line; the auditor searches and pages it, forks workers, has an editor compose their findings and exports the
//!   report. Offline, and every fact of the report is computed from what the tools returned.
//!
//! * `examples/embed.rs`: the kernel as a library, with a tool of the host, a durable session and its events.
//!
//! ```sh
//! dormouse run examples/audit/auditor.toml --store target/audit --allow-run=cargo --allow-write=target
//! ```
