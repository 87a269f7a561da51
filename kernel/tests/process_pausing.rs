//! Pauses at limits, one process at a time: what ends a pause and what does not, and what is made
//! again after it.

use crate::budget_run::{FORK_3, Run, output};
use crate::budget_support::around;
use dormouse_kernel::process::{
    Completion, Effect, Fact, HostRequest, Input, RaiseError, Recorded, Report, Signal, State,
    evolve, image_of_copy, record_raise, record_share,
};
use dormouse_proto::budget::{Amount, Budget, Change, Clock, RaiseSource};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::process::ExitStatus;
use dormouse_proto::record::{Lifetime, Phase};
use dormouse_proto::tool::ToolOutput;

const PAUSE: &str = "[budget]\noutput_tokens = 100\nwall_time = \"10s\"\nat_limit = \"pause\"\n";
const GREP: (&str, &str) = ("grep", "{}");

fn tokens(output_tokens: u64) -> Budget {
    Budget::default().with(Amount::OutputTokens, Some(output_tokens))
}

fn time(wall_time_ms: u64) -> Budget {
    Budget::default().with(Amount::WallTime, Some(wall_time_ms))
}

/// The answer to a raise.
fn raise(run: &mut Run, by: Budget, expected: Option<Budget>) -> (String, bool) {
    request(run, HostRequest::Raise { by, expected })
}

fn request(run: &mut Run, request: HostRequest) -> (String, bool) {
    run.feed(Input::Host {
        request_id: "r".into(),
        request,
    });
    let answers = run.effects.iter().find_map(|effect| match effect {
        Effect::AnswerHost { answer, .. } => Some((answer.text.to_string(), answer.is_error)),
        _ => None,
    });
    answers.expect("it is answered")
}

fn signal(run: &mut Run, signal: Signal) {
    run.feed(Input::Signal(signal));
}

fn names(run: &Run) -> Vec<&'static str> {
    run.news.iter().map(Fact::name).collect()
}

/// Whether the last step has started anything.
fn has_begun(run: &Run) -> bool {
    let starts = |effect: &Effect| {
        matches!(
            effect,
            Effect::StartWork { .. } | Effect::StartChildren { .. } | Effect::Summarize { .. }
        )
    };
    run.effects.iter().any(starts)
}

/// A process that is paused at its output tokens, between two model calls.
fn paused() -> Run {
    let mut run = Run::new(Lifetime::Session, PAUSE);
    run.grep(output(120), "found");
    assert!(run.state.paused().is_some(), "{:?}", run.state.phase());
    run
}

/// The same process, as it comes back from its journal.
fn back_from_journal(run: &Run) -> Run {
    let program = run.state.program().clone();
    let image = run.state.image();
    let mut back = Run::of(State::from_image(Pid(1), program, around(1_000_000), image).unwrap());
    back.now_ms = run.now_ms;
    back
}

#[test]
fn a_process_at_its_limit_begins_nothing_and_rests_until_enough_is_raised() {
    let mut run = paused();
    assert!(!has_begun(&run) && run.state.exit().is_none());
    assert_eq!(
        run.state.paused().unwrap().to_string(),
        "output_tokens 120 of 100"
    );
    let is_reported = |effect: &Effect| matches!(effect, Effect::Report(Report::Paused { .. }));
    assert!(run.effects.iter().any(is_reported));
    assert_eq!(run.state.budget().clock(), Clock::Rests);
    // Messages wait, and do not keep it awake.
    run.feed(Input::UserInput {
        from: Sender::Host,
        user_input: "and?".into(),
    });
    assert_eq!((run.state.waiting_messages(), has_begun(&run)), (1, false));
    assert_eq!(run.state.busy_reason(), None);
    // Too little: it says which limit is reached still.
    let (text, is_error) = raise(&mut run, tokens(20), None);
    assert!(!is_error, "{text}");
    assert_eq!(names(&run), ["budget_raised", "budget_paused"]);
    assert_eq!(
        run.state.paused().unwrap().to_string(),
        "output_tokens 120 of 120"
    );
    let (_, is_error) = raise(&mut run, tokens(30), None);
    assert!(!is_error);
    assert!(run.state.paused().is_none());
    let expected = [
        "budget_raised",
        "budget_unpaused",
        "budget_warned",
        "model_called",
    ];
    assert_eq!(names(&run)[..4], expected);
    let warning = run.request().unwrap().messages.last().unwrap().text();
    assert!(warning.contains("you are paused"), "{warning}");
    assert!(run.request().is_some());
}

#[test]
fn a_raise_is_refused_with_what_is_wrong() {
    let mut run = paused();
    let before = run.state.clone();
    for (by, part) in [
        (Budget::default(), "name an amount"),
        (
            Budget::default().with(Amount::Cost, Some(1)),
            "no limit of cost",
        ),
    ] {
        let (text, is_error) = raise(&mut run, by, None);
        assert!(is_error && text.contains(part), "{text}");
    }
    let (text, is_error) = raise(&mut run, tokens(50), Some(tokens(7)));
    assert!(is_error && text.contains("just changed"), "{text}");
    assert_eq!(run.state, before);
}

#[test]
fn at_its_wall_time_calls_in_flight_are_recorded_and_what_follows_from_them_waits() {
    let mut run = Run::new(Lifetime::Session, PAUSE);
    run.reply(output(1), &[GREP]);
    let Phase::Acting { pending_calls, .. } = run.state.phase() else {
        panic!("it acts")
    };
    let call = pending_calls[0].call;
    run.now_ms = 10_000;
    run.feed(Input::TimeUp { at_ms: 10_000 });
    assert_eq!(
        run.state.paused().unwrap().to_string(),
        "wall_time 10s of 10s"
    );
    run.feed(Input::Completed {
        call,
        result: Completion::Tool(ToolOutput::ok("found".to_owned())),
    });
    assert!(names(&run).contains(&"tool_returned") && !has_begun(&run));
    // The time in which it is paused does not count.
    run.now_ms = 900_000;
    let (_, is_error) = raise(&mut run, time(5_000), None);
    assert!(!is_error && run.request().is_some());
    assert_eq!(
        run.state.budget().wall_time_left_ms(run.now_ms),
        Some(5_000)
    );
}

#[test]
fn calls_that_were_lost_are_made_again_once_nothing_holds_the_process_up() {
    // It waits for its model, and its time is up.
    let mut run = Run::new(Lifetime::Session, PAUSE);
    run.now_ms = 10_000;
    run.feed(Input::TimeUp { at_ms: 10_000 });
    assert!(matches!(run.state.phase(), Phase::Thinking { .. }));
    let mut back = back_from_journal(&run);
    assert!(!has_begun(&back));
    raise(&mut back, time(1_000), None);
    assert!(back.request().is_some(), "the model is called again");
    // One that never left memory still waits for the call in flight.
    raise(&mut run, time(1_000), None);
    assert!(run.request().is_none() && run.state.paused().is_none());

    // Every order in which a stop, a suspension and a return can end.
    let orders: [[Signal; 4]; 4] = [
        [
            Signal::Stop,
            Signal::Suspend,
            Signal::Continue,
            Signal::Release,
        ],
        [
            Signal::Stop,
            Signal::Suspend,
            Signal::Release,
            Signal::Continue,
        ],
        [
            Signal::Suspend,
            Signal::Stop,
            Signal::Continue,
            Signal::Release,
        ],
        [
            Signal::Suspend,
            Signal::Stop,
            Signal::Release,
            Signal::Continue,
        ],
    ];
    for signals in orders {
        for returns_after in 1..4 {
            let mut run = Run::new(Lifetime::Session, PAUSE);
            for (number, next) in signals.into_iter().enumerate() {
                if number == returns_after {
                    run = back_from_journal(&run);
                    assert!(!has_begun(&run), "{signals:?} {returns_after}");
                }
                signal(&mut run, next);
                let is_last = number == 3;
                assert_eq!(
                    run.request().is_some(),
                    is_last,
                    "{signals:?}, back after {returns_after}: {number}"
                );
            }
        }
    }
}

#[test]
fn the_rule_of_a_program_raises_a_few_times_and_then_asks() {
    let rule =
        format!("{PAUSE}[budget.raise]\noutput_tokens = 50\nwall_time = \"1s\"\ntimes = 2\n");
    let mut run = Run::new(Lifetime::Session, &rule);
    run.grep(output(190), "found");
    let raised = Change::Raised {
        by: tokens(50),
        source: RaiseSource::Rule,
    };
    assert_eq!(
        run.changes()
            .iter()
            .filter(|change| **change == raised)
            .count(),
        2,
        "once is not enough"
    );
    assert!(run.request().is_some() && run.state.paused().is_none());
    run.grep(output(10), "found");
    assert_eq!(
        run.state.paused().unwrap().to_string(),
        "output_tokens 200 of 200"
    );
    // What was raised by the rule stays counted, whatever a person adds.
    raise(&mut run, tokens(1), None);
    run.grep(output(1), "found");
    assert!(run.state.paused().is_some());
    // Without a pause, the process ends after the last of them.
    let mut ends = Run::new(
        Lifetime::Session,
        "[budget]\noutput_tokens = 100\n[budget.raise]\noutput_tokens = 50\n",
    );
    ends.grep(output(120), "found");
    assert!(ends.request().is_some());
    ends.grep(output(50), "found");
    assert_eq!(
        ends.exit().map(|exit| exit.0),
        Some(ExitStatus::BudgetExhausted)
    );
}

#[test]
fn a_paused_process_can_be_interrupted_sent_back_and_killed_and_its_copy_is_paused() {
    let mut run = paused();
    signal(&mut run, Signal::Interrupt);
    assert_eq!(*run.state.phase(), Phase::Idle);
    assert!(run.state.paused().is_some());
    let goto = HostRequest::Goto {
        position: "msg:1".into(),
        message: "again".into(),
    };
    let (text, is_error) = request(&mut run, goto);
    assert!(!is_error, "{text}");
    assert!(
        !has_begun(&run) && run.state.paused().is_some(),
        "usage stays"
    );
    let copy = image_of_copy(run.state.image(), run.now_ms);
    let program = run.state.program().clone();
    let copy = State::from_image(Pid(9), program, around(1_000_000), copy).unwrap();
    let mut copy = Run::of(copy);
    assert!(!has_begun(&copy) && copy.state.paused().is_some());
    raise(&mut copy, tokens(100), None);
    assert!(copy.request().is_some());
    assert!(run.state.paused().is_some(), "the original is not raised");
    let call = HostRequest::Call {
        tool: "grep".into(),
        args: "{}".into(),
    };
    let (text, is_error) = request(&mut run, call);
    assert!(is_error && text.contains("Raise its limit first"), "{text}");
    signal(&mut run, Signal::Kill);
    assert_eq!(run.exit().map(|exit| exit.0), Some(ExitStatus::Killed));
    assert!(run.state.paused().is_none());
}

/// A parent whose children have a share each, and the place of the first.
fn parent() -> (Run, (CallId, u32)) {
    let mut run = Run::new(Lifetime::Session, PAUSE);
    run.reply(output(4), &[FORK_3]);
    let place = run.state.budget().shares().next().unwrap().0;
    assert_eq!(run.state.budget().remaining(Amount::OutputTokens), Some(24));
    (run, place)
}

#[test]
fn a_child_is_raised_from_what_its_parent_has_left_and_a_repeated_request_takes_nothing_more() {
    let (mut run, (call, index)) = parent();
    let limits = *run.state.budget().share(call, index).unwrap();
    let share = |by| HostRequest::RaiseShare {
        call,
        index,
        limits: limits.raised_by(&tokens(by)),
    };
    let (text, is_error) = request(&mut run, share(25));
    assert!(
        is_error && text.contains("which has 24 of output_tokens left. Raise process 1 first"),
        "{text}"
    );
    for _ in 0..2 {
        let (text, is_error) = request(&mut run, share(20));
        assert!(!is_error, "{text}");
        assert_eq!(run.state.budget().remaining(Amount::OutputTokens), Some(4));
    }
    assert!(run.news.is_empty(), "{:?}", run.news);
    // The whole share comes back, less what was used.
    run.end_child(call, index, Some(output(40)));
    assert_eq!(run.state.budget().remaining(Amount::OutputTokens), Some(8));
    let (text, is_error) = request(&mut run, share(1));
    assert!(is_error && text.contains("has ended"), "{text}");
}

#[test]
fn a_raise_that_is_recorded_without_running_has_the_facts_of_parent_and_child() {
    let (run, place) = parent();
    let child = run.children().swap_remove(0);
    let child = State::from_image(Pid(2), child.program, around(1_000_000), child.image).unwrap();
    let mut child = Run::of(child);
    child.grep(output(30), "found");
    assert!(child.state.paused().is_some(), "a child is paused as well");
    let limits = *child.state.budget().limits();
    let share = |by| record_share(&run.state, place, &limits.raised_by(&tokens(by)), 0);
    let names = |recorded: Recorded| -> Vec<_> { recorded.facts.iter().map(Fact::name).collect() };
    assert_eq!(names(share(10).unwrap()), ["budget_reserved"]);
    let recorded = record_raise(&child.state, &tokens(10), Some(&limits), 0).unwrap();
    assert_eq!(recorded.paused, None);
    assert_eq!(names(recorded), ["budget_raised", "budget_unpaused"]);
    let changed = limits.raised_by(&tokens(1));
    let refused = record_raise(&child.state, &tokens(10), Some(&changed), 0).unwrap_err();
    assert_eq!(refused, RaiseError::Changed(Pid(2)));
    let refused = share(25).unwrap_err();
    assert!(
        matches!(
            refused,
            RaiseError::ParentHasTooLittle {
                parent: Pid(1),
                left: 24,
                ..
            }
        ),
        "{refused}"
    );
}

const DAY_MS: u64 = 86_400_000;
const TIMED: &str = "[budget]\nwall_time = \"10s\"\nat_limit = \"pause\"\n";

/// A process whose clock runs, and that was last seen after three of its ten seconds.
fn seen_after_3_s(lifetime: Lifetime) -> Run {
    let mut run = Run::new(lifetime, TIMED);
    run.now_ms = 3_000;
    run.grep(output(1), "found");
    let budget = run.state.budget();
    assert_eq!((budget.clock(), budget.ran_ms(3_000)), (Clock::Runs, 3_000));
    run
}

/// The time in which nothing was loaded is not what a process ran, whatever is recorded first after
/// it, and whether that runs the process.
#[test]
fn what_comes_first_after_a_process_was_not_loaded_does_not_count_that_time() {
    let ran_ms = |run: &Run| run.state.budget().ran_ms(run.now_ms);
    let recorded = |run: &mut Run, recorded: Recorded| {
        for fact in recorded.facts {
            evolve(&mut run.state, &fact);
            run.facts.push(fact);
        }
    };
    type Step = Box<dyn Fn(&mut Run)>;
    let before_resume =
        |signal| -> Step { Box::new(move |run| run.feed(Input::SignalBeforeResume(signal))) };
    let steps: [(&str, Step); 6] = [
        ("resume", Box::new(|run| signal(run, Signal::Resume))),
        ("stop", before_resume(Signal::Stop)),
        ("suspend", before_resume(Signal::Suspend)),
        ("interrupt", before_resume(Signal::Interrupt)),
        (
            "raise",
            Box::new(move |run| {
                let raise = record_raise(&run.state, &time(1_000), None, run.now_ms);
                recorded(run, raise.unwrap());
            }),
        ),
        ("kill", before_resume(Signal::Kill)),
    ];
    for (name, step) in steps {
        let mut run = seen_after_3_s(Lifetime::Session);
        run.now_ms += DAY_MS;
        step(&mut run);
        match run.state.exit() {
            Some(exit) => assert_eq!(exit.ran_ms, 3_000, "{name}"),
            None => assert_eq!(ran_ms(&run), 3_000, "{name}"),
        }
        assert!(run.state.paused().is_none(), "{name}");
    }
}

/// A parent that was busy when the kernel stopped has the time left that it had then.
#[test]
fn a_share_that_is_recorded_comes_from_the_time_that_is_left() {
    let (mut run, place) = parent();
    let share = *run.state.budget().share(place.0, place.1).unwrap();
    assert!(share.wall_time_ms.is_some());
    let (ran_ms, at_ms, clock) = (1_000, 1_000, Clock::Runs);
    let (by, source) = (time(5_000), RaiseSource::Person);
    for change in [
        Change::Clock {
            ran_ms,
            at_ms,
            clock,
        },
        Change::Raised { by, source },
    ] {
        evolve(&mut run.state, &Fact::Budget(change));
    }
    let limits = share.raised_by(&time(1_000));
    assert!(record_share(&run.state, place, &limits, at_ms + DAY_MS).is_ok());
}

/// A paused process with a summary under way runs on as far as its clock says: a raise at rest must
/// not take the time since for its own.
#[test]
fn a_raise_at_rest_ends_a_pause_however_long_nothing_was_loaded() {
    let mut run = seen_after_3_s(Lifetime::Session);
    run.now_ms = 3_500;
    let at = dormouse_proto::budget::Paused {
        amount: Amount::WallTime,
        used: 10_000,
        limit: 10_000,
    };
    evolve(&mut run.state, &Fact::Budget(Change::Paused { at }));
    let raised = record_raise(&run.state, &time(1_000), None, 3_500 + DAY_MS).unwrap();
    assert_eq!(raised.paused, None);
}

/// A process that is interrupted while it is loaded begins the turn that waits when it resumes, and
/// makes one call.
#[test]
fn an_interrupt_before_the_process_resumes_begins_nothing_twice() {
    for has_mail in [false, true] {
        let mut run = Run::new(Lifetime::Session, TIMED);
        if has_mail {
            run.feed(Input::UserInput {
                from: Sender::Host,
                user_input: "and?".into(),
            });
        }
        let program = run.state.program().clone();
        let image = run.state.image();
        let loaded = State::from_image(Pid(1), program, around(1_000_000), image).unwrap();
        (run.first, run.state) = (loaded.clone(), loaded);
        run.facts.clear();
        run.feed(Input::SignalBeforeResume(Signal::Interrupt));
        assert!(!has_begun(&run), "{:?}", run.effects);
        assert_eq!(*run.state.phase(), Phase::Idle);
        signal(&mut run, Signal::Resume);
        let is_call = |effect: &&Effect| matches!(effect, Effect::StartWork { .. });
        let calls = run.effects.iter().filter(is_call).count();
        assert_eq!(calls, usize::from(has_mail));
    }
}
