//! Speculative processes (SPEC-1): what is held, what goes on, and what happens when one is chosen.

use dormouse_kernel::process::{
    BusyReason, Fact, HostRequest, Image, Input, Signal, StartMode, Verdict, image_of_branch,
    image_of_copy, with_effects_of, with_speculation,
};
use dormouse_proto::effect::EffectPolicy;
use dormouse_proto::id::CallId;
use dormouse_proto::process::ExitStatus;
use dormouse_proto::record::{CallFact, ControlFact, HoldReason, Lifetime, Phase, Speculation};

use crate::process_held::{called, of_image, process};
use crate::replay::Replay;

const WRITE: (&str, &str) = ("write", "{}");
const LOOK: (&str, &str) = ("look", "{}");

/// A speculative branch of a process whose model is thinking.
fn branch(rest: &str) -> Replay {
    branch_of(&Replay::of(process(rest), 0), |image| image)
}

fn branch_of(original: &Replay, change: impl FnOnce(Image) -> Image) -> Replay {
    let image = image_of_branch(original.state.image(), 0, StartMode::Running);
    of_image(original, speculative_image(change(image)), 1, 0)
}

fn speculative_image(image: Image) -> Image {
    with_speculation(image, Speculation::Branch)
}

impl Replay {
    fn choose(&mut self) {
        self.feed(Input::Host {
            request_id: "c".into(),
            request: HostRequest::EndSpeculation,
        });
    }

    fn reasons(&self) -> Vec<HoldReason> {
        let held = self.state.phase().held_calls();
        held.map(|(_, hold)| hold.reason.clone()).collect()
    }

    fn first_call(&self) -> CallId {
        self.state.phase().pending_calls()[0].call
    }
}

#[test]
fn only_calls_that_act_outside_are_held() {
    let cases = [
        (WRITE, true),
        (("bash", "{}"), true),
        (("fork", r#"{"prompts": ["a", "b"]}"#), true),
        (LOOK, false),
        (
            ("goto", r#"{"position": "msg:1", "message": "again"}"#),
            false,
        ),
    ];
    for (call, is_held) in cases {
        let mut run = branch("");
        run.reply(&[call]);
        let expected = is_held.then_some(HoldReason::Speculation);
        assert_eq!(run.reasons(), Vec::from_iter(expected), "{call:?}");
        let begins = |fact: &Fact| matches!(fact, Fact::Call(CallFact::ToolCalled { .. }));
        assert_eq!(run.facts.iter().any(begins), call == LOOK, "{call:?}");
    }
}

#[test]
fn a_branch_at_its_write_rests_and_its_write_is_done_once_it_is_chosen() {
    let mut run = branch("ask_expires = \"1s\"\n");
    run.reply(&[LOOK, WRITE]);
    assert_eq!(run.begun(), [("look".to_owned(), "{}".to_owned())]);
    assert_eq!(run.state.busy_reason(), Some(BusyReason::Turn));
    run.finish(run.first_call(), "seen");
    assert_eq!(run.state.busy_reason(), None, "it stands at its write");
    let (_, hold) = run.state.phase().held_calls().next().unwrap();
    assert_eq!(hold.expires_ms, None, "nobody is asked");
    run.choose();
    assert_eq!(run.begun(), [("write".to_owned(), "{}".to_owned())]);
    assert_eq!(run.state.speculation(), Speculation::None);
    let facts = run.facts.len();
    run.choose();
    assert_eq!((run.facts.len(), run.begun()), (facts, Vec::new()), "once");
    let write = run.state.phase().pending_calls()[1].call;
    run.finish(write, "written");
    run.reply(&[WRITE]);
    assert_eq!(run.begun().len(), 1, "it writes like any other process");
}

/// The rules of the program hold for the branch that is chosen.
#[test]
fn a_rule_of_the_program_asks_about_the_write_of_the_chosen_branch() {
    let mut run = branch("ask = [\"write\"]\n");
    run.reply(&[WRITE]);
    assert_eq!(run.reasons(), [HoldReason::Speculation]);
    run.choose();
    assert!(run.begun().is_empty());
    let rule = "write".into();
    assert_eq!(run.reasons(), [HoldReason::Rule { rule }]);
    run.approve(run.first_call());
    assert_eq!(run.begun().len(), 1);
}

#[test]
fn a_rule_asks_about_a_call_of_the_chosen_branch_that_its_original_had_begun() {
    let mut original = called("ask = [\"bash\"]\n", &[("bash", "{}")]);
    original.approve(original.first_call());
    assert_eq!(original.begun().len(), 1);
    let image = || original.state.image();
    for image in [
        image_of_copy(image(), 0),
        image_of_branch(image(), 0, StartMode::Running),
    ] {
        let mut run = of_image(&original, speculative_image(image), 1, 0);
        assert_eq!(run.reasons(), [HoldReason::Speculation]);
        run.choose();
        assert!(run.begun().is_empty());
        let rule = "bash".into();
        assert_eq!(run.reasons(), [HoldReason::Rule { rule }]);
        run.approve(run.first_call());
        assert_eq!(run.begun().len(), 1);
    }
}

#[test]
fn a_person_cannot_approve_a_speculative_call_and_may_refuse_it() {
    let mut run = branch("");
    run.reply(&[WRITE]);
    let call = run.first_call();
    for verdict in [Verdict::Approve { args: None }, Verdict::Recall] {
        let error = run.verdict(call, verdict).unwrap_err();
        assert!(error.contains("speculative branch"), "{error}");
        assert!(run.begun().is_empty());
    }
    let why = "no".to_owned();
    run.verdict(call, Verdict::Refuse { why }).unwrap();
    assert!(run.answers()[0].contains("Refused by a person"));
}

/// Neither an approval that the original had, nor one that comes before the branch runs, lets the
/// write of a branch begin; and a call that was in flight and could be repeated is not.
#[test]
fn what_the_original_was_allowed_does_not_apply_to_a_branch() {
    let original = called("ask = [\"write\"]\n", &[WRITE]);
    let mut stopped = of_image(
        &original,
        speculative_image(image_of_branch(
            original.state.image(),
            0,
            StartMode::Stopped,
        )),
        1,
        0,
    );
    stopped.approve(stopped.first_call());
    stopped.feed(Input::Signal(Signal::Continue));
    assert!(stopped.begun().is_empty());
    assert_eq!(stopped.reasons(), [HoldReason::Speculation]);

    let in_flight = called("", &[("bash", "{}")]);
    assert_eq!(in_flight.begun().len(), 1);
    let mut run = branch_of(&in_flight, |image| image);
    assert!(run.begun().is_empty(), "an idempotent tool would run again");
    assert_eq!(run.reasons(), [HoldReason::Speculation]);
    run.choose();
    assert_eq!(run.begun().len(), 1);
}

/// The fence decides before the choice where nothing runs, and after it where a person is asked.
#[test]
fn the_fence_judges_a_speculative_call() {
    let mut original = called("", &[WRITE]);
    let before = {
        let mut image = original.state.image();
        image.phase = Phase::Ready { stop_reason: None };
        image.messages.pop_back();
        image
    };
    original.finish(original.first_call(), "paid");
    let log = original.state.effects().clone();
    for (policy, answer) in [
        (Some(EffectPolicy::Recorded), Some("<recorded_answer ")),
        (Some(EffectPolicy::Refuse), Some("Not run: ")),
        (Some(EffectPolicy::Run), None),
        (None, None),
    ] {
        let mut run = branch_of(&original, |_| {
            let image = with_effects_of(before.clone(), Some(&log), policy);
            image_of_branch(image, 0, StartMode::Running)
        });
        run.reply(&[WRITE]);
        assert!(run.begun().is_empty(), "{policy:?}");
        match answer {
            Some(answer) => assert!(run.answers()[0].starts_with(answer), "{policy:?}"),
            None => {
                assert_eq!(run.reasons(), [HoldReason::Speculation], "{policy:?}");
                run.choose();
                let runs = policy == Some(EffectPolicy::Run);
                assert_eq!(run.begun().len(), usize::from(runs));
                let asked = matches!(run.reasons()[..], [HoldReason::Repeats { effect: Some(_) }]);
                assert_eq!(asked, !runs, "{policy:?}");
            }
        }
    }
}

#[test]
fn speculation_is_kept_by_images_copies_and_branches() {
    let mut run = branch("");
    run.reply(&[WRITE]);
    let images = [
        run.state.image(),
        image_of_copy(run.state.image(), 0),
        image_of_branch(run.state.image(), 0, StartMode::Running),
    ];
    for image in images {
        let mut again = of_image(&run, image, 1, 0);
        assert!(again.begun().is_empty());
        assert_eq!(again.reasons(), [HoldReason::Speculation]);
        again.choose();
        assert_eq!(again.begun().len(), 1);
    }
}

/// A task that is done waits to be chosen, and ends then with what it said; a failed one ends.
#[test]
fn a_speculative_task_ends_once_it_is_chosen() {
    let task = |image| Image {
        lifetime: Lifetime::Task,
        ..image
    };
    let original = Replay::of(process(""), 0);
    let mut run = branch_of(&original, task);
    run.reply(&[]);
    assert_eq!(run.state.phase(), &Phase::Idle);
    assert_eq!(run.state.busy_reason(), None);
    run.choose();
    let exit = run.state.exit().expect("it was chosen");
    assert_eq!(
        (&*exit.message, exit.status),
        ("I think.", ExitStatus::Done)
    );
    let chosen = Fact::Control(ControlFact::SpeculationEnded);
    assert!(run.facts.contains(&chosen));

    let mut child = branch_of(&original, |image| Image {
        depth: 1,
        ..task(image)
    });
    child.reply(&[]);
    assert!(child.state.exit().is_some(), "its parent waits for it");
}
