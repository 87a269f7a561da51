//! `explore`: speculative children end at their writes and propose them, a schema, a program or the
//! first end decides, and what a child proposes is never done by the kernel (SPEC-1).

use std::path::Path;

use bytes::Bytes;
use dormouse_kernel::process::{
    Birth, Child, ChildEvent, Effect, Fact, Input, Preloads, Signal, State, Verdict, initial_image,
};
use dormouse_kernel::program::compile;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::process::{Exit, ExitStatus, Origin, Priority};
use dormouse_proto::record::{CallFact, HoldReason, Lifetime, Speculation};
use dormouse_proto::tool::Access;

use crate::process_held::{called, context, of_image};
use crate::replay::Replay;

const TWO: &str = r#"{"prompts": ["by hand", "by script"]}"#;
const JUDGED: &str =
    r#"{"prompts": ["a", "b"], "judge": {"schema": {"required": ["n"], "type": "object"}}}"#;
const BY_PROGRAM: &str = r#"{"prompts": ["a", "b"], "judge": {"program": "critic"}}"#;

/// Tools of a program that lets a linked program judge.
const MAY_SPAWN: &str = "[tools]\nenabled = [\"look\", \"write\", { name = \"explore\", access = \
                         \"write\" }, { name = \"spawn\", access = \"write\" }]\n";
const LINKS: &str = "[linked_programs]\ncritic = \"critic.toml\"\n";

/// A process of a program that links `critic`, which has explored.
fn judged_by_critic(tools: &str) -> Replay {
    let model = "[model]\nname = \"m\"\nprovider = \"scripted\"\n";
    let mut read = |path: &Path| {
        let text = match path.file_name().and_then(|name| name.to_str()) {
            Some("p.toml") => format!("{model}{tools}{LINKS}"),
            _ => format!(
                "{model}[result]\nschema = {{ type = \"object\", required = [\"pass\"] }}\n"
            ),
        };
        Ok(Bytes::from(text))
    };
    let compiled = compile(Path::new("p.toml"), &mut read, &["look", "write"]);
    let program = compiled
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .program;
    let (context, input, preloads) = (context(), "go".into(), Preloads::default());
    let birth = Birth {
        access: Access::Write,
        depth: 0,
        lifetime: Lifetime::Session,
        priority: Priority::Normal,
        preloads: &preloads,
        input: Some(&input),
    };
    let image = initial_image(&program, &context, birth, 0);
    let state = State::from_image(Pid(1), program, context, image).unwrap();
    let mut run = Replay::of(state, 0);
    run.reply(&[("explore", BY_PROGRAM)]);
    run
}

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

/// What a child ends with that would write `args`.
fn proposal(args: &str) -> Exit {
    let text = format!(r#"{{"message":"","proposed_calls":[{{"tool":"write","args":{args}}}]}}"#);
    Exit::with_result(text)
}

/// The judges that the last input started: the index of each, and what it reads.
fn judges_of(parent: &Replay) -> Vec<(u32, String)> {
    let started = parent.effects.iter().filter_map(|effect| match effect {
        Effect::StartChildren { children, .. } => Some(children.clone()),
        _ => None,
    });
    let judge = |child: Child| {
        let Origin::Judge { index, .. } = child.origin else {
            return None;
        };
        assert_eq!(child.image.speculation, Speculation::None);
        let state = State::from_image(Pid(9), child.program, context(), child.image);
        let request = Replay::of(state.unwrap(), 0).request();
        Some((index, request.messages.last().unwrap().text()))
    };
    started.flatten().filter_map(judge).collect()
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
        assert_eq!(
            parent.ends_the_others(),
            winner == Some(1),
            "the first one that passes wins"
        );
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
    let (parent, children) = explores(r#"{"prompts": ["a"], "judge": {"schema": {"type": 7}}}"#);
    assert!(children.is_empty());
    assert!(parent.answers()[0].contains("schema that is not valid"));
}

#[test]
fn a_program_judges_one_child_after_the_other() {
    let mut parent = judged_by_critic(MAY_SPAWN);
    parent.child_ends(0, proposal(r#"{"n": 1}"#));
    let judges = judges_of(&parent);
    let [(2, read)] = &judges[..] else {
        panic!("{judges:?}")
    };
    let expected = r#""branch":1,"level":1,"status":"at_write","message":"","result":null,"calls":[{"tool":"write","args":{"n":1}}]"#;
    assert!(read.contains(expected), "{read}");
    let call = parent.explored();
    assert!(parent.state.budget().share(call, 2).is_some());

    parent.child_ends(1, done("by hand"));
    assert!(judges_of(&parent).is_empty(), "one at a time");
    parent.child_ends(2, Exit::with_result(r#"{"pass":false,"why":"too bold"}"#));
    assert!(!parent.ends_the_others());
    assert!(parent.state.budget().share(call, 2).is_none());
    let judges = judges_of(&parent);
    let [(3, read)] = &judges[..] else {
        panic!("{judges:?}")
    };
    assert!(
        read.contains(r#""status":"done","message":"by hand""#),
        "{read}"
    );
    parent.child_ends(3, Exit::with_result(r#"{"pass":true}"#));
    parent.thinking();
    let answer = &parent.answers()[0];
    let beginning = "<explore_result children=\"2\" winner=\"2\">";
    assert!(answer.starts_with(beginning), "{answer}");
    assert!(
        answer.contains("lost=\"the judge did not pass it: "),
        "{answer}"
    );
    assert!(answer.contains("too bold"), "{answer}");
    assert!(answer.contains(">by hand</child>"), "{answer}");
    assert_eq!(answer.matches("<child ").count(), 2, "{answer}");
}

#[test]
fn once_a_program_passes_a_child_the_others_are_ended_and_not_judged() {
    let mut parent = judged_by_critic(MAY_SPAWN);
    parent.child_ends(0, done("by hand"));
    parent.child_ends(2, Exit::with_result(r#"{"pass":true}"#));
    assert!(parent.ends_the_others());
    // It was done before it was ended.
    parent.child_ends(1, done("by script"));
    assert!(judges_of(&parent).is_empty());
    let answer = &parent.answers()[0];
    assert!(answer.contains("winner=\"1\""), "{answer}");
    assert!(
        answer.contains("lost=\"another child won before it was judged\""),
        "{answer}"
    );
}

#[test]
fn a_judge_that_fails_fails_one_child() {
    let mut parent = judged_by_critic(MAY_SPAWN);
    parent.child_ends(0, done("by hand"));
    let call = parent.explored();
    let why = "no server".to_owned();
    parent.feed(Input::Child {
        call,
        event: ChildEvent::CreationFailed { why },
    });
    assert!(parent.state.budget().share(call, 2).is_none());
    parent.child_ends(1, done("by script"));
    assert_eq!(judges_of(&parent).len(), 1);
    parent.child_ends(3, Exit::new(ExitStatus::ModelFailed, "no model"));
    let answer = &parent.answers()[0];
    assert!(!answer.contains("winner="), "{answer}");
    for why in [
        "the judge failed: it ended as faulted: no server",
        "the judge failed: it ended as model_failed: no model",
    ] {
        assert!(answer.contains(why), "{answer}");
    }
}

#[test]
fn a_judge_is_found_again_after_a_restart_and_made_if_it_was_not() {
    let mut parent = judged_by_critic(MAY_SPAWN);
    parent.child_ends(0, done("by hand"));
    let mut again = of_image(&parent, parent.state.image(), 1, 0);
    let call = again.explored();
    let finds = |effect: &Effect| matches!(effect, Effect::FindChild { index: 2, .. });
    assert!(again.effects.iter().any(finds), "{:?}", again.effects);
    assert!(judges_of(&again).is_empty());
    again.feed(Input::Child {
        call,
        event: ChildEvent::Absent { index: 2 },
    });
    assert_eq!(judges_of(&again).len(), 1);
    again.child_ends(2, Exit::with_result(r#"{"pass":true}"#));
    assert!(again.ends_the_others());
    // The kernel died before it ended them.
    let mut again = of_image(&again, again.state.image(), 1, 0);
    assert!(again.ends_the_others());
    again.child_ends(1, Exit::new(ExitStatus::Killed, "the process was killed"));
    let answer = &again.answers()[0];
    assert!(answer.contains("winner=\"1\""), "{answer}");
}

#[test]
fn a_stopped_process_judges_once_it_goes_on() {
    let mut parent = judged_by_critic(MAY_SPAWN);
    parent.feed(Input::Signal(Signal::Stop));
    parent.child_ends(0, done("by hand"));
    parent.child_ends(1, done("by script"));
    assert!(judges_of(&parent).is_empty());
    parent.feed(Input::Signal(Signal::Continue));
    assert_eq!(judges_of(&parent).len(), 1);
    parent.child_ends(2, Exit::with_result(r#"{"pass":true}"#));
    assert!(parent.answers()[0].contains("winner=\"1\""));
}

#[test]
fn a_judge_gives_no_permission() {
    let no_spawn = "[tools]\nenabled = [{ name = \"explore\", access = \"write\" }]\n";
    let no_access = MAY_SPAWN.replace("{ name = \"spawn\", access = \"write\" }", "\"spawn\"");
    let limited = format!("{MAY_SPAWN}[tools.limits.spawn]\nmax_calls = 1\n");
    let refused = [
        (no_spawn, "with the tool 'spawn', and this process may not"),
        (
            no_access.as_str(),
            "with the tool 'spawn', and this process may not",
        ),
        (limited.as_str(), "limits the calls of 'spawn'"),
    ];
    for (tools, why) in refused {
        let parent = judged_by_critic(tools);
        assert!(children_of(&parent).is_empty(), "{tools}");
        let answer = &parent.answers()[0];
        assert!(answer.contains(why), "{tools}: {answer}");
    }
    let asked = format!("{MAY_SPAWN}ask = [\"spawn\"]\n");
    let mut parent = judged_by_critic(&asked);
    let held = parent.held();
    assert!(children_of(&parent).is_empty());
    assert!(
        matches!(&held[..], [(_, tool)] if tool == "explore"),
        "{held:?}"
    );
    let approval = Verdict::Approve { args: None };
    parent.verdict(held[0].0, approval).unwrap();
    assert_eq!(children_of(&parent).len(), 2);
}
