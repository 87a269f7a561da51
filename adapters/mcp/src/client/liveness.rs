//! Decides from the outcomes of calls whether a server can still be expected to answer. Uses no
//! clock.
//!
//! A session is in doubt after a call was cancelled or its answer got lost, until the server
//! answers any call. While calls wait that were sent before the doubt arose, the session stays in
//! use: a server that works on a long call may answer nothing else until that call is done. Calls
//! that are sent in doubt have no such effect. A session with a server that hangs therefore ends
//! when the earlier calls have reached their deadlines, however many calls are sent in the
//! meantime.

use std::collections::BTreeSet;

/// The number of a call within its session.
pub(super) type CallNumber = u64;

/// The state of a session that follows from the outcomes of its calls.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    next: CallNumber,
    waiting: BTreeSet<CallNumber>,
    doubt: Doubt,
}

#[derive(Clone, Copy, Debug, Default)]
enum Doubt {
    #[default]
    None,
    /// This call and later ones were sent in doubt.
    From(CallNumber),
    /// The server answered that it does not know the session any more.
    SessionExpired,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEnd {
    /// The server answered, possibly with an error.
    Answered,
    /// The answer got lost.
    Broken,
    /// The caller does not wait for the answer any more.
    Cancelled,
    /// The server does not know the session any more.
    SessionExpired,
}

/// Whether a session can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionHealth {
    /// The server answers.
    Healthy,
    /// In doubt, and kept for calls that were sent before the doubt arose.
    InUse,
    /// In doubt, and no earlier call waits: the server must be pinged.
    Doubtful,
    /// The session has ended.
    Expired,
}

impl Liveness {
    /// Records a call that is sent now.
    pub(super) fn begin_call(&mut self) -> CallNumber {
        let call = self.next;
        self.next += 1;
        self.waiting.insert(call);
        call
    }

    /// Records the outcome of a call.
    pub(super) fn end_call(&mut self, call: CallNumber, end: CallEnd) {
        self.waiting.remove(&call);
        self.doubt = match (self.doubt, end) {
            (Doubt::SessionExpired, _) | (_, CallEnd::SessionExpired) => Doubt::SessionExpired,
            (_, CallEnd::Answered) => Doubt::None,
            (Doubt::None, CallEnd::Broken | CallEnd::Cancelled) => Doubt::From(self.next),
            (doubt @ Doubt::From(_), CallEnd::Broken | CallEnd::Cancelled) => doubt,
        };
    }

    pub(super) fn health(&self) -> SessionHealth {
        match self.doubt {
            Doubt::None => SessionHealth::Healthy,
            Doubt::From(from) if self.waiting.first().is_some_and(|first| *first < from) => {
                SessionHealth::InUse
            }
            Doubt::From(_) => SessionHealth::Doubtful,
            Doubt::SessionExpired => SessionHealth::Expired,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_from_before_the_doubt_keep_a_session_in_use() {
        let mut liveness = Liveness::default();
        let (long, short) = (liveness.begin_call(), liveness.begin_call());
        liveness.end_call(short, CallEnd::Cancelled);
        assert_eq!(liveness.health(), SessionHealth::InUse);
        let late = liveness.begin_call();
        liveness.end_call(long, CallEnd::Cancelled);
        assert_eq!(
            liveness.health(),
            SessionHealth::Doubtful,
            "a call that was sent in doubt does not keep the session in use"
        );
        liveness.end_call(late, CallEnd::Broken);
        assert_eq!(liveness.health(), SessionHealth::Doubtful);
    }

    #[test]
    fn an_answer_ends_the_doubt_and_waiting_calls_keep_the_session_in_use_in_the_next_doubt() {
        let mut liveness = Liveness::default();
        let broken = liveness.begin_call();
        liveness.end_call(broken, CallEnd::Broken);
        let (answered, waiting, cancelled) = (
            liveness.begin_call(),
            liveness.begin_call(),
            liveness.begin_call(),
        );
        assert_eq!(liveness.health(), SessionHealth::Doubtful);
        liveness.end_call(answered, CallEnd::Answered);
        assert_eq!(liveness.health(), SessionHealth::Healthy);
        liveness.end_call(cancelled, CallEnd::Cancelled);
        assert_eq!(liveness.health(), SessionHealth::InUse);
        liveness.end_call(waiting, CallEnd::Answered);
        assert_eq!(liveness.health(), SessionHealth::Healthy);
    }

    #[test]
    fn an_expired_session_stays_expired_while_calls_wait() {
        let mut liveness = Liveness::default();
        let (waiting, expired) = (liveness.begin_call(), liveness.begin_call());
        liveness.end_call(expired, CallEnd::SessionExpired);
        assert_eq!(liveness.health(), SessionHealth::Expired);
        liveness.end_call(waiting, CallEnd::Answered);
        assert_eq!(liveness.health(), SessionHealth::Expired);
    }
}
