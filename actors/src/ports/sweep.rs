//! What a store is told when it is to give room back, and what it answers.

use std::ops::ControlFlow;

use dormouse_kernel::inventory::Inventory;
pub use dormouse_kernel::retention::Forgotten;
use dormouse_proto::id::ContentHash;
use dormouse_proto::record::codec::CodecError;

use crate::garbage::Piece;

/// An order to bring an inventory up to what a store holds.
pub struct StockTaking<'a> {
    /// What was found before. An empty one, or one of another opened store, is filled anew.
    pub inventory: &'a mut Inventory,
    /// The contents that a piece of a journal refers to.
    pub references: &'a mut dyn FnMut(Piece<'_>) -> Result<Vec<ContentHash>, CodecError>,
    /// Asked before each bounded part of the work. Where it breaks off, the next one goes on from
    /// there.
    pub watch: &'a mut dyn FnMut() -> ControlFlow<()>,
}

/// What taking stock came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockTaken {
    /// Records that were looked at.
    pub records: u64,
    /// Whether it went to its end.
    pub progress: Progress,
}

/// An order to sweep.
pub struct Sweep<'a> {
    /// The mark by which it is known what stays; of no account where nothing is written.
    pub mark: MarkToken,
    /// What the store holds, as [`Store::take_stock`](super::Store::take_stock) found it since the
    /// mark began. A part that was looked at or freed is noted there.
    pub inventory: &'a mut Inventory,
    /// The contents that stay.
    pub contents: Contents,
    /// What is to be counted as given up, in addition to what is. For [`Purpose::Count`].
    pub forgotten: &'a Forgotten,
    /// Whether anything is written.
    pub purpose: Purpose,
    /// How the work is divided.
    pub bounds: Bounds,
    /// Asked before each step; to break off leaves the store whole, and what was freed stays freed.
    pub watch: &'a mut dyn FnMut(Step) -> ControlFlow<()>,
}

/// A mark that was begun. A later one takes its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkToken(pub u64);

/// Whether a sweep writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It only counts.
    Count,
    /// It frees.
    Free,
}

/// How a sweep divides its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// A part of the log is swept where at most so many of a hundred bytes in it are live.
    pub live_percent: u8,
    /// So many bytes are moved at a time; commits go on in between. A record that is longer is
    /// moved alone.
    pub step_bytes: u64,
    /// The part that is still written is closed, and swept like the others, where so many bytes in
    /// it are garbage.
    pub close_bytes: u64,
}

impl Default for Bounds {
    /// What is at least half garbage, in steps of 4 MiB; the part that is still written where 64
    /// KiB of it are.
    fn default() -> Self {
        Self {
            live_percent: 50,
            step_bytes: 4 << 20,
            close_bytes: 64 << 10,
        }
    }
}

/// Contents that stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contents {
    /// Every one.
    #[default]
    All,
    /// Those that something refers to, as the inventory says.
    Referred,
}

/// A step of a sweep, about to be taken in a part of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To look at what stands in it.
    Inspect(u32),
    /// To move some of what is live in it to the log's end.
    Move(u32),
    /// To make durable what was moved.
    Settle(u32),
    /// To write what will stand in its place.
    Write(u32),
    /// To put that in its place. From here on there is no way back.
    Replace(u32),
    /// It is done, and its names are about to be taken out of the index.
    Clean(u32),
}

impl Step {
    /// The number of the part that it is taken in.
    #[must_use]
    pub fn segment(self) -> u32 {
        match self {
            Self::Inspect(number)
            | Self::Move(number)
            | Self::Settle(number)
            | Self::Write(number)
            | Self::Replace(number)
            | Self::Clean(number) => number,
        }
    }
}

/// What a sweep did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Bytes in the store before.
    pub bytes_before: u64,
    /// Bytes in the store after.
    pub bytes_after: u64,
    /// Bytes that are live in these parts.
    pub live_bytes: u64,
    /// Bytes that were moved.
    pub moved_bytes: u64,
    /// Parts of the log that could have been freed: all but those that are still written or were
    /// freed before.
    pub parts: u64,
    /// Records that were looked at to find out what is live. In a part of which enough is known
    /// none is.
    pub inspected: u64,
    /// Those that were freed.
    pub freed_parts: u64,
    /// Bytes of garbage that stay, since too much of the part that they are in is live.
    pub left_bytes: u64,
    /// Contents that were dropped with those that were freed.
    pub dropped_contents: u64,
    /// Their bytes.
    pub dropped_content_bytes: u64,
    /// Parts that were left alone, since something in them cannot be read.
    pub damaged_parts: Vec<u32>,
    /// Whether it went to its end.
    pub progress: Progress,
}

/// How far a sweep came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// To its end.
    #[default]
    Done,
    /// It was broken off.
    BrokenOff,
}
