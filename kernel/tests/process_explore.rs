//! `explore`: speculative children end at their writes and propose them, a schema or the first end
//! decides, and what a child proposes is never done by the kernel (SPEC-1).

use dormouse_kernel::process::{Child, ChildEvent, Effect, Fact, Input, State};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::{CallFact, HoldReason, Speculation};

use crate::process_held::{called, context, of_image};
use crate::replay::Replay;

const TWO: &str = r#"{"prompts": ["by hand", "by script"]}"#;
const JUDGED: &str = r#"{"prompts": ["a", "b"], "judge": {"required": ["n"], "type": "object"}}"#;

/// A process that explores, and its children.
fn explores(args: &str) -> (Replay, Vec<Replay>) {
    let parent = called("", &[("explore", args)]);
    let children = children_of(&parent);
    (parent, children)
}

fn children_of(parent: &Replay) -> Vec<Replay> {
    let started = parent.effects.iter().find_map(|effect| match effect {
        Effect::StartChildren { children, .. } => Some(children.clone()),
        _ => None,
    });
    let start = |(at, child): (u64, Child)| {
        let state = State::from_image(Pid(2 + at), child.program, context(), child.image);
        Replay::of(state.unwrap(), 0)
    };
    (0..).zip(started.unwrap_or_default()).map(start).collect()
}

impl Replay {
    fn explored(&self) -> CallId {
        self.state.phase().pending_calls()[0].call
    }

    fn child_ends(&mut self, index: u32, exit: Exit) {
        let event = ChildEvent::Ended {
            index,
            child: Pid(2 + u64::from(index)),
            exit,
        };
        let call = self.explored();
        self.feed(Input::Child { call, event });
    }

    fn ends_the_others(&self) -> bool {
        // Giving up the call would cancel the read of its children, which may begin before the
        // effect is performed.
        let is_end = |effect: &Effect| matches!(effect, Effect::KillChildren { call } if *call == self.explored());
        self.effects.iter().any(is_end)
    }
}

fn done(message: &str) -> Exit {
    Exit::new(ExitStatus::Done, message)
}

#[test]
fn a_child_begins_with_the_bytes_of_its_parent_and_ends_at_its_write() {
    let (parent, children) = explores(TWO);
    assert_eq!(children.len(), 2);
    for mut child in children {
        assert_eq!(child.state.speculation(), Speculation::Child);
        let shared = parent.state.messages().len();
        let begins_same = child.state.messages().iter().zip(parent.state.messages());
        assert!(
            begins_same.take(shared).all(|(one, other)| one == other),
            "FORK-2"
        );
        child.reply(&[("look", "{}"), ("write", r#"{"n": 1}"#), ("bash", "{}")]);
        assert!(child.state.exit().is_none(), "it reads first");
        assert_eq!(child.begun(), [("look".to_owned(), "{}".to_owned())]);
        let call = child.explored();
        child.finish(call, "seen");
        let exit = child.state.exit().expect("it stands at its write").clone();
        assert!(exit.is_result && exit.status == ExitStatus::Done);
        assert_eq!(
            &*exit.message,
            r#"{"message":"I think.","proposed_calls":[{"tool":"write","args":{"n":1}},{"tool":"bash","args":{}}]}"#
        );
        let begun = |fact: &Fact| matches!(fact, Fact::Call(CallFact::ToolCalled { call: begun }) if *begun != call);
        assert!(!child.facts.iter().any(begun), "SPEC-1");
    }
}

#[test]
fn without_a_judge_the_first_child_that_is_done_wins_and_the_others_are_ended() {
    let (mut parent, _) = explores(TWO);
    parent.child_ends(1, Exit::new(ExitStatus::ModelFailed, "no model"));
    assert!(!parent.ends_the_others(), "it is not done");
    let (mut parent, _) = explores(TWO);
    parent.child_ends(1, done("by script"));
    assert!(parent.ends_the_others());
    // The kernel died before it ended them.
    let mut again = of_image(&parent, parent.state.image(), 1, 0);
    assert!(again.ends_the_others());
    assert_eq!(
        children_of(&again).len(),
        1,
        "the one that has not ended is found"
    );
    again.child_ends(0, Exit::new(ExitStatus::Killed, "the process was killed"));
    again.thinking();
    let answer = &again.answers()[0];
    assert!(
        answer.starts_with("<explore_result children=\"2\" winner=\"2\">"),
        "{answer}"
    );
    assert!(answer.contains("lost=\"it ended as killed\""), "{answer}");
    assert!(answer.contains(">by script</child>"), "{answer}");
}

#[test]
fn a_schema_judges_answers_and_proposals() {
    let proposal = |args: &str| {
        let text =
            format!(r#"{{"message":"","proposed_calls":[{{"tool":"write","args":{args}}}]}}"#);
        Exit::with_result(text)
    };
    let cases = [
        (done("text"), done(r#"{"n": 1}"#), Some(2)),
        (proposal(r#"{"n": 1}"#), done(r#"{"n": 1}"#), Some(1)),
        (proposal("{}"), proposal(r#"{"n": 2}"#), Some(2)),
        // What a model only says is no proposal.
        (
            done(r#"{"message":"","proposed_calls":[{"tool":"write","args":{"n":1}}]}"#),
            done("[]"),
            None,
        ),
    ];
    for (first, second, winner) in cases {
        let (mut parent, _) = explores(JUDGED);
        parent.child_ends(0, first.clone());
        assert!(!parent.ends_the_others(), "all are judged");
        parent.child_ends(1, second.clone());
        let answer = &parent.answers()[0];
        let expected = winner.map(|winner| format!("winner=\"{winner}\""));
        assert_eq!(
            expected
                .as_ref()
                .is_some_and(|expected| answer.contains(expected)),
            winner.is_some(),
            "{first:?} {second:?}: {answer}"
        );
        assert_eq!(answer.contains("winner="), winner.is_some(), "{answer}");
    }
}

#[test]
fn an_exploration_of_a_speculative_process_is_held() {
    let original = called("", &[]);
    let fresh = {
        let mut image = Replay::of(crate::process_held::process(""), 0)
            .state
            .image();
        image.speculation = Speculation::Branch;
        image
    };
    let mut run = of_image(&original, fresh, 1, 0);
    run.reply(&[("explore", TWO)]);
    let (_, hold) = run.state.phase().held_calls().next().expect("it is held");
    assert_eq!(hold.reason, HoldReason::Speculation);
    assert!(children_of(&run).is_empty());
}

#[test]
fn an_invalid_schema_starts_nothing() {
    let (parent, children) = explores(r#"{"prompts": ["a"], "judge": {"type": 7}}"#);
    assert!(children.is_empty());
    assert!(parent.answers()[0].contains("'judge' is not valid"));
}
