//! What a process waits for, in the eight bytes that it takes in a row of the process table.

use dormouse_proto::process::Waiting;

/// A [`Waiting`] in eight bytes: the kind in the lowest two bits, and above them a time plus one, or
/// 0 for no time. A time is at most [`MAX_TIME_MS`](Self::MAX_TIME_MS).
#[derive(Clone, Copy)]
pub(super) struct PackedWaiting(u64);

impl PackedWaiting {
    /// More than a hundred million years.
    const MAX_TIME_MS: u64 = (1 << 62) - 2;

    pub(super) fn new(waiting: Waiting) -> Self {
        let kind = match waiting {
            Waiting::Nothing => 0,
            Waiting::Unknown => 1,
            Waiting::Alarm { .. } => 2,
            Waiting::Person { .. } => 3,
        };
        let time = waiting
            .wake_ms()
            .map_or(0, |at_ms| at_ms.min(Self::MAX_TIME_MS) + 1);
        Self(time << 2 | kind)
    }

    pub(super) fn unpack(self) -> Waiting {
        let time_ms = (self.0 >> 2).checked_sub(1);
        match self.0 & 3 {
            0 => Waiting::Nothing,
            1 => Waiting::Unknown,
            2 => Waiting::Alarm {
                due_ms: time_ms.unwrap_or(0),
            },
            _ => Waiting::Person {
                expires_ms: time_ms,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_waits_for_is_packed_without_loss() {
        let latest = PackedWaiting::MAX_TIME_MS;
        let expiries = [None, Some(0), Some(1), Some(latest)];
        let persons = expiries.map(|expires_ms| Waiting::Person { expires_ms });
        let alarms = [0, 1, latest].map(|due_ms| Waiting::Alarm { due_ms });
        for waiting in [Waiting::Nothing, Waiting::Unknown]
            .into_iter()
            .chain(persons)
            .chain(alarms)
        {
            assert_eq!(PackedWaiting::new(waiting).unpack(), waiting);
        }
        let never = PackedWaiting::new(Waiting::Alarm { due_ms: u64::MAX });
        assert_eq!(never.unpack(), Waiting::Alarm { due_ms: latest });
    }
}
