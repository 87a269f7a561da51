//! Decisions, from outside: each file states what holds of one subject, through what the crate
//! makes public.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod auto_summary;
mod budget_run;
mod budget_support;
mod budget_tree;
mod call_styles;
mod conformance;
mod descriptor_model;
mod export;
mod golden;
mod imitation;
mod process_alarms;
mod process_attachments;
mod process_budget;
mod process_call_limits;
mod process_compaction;
mod process_control;
mod process_explore;
mod process_fence;
mod process_held;
mod process_machine;
mod process_mail;
mod process_pausing;
mod process_reads;
mod process_reopening;
mod process_restore;
mod process_result;
mod process_speculation;
mod program_bundle;
mod program_findings;
mod program_good;
mod program_hostile;
mod program_preloads;
mod program_reference;
mod program_schema;
mod program_support;
mod replay;
mod reply_reads;
mod served_tools;
mod server_tools;
#[path = "../../tests/skip.rs"]
mod skip;
mod unreadable;
