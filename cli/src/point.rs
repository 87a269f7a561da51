//! A point of a process, as the command line names one.

use std::str::FromStr;

use dormouse::Point;
use dormouse::id::{FactNumber, Pid};

/// A point of a process, written `PID`, `PID@FACT` or `PID@cp:N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PointOf {
    pub(crate) pid: Pid,
    pub(crate) at: Point,
}

impl FromStr for PointOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("'{text}' is not a point: write PID, PID@FACT or PID@cp:N");
        let (pid, at) = text
            .split_once('@')
            .map_or((text, None), |(pid, at)| (pid, Some(at)));
        let at = match at {
            None => Point::Now,
            Some(at) if at.starts_with("cp:") => {
                Point::Checkpoint(at.parse().map_err(|_| wrong())?)
            }
            Some(at) => Point::Fact(FactNumber(at.parse().map_err(|_| wrong())?)),
        };
        Ok(Self {
            pid: Pid(pid.parse().map_err(|_| wrong())?),
            at,
        })
    }
}

#[cfg(test)]
mod tests {
    use dormouse::id::CheckpointId;

    use super::*;

    #[test]
    fn a_point_is_a_process_and_where_it_stood() {
        let point = |pid, at| Ok(PointOf { pid: Pid(pid), at });
        assert_eq!("3".parse(), point(3, Point::Now));
        assert_eq!("3@12".parse(), point(3, Point::Fact(FactNumber(12))));
        assert_eq!(
            "3@cp:2".parse(),
            point(3, Point::Checkpoint(CheckpointId(2)))
        );
        for text in ["", "x", "3@", "3@x", "3@cp:0", "@3", "-1"] {
            assert!(
                text.parse::<PointOf>().unwrap_err().contains("PID@FACT"),
                "{text}"
            );
        }
    }
}
