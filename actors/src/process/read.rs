//! Reads contents for calls, and replies of the model. Small reads run in the handler, all others on
//! the pool.

use dormouse_kernel::process::{Completion, Input, Read, ReadResult};
use dormouse_kernel::syscall::Outcome;
use dormouse_proto::id::CallId;
use dormouse_proto::model::{ModelError, ModelErrorKind};
use dormouse_proto::tool::Answer;

use super::effects::in_tool_span;
use super::{Delivery, RunningProcess};
use crate::read_pool::ReadError;

/// The most bytes that a handler reads itself, if they are in memory. A round trip to the pool and
/// a second step cost a turn about 50 µs (`bench/src/bin/searching.rs`); the same time suffices to
/// read and index this many bytes.
pub(super) const INLINE_BYTES: u64 = 64 << 10;

impl RunningProcess {
    /// Starts the read of a call on the pool. Abandoning the call cancels the read.
    pub(super) fn start_read(&mut self, call: CallId, read: Read) {
        let is_tool = read.is_tool();
        let is_reply = read.is_reply();
        let work = Box::pin(self.context.read_pool.clone().execute_read(read));
        // A tool outside of the machine has a span of its own.
        let work = if is_tool {
            in_tool_span(self.tool_span(call), work, Result::is_err)
        } else {
            work
        };
        let delivery = move |read: Result<Input, ReadError>| {
            let input = read.unwrap_or_else(|why| {
                let why = format!("Reading failed internally: {why}");
                let result = match is_reply {
                    true => Completion::Model(Err(ModelError::new(ModelErrorKind::Malformed, why))),
                    false => {
                        let outcome = Outcome::Answer(Answer::failed(why));
                        Completion::Read(ReadResult::Tool(outcome))
                    }
                };
                Input::Completed { call, result }
            });
            Delivery::internal(input)
        };
        self.spawn_for_delivery(work, call, delivery, |why| Err(ReadError::Panicked(why)));
    }
}
