use dormouse_proto::process::{Exit, ExitStatus, Origin};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::supervisor::entry::Rest;

const NOTHING: Waiting = Waiting::Nothing;
const ALARM: Waiting = Waiting::Alarm { due_ms: 7 };
const PERSON: Waiting = Waiting::Person { expires_ms: None };

pub(in crate::supervisor) fn table_of(rows: Vec<ProcessRow>) -> ProcessTable {
    let last_pid = rows.iter().map(|row| row.pid.0).max().unwrap();
    let listing = ProcessListing {
        rows,
        last_pid,
        ..ProcessListing::default()
    };
    new_table(listing)
}

fn new_table(listing: ProcessListing) -> ProcessTable {
    let pids = PidCounter::new(&(Pid(1)..=Pid::MAX), &listing).unwrap();
    ProcessTable::new(listing, pids, 1)
}

#[test]
fn a_request_to_hibernate_ends_with_the_hibernation() {
    let pid = Pid(1);
    for next in [RunState::Loading, RunState::Held, RunState::Ended] {
        let mut table = table_of(vec![ProcessRow::started(pid, "p")]);
        table.set_run_state(pid, RunState::Running);
        let (reply, mut result) = oneshot::channel();
        table.live_mut(pid).unwrap().hibernate_replies.push(reply);
        table.set_run_state(pid, RunState::Hibernating);
        assert!(matches!(result.try_recv(), Err(TryRecvError::Empty)));
        table.set_run_state(pid, next);
        assert!(
            matches!(result.try_recv(), Err(TryRecvError::Closed)),
            "{next:?}"
        );
    }
}

#[test]
fn the_children_of_a_process_that_is_opened_again_run() {
    let pid = Pid(1);
    let mut table = table_of(vec![ProcessRow::started(pid, "p")]);
    table.set_stop_inherited(pid, true);
    let exit = Exit::new(ExitStatus::Interrupted, "");
    table.record_end(pid, &exit, FinalState::InJournal).unwrap();
    assert_eq!(table.record_reopening(pid), Some(1));
    assert!(!table.inherits_stop(Some(pid)));
}

/// The statuses of process 2 while it is held and while it hibernates; process 1 is its parent.
fn statuses(is_parent_paused: bool, row: ProcessRow, rest: Rest) -> [&'static str; 2] {
    let parent = ProcessRow {
        is_paused: is_parent_paused,
        ..ProcessRow::started(Pid(1), "p")
    };
    let row = ProcessRow {
        parent: Some(Pid(1)),
        ..row
    };
    let listing = ProcessListing {
        rows: vec![parent, row],
        last_pid: 2,
        ..ProcessListing::default()
    };
    let mut table = new_table(listing);
    let held = table.status(Pid(2)).unwrap().word();
    table.set_run_state(Pid(2), RunState::Hibernated { rest });
    let listed = table.list(ListFilter::After(Some(Pid(1)), 1));
    assert_eq!(Some(listed[0].status), table.status(Pid(2)));
    [held, listed[0].status.word()]
}

/// What holds a process up comes before what it waits for.
#[test]
fn a_status_says_what_holds_a_process_up_before_what_it_waits_for() {
    for (is_parent_paused, is_paused, rest, waiting, expected) in [
        (false, false, Rest::Waiting, NOTHING, "hibernated"),
        (false, false, Rest::Waiting, ALARM, "asleep"),
        (false, false, Rest::Waiting, PERSON, "asking"),
        (false, false, Rest::Waiting, Waiting::Unknown, "asking"),
        (false, false, Rest::Stopped, NOTHING, "stopped"),
        (false, false, Rest::Stopped, Waiting::Unknown, "stopped"),
        (false, true, Rest::Waiting, NOTHING, "paused"),
        (false, true, Rest::Waiting, Waiting::Unknown, "paused"),
        (false, true, Rest::Stopped, NOTHING, "paused"),
        (true, false, Rest::Waiting, NOTHING, "suspended"),
        (true, false, Rest::Waiting, ALARM, "suspended"),
        (true, false, Rest::Waiting, Waiting::Unknown, "suspended"),
        (true, false, Rest::Stopped, Waiting::Unknown, "stopped"),
        (true, true, Rest::Waiting, NOTHING, "paused"),
    ] {
        let row = ProcessRow {
            waiting,
            is_paused,
            ..ProcessRow::started(Pid(2), "p")
        };
        let case = format!("{is_parent_paused} {is_paused} {rest:?} {waiting:?}");
        assert_eq!(
            statuses(is_parent_paused, row, rest),
            ["held", expected],
            "{case}"
        );
    }
    let ended = ProcessRow {
        exit: Some(Exit::new(ExitStatus::Done, "")),
        ..ProcessRow::started(Pid(2), "p")
    };
    let mut table = new_table(ProcessListing::default());
    table.insert(ended, RunState::Ended);
    assert_eq!(table.status(Pid(2)).unwrap().word(), "done");
}

#[test]
fn processes_that_only_wait_are_resumed_and_their_times_are_in_the_wake_queue() {
    let row = |pid, waiting| ProcessRow {
        waiting,
        ..ProcessRow::started(Pid(pid), "p")
    };
    let call = CallId { epoch: 0, seq: 1 };
    let child = ProcessRow {
        parent: Some(Pid(3)),
        origin: Origin::Spawned { call },
        ..row(4, Waiting::Alarm { due_ms: 1 })
    };
    let expiring = Waiting::Person {
        expires_ms: Some(5),
    };
    let rows = vec![
        row(1, ALARM),
        row(2, Waiting::Unknown),
        // It has a child.
        row(3, ALARM),
        child,
        row(5, PERSON),
        row(6, expiring),
        row(7, NOTHING),
    ];
    let mut table = table_of(rows);
    let mut others = Vec::new();
    for pids in [vec![1, 2, 3, 5], vec![4, 5, 6, 7]] {
        others.push(table.resume_resting(pids.into_iter().map(Pid).collect()));
    }
    assert_eq!(
        others,
        [[Pid(2), Pid(3)].to_vec(), [Pid(5), Pid(7)].to_vec()]
    );
    let is_asleep = |pid: &u64| table.run_state(Pid(*pid)) != Some(RunState::Held);
    let asleep: Vec<_> = (1..=7).filter(is_asleep).collect();
    assert_eq!(asleep, [1, 4, 5, 6]);
    let due: Vec<_> = std::iter::from_fn(|| table.wake_queue.take_due(7)).collect();
    assert_eq!(due, [Pid(4), Pid(6), Pid(1)]);
}
