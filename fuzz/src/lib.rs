//! What the fuzz targets share: tables to call tools on, and what is true of every answer.
//!
//! A target is a small file of its own in `fuzz_targets`: it makes a call out of bytes and checks
//! what comes back against the promises of the kernel by name (PAGE-1, XML-1, FD-2, …), not only
//! that nothing panics. `.ci/fuzz` runs them all.

pub mod answer;
/// Files with right hashes and insides as one likes.
#[path = "../../tests/src/forge/mod.rs"]
pub mod forge;
pub mod forging;
pub mod tools;

use dormouse_content::Content;
use dormouse_kernel::table::Table;
use dormouse_proto::record::Entry;

/// A table that holds these contents as `fd:1`, `fd:2` and so on, in pages of `page_chars`
/// characters.
#[must_use]
pub fn table<'a>(contents: impl IntoIterator<Item = &'a [u8]>, page_chars: u32) -> Table {
    let mut table = Table::new();
    for bytes in contents {
        table.insert(
            table.next_id(),
            Entry::new(Content::new(bytes.to_vec()), page_chars, "tool:fuzz", 0),
        );
    }
    table
}
