//! The fence (FENCE-1): what happens to a call that repeats what ran beyond a point that its process
//! went back to.

use std::sync::Arc;

use dormouse_content::Content;
use dormouse_kernel::process::{
    Attendance, CheckpointImage, CheckpointInfo, Effect, Fact, HostContext, HostRequest, Image,
    Input, StartMode, State, Verdict, Work, evolve, image_of_branch, with_effects_of,
};
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::effect::EffectPolicy;
use dormouse_proto::id::{CheckpointId, FactNumber, FdId, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::record::{CallFact, ContentRef, EffectOutcome, EffectPlace, HoldReason};

use crate::export::golden_manifest;
use crate::process_held::{called, context, of_image};
use crate::replay::Replay;

/// What becomes of a call.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Runs,
    Waits,
    GetsTheRecordedAnswer,
    IsRefused,
}

use Fate::{GetsTheRecordedAnswer, IsRefused, Runs, Waits};

const PAY: (&str, &str) = ("write", r#"{"to": "bob", "sum": 10}"#);

fn effects(policy: &str) -> String {
    format!("effects = {policy}\n")
}

/// A process whose model has called the tools and heard the answers `done 0`, `done 1` ….
fn ran(rest: &str, calls: &[(&str, &str)]) -> Replay {
    let mut run = called(rest, calls);
    let open: Vec<_> = run.state.phase().pending_calls().to_vec();
    for (at, pending_call) in open.iter().enumerate() {
        run.finish(pending_call.call, &format!("done {at}"));
    }
    run.thinking();
    run
}

impl Replay {
    fn go_back(&mut self, position: &str) {
        self.feed(Input::Host {
            request_id: "g".into(),
            request: HostRequest::Goto {
                position: position.into(),
                message: "again".into(),
            },
        });
    }

    /// The model makes one call; what became of it.
    fn repeat(&mut self, call: (&str, &str)) -> Fate {
        self.reply(&[call]);
        self.fate()
    }

    /// What became of the only call of the last reply.
    fn fate(&self) -> Fate {
        if !self.begun().is_empty() {
            return Runs;
        }
        if self.state.phase().held_calls().next().is_some() {
            return Waits;
        }
        let answers = self.answers();
        match answers[0].starts_with("<recorded_answer ") {
            true => GetsTheRecordedAnswer,
            false => {
                assert!(answers[0].starts_with("Not run: "), "{answers:?}");
                IsRefused
            }
        }
    }

    fn places(&self) -> Vec<&'static str> {
        let effects = self.state.effects().effects.iter();
        effects
            .map(|effect| match effect.place {
                EffectPlace::Ran { .. } => "ran",
                EffectPlace::Recalled { .. } => "recalled",
                EffectPlace::Beyond => "beyond",
                EffectPlace::DoneAgain => "again",
            })
            .collect()
    }
}

/// The process as one in a host where nobody answers.
fn unattended(run: Replay) -> Replay {
    let host = Arc::new(HostContext {
        attendance: Attendance::Unattended,
        ..HostContext::clone(&context())
    });
    let program = run.state.program().clone();
    Replay::of(
        State::from_image(Pid(1), program, host, run.state.image()).unwrap(),
        0,
    )
}

#[test]
fn a_policy_decides_about_a_call_that_repeats_an_effect() {
    let tool = r#"{ tool = [{ name = "write", policy = "refuse" }] }"#;
    let tool_first = r#"{ policy = "run", tool = [{ name = "write", policy = "recorded" }] }"#;
    let other_tool = r#"{ policy = "run", tool = [{ name = "bash", policy = "recorded" }] }"#;
    let cases = [
        ("", "write", Waits, GetsTheRecordedAnswer),
        // A tool that may be called again is called again, unless a policy is named.
        ("", "bash", Runs, Runs),
        (r#""ask""#, "bash", Waits, Waits),
        (r#""ask""#, "write", Waits, Waits),
        (r#""run""#, "write", Runs, Runs),
        (r#""refuse""#, "write", IsRefused, IsRefused),
        (
            r#""recorded""#,
            "write",
            GetsTheRecordedAnswer,
            GetsTheRecordedAnswer,
        ),
        (tool, "write", IsRefused, IsRefused),
        (
            tool_first,
            "write",
            GetsTheRecordedAnswer,
            GetsTheRecordedAnswer,
        ),
        (other_tool, "write", Runs, Runs),
        // A tool that only reads has no effect.
        (r#""refuse""#, "look", Runs, Runs),
    ];
    for (policy, tool, attended_fate, unattended_fate) in cases {
        let line = match policy {
            "" => String::new(),
            policy => effects(policy),
        };
        for (is_attended, expected) in [(true, &attended_fate), (false, &unattended_fate)] {
            let mut run = ran(&line, &[(tool, PAY.1)]);
            if !is_attended {
                run = unattended(run);
            }
            run.go_back("msg:1");
            let fate = run.repeat((tool, r#"{ "sum": 10, "to": "bob" }"#));
            assert_eq!(fate, *expected, "{policy} {tool}, attended: {is_attended}");
            if fate == GetsTheRecordedAnswer {
                assert!(
                    run.answers()[0].ends_with("\ndone 0"),
                    "{:?}",
                    run.answers()
                );
            }
        }
        // Without going back, a second call is a second effect.
        let mut run = ran(&line, &[(tool, PAY.1)]);
        assert_eq!(run.repeat((tool, PAY.1)), Runs, "{policy} {tool}");
    }
}

#[test]
fn each_effect_is_repeated_by_one_call_and_other_calls_run() {
    let mut run = ran(&effects(r#""recorded""#), &[PAY, PAY]);
    run.go_back("msg:1");
    assert_eq!(run.places(), ["beyond", "beyond"]);
    assert_eq!(run.repeat(("write", r#"{"to": "eve", "sum": 10}"#)), Runs);
    let other = run.called().unwrap();
    run.finish(other, "paid eve");
    assert_eq!(run.repeat(PAY), GetsTheRecordedAnswer);
    assert!(run.answers()[0].ends_with("done 0"));
    assert_eq!(run.repeat(PAY), GetsTheRecordedAnswer);
    assert!(run.answers()[0].ends_with("done 1"));
    assert_eq!(run.repeat(PAY), Runs);
    let third = run.called().unwrap();
    run.finish(third, "done 2");
    assert_eq!(run.places(), ["recalled", "recalled", "ran", "ran"]);
    // All of that lies beyond the point when it goes back again.
    run.go_back("msg:1");
    let three = [PAY, PAY, PAY, PAY];
    run.reply(&three);
    assert_eq!(run.begun().len(), 1, "the fourth");
    assert_eq!(
        run.places(),
        ["recalled", "recalled", "beyond", "recalled", "ran"]
    );
}

#[test]
fn effects_before_the_point_are_not_fenced() {
    let mut run = ran(&effects(r#""refuse""#), &[PAY]);
    run.reply(&[]);
    run.go_back("msg:3");
    assert_eq!(run.places(), ["ran"]);
    assert_eq!(run.repeat(PAY), Runs);
}

#[test]
fn a_person_runs_a_repeated_call_anew_or_gives_its_recorded_answer_or_refuses() {
    let waiting = || {
        let mut run = ran("", &[PAY]);
        run.go_back("msg:1");
        assert_eq!(run.repeat(PAY), Waits);
        let (pending_call, hold) = run.state.phase().held_calls().next().unwrap();
        let call = pending_call.call;
        let HoldReason::Repeats {
            effect: Some(effect),
        } = hold.reason.clone()
        else {
            panic!("{hold:?}")
        };
        assert_eq!(
            (effect.number, effect.answer.as_deref()),
            (0, Some("done 0"))
        );
        (run, call)
    };
    let (mut run, call) = waiting();
    run.approve(call);
    assert_eq!((run.fate(), run.places()), (Runs, vec!["again", "ran"]));
    run.finish(call, "done again");
    run.go_back("msg:1");
    assert_eq!(run.places(), ["again", "beyond"]);

    let (mut run, call) = waiting();
    run.verdict(call, Verdict::Recall).unwrap();
    assert_eq!(
        (run.fate(), run.places()),
        (GetsTheRecordedAnswer, vec!["recalled"])
    );

    let (mut run, call) = waiting();
    let why = "paid".to_owned();
    run.verdict(call, Verdict::Refuse { why }).unwrap();
    assert_eq!(run.places(), ["beyond"], "it can be asked about again");
    assert_eq!(run.repeat(PAY), Waits);

    // A call that is held for another reason has no recorded answer.
    let mut run = called("ask = [\"write\"]\n", &[PAY]);
    let call = run.held()[0].0;
    assert!(run.verdict(call, Verdict::Recall).is_err());
    assert_eq!(run.held().len(), 1);

    // Nor has one that repeats a call whose answer never came.
    let mut run = called("", &[PAY]);
    run.go_back("msg:1");
    assert_eq!(run.repeat(PAY), Waits);
    let call = run.held()[0].0;
    let recalled = run.verdict(call, Verdict::Recall);
    assert!(recalled.unwrap_err().contains("no answer is recorded"));
    assert_eq!(run.held().len(), 1);
    run.approve(call);
    assert_eq!(run.fate(), Runs);
}

#[test]
fn two_calls_of_one_reply_wait_for_two_effects() {
    let mut run = ran("", &[PAY, PAY]);
    run.go_back("msg:1");
    run.reply(&[PAY, PAY, PAY]);
    let held = run.held();
    assert_eq!(
        held.len(),
        2,
        "the third one is new, and waits for the others"
    );
    assert_eq!(run.begun(), []);
    run.verdict(held[1].0, Verdict::Recall).unwrap();
    run.verdict(held[0].0, Verdict::Recall).unwrap();
    assert_eq!(run.begun().len(), 1);
    assert_eq!(run.places(), ["recalled", "recalled", "ran"]);
}

/// A call that stood for the effect and was refused by its tool stands for it no more: the next one
/// does, which would have been new.
#[test]
fn a_call_that_is_approved_and_refused_leaves_the_effect_to_the_next_one() {
    const FORK: (&str, &str) = ("fork", r#"{"prompts": ["pay"]}"#);
    let mut run = called("ask = []\n", &[FORK]);
    run.go_back("msg:1");
    run.reply(&[FORK, FORK]);
    let first = run.held();
    assert_eq!(first.len(), 1);
    let args = Some(r#"{"prompts": []}"#.to_owned());
    run.verdict(first[0].0, Verdict::Approve { args }).unwrap();
    let is_child = |effect: &Effect| matches!(effect, Effect::StartChildren { .. });
    assert!(!run.effects.iter().any(is_child));
    let second = run.held();
    assert_eq!(second.len(), 1);
    assert_ne!(second[0].0, first[0].0);
    run.approve(second[0].0);
    assert!(run.effects.iter().any(is_child));
}

/// The policy may have changed since the first call was held: then the fence answers the next one.
#[test]
fn a_call_that_is_refused_leaves_the_effect_to_one_that_the_fence_answers() {
    const FORK: (&str, &str) = ("fork", r#"{"prompts": ["pay"]}"#);
    let mut run = called("ask = []\n", &[FORK]);
    run.go_back("msg:1");
    run.reply(&[FORK, FORK]);
    let held = run.held();
    assert_eq!(held.len(), 1);
    run.feed(Input::Host {
        request_id: "p".into(),
        request: HostRequest::SetEffectPolicy(Some(EffectPolicy::Refuse)),
    });
    let args = Some(r#"{"prompts": []}"#.to_owned());
    run.verdict(held[0].0, Verdict::Approve { args }).unwrap();
    let answers = run.answers();
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert!(answers[1].starts_with("Not run: "), "{answers:?}");
    run.thinking();
}

fn restore(run: &mut Replay, image: Image) {
    let checkpoint = CheckpointInfo {
        id: CheckpointId(1),
        label: "before".into(),
        at: FactNumber(1),
        scope: Scope::Process,
    };
    let restored = Box::new(CheckpointImage { checkpoint, image });
    run.feed(Input::Host {
        request_id: "r".into(),
        request: HostRequest::Restore(restored),
    });
}

#[test]
fn a_restore_in_place_fences_what_followed_the_checkpoint() {
    let mut run = ran(&effects(r#""recorded""#), &[("write", "{}")]);
    let checkpoint = run.state.image();
    run.reply(&[PAY]);
    let call = run.called().unwrap();
    run.finish(call, "paid");
    for _ in 0..2 {
        restore(&mut run, checkpoint.clone());
        assert_eq!(run.places(), ["ran", "beyond"]);
        assert_eq!(run.repeat(PAY), GetsTheRecordedAnswer);
        assert_eq!(run.places(), ["ran", "recalled"]);
    }
    assert_eq!(run.repeat(("write", "{}")), Runs);
}

/// A branch of an earlier image of the process, as it is now.
fn branch(run: &Replay, image: Image, policy: Option<EffectPolicy>) -> Replay {
    let image = with_effects_of(image, Some(run.state.effects()), policy);
    of_image(run, image_of_branch(image, 0, StartMode::Running), 2, 0)
}

#[test]
fn a_branch_knows_what_its_origin_did_beyond_the_point() {
    let run = called("", &[]);
    let mut run = Replay::of(run.first, 0);
    let point = run.state.image();
    run.reply(&[PAY]);
    let call = run.called().unwrap();
    let in_flight = run.state.image();
    run.finish(call, "paid");

    let policies = [
        (None, Waits),
        (Some(EffectPolicy::Run), Runs),
        (Some(EffectPolicy::Recorded), GetsTheRecordedAnswer),
        (Some(EffectPolicy::Refuse), IsRefused),
    ];
    for (policy, fate) in policies {
        let mut branch = branch(&run, point.clone(), policy);
        assert_eq!(branch.state.effects().own_from, 1, "it did nothing itself");
        assert_eq!(branch.repeat(PAY), fate, "{policy:?}");
        // A branch of the branch knows as much.
        let mut second = self::branch(&branch, point.clone(), policy);
        assert_eq!(second.repeat(PAY), fate, "{policy:?}");
    }

    // In the branch, the call that was in flight is lost: what the origin heard is known.
    let mut lost = branch(&run, in_flight, Some(EffectPolicy::Recorded));
    assert!(
        lost.answers()[0].contains("effect is unknown"),
        "{:?}",
        lost.answers()
    );
    assert_eq!(lost.repeat(PAY), GetsTheRecordedAnswer);
    assert!(lost.answers()[0].ends_with("\npaid"));
}

/// A call gets its recorded answer by two facts. A branch from between them makes the call anew: the
/// fence has to find the effect again.
#[test]
fn a_branch_between_the_two_facts_of_a_recall_is_fenced_anew() {
    let mut run = ran(&effects(r#""recorded""#), &[PAY]);
    run.go_back("msg:1");
    assert_eq!(run.repeat(PAY), GetsTheRecordedAnswer);
    let is_recalled = |fact: &Fact| matches!(fact, Fact::Call(CallFact::Recalled { .. }));
    let recalled = run.facts.iter().position(is_recalled).unwrap();
    let mut between = run.first.clone();
    let before = &run.facts[..=recalled];
    before.iter().for_each(|fact| evolve(&mut between, fact));

    let known = branch(&run, between.image(), Some(EffectPolicy::Ask));
    assert_eq!(known.fate(), Waits);
    let (_, hold) = known.state.phase().held_calls().next().unwrap();
    assert!(
        matches!(&hold.reason, HoldReason::Repeats { effect: Some(effect) } if effect.number == 0),
        "{hold:?}"
    );
}

/// The second attack of ACRFence: what a person approved once is not approved again by going back.
#[test]
fn an_approval_does_not_come_back_with_the_past() {
    let mut run = called("ask = [\"write\"]\n", &[PAY]);
    let call = run.held()[0].0;
    let held = run.state.image();
    run.approve(call);
    run.finish(call, "paid");

    for policy in [None, Some(EffectPolicy::Ask)] {
        let mut branch = branch(&run, held.clone(), policy);
        assert_eq!(branch.fate(), Waits);
        let (pending_call, hold) = branch.state.phase().held_calls().next().unwrap();
        let call = pending_call.call;
        assert!(
            matches!(&hold.reason, HoldReason::Repeats { effect: Some(effect) } if effect.number == 0),
            "the person is told that it ran: {hold:?}"
        );
        branch.approve(call);
        assert_eq!(branch.fate(), Runs, "a person said so");
    }
    let recorded = branch(&run, held.clone(), Some(EffectPolicy::Recorded));
    assert_eq!(recorded.fate(), GetsTheRecordedAnswer);
    // Without the fence, the rule of the program alone asks again.
    let unfenced = branch(&run, held, Some(EffectPolicy::Run));
    assert_eq!(unfenced.fate(), Waits);
    let hold = unfenced
        .state
        .phase()
        .held_calls()
        .next()
        .unwrap()
        .1
        .clone();
    assert!(matches!(hold.reason, HoldReason::Rule { .. }));
}

#[test]
fn what_is_not_known_is_asked_about() {
    let run = called("", &[]);
    let run = Replay::of(run.first, 0);
    let policies = [
        (None, Waits, IsRefused),
        (Some(EffectPolicy::Run), Runs, Runs),
        (Some(EffectPolicy::Recorded), IsRefused, IsRefused),
        (Some(EffectPolicy::Ask), Waits, Waits),
    ];
    for (policy, attended_fate, unattended_fate) in policies {
        let image = with_effects_of(run.first.image(), None, policy);
        let mut known = of_image(&run, image, 2, 0);
        let mut alone = unattended(Replay::of(known.state.clone(), 0));
        assert_eq!(known.repeat(PAY), attended_fate, "{policy:?}");
        assert_eq!(alone.repeat(PAY), unattended_fate, "{policy:?}");
    }
    // A person cannot give an answer that nobody knows.
    let image = with_effects_of(run.first.image(), None, None);
    let mut asked = of_image(&run, image, 2, 0);
    assert_eq!(asked.repeat(PAY), Waits);
    let call = asked.held()[0].0;
    assert!(asked.verdict(call, Verdict::Recall).is_err());
    asked.approve(call);
    assert_eq!(asked.fate(), Runs);
}

/// Version 1 recorded no effects: what an exported process did beyond the point of its export is not
/// known.
#[test]
fn an_import_of_a_version_without_the_log_asks_about_each_call_that_could_be_an_effect() {
    let run = called("", &[]);
    let run = Replay::of(run.first, 0);
    let manifest = golden_manifest(1);
    let births: Vec<_> = manifest.births().collect();
    assert_eq!(births.len(), 2);
    for birth in births {
        let log = birth.member().image.effects.clone();
        let log = log.try_map(&mut |content: ContentRef| Err::<Content, _>(content));
        let image = Image {
            effects: log.expect("it has no contents"),
            ..run.first.image()
        };
        let image = birth.image(image, 0, StartMode::Running);
        let mut asked = of_image(&run, image.clone(), 2, 0);
        assert_eq!(asked.repeat(PAY), Waits);
        let hold = asked.state.phase().held_calls().next().unwrap().1.clone();
        assert_eq!(hold.reason, HoldReason::Repeats { effect: None });
        let mut alone = unattended(of_image(&run, image.clone(), 2, 0));
        assert_eq!(alone.repeat(PAY), IsRefused);
        let mut reads = of_image(&run, image, 2, 0);
        assert_eq!(reads.repeat(("look", PAY.1)), Runs, "it has no effect");
    }
}

#[test]
fn a_process_remembers_its_latest_effects_and_knows_what_it_forgot() {
    let mut run = called(&effects(r#""recorded""#), &[]);
    run = Replay::of(run.first, 0);
    for number in 0..1100 {
        let args = format!("{{\"n\": {number}}}");
        run.facts.clear();
        run.first = run.state.clone();
        run.reply(&[("write", &args)]);
        let call = run.called().unwrap();
        run.finish(call, "done");
        run.reply(&[]);
        run.feed(Input::UserInput {
            from: Sender::Host,
            user_input: "go".into(),
        });
    }
    let log = run.state.effects();
    assert_eq!(
        (log.effects.len(), log.dropped, log.count()),
        (1024, 76, 1100)
    );
    assert!(!log.has_unknown);
    let mut late = Replay::of(run.state.clone(), 0);
    late.go_back("msg:4001");
    assert!(!late.state.effects().has_unknown);
    assert_eq!(
        late.repeat(("write", "{\"n\": 1099}")),
        GetsTheRecordedAnswer
    );
    assert_eq!(late.repeat(("write", "{\"n\": -1}")), Runs);
    run.go_back("msg:1");
    assert!(run.state.effects().has_unknown);
    assert_eq!(
        run.repeat(("write", "{\"n\": 1099}")),
        GetsTheRecordedAnswer
    );
    assert_eq!(run.repeat(("write", "{\"n\": 3}")), IsRefused);
}

#[test]
fn descriptors_of_a_recorded_answer_are_opened_again() {
    let descriptors = "effects = \"recorded\"\n[file_descriptor]\nmax_direct_output_chars = \
                       20\ndefault_page_size = 10\nmax_input_chars = 40\n";
    let first = called(descriptors, &[]).first;
    let mut run = Replay::of(first, 0);
    let point = run.state.image();
    run.reply(&[PAY]);
    let call = run.called().unwrap();
    run.finish(call, &"receipt ".repeat(9));
    assert_eq!(run.state.table().len(), 1);
    let EffectOutcome::Answered { opened, .. } = &run.state.effects().effects[0].outcome else {
        panic!("{:?}", run.state.effects())
    };
    assert_eq!(opened[0].0, FdId::Fd(1));

    // In place, the descriptor is still there.
    run.go_back("msg:1");
    assert_eq!(run.repeat(PAY), GetsTheRecordedAnswer);
    assert_eq!(run.state.table().len(), 1);
    assert!(
        !run.answers()[0].contains("<descriptor"),
        "{:?}",
        run.answers()
    );

    // In a branch, its number belongs to another content.
    let mut branch = branch(&run, point, None);
    branch.reply(&[("look", "{}")]);
    let call = branch.called().unwrap();
    branch.finish(call, &"other ".repeat(9));
    assert_eq!(branch.repeat(PAY), GetsTheRecordedAnswer);
    let answer = &branch.answers()[0];
    assert!(
        answer.contains(r#"<descriptor was="fd:1" now="fd:2"/>"#),
        "{answer}"
    );
    let entry = branch.state.table().get(&FdId::Fd(2)).unwrap();
    assert_eq!(
        entry.content.unlimited_reader().text().unwrap(),
        "receipt ".repeat(9)
    );
}

#[test]
fn calls_of_the_host_are_effects_and_are_not_fenced() {
    let mut run = ran(&effects(r#""refuse""#), &[("look", "{}")]);
    run.reply(&[]);
    let host_call = |run: &mut Replay| {
        run.feed(Input::Host {
            request_id: "h".into(),
            request: HostRequest::Call {
                tool: PAY.0.to_owned(),
                args: PAY.1.to_owned(),
            },
        });
        let call = run.called().expect("it runs");
        run.finish(call, "paid by the host");
    };
    host_call(&mut run);
    run.go_back("msg:1");
    assert_eq!(run.repeat(PAY), IsRefused);
    run.reply(&[]);
    host_call(&mut run);
}

#[test]
fn children_and_messages_are_effects_and_what_goes_back_with_the_process_is_none() {
    let mut run = called("ask = []\n", &[("fork", r#"{"prompts": ["pay"]}"#)]);
    let is_child = |effect: &Effect| matches!(effect, Effect::StartChildren { .. });
    assert!(run.effects.iter().any(is_child));
    assert_eq!(run.places(), ["ran"]);
    run.go_back("msg:1");
    run.reply(&[("fork", r#"{"prompts": ["pay"]}"#)]);
    assert_eq!(run.held().len(), 1);

    let mut run = called("", &[("read_fd", r#"{"fd": "fd:9"}"#)]);
    assert_eq!(run.places(), Vec::<&str>::new());
    run.reply(&[("goto", r#"{"position": "msg:1", "message": "again"}"#)]);
    assert_eq!(run.places(), Vec::<&str>::new());
}

#[test]
fn the_host_names_a_policy_for_a_process_that_goes_back() {
    let mut run = ran("", &[PAY]);
    run.feed(Input::Host {
        request_id: "p".into(),
        request: HostRequest::SetEffectPolicy(Some(EffectPolicy::Recorded)),
    });
    run.go_back("msg:1");
    assert_eq!(run.repeat(PAY), GetsTheRecordedAnswer);
    let is_model = |effect: &Effect| {
        matches!(
            effect,
            Effect::StartWork {
                work: Work::Model { .. },
                ..
            }
        )
    };
    assert!(run.effects.iter().any(is_model), "the turn goes on");
}

#[test]
fn a_program_declares_what_makes_two_calls_the_same() {
    let rule = r#"{ policy = "recorded", tool = [{ name = "write", volatile = ["nonce"] }, { name = "bash", key = ["order"] }] }"#;
    let cases = [
        (
            "write",
            r#"{"a": 1, "nonce": 1}"#,
            r#"{"a": 1, "nonce": 2}"#,
            GetsTheRecordedAnswer,
        ),
        (
            "write",
            r#"{"a": 1, "nonce": 1}"#,
            r#"{"a": 2, "nonce": 1}"#,
            Runs,
        ),
        (
            "bash",
            r#"{"order": 7, "sum": 1}"#,
            r#"{"order": 7, "sum": 2}"#,
            GetsTheRecordedAnswer,
        ),
        ("bash", r#"{"order": 7}"#, r#"{"order": 8}"#, Runs),
    ];
    for (tool, before, after, expected) in cases {
        let mut run = ran(&effects(rule), &[(tool, before)]);
        run.go_back("msg:1");
        assert_eq!(
            run.repeat((tool, after)),
            expected,
            "{tool} {before} {after}"
        );
    }
}

/// A command takes a number that is written as text, and a default that is not given.
#[test]
fn another_spelling_of_a_call_repeats_it() {
    let pay = "[[tools.command]]\nname = \"pay\"\ndescription = \"Pays.\"\nargv = [\"pay\", \
               \"{sum}\", \"{to}\"]\nparameters.sum = { type = \"integer\" \
               }\nparameters.to = { type = \"string\", default = \"bob\" }\n";
    let cases = [
        (r#"{"sum": "007"}"#, Waits),
        (r#"{"sum": 7, "to": "bob"}"#, Waits),
        (r#"{"sum": 7, "to": null}"#, Waits),
        (r#"{"sum": 8}"#, Runs),
        (r#"{"sum": 7, "to": "eve"}"#, Runs),
    ];
    for (again, expected) in cases {
        let mut run = ran(pay, &[("pay", r#"{"sum": 7}"#)]);
        run.go_back("msg:1");
        assert_eq!(run.repeat(("pay", again)), expected, "{again}");
    }
}
