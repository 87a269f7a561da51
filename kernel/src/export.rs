//! Exports: a process, or a tree of them, as one file that another store can take in.
//!
//! * [`frame`](Framer): the records of a file one behind the other, chained by hash, so that no
//!   byte of it can be cut off, changed, moved or added without being noticed by name, which
//!   [`scan`](Scanner) does.
//! * [`manifest`](Manifest): what a file holds, checked as a whole before anything of it is used.
//! * [`birth`](Manifest::births): what becomes of its processes in another store.
//! * [`mask`](Redact): what is kept out of it.
//!
//! This room never sees a file and never a store: it is given bytes and gives bytes.
//! `docs/format.md` says what stands where.

mod birth;
mod frame;
mod manifest;
mod mask;
mod scan;

pub use birth::Birth;
pub use frame::{Framer, Naming};
pub use manifest::{Checker, Manifest, Told, named};
pub use mask::{Masker, Place, Redact, Unmasked, mask_text, masked_bundle};
pub use scan::{Keep, Piece, Scanner};

/// Why a file is not taken in, or not looked into. Nothing of it was used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// It does not begin as an export does.
    #[error(
        "the file is no export: it does not begin as one. Name a file that `dormouse export` made"
    )]
    Foreign,
    /// It holds something that this version does not know.
    #[error("the export holds {what}, as a later version writes it. Import it with that version")]
    Newer {
        /// What.
        what: String,
    },
    /// It ends before its end.
    #[error("the export was cut off after {at} bytes. Copy it again from where it was made")]
    Truncated {
        /// How many bytes there are.
        at: u64,
    },
    /// What stands there is not what was written.
    #[error(
        "the export was altered: what ends at byte {at} does not fit its hash. Copy it again from \
         where it was made"
    )]
    Altered {
        /// Where the record ends that is not what it was, or where the first byte stands that is
        /// too many.
        at: u64,
    },
    /// It is as it was written, and contradicts itself.
    #[error("the export cannot be used: {what}. Export again from the store that it was made of")]
    Invalid {
        /// What contradicts what.
        what: String,
    },
}

impl ExportError {
    fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into() }
    }
}
