//! Whether a server can still be expected to answer: by what came of its calls, and without a
//! clock.
//!
//! A call that is given up, or whose answer got lost, raises doubt; any answer lays it. While calls
//! wait that were asked before the doubt arose, they hold the session: one that works on a long
//! call may answer nothing else until it is done. Calls that are asked in doubt hold nothing. So a
//! server that hangs is left when the calls that hold it have come to their deadlines, however many
//! ask it meanwhile.

use std::collections::BTreeSet;

/// The number of a call within its session.
pub(super) type CallNumber = u64;

/// What is known of a session by its calls.
#[derive(Debug, Default)]
pub(super) struct Trust {
    next: CallNumber,
    waiting: BTreeSet<CallNumber>,
    doubt: Doubt,
}

#[derive(Clone, Copy, Debug, Default)]
enum Doubt {
    #[default]
    None,
    /// Calls from this one on are asked in doubt.
    From(CallNumber),
    /// The server said that it knows the session no more.
    Forgotten,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEnd {
    /// The server answered, be it with an error.
    Answered,
    /// Its answer got lost.
    Broken,
    /// Nobody waits for it any more.
    GivenUp,
    /// The server knows the session no more.
    Forgotten,
}

/// What a session is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It can be asked.
    Sound,
    /// It is in doubt, and stays for the calls that wait.
    Held,
    /// It is in doubt, and nobody waits who was sure of it: a sign of life is asked for.
    Doubtful,
    /// It is over.
    Lost,
}

impl Trust {
    /// Notes a call that is asked now.
    pub(super) fn ask(&mut self) -> CallNumber {
        let call = self.next;
        self.next += 1;
        self.waiting.insert(call);
        call
    }

    /// Notes what came of a call.
    pub(super) fn end(&mut self, call: CallNumber, end: CallEnd) {
        self.waiting.remove(&call);
        self.doubt = match (self.doubt, end) {
            (Doubt::Forgotten, _) | (_, CallEnd::Forgotten) => Doubt::Forgotten,
            (_, CallEnd::Answered) => Doubt::None,
            (Doubt::None, CallEnd::Broken | CallEnd::GivenUp) => Doubt::From(self.next),
            (doubt @ Doubt::From(_), CallEnd::Broken | CallEnd::GivenUp) => doubt,
        };
    }

    pub(super) fn standing(&self) -> Standing {
        match self.doubt {
            Doubt::None => Standing::Sound,
            Doubt::From(from) if self.waiting.first().is_some_and(|first| *first < from) => {
                Standing::Held
            }
            Doubt::From(_) => Standing::Doubtful,
            Doubt::Forgotten => Standing::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_wait_hold_a_session_in_doubt_and_those_asked_in_doubt_do_not() {
        let mut trust = Trust::default();
        let (long, short) = (trust.ask(), trust.ask());
        trust.end(short, CallEnd::GivenUp);
        assert_eq!(trust.standing(), Standing::Held);
        let late = trust.ask();
        trust.end(long, CallEnd::GivenUp);
        assert_eq!(
            trust.standing(),
            Standing::Doubtful,
            "however many ask meanwhile"
        );
        trust.end(late, CallEnd::Broken);
        assert_eq!(trust.standing(), Standing::Doubtful);
    }

    #[test]
    fn an_answer_lays_doubt_and_who_still_waits_holds_the_session_in_the_next() {
        let mut trust = Trust::default();
        let broken = trust.ask();
        trust.end(broken, CallEnd::Broken);
        let (answered, waits, given_up) = (trust.ask(), trust.ask(), trust.ask());
        assert_eq!(trust.standing(), Standing::Doubtful);
        trust.end(answered, CallEnd::Answered);
        assert_eq!(trust.standing(), Standing::Sound);
        trust.end(given_up, CallEnd::GivenUp);
        assert_eq!(trust.standing(), Standing::Held);
        trust.end(waits, CallEnd::Answered);
        assert_eq!(trust.standing(), Standing::Sound);
    }

    #[test]
    fn a_forgotten_session_is_lost_whoever_waits() {
        let mut trust = Trust::default();
        let (waits, forgotten) = (trust.ask(), trust.ask());
        trust.end(forgotten, CallEnd::Forgotten);
        assert_eq!(trust.standing(), Standing::Lost);
        trust.end(waits, CallEnd::Answered);
        assert_eq!(trust.standing(), Standing::Lost);
    }
}
