//! A process at rest: it says so, and goes when it is told to hibernate and nothing is pending.
//!
//! Its facts are durable before it goes. An image at the last fact is written if enough facts
//! followed the previous image. It is not synced, since it only saves a replay.

use dormouse_kernel::process::BusyReason;
use dormouse_proto::id::Pid;

use super::{ProcessMessage, Running};
use crate::checkpoint::{CommitError, Imaged, LogRecord, Size};
use crate::error::{KernelError, ProcessError};
use crate::supervisor::RestMessage;

/// Why a process does not hibernate.
#[derive(Clone, Debug)]
pub(crate) enum StaysAwake {
    /// It is not at rest.
    BusyReason(BusyReason),
    /// Calls are in flight.
    Calls,
    /// Facts of it are on their way to the disk.
    Undurable,
    /// Its image could not be made durable.
    NotDurable(CommitError),
}

impl StaysAwake {
    /// The error for who asked.
    pub(crate) fn error(&self, pid: Pid) -> KernelError {
        let pending = |what: String| KernelError::Process(ProcessError::Pending { pid, what });
        match self {
            Self::BusyReason(BusyReason::Ended) => KernelError::Process(ProcessError::Ended(pid)),
            Self::BusyReason(busy_reason) => pending(busy_reason.to_string()),
            Self::Calls => pending("calls are in flight".to_owned()),
            Self::Undurable => pending("what it did last is on its way to the disk".to_owned()),
            Self::NotDurable(error) => KernelError::from(error.clone()),
        }
    }
}

impl Running {
    fn busy_reason(&self) -> Option<StaysAwake> {
        if let Some(busy_reason) = self.state.busy_reason() {
            return Some(StaysAwake::BusyReason(busy_reason));
        }
        if !self.in_flight.is_empty() {
            return Some(StaysAwake::Calls);
        }
        (!self.undurable.is_empty()).then_some(StaysAwake::Undurable)
    }

    /// Says once that it has come to rest, where somebody wants to know.
    pub(super) fn report_rest(&mut self) {
        if !self.is_resting && self.context.hibernates() && self.busy_reason().is_none() {
            self.is_resting = true;
            self.tell_supervisor(RestMessage::Rests { pid: self.pid() });
        }
    }

    /// Hibernates where nothing is pending. Its facts are durable by then. Where much followed its
    /// latest image, it goes once another at the last of them is written, so that waking costs
    /// little replay, and so that no more images wait for a slow disk than processes would.
    pub(super) fn hibernate(&mut self) {
        if let Some(why) = self.busy_reason() {
            return self.stay_awake(why);
        }
        let Some(worth) = self.tail.max_image_bytes_before_sleep() else {
            return self.fall_asleep();
        };
        let (pid, at, image) = (self.pid(), self.last, Box::new(self.state.image()));
        let myself = self.myself.clone();
        let acknowledge = Box::new(move |result| {
            // Where the process is gone, its successor reads the journal.
            let _ = myself.cast(ProcessMessage::Imaged { result });
        });
        self.context.append(
            vec![LogRecord::Snapshot {
                pid,
                at,
                image,
                worth,
            }],
            acknowledge,
        );
    }

    pub(super) fn imaged(&mut self, result: Result<Size, CommitError>) {
        match result {
            Err(error) => self.stay_awake(StaysAwake::NotDurable(error)),
            Ok(size) => {
                match size.image {
                    Imaged::Kept(bytes) => self.tail = self.tail.after_image(bytes),
                    Imaged::TooLong | Imaged::None => {}
                }
                self.fall_asleep();
            }
        }
    }

    /// Nothing arrived since it was told to, and nothing does from here on: it may go.
    fn fall_asleep(&mut self) {
        self.is_resting = true;
        self.tell_supervisor(RestMessage::Asleep { pid: self.pid() });
        self.myself.stop(None);
    }

    fn stay_awake(&mut self, why: StaysAwake) {
        self.tell_supervisor(RestMessage::StaysAwake {
            pid: self.pid(),
            why,
        });
    }
}
