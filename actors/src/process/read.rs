//! Reads of contents on behalf of calls: small ones within the handler, all others on the pool.

use dormouse_kernel::process::{Completion, Found, Input, Read};
use dormouse_kernel::syscall::Outcome;
use dormouse_proto::tool::Answer;

use super::Running;
use super::perform::in_tool;

/// What a handler reads itself, in bytes of what is in memory. A trip to the pool and a second step cost a turn some 50 µs
/// (`bench/src/bin/searching.rs`), in which so many bytes can be read and indexed.
pub(super) const INLINE_BYTES: u64 = 64 << 10;

impl Running {
    /// Begins a read beside the actor. Giving up the call ends it.
    pub(super) fn read(&mut self, read: Read) {
        let Some(call) = read.call() else { return };
        let is_tool = read.is_tool();
        let work = Box::pin(self.world.readers.clone().perform(read));
        // A tool outside has a span of its own.
        let work = if is_tool { in_tool(self.tool_span(call), work, Result::is_err) } else { work };
        let input = move |read: Result<Input, String>| {
            read.unwrap_or_else(|why| {
                let answer = Answer::failed(format!("Reading failed inside: {why}"));
                Input::Completed { call, result: Completion::Read(Found::Tool(Outcome::Answer(answer))) }
            })
        };
        self.start_for_input(work, call, input, Err);
    }
}
