//! Whole kernels, used as an embedder uses them: one subject a file.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod alarms;
mod approvals;
mod bombs;
mod book;
mod branching;
mod budgets;
mod commands;
mod compaction;
mod conformance;
mod control;
mod conversations;
mod correspondence;
mod damaged_birth;
mod descriptors;
mod draining;
mod durability;
mod durability_settings;
mod environment;
mod explore;
mod exporting;
mod failing_store;
mod fallback;
mod features;
mod fence;
mod floors;
mod full_disk;
mod garbage;
mod garbage_ages;
mod garbage_in_use;
mod garbage_lives;
mod golden_store;
mod hibernation;
mod host_tools;
mod hostile;
mod labels;
mod large;
mod messages;
mod ownership;
mod pausing;
mod peers;
mod permits;
mod pids;
mod processes;
mod providers;
mod quota;
mod recovery;
mod reopening;
mod residents;
mod results;
mod soak;
mod spawn;
mod speculation;
mod supervision;
mod temp_files;
mod tool_reference;
mod tool_servers;
mod turns;

/// As in the program: what the soak says of memory is true of it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
