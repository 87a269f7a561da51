//! The answer of `list_processes`: the processes that the calling process can send messages to.

use std::cmp::Reverse;

use dormouse_proto::id::Pid;
use dormouse_proto::mail::ReachableProcess;
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;

/// Maximum number of processes in one answer.
pub const MAX_SHOWN_PROCESSES: usize = 100;

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

/// The answer of `list_processes` for process `own_pid`: the nearest relations come first, and the
/// newest processes first within each relation. `hidden` is the number of reachable processes that
/// are not in `processes`.
pub(super) fn list_answer(
    own_pid: Pid,
    mut processes: Vec<ReachableProcess>,
    hidden: usize,
) -> Answer {
    let parent = processes
        .iter()
        .find(|process| process.pid == own_pid)
        .and_then(|process| process.parent);
    let relation = |process: &ReachableProcess| match process {
        process if process.pid == own_pid => Relation::Oneself,
        process if Some(process.pid) == parent => Relation::Parent,
        process if process.parent == Some(own_pid) => Relation::Child,
        process if parent.is_some() && process.parent == parent => Relation::Sibling,
        _ => Relation::Other,
    };
    processes.sort_by_key(|process| (relation(process), Reverse(process.pid)));
    let omitted = processes.len().saturating_sub(MAX_SHOWN_PROCESSES) + hidden;
    processes.truncate(MAX_SHOWN_PROCESSES);
    let list = Element::new("process_list")
        .attribute("count", processes.len())
        .attribute_if("not_shown", (omitted > 0).then_some(omitted));
    let element = |process: &ReachableProcess| {
        Element::new("process")
            .attribute("pid", process.pid)
            .attribute("relation", relation(process).word())
            .attribute("program", &process.program)
            .attribute_if("name", process.name.as_ref())
            .attribute_if("parent", process.parent)
            .attribute("status", process.status)
    };
    Answer::shown(
        processes
            .iter()
            .fold(list, |list, process| list.child(element(process))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u64, parent: Option<u64>) -> ReachableProcess {
        ReachableProcess {
            pid: Pid(pid),
            parent: parent.map(Pid),
            program: "p".into(),
            name: None,
            status: "idle",
        }
    }

    #[test]
    fn processes_are_sorted_by_relation_then_newest_first() {
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
            vec![ReachableProcess {
                name: Some("planner".into()),
                ..row(9, None)
            }],
        ]
        .concat();
        let answer = list_answer(Pid(2), rows, 0);
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
    fn omitted_processes_are_counted() {
        let rows = (1..=150)
            .map(|pid| row(pid, (pid > 1).then_some(1)))
            .collect();
        let text = list_answer(Pid(1), rows, 7).text;
        assert!(
            text.starts_with("<process_list count=\"100\" not_shown=\"57\">"),
            "{text}"
        );
        assert!(text.contains("pid=\"150\"") && !text.contains("pid=\"51\""));
    }
}
