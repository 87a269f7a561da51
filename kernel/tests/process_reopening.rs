//! Ended processes that a message opens again: a root with its own account, a child with a new share
//! of its parent's, and an end that each parent hears once.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_content::ReadQuota;
use dormouse_kernel::process::{
    Birth, Child, ChildEvent, Effect, EndedChild, EndedProcess, Envelope, Fact, HostContext, Input,
    Preloads, Read, Reopening, Report, Signal, State, decide, evolve, image_of_branch,
    image_of_copy, initial_image,
};
use dormouse_kernel::program::compile;
use dormouse_kernel::syscall::TOOL_SET;
use dormouse_proto::budget::Budget;
use dormouse_proto::id::{CallId, FactNumber, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::process::{Exit, ExitStatus, Priority};
use dormouse_proto::record::{Lifetime, MailFact, Phase};
use dormouse_proto::tool::{Access, Answer};

use crate::replay::Replay;

const NOW: u64 = 1_000_000;
const PARENT: Pid = Pid(1);
const CHILD: Pid = Pid(2);

/// A task of a program with more tables.
fn task(tables: &str) -> Replay {
    let text = Bytes::from(format!(
        "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [\"fork\", \"wait\", \
         \"send_message\", \"read_fd\"]\n{tables}",
    ));
    let compiled = compile(Path::new("p.toml"), &mut |_| Ok(text.clone()), &[]);
    let program = compiled.unwrap_or_else(|errors| panic!("{errors}")).program;
    let host = Arc::new(HostContext::new(&TOOL_SET));
    let birth = Birth {
        access: Access::Admin,
        depth: 0,
        lifetime: Lifetime::Task,
        priority: Priority::Normal,
        preloads: &Preloads::default(),
        input: Some(&"go".into()),
    };
    let image = initial_image(&program, &host, birth, NOW);
    let state = State::from_image(PARENT, program, host, image).expect("a new image is valid");
    Replay::of(state, NOW)
}

fn words(text: &str) -> Input {
    Input::UserInput {
        from: Sender::Host,
        user_input: text.into(),
    }
}

fn message(seq: u32, text: &str) -> Input {
    Input::Message {
        request_id: "message".into(),
        from: PARENT,
        call: CallId { epoch: 0, seq },
        acked_below: 0,
        envelope: Envelope {
            program: "p".into(),
            text: text.into(),
            descriptors: Vec::new(),
        },
    }
}

impl Replay {
    /// The process as it is read from its journal, with a message for it.
    fn ended_with(&self, mail: Input) -> EndedProcess {
        let state = Box::new(self.replayed());
        EndedProcess {
            pid: self.state.pid(),
            mail: state.place_mail(mail, NOW).expect("it is a message"),
            last_fact: FactNumber(self.facts.len() as u64),
            state,
        }
    }

    /// Applies the facts that open the process, and runs it.
    fn run_again(&mut self, reopening: &Reopening) {
        assert_eq!(reopening.first.0, self.facts.len() as u64 + 1);
        self.facts.extend(reopening.facts.clone());
        self.state = self.replayed();
        assert_eq!(self.state.phase(), &Phase::Idle);
        self.feed(Input::Signal(Signal::Resume));
    }

    fn last_exit(&self) -> Exit {
        self.state.exit().expect("it has ended").clone()
    }

    fn refusal(&self) -> String {
        let answers = self.effects.iter().filter_map(|effect| match effect {
            Effect::AnswerHost { answer, .. } => Some(answer),
            _ => None,
        });
        let answer: &Answer = answers.last().expect("the request is answered");
        assert!(answer.is_error, "{answer:?}");
        answer.text.to_string()
    }

    fn fact_names(&self, from: usize) -> Vec<&'static str> {
        self.facts[from..].iter().map(Fact::name).collect()
    }
}

/// A parent whose forked child has ended. The parent still thinks.
struct Family {
    parent: Replay,
    call: CallId,
    child: Replay,
}

impl Family {
    fn new(tables: &str) -> Self {
        let mut parent = task(tables);
        parent.reply(&[("fork", r#"{"prompts": ["look"]}"#)]);
        let (call, child) = parent.effects.iter().find_map(born).expect("it forks");
        let Child { program, image, .. } = child;
        let host = Arc::new(HostContext::new(&TOOL_SET));
        let state = State::from_image(CHILD, program, host, image).expect("it is valid");
        let mut child = Replay::of(state, NOW);
        child.reply(&[]);
        let mut family = Self {
            parent,
            call,
            child,
        };
        family.tell_end();
        family
    }

    fn end_event(&self) -> Input {
        Input::Child {
            call: self.call,
            event: ChildEvent::Ended {
                index: 0,
                child: CHILD,
                exit: self.child.last_exit(),
            },
        }
    }

    fn tell_end(&mut self) {
        let event = self.end_event();
        self.parent.feed(event);
    }

    fn request(&self, mail: Input) -> Input {
        Input::ReopenChild {
            request_id: "reopen".into(),
            child: Box::new(EndedChild {
                call: self.call,
                index: 0,
                child: CHILD,
                requested_budget: Budget::default(),
                process: self.child.ended_with(mail),
            }),
        }
    }

    /// The parent opens the child again, and the child runs.
    fn reopen(&mut self, seq: u32) {
        let request = self.request(message(seq, "and what of the rest?"));
        self.parent.feed(request);
        let reopening = self.parent.reopening.clone().expect("it is opened");
        self.child.run_again(&reopening);
    }
}

fn born(effect: &Effect) -> Option<(CallId, Child)> {
    let Effect::StartChildren { children, .. } = effect else {
        return None;
    };
    let child = children.first()?.clone();
    let call = match child.origin {
        dormouse_proto::process::Origin::Forked { call, .. } => call,
        _ => return None,
    };
    Some((call, child))
}

#[test]
fn a_root_goes_on_with_its_conversation_and_ends_once_more() {
    let mut root = task("");
    root.reply(&[]);
    assert_eq!(root.last_exit().reopenings, 0);
    let ended = root.ended_with(words("One more thing."));
    let reopening = ended.reopen_root("r".into(), NOW).unwrap();
    let names: Vec<_> = reopening.facts.iter().map(Fact::name).collect();
    assert_eq!(names, ["reopened", "message_queued"]);
    let answer = &reopening.answer;
    assert!(answer.text.contains(r#"reopened="1""#), "{answer:?}");
    root.run_again(&reopening);
    let texts: Vec<_> = root.request().messages.iter().map(|it| it.text()).collect();
    assert_eq!(texts, ["go", "I think.", "One more thing."]);
    root.reply(&[]);
    assert_eq!(root.last_exit().reopenings, 1);
    assert_eq!(root.state.usage().input_tokens, 6, "its account continues");
    // The reopening is no part of an earlier point, and a copy of one that has ended is idle as ever.
    let mut earlier = root.first.clone();
    root.facts[..reopening.first.0 as usize - 1]
        .iter()
        .for_each(|fact| evolve(&mut earlier, fact));
    let branch = image_of_branch(
        earlier.image(),
        NOW,
        dormouse_kernel::process::StartMode::Running,
    );
    assert!(matches!(branch.phase, Phase::Ended { .. }));
    assert_eq!(image_of_copy(root.state.image(), NOW).phase, Phase::Idle);
}

#[test]
fn a_large_message_becomes_a_descriptor_of_the_process_that_it_opens() {
    let mut root = task("[file_descriptor]\nmax_direct_output_chars = 100\n");
    root.reply(&[]);
    let ended = root.ended_with(words(&"long ".repeat(3_000)));
    let reopening = ended.reopen_root("r".into(), NOW).unwrap();
    let names: Vec<_> = reopening.facts.iter().map(Fact::name).collect();
    assert_eq!(names, ["reopened", "descriptor_opened", "message_queued"]);
    root.run_again(&reopening);
    assert_eq!(root.state.table().len(), 1);
}

/// The descriptors of which a model is to make a summary after the last input.
fn summarized(process: &Replay) -> Vec<String> {
    let effects = process.effects.iter();
    let prompts = effects.filter_map(|effect| match effect {
        Effect::Summarize { pending, .. } => Some(pending.prompt.clone()),
        _ => None,
    });
    prompts.collect()
}

#[test]
fn a_large_message_that_opens_a_process_is_summarized_once() {
    let tables = "[file_descriptor]\nauto_summary_chars = 9000\n";
    let text = "long ".repeat(3_000);
    let mut root = task(tables);
    root.reply(&[]);
    let reopening = root
        .ended_with(words(&text))
        .reopen_root("r".into(), NOW)
        .unwrap();
    root.run_again(&reopening);
    let prompts = summarized(&root);
    assert!(
        matches!(&prompts[..], [prompt] if prompt.contains("fd:1")),
        "{prompts:?}"
    );
    // A later restart asks for none, nor does a message that is no descriptor.
    root.state = root.replayed();
    root.feed(Input::Signal(Signal::Resume));
    assert_eq!(summarized(&root), [""; 0]);
    root.reply(&[]);
    let reopening = root
        .ended_with(words("more"))
        .reopen_root("r".into(), NOW)
        .unwrap();
    root.run_again(&reopening);
    assert_eq!(summarized(&root), [""; 0]);

    let mut family = Family::new(tables);
    let request = family.request(message(1, &text));
    family.parent.feed(request);
    assert_eq!(summarized(&family.parent), [""; 0]);
    let reopening = family.parent.reopening.clone().expect("it is opened");
    family.child.run_again(&reopening);
    assert_eq!(summarized(&family.child).len(), 1);
}

#[test]
fn a_child_gets_a_new_share_and_its_parent_hears_each_end_once() {
    let mut family = Family::new("[budget]\ninput_tokens = 1000\n");
    let spent_before = family.parent.state.budget().spent();
    for times in 1..=2 {
        let facts = family.parent.facts.len();
        family.reopen(times);
        assert_eq!(
            family.parent.fact_names(facts),
            ["budget_reserved", "child_reopened"]
        );
        let parent = &family.parent.state;
        let key = (family.call, 0);
        parent
            .budget()
            .check([(key, &**family.child.state.budget())])
            .unwrap();
        assert!(family.child.state.budget().limits().input_tokens.is_some());
        assert_eq!(family.child.state.usage().input_tokens, 0, "a new account");
        let request = family.child.request();
        let asked = request.messages.last().unwrap().text();
        assert!(asked.contains("and what of the rest?"), "{asked}");
        // An earlier end that comes late says nothing of the new life.
        let old_end = Input::Child {
            call: family.call,
            event: ChildEvent::Ended {
                index: 0,
                child: CHILD,
                exit: Exit {
                    reopenings: times - 1,
                    ..Exit::new(ExitStatus::Done, "old")
                },
            },
        };
        let facts = family.parent.facts.len();
        family.parent.feed(old_end);
        assert_eq!(family.parent.fact_names(facts), [""; 0]);

        family.child.reply(&[]);
        assert_eq!(family.child.last_exit().reopenings, times);
        for _ in 0..2 {
            family.tell_end();
        }
        assert_eq!(
            family.parent.fact_names(facts),
            ["budget_returned", "child_reported_again"],
            "REOPEN-1"
        );
        assert_eq!(family.parent.state.reopened_children().len(), 0);
    }
    let spent = family.parent.state.budget().spent();
    assert_eq!(spent.input_tokens, spent_before.input_tokens + 2 * 3);
    // Both ends are in the next message to the model.
    family.parent.reply(&[]);
    let heard = family.parent.request().messages.last().unwrap().text();
    assert_eq!(
        heard.matches("<child_ended pid=\"2\"").count(),
        2,
        "{heard}"
    );
}

#[test]
fn an_end_that_is_read_after_the_child_was_opened_again_is_not_reported() {
    let mut family = Family::new("");
    family.reopen(1);
    family.child.reply(&[]);
    // The end is heard twice before its message is read.
    let mut reads = Vec::new();
    for _ in 0..2 {
        let decision = decide(&family.parent.state, family.end_event(), NOW);
        family.parent.facts.extend(decision.facts);
        family.parent.state = decision.state;
        reads.extend(decision.reads);
    }
    let [first, second] = &reads[..] else {
        panic!("{reads:?}")
    };
    let found = |read: &Read| read.perform(ReadQuota::unlimited()).unwrap();
    family.parent.feed(found(first));
    family.reopen(2);
    let facts = family.parent.facts.len();
    family.parent.feed(found(second));
    assert_eq!(family.parent.fact_names(facts), [""; 0], "REOPEN-1");
    family.child.reply(&[]);
    family.tell_end();
    assert_eq!(
        family.parent.fact_names(facts),
        ["budget_returned", "child_reported_again"]
    );
}

#[test]
fn a_parent_waits_for_a_child_that_was_opened_again() {
    let mut family = Family::new("");
    family.reopen(1);
    family.parent.reply(&[("wait", r#"{"pids": [2]}"#)]);
    assert!(matches!(family.parent.state.phase(), Phase::Acting { .. }));
    assert_eq!(family.parent.state.busy_reason(), None, "it can hibernate");
    family.child.reply(&[]);
    family.tell_end();
    let shown = family.parent.request().messages.last().unwrap().clone();
    assert!(format!("{shown:?}").contains("child_ended"), "{shown:?}");
    // A task does not end before it has heard of the child.
    family.reopen(2);
    family.parent.reply(&[]);
    assert_eq!(family.parent.state.phase(), &Phase::Idle);
    let is_turn = |effect: &Effect| matches!(effect, Effect::Report(Report::Turn { .. }));
    assert!(family.parent.effects.iter().any(is_turn));
    family.child.reply(&[]);
    family.tell_end();
    family.parent.reply(&[]);
    assert_eq!(family.parent.last_exit().status, ExitStatus::Done);
}

#[test]
fn a_parent_that_comes_back_looks_for_the_child_and_keeps_it() {
    let mut family = Family::new("");
    family.reopen(1);
    let image = family.parent.state.image();
    let host = Arc::new(HostContext::new(&TOOL_SET));
    let program = family.parent.state.program().clone();
    let state = State::from_image(PARENT, program, host, image).unwrap();
    let mut again = Replay::of(state, NOW);
    let finds = |effect: &Effect| matches!(effect, Effect::FindChild { call, index: 0, reopenings: 1 } if *call == family.call);
    assert!(again.effects.iter().any(finds), "{:?}", again.effects);
    let keeps = |effect: &Effect| matches!(effect, Effect::KillChildrenExcept { calls } if calls.contains(&family.call));
    assert!(again.effects.iter().any(keeps), "{:?}", again.effects);
    // An interrupt ends the turn, not the child.
    again.feed(Input::Signal(Signal::Interrupt));
    let kills = |effect: &Effect| matches!(effect, Effect::Abandon { calls } if calls.contains(&family.call));
    assert!(!again.effects.iter().any(kills), "{:?}", again.effects);
    // In a copy, which has no such child, it counts as lost.
    let absent = ChildEvent::Absent { index: 0 };
    again.feed(Input::Child {
        call: family.call,
        event: absent,
    });
    assert_eq!(again.state.reopened_children().len(), 0);
}

#[test]
fn an_end_that_the_parent_has_not_heard_is_heard_before_the_child_is_opened() {
    let mut family = Family::new("");
    family.reopen(1);
    family.child.reply(&[]);
    // The report of the second end is still on its way.
    let facts = family.parent.facts.len();
    let request = family.request(message(2, "again"));
    family.parent.feed(request);
    assert_eq!(
        family.parent.fact_names(facts),
        ["budget_returned", "child_reported_again"]
    );
    assert!(family.parent.refusal().contains("has not taken note"));
    let request = family.request(message(2, "again"));
    family.parent.feed(request);
    let reopening = family.parent.reopening.clone().expect("it is opened");
    family.child.run_again(&reopening);
    family.child.reply(&[]);
    family.tell_end();
    assert_eq!(family.parent.state.reopened_children().len(), 0);
}

#[test]
fn what_forbids_a_reopening_is_said_and_nothing_changes() {
    type Change = fn(&mut Family);
    let cases: [(&str, Change, &str); 6] = [
        (
            "[limits]\nmax_reopenings = 0\n",
            |_| {},
            "limits.max_reopenings",
        ),
        (
            "",
            |family| family.parent.feed(Input::Signal(Signal::Stop)),
            "Continue it first",
        ),
        (
            "[limits]\nmax_children = 1\nmax_fork_children = 1\n",
            |family| family.parent.reply(&[("fork", r#"{"prompts": ["more"]}"#)]),
            "limits.max_children",
        ),
        (
            // The two replies leave one token, which cannot be divided.
            "[budget]\ninput_tokens = 7\n",
            |_| {},
            "budget.input_tokens",
        ),
        (
            "[budget]\nprocesses = 2\n",
            |family| family.parent.reply(&[("fork", r#"{"prompts": ["more"]}"#)]),
            "budget.processes",
        ),
        (
            "",
            |family| {
                family.parent.feed(Input::Signal(Signal::Kill));
                assert!(family.parent.state.exit().is_some());
            },
            "its parent, process 1, has ended too",
        ),
    ];
    for (tables, change, why) in cases {
        let mut family = Family::new(tables);
        change(&mut family);
        let (facts, state) = (family.parent.facts.len(), family.parent.state.clone());
        let request = family.request(message(1, "again"));
        family.parent.feed(request);
        let refusal = family.parent.refusal();
        assert!(refusal.contains(why), "{refusal}");
        assert!(refusal.contains("has ended"), "{refusal}");
        assert_eq!(family.parent.fact_names(facts), [""; 0], "{refusal}");
        assert_eq!(family.parent.state, state, "{refusal}");
        assert!(family.parent.reopening.is_none());
    }
}

#[test]
fn one_that_was_killed_stays_ended() {
    let mut root = task("");
    root.feed(Input::Signal(Signal::Kill));
    let ended = root.ended_with(words("again"));
    let refused = ended.reopen_root("r".into(), NOW).unwrap_err();
    assert!(refused.text.contains("has ended as killed"), "{refused:?}");
}

#[test]
fn a_limit_of_reopenings_holds_for_a_root_and_is_named() {
    let mut root = task("[limits]\nmax_reopenings = 2\n");
    root.reply(&[]);
    for times in 1..=2 {
        let reopening = root.ended_with(words("more")).reopen_root("r".into(), NOW);
        let reopening = reopening.unwrap();
        assert_eq!(reopening.reopenings, times);
        root.run_again(&reopening);
        root.reply(&[]);
    }
    let refused = root.ended_with(words("more")).reopen_root("r".into(), NOW);
    let refused = refused.unwrap_err().text;
    assert!(
        refused.contains("allows 2 (limits.max_reopenings)"),
        "{refused}"
    );
}

#[test]
fn a_root_whose_budget_is_used_up_stays_ended() {
    let mut root = task("[budget]\ninput_tokens = 3\n");
    root.reply(&[("wait", "{}")]);
    assert_eq!(root.last_exit().status, ExitStatus::BudgetExhausted);
    let refused = root.ended_with(words("more")).reopen_root("r".into(), NOW);
    let refused = refused.unwrap_err().text;
    assert!(refused.contains("budget.input_tokens"), "{refused}");
}

#[test]
fn a_root_that_ended_at_a_limit_is_opened_by_a_raise_of_it() {
    let mut root = task("[budget]\ninput_tokens = 3\n");
    root.reply(&[("wait", "{}")]);
    let ended = || {
        let last_fact = FactNumber(root.facts.len() as u64);
        EndedProcess::raised(PARENT, Box::new(root.replayed()), last_fact, NOW)
    };
    let by = |input_tokens| Budget {
        input_tokens: Some(input_tokens),
        ..Budget::default()
    };
    // What it used is 3: with a limit of 3 it would end again at once.
    let still = ended().reopen_raised("r".into(), by(0), NOW).unwrap_err();
    assert!(still.to_string().contains("3 of 3"), "{still}");
    let reopening = ended().reopen_raised("r".into(), by(10), NOW).unwrap();
    let before = root.facts.len();
    root.run_again(&reopening);
    assert_eq!(
        root.fact_names(before)[..4],
        ["reopened", "budget_raised", "message_queued", "turn_began"]
    );
    assert_eq!(root.state.budget().limits().input_tokens, Some(13));
    let message = root.state.messages().last().unwrap().text();
    assert!(message.contains("was raised. Go on."), "{message}");
    root.reply(&[]);
    assert_eq!(root.last_exit().status, ExitStatus::Done);
    assert_eq!(root.last_exit().reopenings, 1);
}

#[test]
fn the_wall_time_of_a_root_does_not_pass_while_it_has_ended() {
    let mut root = task("[budget]\nwall_time = \"10s\"\n");
    root.now_ms = NOW + 4_000;
    root.reply(&[]);
    let later = NOW + 3_600_000;
    let reopening = root
        .ended_with(words("more"))
        .reopen_root("r".into(), later);
    let reopening = reopening.unwrap();
    root.now_ms = later;
    root.run_again(&reopening);
    assert_eq!(root.state.budget().ran_ms(later), 4_000);
    root.now_ms = later + 7_000;
    root.feed(Input::TimeUp {
        at_ms: later + 6_000,
    });
    assert_eq!(root.last_exit().status, ExitStatus::BudgetExhausted);
    assert_eq!(root.last_exit().reopenings, 1);
}

#[test]
fn a_message_that_was_received_before_the_end_has_its_receipt() {
    let mut family = Family::new("");
    family.reopen(1);
    family.child.reply(&[]);
    let state = family.child.replayed();
    let received = |seq| state.receipt(PARENT, CallId { epoch: 0, seq });
    assert!(received(1).is_some() && received(2).is_none());
    let queued = family
        .child
        .facts
        .iter()
        .filter(|fact| matches!(fact, Fact::Mail(MailFact::Received { .. })));
    assert_eq!(queued.count(), 1);
}

#[test]
fn a_new_life_has_a_new_result() {
    let mut root = task("[result]\nschema = { type = \"integer\" }\n");
    root.reply(&[("submit_result", r#"{"value": 1}"#)]);
    assert_eq!(&*root.last_exit().message, "1");
    let reopening = root.ended_with(words("more")).reopen_root("r".into(), NOW);
    root.run_again(&reopening.unwrap());
    root.reply(&[("submit_result", r#"{"value": 2}"#)]);
    let exit = root.last_exit();
    assert_eq!((&*exit.message, exit.is_result), ("2", true));
}
