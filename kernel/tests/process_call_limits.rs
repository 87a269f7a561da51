//! Limits of single tools: what counts, and what happens to a call too many.

use crate::budget_run::{Run, output};
use dormouse_kernel::process::{Effect, Fact, HostRequest, Input, State, Work, image_of_copy};
use dormouse_proto::id::Pid;
use dormouse_proto::record::{CallFact, Lifetime};

use crate::budget_support::around;

const LIMITS: &str =
    "[tools.limits.grep]\nmax_calls = 3\n[tools.limits.summarize_fd]\nmax_calls = 1\n";
const GREP: (&str, &str) = ("grep", "{}");

/// How many tools the last step has started, and the answers that it gave.
fn outcome(run: &Run) -> (usize, Vec<String>) {
    let is_tool = |effect: &&Effect| {
        matches!(
            effect,
            Effect::StartWork {
                work: Work::Tool { .. },
                ..
            }
        )
    };
    let answers = run.news.iter().filter_map(|fact| match fact {
        Fact::Call(CallFact::ToolReturned { answer, .. }) if answer.is_error => {
            Some(answer.text.to_string())
        }
        _ => None,
    });
    (
        run.effects.iter().filter(is_tool).count(),
        answers.collect(),
    )
}

#[test]
fn a_call_too_many_is_answered_with_the_limit_and_never_begins() {
    let mut run = Run::new(Lifetime::Session, LIMITS);
    run.grep(output(1), "found");
    // Two of three are left, whatever the reply asks for.
    run.reply(output(1), &[GREP, GREP, GREP, GREP]);
    let (started, refused) = outcome(&run);
    assert_eq!((started, refused.len()), (2, 2));
    assert!(
        refused[0].contains("has made 3 calls of 'grep'") && refused[0].contains("max_calls"),
        "{refused:?}"
    );
}

#[test]
fn a_count_outlives_goto_and_copies_and_does_not_concern_the_host() {
    let mut run = Run::new(Lifetime::Session, LIMITS);
    for _ in 0..3 {
        run.grep(output(1), "found");
    }
    run.feed(Input::Host {
        request_id: "r".into(),
        request: HostRequest::Goto {
            position: "msg:1".into(),
            message: "again".into(),
        },
    });
    let copy = image_of_copy(run.state.image(), 0);
    let program = run.state.program().clone();
    let copy = State::from_image(Pid(9), program, around(0), copy).unwrap();
    for mut run in [run, Run::of(copy)] {
        run.reply(output(1), &[GREP]);
        assert_eq!(outcome(&run).0, 0);
        // The model goes on, and the host calls the tool as before.
        assert!(run.request().is_some());
        run.reply(output(1), &[]);
        run.feed(Input::Host {
            request_id: "h".into(),
            request: HostRequest::Call {
                tool: "grep".into(),
                args: "{}".into(),
            },
        });
        assert_eq!(outcome(&run).0, 1);
    }
}
