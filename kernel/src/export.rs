//! The export format: a process or a tree of processes as one file that another store can import.
//!
//! * [`frame`](ExportEncoder) writes the records, chained by hash, so that any removed, changed,
//!   moved or added byte is detected by [`scan`](Scanner), which reads them.
//! * [`manifest`](Manifest) checks the whole file before any of it is used.
//! * [`birth`](Manifest::births) turns its processes into new processes of another store.
//! * [`mask`](Redact) redacts texts.
//!
//! This module never opens a file or a store; it maps bytes to bytes. `docs/format.md` specifies
//! the layout.

mod birth;
mod frame;
mod manifest;
mod mask;
mod scan;

pub use birth::Birth;
pub use frame::{ContentHasher, ExportEncoder};
pub use manifest::{Checker, ExportVisitor, Manifest, referenced_contents};
pub use mask::{MaskError, MaskTarget, Masker, Redact, mask_text, masked_bundle};
pub use scan::{Keep, ScannedPart, Scanner};

/// Why a file cannot be imported or read. None of it was used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The file does not start like an export.
    #[error(
        "the file is no export: it does not begin as one. Name a file that `dormouse export` made"
    )]
    NotAnExport,
    /// The file contains something that this version does not know.
    #[error(
        "the export contains {what}, which only a later version can read. Import it with that version"
    )]
    Newer {
        /// Description of the unknown part.
        what: String,
    },
    /// The file is truncated.
    #[error("the export was cut off after {at} bytes. Copy the file again from its source")]
    Truncated {
        /// Length of the file.
        at: u64,
    },
    /// The bytes do not match their hash.
    #[error(
        "the export was altered: the record that ends at byte {at} does not match its hash. Copy \
         the file again from its source"
    )]
    Altered {
        /// End of the first record that does not match, or start of excess bytes.
        at: u64,
    },
    /// The hashes match, but the content is inconsistent.
    #[error("the export cannot be used: {what}. Export again from the source store")]
    Invalid {
        /// Description of the inconsistency.
        what: String,
    },
}

impl ExportError {
    fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into() }
    }
}
