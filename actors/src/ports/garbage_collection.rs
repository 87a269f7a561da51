//! The parameters and results of the two store operations of a garbage collection: the update of
//! the inventory, which records what refers to which content, and the sweep, which frees space.

use std::ops::ControlFlow;

use dormouse_kernel::inventory::Inventory;
pub use dormouse_kernel::retention::Deletions;
use dormouse_proto::id::ContentHash;
use dormouse_proto::record::codec::CodecError;

use crate::garbage::EncodedRecord;

/// Parameters of [`Store::update_inventory`](super::Store::update_inventory).
pub struct InventoryUpdate<'a> {
    /// The inventory to update. An empty one, or one of another opening of the store, is filled
    /// from the beginning.
    pub inventory: &'a mut Inventory,
    /// Returns the contents that a record refers to.
    pub references: &'a mut dyn FnMut(EncodedRecord<'_>) -> Result<Vec<ContentHash>, CodecError>,
    /// Called before each bounded part of the work. If it returns `Break`, the update stops, and
    /// the next update continues from there.
    pub watch: &'a mut dyn FnMut() -> ControlFlow<()>,
}

/// The result of an update of the inventory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InventoryReport {
    /// Records that were read.
    pub records: u64,
    /// Whether the update is complete.
    pub outcome: SweepOutcome,
}

/// Parameters of a sweep.
pub struct SweepRequest<'a> {
    /// The mark whose pins the sweep respects; ignored if nothing is written.
    pub mark: MarkToken,
    /// The content of the store, as [`Store::update_inventory`](super::Store::update_inventory)
    /// found it after the mark began. The sweep records inspected and freed segments in it.
    pub inventory: &'a mut Inventory,
    /// The contents that are kept.
    pub contents: KeptContents,
    /// Deletions that are counted as done although they are not committed, for
    /// [`SweepMode::Count`].
    pub deletions: &'a Deletions,
    /// Whether anything is written.
    pub mode: SweepMode,
    /// The size of the work units.
    pub limits: SweepLimits,
    /// Called before each step. If it returns `Break`, the sweep stops; the store stays consistent,
    /// and freed space stays freed.
    pub watch: &'a mut dyn FnMut(SweepStep) -> ControlFlow<()>,
}

/// Identifies a mark. A later mark supersedes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkToken(pub u64);

/// Whether a sweep writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum SweepMode {
    /// Only counts.
    Count,
    /// Frees space.
    Free,
}

/// The size of the work units of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepLimits {
    /// A segment is swept if at most this percentage of its bytes is live.
    pub live_percent: u8,
    /// The number of bytes that are moved at a time; commits continue in between. A longer record
    /// is moved alone.
    pub step_bytes: u64,
    /// The active segment is closed, and swept like the others, if it has at least this many bytes
    /// of garbage.
    pub close_bytes: u64,
}

impl Default for SweepLimits {
    /// Segments that are at least half garbage, in steps of 4 MiB; the active segment if it has 64
    /// KiB of garbage.
    fn default() -> Self {
        Self {
            live_percent: 50,
            step_bytes: 4 << 20,
            close_bytes: 64 << 10,
        }
    }
}

/// Which contents are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeptContents {
    /// All contents.
    #[default]
    All,
    /// The contents that the inventory lists as referenced.
    Referenced,
}

/// A step of a sweep in a segment of the log, about to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepStep {
    /// Inspect the records of the segment.
    Inspect(u32),
    /// Move live records of the segment to the end of the log.
    Move(u32),
    /// Sync the moved records.
    Sync(u32),
    /// Write the replacement of the segment.
    Write(u32),
    /// Replace the segment. This step cannot be undone.
    Replace(u32),
    /// Remove the freed records from the index.
    Clean(u32),
}

impl SweepStep {
    /// The number of the segment.
    #[must_use]
    pub fn segment(self) -> u32 {
        match self {
            Self::Inspect(number)
            | Self::Move(number)
            | Self::Sync(number)
            | Self::Write(number)
            | Self::Replace(number)
            | Self::Clean(number) => number,
        }
    }
}

/// The result of a sweep, or of counting what a sweep would free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Bytes in the store before.
    pub bytes_before: u64,
    /// Bytes in the store after.
    pub bytes_after: u64,
    /// Bytes of live records among `bytes_before`.
    pub live_bytes: u64,
    /// Bytes that were moved.
    pub moved_bytes: u64,
    /// Segments that a sweep can free: all except the active one and those that are freed already.
    pub segments: u64,
    /// Records that were inspected to determine which are live. The records of a segment are not
    /// inspected if the inventory determines them.
    pub inspected_records: u64,
    /// Segments that were freed.
    pub freed_segments: u64,
    /// Bytes of garbage that are not freed, because too much of their segment is live.
    pub kept_garbage_bytes: u64,
    /// Contents that were freed.
    pub freed_contents: u64,
    /// The bytes of those contents.
    pub freed_content_bytes: u64,
    /// Segments that were skipped because a record in them cannot be read.
    pub damaged_segments: Vec<u32>,
    /// Whether the sweep is complete.
    pub outcome: SweepOutcome,
}

/// Whether a sweep or an update of the inventory is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SweepOutcome {
    /// Complete.
    #[default]
    Done,
    /// Stopped early by `watch`.
    Interrupted,
}
