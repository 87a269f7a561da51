//! `list_processes`: lists the processes that the caller can write to.

use std::cmp::Reverse;

use dormouse_proto::id::Pid;
use dormouse_proto::mail::Neighbour;
use dormouse_proto::tool::{Access, Answer};
use dormouse_proto::xml::Element;

use super::args::Args;
use super::{Group, Handler, ProcessHandler, Refusal, Tool};
use crate::process::Draft;

/// `list_processes` as a tool.
pub const TOOL: Tool = Tool {
    name: "list_processes",
    group: Group::Processes,
    access: Access::Read,
    description: DESCRIPTION,
    parameters: &[],
    adapt: None,
    example: None,
    may_repeat: super::always,
    handler: Handler::Process(ProcessHandler(Draft::list_processes)),
};

/// Maximum number of processes in one answer.
pub const MAX_SHOWN: usize = 100;

const DESCRIPTION: &str = "Lists the processes that you can write to: your own tree, with your \
parent, your children and your siblings first, and those that have a name.";

/// Checks that a call has no arguments.
///
/// # Errors
/// It has some.
pub fn check(args: &str) -> Result<(), Refusal> {
    Args::parse(&TOOL, args)?;
    Ok(())
}

/// Relation of a process to the caller, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Relation {
    Oneself,
    Parent,
    Child,
    Sibling,
    Other,
}

impl Relation {
    fn word(self) -> &'static str {
        match self {
            Self::Oneself => "self",
            Self::Parent => "parent",
            Self::Child => "child",
            Self::Sibling => "sibling",
            Self::Other => "other",
        }
    }
}

/// The answer for process `me`: nearest relations first, newest first within each. `hidden` is the
/// number of reachable processes that are not in `known`.
#[must_use]
pub fn answer(me: Pid, mut known: Vec<Neighbour>, hidden: usize) -> Answer {
    let parent = known
        .iter()
        .find(|row| row.pid == me)
        .and_then(|row| row.parent);
    let relation = |row: &Neighbour| match row {
        row if row.pid == me => Relation::Oneself,
        row if Some(row.pid) == parent => Relation::Parent,
        row if row.parent == Some(me) => Relation::Child,
        row if parent.is_some() && row.parent == parent => Relation::Sibling,
        _ => Relation::Other,
    };
    known.sort_by_key(|row| (relation(row), Reverse(row.pid)));
    let more = known.len().saturating_sub(MAX_SHOWN) + hidden;
    known.truncate(MAX_SHOWN);
    let list = Element::new("process_list")
        .attribute("count", known.len())
        .attribute_if("not_shown", (more > 0).then_some(more));
    let element = |row: &Neighbour| {
        Element::new("process")
            .attribute("pid", row.pid)
            .attribute("relation", relation(row).word())
            .attribute("program", &row.program)
            .attribute_if("name", row.name.as_ref())
            .attribute_if("parent", row.parent)
            .attribute("status", row.status)
    };
    Answer::shown(
        known
            .iter()
            .fold(list, |list, row| list.child(element(row))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u64, parent: Option<u64>) -> Neighbour {
        Neighbour {
            pid: Pid(pid),
            parent: parent.map(Pid),
            program: "p".into(),
            name: None,
            status: "idle",
        }
    }

    #[test]
    fn the_nearest_come_first() {
        let rows = vec![
            row(1, None),
            row(2, Some(1)),
            row(3, Some(2)),
            row(4, Some(1)),
            row(5, Some(3)),
            row(6, Some(2)),
        ];
        let rows = [
            rows,
            vec![Neighbour {
                name: Some("planner".into()),
                ..row(9, None)
            }],
        ]
        .concat();
        let answer = answer(Pid(2), rows, 0);
        let document = roxmltree::Document::parse(&answer.text).unwrap();
        let seen: Vec<_> = document
            .root_element()
            .children()
            .filter(roxmltree::Node::is_element)
            .map(|node| {
                (
                    node.attribute("pid").unwrap(),
                    node.attribute("relation").unwrap(),
                )
            })
            .collect();
        let expected = [
            ("2", "self"),
            ("1", "parent"),
            ("6", "child"),
            ("3", "child"),
            ("4", "sibling"),
            ("9", "other"),
            ("5", "other"),
        ];
        assert_eq!(seen, expected);
        assert!(answer.text.contains("name=\"planner\"") && !answer.text.contains("not_shown"));
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let rows = (1..=150)
            .map(|pid| row(pid, (pid > 1).then_some(1)))
            .collect();
        let text = answer(Pid(1), rows, 7).text;
        assert!(
            text.starts_with("<process_list count=\"100\" not_shown=\"57\">"),
            "{text}"
        );
        assert!(text.contains("pid=\"150\"") && !text.contains("pid=\"51\""));
    }

    #[test]
    fn a_call_takes_nothing() {
        assert_eq!(check("{}"), Ok(()));
        assert!(
            check(r#"{"all": true}"#)
                .unwrap_err()
                .to_string()
                .contains("Unknown parameter 'all'")
        );
    }
}
