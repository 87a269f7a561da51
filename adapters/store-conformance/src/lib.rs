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
//! A durable store runs the suite a second time, reopened for each operation: whatever was
//! acknowledged must be there then, and an owner's token stays valid until the next claim. The
//! suite cannot know how a storage medium fails: kill the writer, cut the power, fill the disk, and
//! run it again.
//!
//! A failure panics, and shows the expected answer. [`entries`] and [`collection`] contain what the
//! suite writes, for tests of your own.

#![expect(clippy::unwrap_used, reason = "a suite fails by panicking")]

mod checkpoints;
pub mod collection;
mod contents;
mod deletion;
pub mod entries;
mod journals;
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

const CASES: [fn(&mut Subject); 24] = [
    journals::an_empty_store_knows_nothing,
    journals::a_journal_is_the_latest_image_and_what_follows,
    journals::a_commit_is_all_or_nothing,
    journals::journals_have_no_gaps,
    journals::processes_do_not_mix,
    journals::facts_are_read_where_a_snapshot_stands_for_them_too,
    journals::what_is_only_written_is_read_like_any_other,
    journals::a_history_says_when_each_fact_was_written,
    table::only_the_newest_owner_writes,
    table::the_table_shows_births_and_ends,
    contents::contents_are_kept_by_hash,
    contents::contents_are_read_in_parts_and_bring_their_index,
    contents::a_content_that_is_said_to_be_held_is,
    temp_files::temporary_files_are_a_journal_of_their_own,
    temp_files::changes_of_temporary_files_have_no_gaps,
    checkpoints::a_checkpoint_is_a_cut_through_the_journals,
    checkpoints::what_a_checkpoint_needs_is_not_forgotten,
    deletion::what_is_forgotten_leaves_its_number,
    deletion::a_history_that_is_shortened_begins_with_an_image,
    collection::a_sweep_without_a_mark_is_refused,
    collection::a_sweep_drops_what_nothing_refers_to,
    collection::a_count_changes_nothing,
    collection::what_a_commit_named_is_kept_from_an_earlier_mark,
    collection::only_the_newest_owner_sweeps,
];
