//! The behaviour that every store of the kernel must have, as a suite that any implementation can
//! run.
//!
//! ```
//! use dormouse_store_conformance::{Subject, check_store};
//! # use dormouse_records::MemoryStore;
//!
//! check_store(|| {
//!     let store = MemoryStore::new();
//!     Box::new(move |operation| operation(&store))
//! });
//! ```
//!
//! For a durable store, run the suite a second time with a [`Subject`] that reopens the store
//! before each operation. Then every acknowledged commit must still be readable, and an owner's
//! token stays valid until the next claim. The suite cannot simulate failures of a storage medium:
//! write tests of your own that kill the writer, cut the power, or fill the disk.
//!
//! A failure panics with the expected and the actual answer. Tests of your own can use the
//! operations in [`entries`] and the collections in [`collection`].

#![expect(clippy::unwrap_used, reason = "a suite fails by panicking")]

mod checkpoints;
pub mod collection;
mod contents;
mod deletion;
pub mod entries;
mod journals;
mod labels;
mod subject;
mod table;
mod temp_files;

pub use subject::Subject;

/// Runs the suite. `open` creates an empty store for each case.
///
/// # Panics
/// If the store does not conform.
pub fn check_store(mut open: impl FnMut() -> Subject) {
    for case in CASES {
        case(&mut open());
    }
}

const CASES: [fn(&mut Subject); 32] = [
    journals::an_empty_store_contains_nothing,
    journals::a_journal_is_the_latest_image_and_the_facts_after_it,
    journals::a_commit_is_all_or_nothing,
    journals::journals_have_no_gaps,
    journals::each_process_has_its_own_facts,
    journals::facts_before_a_snapshot_can_still_be_read,
    journals::unsynced_commits_are_readable,
    journals::a_history_says_when_each_fact_was_written,
    journals::a_history_can_be_read_from_a_commit_on,
    table::only_the_newest_owner_writes,
    table::the_table_lists_created_and_ended_processes,
    table::the_table_has_what_each_process_waits_for,
    table::the_table_says_which_processes_are_paused,
    table::a_process_that_is_opened_again_is_alive_until_it_ends_again,
    table::a_process_that_is_truncated_and_then_opened_again_is_alive,
    table::a_process_that_waits_when_it_is_truncated_waits_for_nothing_once_it_is_opened_again,
    contents::contents_are_read_by_hash,
    contents::contents_are_read_in_ranges_and_have_their_index,
    contents::a_reference_to_an_unknown_content_is_refused,
    temp_files::changes_of_temporary_files_are_kept_for_each_tree,
    temp_files::changes_of_temporary_files_have_no_gaps,
    checkpoints::a_checkpoint_has_the_last_fact_of_each_member,
    checkpoints::a_process_in_a_checkpoint_cannot_be_deleted,
    labels::a_label_has_its_latest_record,
    labels::a_refused_commit_leaves_the_record_of_a_label,
    deletion::a_deleted_process_is_unknown_and_its_pid_is_not_reused,
    deletion::a_truncated_history_begins_with_an_image,
    collection::a_sweep_without_a_mark_is_refused,
    collection::a_sweep_deletes_unreferenced_contents,
    collection::counting_garbage_changes_nothing,
    collection::a_content_that_a_commit_references_survives_an_earlier_mark,
    collection::only_the_newest_owner_sweeps,
];
