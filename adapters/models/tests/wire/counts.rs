//! The table that the tests print.

use std::collections::BTreeMap;

/// What was looked at in the recordings of one format.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) whole: usize,
    pub(crate) streamed: usize,
    pub(crate) made: usize,
    pub(crate) cuts: usize,
    pub(crate) blocks: usize,
    pub(crate) failures: usize,
    pub(crate) counted: usize,
    pub(crate) shapes: usize,
    pub(crate) addresses: usize,
    pub(crate) bodies: usize,
    pub(crate) out_of_scope: Vec<String>,
    pub(crate) without_body: BTreeMap<String, usize>,
}

impl Counts {
    /// Prints the row of the table, and what was left out.
    pub(crate) fn print(&self, name: &str, interactions: usize, wrong: usize) {
        let Self {
            whole,
            streamed,
            made,
            cuts,
            blocks,
            failures,
            counted,
            shapes,
            addresses,
            bodies,
            out_of_scope,
            without_body,
        } = self;
        eprintln!(
            "{name:<18} {interactions:>4} interactions: {whole} whole replies, {streamed} streams \
             and {made} made of whole ones (cut at {cuts} events), {blocks} blocks, {failures} \
             failures, {counted} counts of tokens, {} out of scope; requests compared: \
             {addresses} by address and headers, {bodies} by body; {shapes} fields of recorded \
             shapes; {wrong} wrong",
            out_of_scope.len(),
        );
        out_of_scope.iter().for_each(|why| eprintln!("  {why}"));
        for (why, times) in without_body {
            eprintln!("  {times:>3} bodies not compared: {why}");
        }
    }
}
