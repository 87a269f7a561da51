//! Going back to a checkpoint, one at a time: what returns, what stays, and what a provider would
//! take.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_kernel::process::{
    Birth, CheckpointImage, CheckpointInfo, CheckpointOp, CheckpointReply, ChildEvent, Completion,
    Effect, HostContext, HostRequest, Image, Input, Preloads, Signal, StartMode, State, Work, diff,
    image_of_branch, initial_image, with_start_mode,
};
use dormouse_kernel::program::compile;
use dormouse_kernel::syscall::TOOL_SET;
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CallId, CheckpointId, FactNumber, FdId, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::message::Block;
use dormouse_proto::process::{Exit, ExitStatus, Priority};
use dormouse_proto::record::{Control, Lifetime, Phase};
use dormouse_proto::tool::Access;

use crate::replay::Replay;

const PROGRAM: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\n[prompt]\nsystem = \
\"s\"\n[tools]\nenabled = [\"checkpoint_process\", \"restore_process\", \"list_checkpoints\", \
\"read_fd\", \"spawn\", \"wait\"]\n[linked_programs]\nme = \"p.toml\"\n[limits]\nmax_restores = \
2\n[file_descriptor]\nmax_input_chars = 20\n";

fn begun(lifetime: Lifetime) -> Replay {
    let text = Bytes::from(PROGRAM);
    let compiled = compile(Path::new("p.toml"), &mut |_| Ok(text.clone()), &[]);
    let program = compiled
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .program;
    let around = Arc::new(HostContext::new(&TOOL_SET));
    let said = "go".into();
    let (priority, preloads) = (Priority::Normal, &Preloads::default());
    let birth = Birth {
        access: Access::Admin,
        depth: 0,
        lifetime,
        priority,
        preloads,
        input: Some(&said),
    };
    let image = initial_image(&program, &around, birth, 0);
    let state = State::from_image(Pid(1), program, around, image)
        .expect("an image that was just made is valid");
    Replay::of(state, 0)
}

impl Replay {
    /// The call that asks the checkpoints.
    fn asked(&self) -> Option<(CallId, CheckpointOp)> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::StartWork {
                call,
                work: Work::Checkpoint(op),
            } => Some((*call, op.clone())),
            _ => None,
        })
    }

    /// The model makes a checkpoint; what comes is how it stood in the middle of that call.
    fn checkpoint(&mut self, id: u64) -> CheckpointImage {
        self.reply(&[("checkpoint_process", "{}")]);
        let (call, op) = self.asked().expect("a checkpoint is asked for");
        assert!(matches!(op, CheckpointOp::Make { .. }), "{op:?}");
        let standing = self.checkpoint_image(id);
        let result = Ok(CheckpointReply::Made(standing.checkpoint.clone()));
        self.feed(Input::Completed {
            call,
            result: Completion::Checkpoint(result),
        });
        standing
    }

    fn checkpoint_image(&self, id: u64) -> CheckpointImage {
        let at = FactNumber(self.facts.len() as u64);
        let kept = CheckpointInfo {
            id: CheckpointId(id),
            label: "".into(),
            at,
            scope: Scope::Process,
        };
        CheckpointImage {
            checkpoint: kept,
            image: self.state.image(),
        }
    }

    fn restore(&mut self, standing: &CheckpointImage) {
        let args = format!("{{\"checkpoint_id\": \"{}\"}}", standing.checkpoint.id);
        self.reply(&[("restore_process", &args)]);
        if let Some((call, op)) = self.asked() {
            assert_eq!(
                op,
                CheckpointOp::Read {
                    id: standing.checkpoint.id
                }
            );
            self.feed(Input::Completed {
                call,
                result: Completion::Checkpoint(Ok(CheckpointReply::Read(Box::new(
                    standing.clone(),
                )))),
            });
        }
    }

    fn take_back(&mut self, standing: CheckpointImage) {
        self.feed(Input::Host {
            request_id: "t".into(),
            request: HostRequest::Restore(Box::new(standing)),
        });
    }

    fn last_text(&self) -> String {
        let blocks = &self
            .state
            .messages()
            .last()
            .expect("something was said")
            .blocks;
        let text = |block: &Block| match block {
            Block::Text { text, .. } | Block::ToolResult { text, .. } => text.to_string(),
            _ => String::new(),
        };
        blocks.iter().map(text).collect::<Vec<_>>().join("\n")
    }

    /// Every tool use is answered in the message behind it.
    fn check_history(&self) {
        let messages: Vec<_> = self.state.messages().iter().collect();
        for pair in messages.windows(2) {
            let uses = pair[0].blocks.iter().filter_map(|block| match block {
                Block::ToolUse { id, .. } => Some(id),
                _ => None,
            });
            let results = pair[1].blocks.iter().filter_map(|block| match block {
                Block::ToolResult { id, .. } => Some(id),
                _ => None,
            });
            assert!(uses.eq(results), "{messages:#?}");
        }
    }
}

#[test]
fn a_model_that_goes_back_stands_behind_its_own_call_and_is_told_so() {
    let mut run = begun(Lifetime::Task);
    let standing = run.checkpoint(1);
    let (usage, next_fd) = (run.state.usage(), run.state.table().next_fd());
    run.feed(Input::Host {
        request_id: "t".into(),
        request: HostRequest::Open {
            capped: dormouse_content::CappedBytes {
                bytes: "x\n".repeat(900).into(),
                cut_bytes: 0,
            },
            source: "file:x".into(),
            page_chars: None,
        },
    });
    assert!(run.state.table().get(&FdId::Fd(next_fd)).is_some());
    run.restore(&standing);
    assert!(
        matches!(run.state.phase(), Phase::Thinking { .. }),
        "{:?}",
        run.state.phase()
    );
    assert_eq!(run.state.messages().len(), 3);
    let told = run.last_text();
    assert!(
        told.contains("Not answered here")
            && told.contains("<process_restored checkpoint_id=\"cp:1\""),
        "{told}"
    );
    assert!(told.contains("restores=\"1\" max_restores=\"2\""), "{told}");
    assert!(
        run.state.table().get(&FdId::Fd(next_fd)).is_none(),
        "what was opened since is gone"
    );
    assert!(run.state.table().next_fd() > next_fd, "FD-1");
    assert!(
        run.state.usage().input_tokens > usage.input_tokens,
        "what it used stays"
    );
    run.check_history();
}

#[test]
fn a_model_goes_back_as_often_as_its_program_permits_and_a_host_always() {
    let mut run = begun(Lifetime::Task);
    let standing = run.checkpoint(1);
    for _ in 0..2 {
        run.restore(&standing);
    }
    run.restore(&standing);
    assert!(
        run.last_text().contains("type=\"too_often\""),
        "{}",
        run.last_text()
    );
    run.take_back(standing);
    assert!(
        run.last_text().contains("restores=\"3\""),
        "{}",
        run.last_text()
    );
    run.check_history();
}

#[test]
fn going_back_beside_another_call_is_refused() {
    let mut run = begun(Lifetime::Task);
    run.checkpoint(1);
    run.reply(&[
        ("restore_process", r#"{"checkpoint_id": "cp:1"}"#),
        ("list_checkpoints", "{}"),
    ]);
    let (call, op) = run.asked().expect("the other is called");
    assert_eq!(op, CheckpointOp::List);
    run.feed(Input::Completed {
        call,
        result: Completion::Checkpoint(Ok(CheckpointReply::Listed(Vec::new()))),
    });
    assert!(
        run.last_text().contains("type=\"not_alone\""),
        "{}",
        run.last_text()
    );
}

/// While the checkpoint of one call is read, the host may make another one.
#[test]
fn a_call_of_the_host_does_not_go_back_beside_another_one() {
    let mut run = begun(Lifetime::Session);
    let standing = run.checkpoint(1);
    run.reply(&[]);
    let host_calls = |run: &mut Replay, tool: &str, args: &str| {
        run.feed(Input::Host {
            request_id: tool.into(),
            request: HostRequest::Call {
                tool: tool.into(),
                args: args.into(),
            },
        });
        run.asked().expect("it is called at once").0
    };
    let answers = |run: &Replay| {
        let answers = run.effects.iter().filter_map(|effect| match effect {
            Effect::AnswerHost { request_id, answer } => {
                Some((request_id.to_string(), answer.text.to_string()))
            }
            _ => None,
        });
        answers.collect::<Vec<_>>()
    };
    let restoring = host_calls(&mut run, "restore_process", r#"{"checkpoint_id": "cp:1"}"#);
    let listing = host_calls(&mut run, "list_checkpoints", "{}");
    let read = CheckpointReply::Read(Box::new(standing));
    let listed = CheckpointReply::Listed(Vec::new());
    for (call, reply, tool, part) in [
        (restoring, read, "restore_process", "type=\"not_alone\""),
        (listing, listed, "list_checkpoints", ""),
    ] {
        run.feed(Input::Completed {
            call,
            result: Completion::Checkpoint(Ok(reply)),
        });
        let answered = answers(&run);
        assert_eq!(answered.len(), 1, "{answered:?}");
        assert_eq!(answered[0].0, tool);
        assert!(answered[0].1.contains(part), "{answered:?}");
    }
    assert_eq!(run.state.phase(), &Phase::Idle);
}

#[test]
fn children_that_were_made_since_are_given_up_and_mail_waits_again() {
    let mut run = begun(Lifetime::Session);
    run.reply(&[]);
    assert_eq!(run.state.phase(), &Phase::Idle);
    run.feed(Input::Signal(Signal::Stop));
    run.feed(Input::UserInput {
        from: Sender::Host,
        user_input: "later".into(),
    });
    let standing = run.checkpoint_image(1);
    run.feed(Input::Signal(Signal::Continue));
    run.reply(&[(
        "spawn",
        r#"{"program_name": "me", "query": "x", "wait": false}"#,
    )]);
    let call = CallId {
        epoch: 0,
        seq: run.state.image().next_seq - 1,
    };
    run.feed(Input::Child {
        call,
        event: ChildEvent::Started { child: Pid(2) },
    });
    assert_eq!(run.state.background().len(), 1);
    run.take_back(standing);
    assert!(run.state.background().is_empty());
    let gives_up =
        |effect: &Effect| matches!(effect, Effect::Abandon { calls } if calls == &[call]);
    assert!(run.effects.iter().any(gives_up), "{:?}", run.effects);
    assert_eq!(
        run.last_text(),
        "later",
        "what waited then begins a turn again"
    );
    run.check_history();
}

/// The end of a process is its last word: neither its model nor its host makes it stand there
/// again.
#[test]
fn nobody_goes_back_to_where_the_process_had_ended() {
    let mut run = begun(Lifetime::Task);
    let before = run.checkpoint(1);
    let exit = Exit::new(ExitStatus::Done, "the end");
    let ended = Image {
        phase: Phase::Ended { exit },
        ..before.image.clone()
    };
    let ended = CheckpointImage {
        image: ended,
        ..before.clone()
    };
    run.restore(&ended);
    assert!(
        run.last_text().contains("type=\"ended\"") && run.last_text().contains("done"),
        "{}",
        run.last_text()
    );
    let (state, facts) = (run.state.clone(), run.facts.len());
    run.take_back(ended);
    let [Effect::AnswerHost { answer, .. }] = &run.effects[..] else {
        panic!("{:?}", run.effects)
    };
    assert!(
        answer.is_error && answer.text.contains("type=\"ended\""),
        "{answer:?}"
    );
    assert_eq!(
        (&run.state, run.facts.len()),
        (&state, facts),
        "nothing changes"
    );
    let epoch = run.state.image().epoch;
    run.restore(&before);
    assert!(
        run.last_text().contains("<process_restored"),
        "to where it lived it goes"
    );
    assert_eq!(
        (run.state.image().epoch, run.thinking().epoch),
        (epoch + 1, epoch + 1)
    );
}

#[test]
fn a_session_that_was_idle_is_idle_again_and_a_task_is_asked() {
    for (lifetime, is_idle) in [(Lifetime::Session, true), (Lifetime::Task, false)] {
        let mut run = begun(lifetime);
        let idle = Image {
            phase: Phase::Idle,
            ..run.state.image()
        };
        let standing = CheckpointImage {
            image: idle,
            ..run.checkpoint_image(1)
        };
        run.take_back(standing);
        assert_eq!(
            run.state.phase() == &Phase::Idle,
            is_idle,
            "{lifetime:?}: {:?}",
            run.state.phase()
        );
        assert!(run.last_text().contains("<process_restored"));
    }
}

#[test]
fn a_process_of_a_branch_has_the_wall_time_that_was_left() {
    let mut image = begun(Lifetime::Task).state.image();
    image.budget.ran_ms = 4_000;
    image.control = Control::Stopped;
    let branch = image_of_branch(image.clone(), 60_000, StartMode::Running);
    assert_eq!(
        (branch.budget.ran_ms, branch.control),
        (4_000, Control::Running)
    );
    let expected = Image {
        control: Control::Running,
        budget: branch.budget.clone(),
        ..image.clone()
    };
    assert_eq!(branch, expected, "all else is as it was");
    assert_eq!(
        with_start_mode(image, StartMode::Stopped).control,
        Control::StoppedWithoutCalls
    );
}

#[test]
fn a_diff_says_where_two_points_part() {
    let mut run = begun(Lifetime::Task);
    run.reply(&[("list_checkpoints", "{}")]);
    let left = run.state.image();
    let (call, _) = run.asked().expect("the list is asked for");
    run.feed(Input::Completed {
        call,
        result: Completion::Checkpoint(Ok(CheckpointReply::Listed(Vec::new()))),
    });
    let capped = dormouse_content::CappedBytes {
        bytes: "y".repeat(9).into(),
        cut_bytes: 0,
    };
    run.feed(Input::Host {
        request_id: "t".into(),
        request: HostRequest::Open {
            capped,
            source: "file:y".into(),
            page_chars: None,
        },
    });
    let found = diff(&left, &run.state.image());
    assert_eq!(
        (
            found.common_messages,
            found.messages.left.len(),
            found.messages.right.len()
        ),
        (2, 0, 1)
    );
    let shown = found.to_string();
    for line in [
        "messages in common: 2",
        "> msg:3 user: = <checkpoint_list count=\"0\"/>",
        "> fd:1 of file:y: 9 bytes",
        "< phase: acting: list_checkpoints\n> phase: thinking",
        "messages waiting: 0",
    ] {
        assert!(shown.contains(line), "{line:?} in\n{shown}");
    }
    assert!(
        diff(&left, &left)
            .to_string()
            .starts_with("messages in common: 2\nphase: acting")
    );
}
