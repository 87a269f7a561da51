//! Alarms of one process, with a clock that stands where a test puts it: each time is reported
//! once, whatever is repeated, missed or restarted.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_kernel::process::{
    Birth, CheckpointImage, CheckpointInfo, Completion, Effect, HostContext, HostRequest, Image,
    Input, Preloads, Report, Signal, State, image_of_copy, initial_image, waiting_of_image,
    with_speculation,
};
use dormouse_kernel::program::compile;
use dormouse_kernel::syscall::TOOL_SET;
use dormouse_proto::alarm::AlarmId;
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CheckpointId, FactNumber, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::message::Block;
use dormouse_proto::process::{Exit, ExitStatus, Priority};
use dormouse_proto::record::{AlarmFact, Fact, Lifetime, Phase, Speculation};
use dormouse_proto::tool::{Access, ToolOutput};
use dormouse_proto::user_input::UserInput;

use crate::replay::Replay;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// 2026-12-21, a Monday, at 08:00 UTC.
const MONDAY: u64 = 1_797_840_000_000;

/// A command that the host calls.
const LOOK: &str =
    "[[tools.command]]\nname = \"look\"\ndescription = \"Looks.\"\nargv = [\"look\"]\n";

fn process(lifetime: Lifetime) -> Replay {
    process_with(lifetime, "")
}

/// A process of a program with more tables.
fn process_with(lifetime: Lifetime, tables: &str) -> Replay {
    process_born(lifetime, tables, Some("go"), |image| image)
}

/// Such a process with this first input, that begins with its changed image.
fn process_born(
    lifetime: Lifetime,
    tables: &str,
    input: Option<&str>,
    change: impl FnOnce(Image) -> Image,
) -> Replay {
    let input = input.map(UserInput::from);
    let text = Bytes::from(format!(
        "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [\"wake_at\", \
         \"cancel_alarm\", \"fork\"]\n[limits]\nmax_alarms = 3\n{tables}",
    ));
    let compiled = compile(Path::new("p.toml"), &mut |_| Ok(text.clone()), &[]);
    let program = compiled.unwrap_or_else(|errors| panic!("{errors}")).program;
    let host = Arc::new(HostContext::new(&TOOL_SET));
    let birth = Birth {
        access: Access::Admin,
        depth: 0,
        lifetime,
        priority: Priority::Normal,
        preloads: &Preloads::default(),
        input: input.as_ref(),
    };
    let image = change(initial_image(&program, &host, birth, MONDAY));
    let state = State::from_image(Pid(1), program, host, image).expect("a new image is valid");
    Replay::of(state, MONDAY)
}

impl Replay {
    /// Sets alarms with these arguments, then ends the turn. Returns the last answer.
    fn rest_until(&mut self, alarms: &[&str]) -> String {
        for args in alarms {
            self.reply(&[("wake_at", args)]);
        }
        let answer = self.last_shown();
        self.reply(&[]);
        answer
    }

    fn last_shown(&self) -> String {
        let last = self.state.messages().last().expect("something was said");
        let text = |block: &Block| match block {
            Block::Text { text, .. } | Block::ToolResult { text, .. } => text.to_string(),
            other => panic!("{other:?}"),
        };
        last.blocks.iter().map(text).collect::<Vec<_>>().join("\n")
    }

    fn wake(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.feed(Input::WakeDue);
    }

    fn reload(&mut self) {
        let program = self.state.program().clone();
        let host = Arc::new(HostContext::new(&TOOL_SET));
        let image = self.replayed().image();
        self.first = State::from_image(self.state.pid(), program, host, image)
            .expect("the image of a living process is valid");
        self.state = self.first.clone();
        self.facts.clear();
        self.feed(Input::Signal(Signal::Resume));
    }

    fn fired(&self) -> usize {
        let is_fired = |fact: &&dormouse_kernel::process::Fact| {
            matches!(fact, Fact::Alarm(AlarmFact::Fired { .. }))
        };
        self.facts.iter().filter(is_fired).count()
    }

    fn open(&self) -> Vec<(u32, u64)> {
        let alarms = self.state.alarms();
        alarms.map(|alarm| (alarm.id.0, alarm.due_ms)).collect()
    }

    fn ended(&self) -> Option<Exit> {
        self.state.exit().cloned()
    }
}

#[test]
fn a_task_rests_until_its_alarm_and_ends_with_the_turn_after_it() {
    let mut task = process(Lifetime::Task);
    let answer = task.rest_until(&[r#"{"in": "2h", "note": "look <again>"}"#]);
    assert!(answer.contains(r#"set="alarm:1""#), "{answer}");
    assert!(answer.contains(r#"due="2026-12-21T10:00:00Z""#), "{answer}");
    let is_turn_report = |effect: &Effect| matches!(effect, Effect::Report(Report::Turn { .. }));
    assert!(task.effects.iter().any(is_turn_report));
    assert_eq!(task.state.next_alarm_ms(), Some(MONDAY + 2 * HOUR));
    assert_eq!(task.state.busy_reason(), None, "it can hibernate");

    task.wake(MONDAY + 2 * HOUR - 1);
    assert_eq!(task.fired(), 0, "woken too early, it does nothing");
    // The clock was set back: it waits until the time comes.
    task.wake(MONDAY - DAY);
    assert_eq!(task.fired(), 0);
    task.wake(MONDAY + 2 * HOUR + 65_000);
    assert_eq!(
        task.last_shown(),
        "<alarm id=\"alarm:1\" due=\"2026-12-21T10:00:00Z\" late=\"1m 5s\">\n  \
         <message><![CDATA[look <again>]]></message>\n</alarm>"
    );
    assert_eq!((task.fired(), task.open()), (1, vec![]));
    assert!(matches!(task.state.phase(), Phase::Thinking { .. }));
    task.wake(MONDAY + 3 * HOUR);
    assert_eq!(task.fired(), 1, "ALARM-1");
    task.reply(&[]);
    assert_eq!(task.ended().unwrap().status, ExitStatus::Done);
}

#[test]
fn what_was_missed_is_reported_as_the_policy_says() {
    // An alarm each day at nine; the process comes back on Thursday at noon.
    let noon_on_thursday = MONDAY + 3 * DAY + 4 * HOUR;
    for (policy, messages, counted) in [
        ("once", 1, Some("missed=\"3\"")),
        ("each", 4, None),
        ("skip", 0, None),
    ] {
        let mut session = process(Lifetime::Session);
        let args = format!(r#"{{"cron": "0 9 * * *", "missed": "{policy}"}}"#);
        session.rest_until(&[&args]);
        let before = session.state.messages().len();
        session.wake(noon_on_thursday);
        let next = MONDAY + 4 * DAY + HOUR;
        assert_eq!(session.open(), [(1, next)], "{policy}");
        if messages == 0 {
            assert_eq!(session.state.messages().len(), before, "{policy}");
            assert_eq!(session.state.next_alarm_ms(), Some(next));
            continue;
        }
        let text = session.last_shown();
        assert_eq!(
            text.matches("<alarm ").count(),
            messages,
            "{policy}: {text}"
        );
        assert_eq!(
            text.contains("missed="),
            counted.is_some(),
            "{policy}: {text}"
        );
        assert!(
            text.contains(counted.unwrap_or_default()),
            "{policy}: {text}"
        );
        assert!(
            text.contains("next=\"2026-12-25T09:00:00Z\""),
            "{policy}: {text}"
        );
    }
}

#[test]
fn a_year_of_missed_minutes_is_one_message_or_ten() {
    for (policy, messages) in [("once", 1), ("each", 10)] {
        let mut session = process(Lifetime::Session);
        let args = format!(r#"{{"cron": "* * * * *", "missed": "{policy}"}}"#);
        session.rest_until(&[&args]);
        session.wake(MONDAY + 365 * DAY);
        let text = session.last_shown();
        assert_eq!(text.matches("<alarm ").count(), messages, "{text}");
        assert_eq!(text.matches("1000 or more").count(), 1, "{text}");
    }
}

#[test]
fn a_time_that_passes_during_a_turn_is_reported_after_it() {
    let mut session = process(Lifetime::Session);
    session.rest_until(&[r#"{"cron": "*/10 * * * *"}"#]);
    session.feed(Input::UserInput {
        from: Sender::Host,
        user_input: "work".into(),
    });
    assert_eq!(session.state.next_alarm_ms(), None);
    session.wake(MONDAY + 35 * MINUTE);
    assert_eq!(session.fired(), 0);
    session.reply(&[]);
    assert_eq!(session.state.next_alarm_ms(), Some(MONDAY + 10 * MINUTE));
    session.wake(MONDAY + 35 * MINUTE);
    assert!(
        session.last_shown().contains("missed=\"2\""),
        "{}",
        session.last_shown()
    );
}

#[test]
fn an_alarm_survives_a_restart_and_fires_once() {
    let mut task = process(Lifetime::Task);
    task.rest_until(&[r#"{"in": "1h"}"#, r#"{"in": "2h"}"#]);
    task.reload();
    assert_eq!(task.open().len(), 2);
    task.wake(MONDAY + 3 * HOUR);
    assert_eq!(task.last_shown().matches("<alarm ").count(), 2);
    let conversation = task.state.messages().len();
    task.reload();
    task.wake(MONDAY + 4 * HOUR);
    assert_eq!(
        (task.fired(), task.state.messages().len()),
        (0, conversation),
        "ALARM-1"
    );
}

#[test]
fn a_stopped_process_is_told_when_it_continues() {
    let mut session = process(Lifetime::Session);
    session.rest_until(&[r#"{"in": "1h"}"#]);
    session.feed(Input::Signal(Signal::Stop));
    assert_eq!(session.state.next_alarm_ms(), None);
    session.wake(MONDAY + 2 * HOUR);
    assert_eq!(session.fired(), 0);
    session.feed(Input::Signal(Signal::Continue));
    assert_eq!(session.state.next_alarm_ms(), Some(MONDAY + HOUR));
    session.wake(MONDAY + 2 * HOUR);
    assert_eq!(session.fired(), 1);
}

#[test]
fn wrong_times_and_too_many_alarms_are_refused_with_what_is_valid() {
    let mut session = process(Lifetime::Session);
    for (args, words) in [
        (
            r#"{"time": "2026-12-21T07:59:59Z"}"#,
            "It is 2026-12-21T08:00:00Z now",
        ),
        (r#"{"cron": "0 0 30 2 *"}"#, "never comes true"),
        (r#"{}"#, "exactly one of"),
    ] {
        session.reply(&[("wake_at", args)]);
        assert!(
            session.last_shown().contains(words),
            "{}",
            session.last_shown()
        );
    }
    for _ in 0..3 {
        session.reply(&[("wake_at", r#"{"in": "1h"}"#)]);
    }
    session.reply(&[("wake_at", r#"{"in": "1h"}"#)]);
    let refused = session.last_shown();
    assert!(refused.contains("limits.max_alarms"), "{refused}");
    assert!(refused.contains("alarm:1, alarm:2, alarm:3"), "{refused}");
    session.reply(&[("cancel_alarm", r#"{"alarm": "alarm:2"}"#)]);
    let cancelled = session.last_shown();
    assert!(cancelled.contains("cancelled=\"alarm:2\"") && cancelled.contains("open=\"2\""));
    session.reply(&[("cancel_alarm", r#"{"alarm": "alarm:2"}"#)]);
    assert!(session.last_shown().contains("Open: alarm:1, alarm:3"));
    // A number is never used again.
    session.reply(&[("wake_at", r#"{"in": "1h"}"#)]);
    let numbers: Vec<_> = session.open().iter().map(|(id, _)| *id).collect();
    assert_eq!(numbers, [1, 3, 4]);
}

#[test]
fn a_task_ends_when_its_last_alarm_is_cancelled_or_dropped() {
    let mut cancelled = process(Lifetime::Task);
    cancelled.rest_until(&[r#"{"in": "1h"}"#]);
    for (id, is_known) in [(7, false), (1, true)] {
        cancelled.feed(Input::Host {
            request_id: "r".into(),
            request: HostRequest::CancelAlarm(AlarmId(id)),
        });
        let is_answered = |effect: &Effect| matches!(effect, Effect::AnswerHost { answer, .. } if answer.is_error != is_known);
        assert!(cancelled.effects.iter().any(is_answered));
        assert_eq!(cancelled.ended().is_some(), is_known);
    }
    assert_eq!(&*cancelled.ended().unwrap().message, "I think.");

    let mut dropped = process(Lifetime::Task);
    dropped.rest_until(&[r#"{"in": "1h", "missed": "skip"}"#]);
    dropped.wake(MONDAY + DAY);
    assert_eq!(dropped.ended().unwrap().status, ExitStatus::Done);

    let mut on_time = process(Lifetime::Task);
    on_time.rest_until(&[r#"{"in": "1h", "missed": "skip"}"#]);
    on_time.wake(MONDAY + HOUR + 30_000);
    assert_eq!(on_time.ended(), None, "half a minute late is not missed");
}

impl Replay {
    /// The host calls a tool.
    fn host_calls(&mut self, tool: &str, args: &str) {
        self.feed(Input::Host {
            request_id: "h".into(),
            request: HostRequest::Call {
                tool: tool.into(),
                args: args.into(),
            },
        });
    }
}

#[test]
fn a_task_whose_last_alarm_is_cancelled_during_a_call_of_the_host_ends_after_it() {
    let mut task = process_with(Lifetime::Task, LOOK);
    task.rest_until(&[r#"{"in": "1h"}"#]);
    task.host_calls("look", "{}");
    let open = task.called().expect("the host's call has begun");
    task.host_calls("cancel_alarm", r#"{"alarm": "alarm:1"}"#);
    assert_eq!((task.open(), task.ended()), (vec![], None));
    task.feed(Input::Completed {
        call: open,
        result: Completion::Tool(ToolOutput::ok("seen".to_owned())),
    });
    assert_eq!(
        &*task.ended().expect("nothing will wake it").message,
        "I think."
    );
}

/// It waits for input, and so it does after a call of the host.
#[test]
fn a_copy_of_an_ended_task_does_not_end_with_a_call_of_the_host() {
    let mut task = process_with(Lifetime::Task, LOOK);
    task.reply(&[]);
    assert!(task.ended().is_some());
    let program = task.state.program().clone();
    let host = Arc::new(HostContext::new(&TOOL_SET));
    let image = image_of_copy(task.state.image(), MONDAY);
    let state = State::from_image(Pid(2), program, host, image).expect("a copy is valid");
    let mut copy = Replay::of(state, MONDAY);
    copy.host_calls("look", "{}");
    let call = copy.called().expect("the host's call has begun");
    copy.feed(Input::Completed {
        call,
        result: Completion::Tool(ToolOutput::ok("seen".to_owned())),
    });
    assert_eq!((copy.ended(), copy.state.phase()), (None, &Phase::Idle));
}

/// Its turn comes with its first input.
#[test]
fn a_speculative_task_whose_alarm_is_cancelled_waits_to_be_chosen() {
    let speculative = |image| with_speculation(image, Speculation::Branch);
    let mut task = process_born(Lifetime::Task, "", Some("go"), speculative);
    task.rest_until(&[r#"{"in": "1h"}"#]);
    task.host_calls("cancel_alarm", r#"{"alarm": "alarm:1"}"#);
    assert_eq!((task.open(), task.ended()), (vec![], None));
    task.feed(Input::Host {
        request_id: "c".into(),
        request: HostRequest::EndSpeculation,
    });
    assert_eq!(&*task.ended().expect("it was chosen").message, "I think.");
}

#[test]
fn a_task_whose_last_alarm_is_cancelled_ends_with_the_result_that_it_submitted() {
    let schema = "[result]\nschema = { type = \"object\" }\n";
    let mut task = process_with(Lifetime::Task, schema);
    task.reply(&[("wake_at", r#"{"in": "1h"}"#)]);
    task.reply(&[("submit_result", r#"{"value": {"all": "well"}}"#)]);
    assert_eq!(task.ended(), None, "its alarm is open");
    task.feed(Input::Host {
        request_id: "r".into(),
        request: HostRequest::CancelAlarm(AlarmId(1)),
    });
    let exit = task.ended().expect("nothing will wake it");
    assert_eq!((exit.status, exit.is_result), (ExitStatus::Done, true));
    assert_eq!(&*exit.message, r#"{"all":"well"}"#);
}

#[test]
fn a_failed_turn_ends_a_task_whatever_its_alarms() {
    let mut task = process(Lifetime::Task);
    task.reply(&[("wake_at", r#"{"in": "1h"}"#)]);
    task.feed(Input::Signal(Signal::Interrupt));
    assert_eq!(task.ended().unwrap().status, ExitStatus::Interrupted);
    assert_eq!(task.open(), []);
}

#[test]
fn a_copy_has_alarms_of_its_own_and_a_forked_child_has_none() {
    let mut session = process(Lifetime::Session);
    session.rest_until(&[r#"{"in": "1h"}"#]);
    let image = image_of_copy(session.state.image(), MONDAY);
    assert_eq!(waiting_of_image(&image).alarm_ms(), Some(MONDAY + HOUR));
    session.wake(MONDAY + HOUR);
    assert_eq!(image.alarms.len(), 1);
    session.reply(&[("wake_at", r#"{"in": "1h"}"#)]);
    session.reply(&[("fork", r#"{"prompts": ["one"]}"#)]);
    let children = session.effects.iter().find_map(|effect| match effect {
        Effect::StartChildren { children, .. } => Some(children.clone()),
        _ => None,
    });
    let child = &children.expect("a child is started")[0].image;
    assert_eq!((child.alarms.len(), child.alarms_set), (0, 2));
}

#[test]
fn a_restore_opens_the_alarms_of_the_checkpoint_again() {
    let mut session = process(Lifetime::Session);
    session.rest_until(&[r#"{"in": "1h"}"#]);
    let checkpoint = CheckpointInfo {
        id: CheckpointId(1),
        label: "l".into(),
        at: FactNumber(session.facts.len() as u64),
        scope: Scope::Process,
    };
    let image = session.state.image();
    session.wake(MONDAY + HOUR);
    session.reply(&[("wake_at", r#"{"in": "5h"}"#)]);
    session.reply(&[]);
    session.feed(Input::Host {
        request_id: "r".into(),
        request: HostRequest::Restore(Box::new(CheckpointImage { checkpoint, image })),
    });
    assert_eq!(session.open(), [(1, MONDAY + HOUR)]);
    session.wake(MONDAY + HOUR);
    assert_eq!(session.open(), []);
    session.reply(&[("wake_at", r#"{"in": "1h"}"#)]);
    assert_eq!(session.open()[0].0, 3, "numbers continue");
}
