//! Parses a point of a process from the command line.

use std::str::FromStr;

use dormouse::Point;
use dormouse::id::{FactNumber, Pid};

/// A point of a process, written `PID`, `PID@FACT` or `PID@cp:N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessPoint {
    pub(crate) pid: Pid,
    pub(crate) at: Point,
}

impl FromStr for ProcessPoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || format!("'{text}' is not a point: write PID, PID@FACT or PID@cp:N");
        let (pid, at) = match text.split_once('@') {
            Some((pid, at)) => (pid, Some(at)),
            None => (text, None),
        };
        let at = match at {
            None => Point::Now,
            Some(checkpoint) if checkpoint.starts_with("cp:") => {
                Point::Checkpoint(checkpoint.parse().map_err(|_| invalid())?)
            }
            Some(fact) => Point::Fact(FactNumber(fact.parse().map_err(|_| invalid())?)),
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
    fn a_point_is_a_process_and_where_it_stood() {
        let point = |pid, at| Ok(ProcessPoint { pid: Pid(pid), at });
        assert_eq!("3".parse(), point(3, Point::Now));
        assert_eq!("3@12".parse(), point(3, Point::Fact(FactNumber(12))));
        assert_eq!(
            "3@cp:2".parse(),
            point(3, Point::Checkpoint(CheckpointId(2)))
        );
        for text in ["", "x", "3@", "3@x", "3@cp:0", "@3", "-1"] {
            assert!(
                text.parse::<ProcessPoint>()
                    .unwrap_err()
                    .contains("PID@FACT"),
                "{text}"
            );
        }
    }
}
