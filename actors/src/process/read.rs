//! Reads of contents on behalf of calls: small ones within the handler, all others on the pool.

use dormouse_kernel::process::{Found, Input, Read};
use dormouse_kernel::syscall::Outcome;
use dormouse_proto::tool::Answer;

use super::Running;
use super::perform::in_tool;

/// What a handler reads itself, in bytes of what is in memory: some ten microseconds of work, where a trip to the pool takes as long
/// and costs a second commit for the turn. Measured by `bench/src/bin/inline_reads.rs`.
pub(super) const INLINE_BYTES: u64 = 64 << 10;

impl Running {
    /// Begins a read beside the actor. Giving up the call ends it.
    pub(super) fn read(&mut self, read: Read) {
        let Some(call) = read.call() else { return };
        let work = Box::pin(self.world.readers.clone().perform(read));
        let work = in_tool(self.tool_span(call), work, Result::is_err);
        let input = move |read: Result<Input, String>| {
            read.unwrap_or_else(|why| {
                let answer = Answer::failed(format!("Reading failed inside: {why}"));
                Input::Read { call, found: Found::Tool(Outcome::Answer(answer)) }
            })
        };
        self.start(work, call, input, Err);
    }
}
