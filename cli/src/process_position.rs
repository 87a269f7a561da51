//! Parses a position of a process from the command line.

use std::str::FromStr;

use dormouse::Position;
use dormouse::id::{FactNumber, Pid};

/// A position of a process, written `PID`, `PID@FACT` or `PID@cp:N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessPosition {
    pub(crate) pid: Pid,
    pub(crate) at: Position,
}

impl FromStr for ProcessPosition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || format!("'{text}' is not a position: write PID, PID@FACT or PID@cp:N");
        let (pid, at) = match text.split_once('@') {
            Some((pid, at)) => (pid, Some(at)),
            None => (text, None),
        };
        let at = match at {
            None => Position::Now,
            Some(checkpoint) if checkpoint.starts_with("cp:") => {
                Position::Checkpoint(checkpoint.parse().map_err(|_| invalid())?)
            }
            Some(fact) => Position::Fact(FactNumber(fact.parse().map_err(|_| invalid())?)),
        };
        let pid = Pid(pid.parse().map_err(|_| invalid())?);
        Ok(Self { pid, at })
    }
}

#[cfg(test)]
mod tests {
    use dormouse::id::CheckpointId;

    use super::*;

    #[test]
    fn a_position_names_a_process_and_optionally_a_fact_or_checkpoint() {
        let at = |pid, at| Ok(ProcessPosition { pid: Pid(pid), at });
        assert_eq!("3".parse(), at(3, Position::Now));
        assert_eq!("3@12".parse(), at(3, Position::Fact(FactNumber(12))));
        assert_eq!(
            "3@cp:2".parse(),
            at(3, Position::Checkpoint(CheckpointId(2)))
        );
        for text in ["", "x", "3@", "3@x", "3@cp:0", "@3", "-1"] {
            assert!(
                text.parse::<ProcessPosition>()
                    .unwrap_err()
                    .contains("PID@FACT"),
                "{text}"
            );
        }
    }
}
