//! Messages between processes, machine against machine: said once and heard once, whatever is sent
//! again, lost or restarted.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_kernel::process::{
    Birth, ChildEvent, Completion, Effect, HostContext, HostRequest, Input, Preloads, Signal,
    State, Work, image_of_copy, initial_image,
};
use dormouse_kernel::program::compile;
use dormouse_kernel::syscall::{PendingMessage, TOOL_SET};
use dormouse_proto::id::{CallId, FdId, Pid};
use dormouse_proto::mail::{Address, Sender};
use dormouse_proto::message::Block;
use dormouse_proto::process::{Exit, ExitStatus, Priority};
use dormouse_proto::record::{Lifetime, Phase};
use dormouse_proto::tool::{Access, Answer};

use crate::replay::Replay;

const MAIL: &str =
    "\"send_message\", \"receive_messages\", \"wait\", \"list_processes\", \"spawn\"";

/// A session that waits. `rest` is what follows the tools in its program.
fn session(pid: u64, tools: &str, rest: &str) -> Replay {
    let child = "[model]\nname = \"m\"\nprovider = \"scripted\"\n";
    let text = format!(
        "{child}[tools]\nenabled = [{tools}]\n[linked_programs]\nhelper = \"h.toml\"\n{rest}"
    );
    let read = &mut |path: &Path| {
        Ok(Bytes::from(if path.ends_with("p.toml") {
            text.clone()
        } else {
            child.to_owned()
        }))
    };
    let compiled = compile(Path::new("p.toml"), read, &[]);
    let program = compiled.unwrap_or_else(|errors| panic!("{errors}")).program;
    let (around, preloads) = (Arc::new(HostContext::new(&TOOL_SET)), Preloads::default());
    let birth = Birth {
        access: Access::Admin,
        depth: 0,
        lifetime: Lifetime::Session,
        priority: Priority::Normal,
        preloads: &preloads,
        input: None,
    };
    let image = initial_image(&program, &around, birth, 0);
    let state = State::from_image(Pid(pid), program, around, image).expect("a new image is valid");
    Replay::of(state, 9)
}

impl Replay {
    /// The kernel stops, and the process comes back from its journal.
    fn restart(&mut self) {
        let (program, around) = (
            self.state.program().clone(),
            Arc::new(HostContext::new(&TOOL_SET)),
        );
        let back = State::from_image(self.state.pid(), program, around, self.replayed().image());
        self.state = back.expect("an image of a living process is valid");
        self.feed(Input::Signal(Signal::Resume));
    }

    /// Somebody speaks, and its model answers with these calls.
    fn calls(&mut self, calls: &[(&str, &str)]) {
        self.feed(Input::UserInput {
            from: Sender::Host,
            user_input: "go".into(),
        });
        self.reply(calls);
    }

    /// What is sent.
    fn sent(&self) -> Vec<(CallId, u32, PendingMessage)> {
        let sent = self.effects.iter().filter_map(|effect| match effect {
            Effect::StartWork {
                call,
                work:
                    Work::Send {
                        acked_below,
                        pending,
                    },
            } => Some((*call, *acked_below, pending.clone())),
            _ => None,
        });
        sent.collect()
    }

    /// Takes a message as `from` sends it; the receipt.
    fn takes(
        &mut self,
        from: u64,
        (call, acked_below, pending): &(CallId, u32, PendingMessage),
    ) -> Answer {
        let (call, acked_below, envelope) = (*call, *acked_below, pending.envelope.clone());
        self.feed(Input::Message {
            request_id: "t".into(),
            from: Pid(from),
            call,
            acked_below,
            envelope,
        });
        let mut receipts = self.effects.iter().filter_map(|effect| match effect {
            Effect::AnswerHost { request_id, answer } if &**request_id == "t" => {
                Some(answer.clone())
            }
            _ => None,
        });
        let receipt = receipts.next().expect("each message has a receipt");
        assert_eq!(receipts.next(), None, "one receipt");
        receipt
    }

    /// The texts of the last message of its conversation.
    fn heard(&self) -> Vec<String> {
        let last = self.state.messages().last().expect("something was said");
        let text = |block: &Block| match block {
            Block::Text { text, .. } | Block::ToolResult { text, .. } => text.to_string(),
            other => panic!("nothing that is heard: {other:?}"),
        };
        last.blocks.iter().map(text).collect()
    }

    fn descriptor(&self, number: u32) -> (String, String) {
        let entry = self
            .state
            .table()
            .get(&FdId::Fd(number))
            .expect("it is there");
        (
            entry.source.to_string(),
            entry
                .content
                .unlimited_reader()
                .text()
                .expect("it is in memory")
                .to_string(),
        )
    }
}

fn with_descriptors() -> String {
    format!("{MAIL}, \"read_fd\", \"rename_fd\"")
}

/// A sender that sends `args`, and its first message.
fn sending(args: &str) -> (Replay, (CallId, u32, PendingMessage)) {
    let mut sender = session(1, MAIL, "");
    sender.calls(&[("send_message", args)]);
    let message = sender.sent().pop().expect("it sends");
    (sender, message)
}

const HELLO: &str = r#"{"to": "2", "text": "hello <there>"}"#;
const HEARD: &str = "<process_message from=\"1\" program=\"p\">\n  <message><![CDATA[hello \
<there>]]></message>\n</process_message>";

#[test]
fn a_message_is_heard_by_the_next_turn_and_the_sender_is_told_that_it_was_kept() {
    let (mut sender, message) = sending(HELLO);
    assert_eq!(message.2.to, Address::Process(Pid(2)));
    let mut receiver = session(2, MAIL, "");
    let receipt = receiver.takes(1, &message);
    assert_eq!(
        (&*receipt.text, receipt.is_error),
        ("<message_sent to=\"2\"/>", false)
    );
    assert_eq!(receiver.heard(), [HEARD]);
    assert!(
        matches!(receiver.state.phase(), Phase::Thinking { .. }),
        "an idle process begins a turn"
    );
    sender.feed(Input::Completed {
        call: message.0,
        result: Completion::MessageSent(receipt),
    });
    assert_eq!(sender.heard(), ["<message_sent to=\"2\"/>"]);
}

#[test]
fn a_message_that_is_sent_again_is_acknowledged_and_heard_once() {
    let (mut sender, message) = sending(HELLO);
    let mut receiver = session(2, MAIL, "");
    let receipt = receiver.takes(1, &message);
    // The receipt is lost with the kernel: the sender's open call is its outbox.
    sender.restart();
    let again = sender.sent().pop().expect("it is sent again");
    assert_eq!(again, message);
    for restarts in [false, true] {
        if restarts {
            receiver.restart();
        }
        let facts = receiver.facts.len();
        assert_eq!(receiver.takes(1, &again), receipt);
        assert_eq!(receiver.facts.len(), facts, "nothing changes");
    }
    assert_eq!(receiver.state.messages().len(), 1);
    sender.feed(Input::Completed {
        call: message.0,
        result: Completion::MessageSent(receipt.clone()),
    });
    let facts = sender.facts.len();
    sender.feed(Input::Completed {
        call: message.0,
        result: Completion::MessageSent(receipt),
    });
    assert_eq!(sender.facts.len(), facts, "CALL-1");
}

#[test]
fn messages_of_one_reply_that_overtake_each_other_are_all_heard() {
    let mut sender = session(1, MAIL, "");
    sender.calls(&[
        ("send_message", HELLO),
        ("send_message", r#"{"to": 2, "text": "second"}"#),
    ]);
    let sent = sender.sent();
    let mut receiver = session(2, MAIL, "");
    for message in [&sent[1], &sent[0], &sent[1]] {
        assert!(!receiver.takes(1, message).is_error);
    }
    assert_eq!(
        (
            receiver.state.messages().len(),
            receiver.state.waiting_messages()
        ),
        (1, 1)
    );
}

#[test]
fn what_was_given_up_is_not_sent_again() {
    let (mut sender, message) = sending(HELLO);
    sender.feed(Input::Signal(Signal::Interrupt));
    let abandoned = sender
        .effects
        .iter()
        .any(|effect| matches!(effect, Effect::Abandon { calls } if *calls == [message.0]));
    assert!(abandoned);
    sender.restart();
    assert!(sender.sent().is_empty());
}

#[test]
fn descriptors_travel_by_content_and_say_where_they_come_from() {
    let mut sender = session(1, &with_descriptors(), "");
    for text in ["one\ntwo\nthree\n", "other"] {
        let capped = dormouse_content::CappedBytes {
            bytes: text.into(),
            cut_bytes: 0,
        };
        sender.feed(Input::Host {
            request_id: "o".into(),
            request: HostRequest::Open {
                capped,
                source: "s".into(),
                page_chars: Some(5),
            },
        });
    }
    sender.calls(&[("rename_fd", r#"{"fd": "fd:1", "name": "log"}"#)]);
    sender.reply(&[(
        "send_message",
        r#"{"to": "2", "text": "see", "fds": ["log", "fd:2", "fd:1 lines 2-3"]}"#,
    )]);
    let message = sender.sent().pop().expect("it sends");
    let mut receiver = session(2, &with_descriptors(), "");
    assert!(!receiver.takes(1, &message).is_error);
    let expected = [
        ("process:1", "one\ntwo\nthree\n"),
        ("process:1", "other"),
        ("process:1 lines 2-3", "two\nthree\n"),
    ];
    for (number, (source, text)) in (1..).zip(expected) {
        assert_eq!(
            receiver.descriptor(number),
            (source.to_owned(), text.to_owned())
        );
    }
    let mine = &sender.state.table().get(&FdId::Fd(1)).unwrap().content;
    let theirs = &receiver.state.table().get(&FdId::Fd(1)).unwrap().content;
    assert_eq!(
        mine.unlimited_reader().bytes().unwrap().as_ptr(),
        theirs.unlimited_reader().bytes().unwrap().as_ptr(),
        "no content is copied"
    );
    let heard = receiver.heard().concat();
    let document = roxmltree::Document::parse(&heard).expect("XML-1");
    let listed = document
        .descendants()
        .filter(|node| node.has_tag_name("descriptor"));
    let listed: Vec<_> = listed
        .map(|node| (node.attribute("fd").unwrap(), node.attribute("name")))
        .collect();
    assert_eq!(
        listed,
        [("fd:1", Some("log")), ("fd:2", None), ("fd:3", None)],
        "a name means one descriptor"
    );
}

#[test]
fn a_long_text_becomes_a_descriptor_of_the_receiver() {
    let text = "line\n".repeat(30);
    let args = format!(
        "{{\"to\": \"2\", \"text\": {}}}",
        serde_json::to_string(&text).unwrap()
    );
    let (_, message) = sending(&args);
    let mut receiver = session(
        2,
        &with_descriptors(),
        "[file_descriptor]\nmax_direct_output_chars = 100\n",
    );
    receiver.takes(1, &message);
    assert_eq!(receiver.descriptor(1), ("process:1".to_owned(), text));
    assert!(
        receiver.heard()[0].contains("<message>\n    <fd_result fd=\"fd:1\""),
        "{:?}",
        receiver.heard()
    );
}

#[test]
fn a_full_mailbox_and_a_reader_without_descriptors_refuse_and_keep_nothing() {
    let mut receiver = session(2, MAIL, "[limits]\nmax_mailbox = 2\n");
    receiver.feed(Input::UserInput {
        from: Sender::Host,
        user_input: "work".into(),
    });
    let mut sender = session(1, MAIL, "");
    sender.calls(&[("send_message", HELLO); 3]);
    let answers: Vec<_> = sender
        .sent()
        .iter()
        .map(|message| receiver.takes(1, message))
        .collect();
    assert!(!answers[0].is_error && !answers[1].is_error);
    assert!(
        answers[2].is_error
            && answers[2]
                .text
                .contains("2 wait for it (limits.max_mailbox"),
        "{answers:?}"
    );
    assert_eq!(receiver.state.waiting_messages(), 2);
    receiver.reply(&[]);
    assert!(
        !receiver.takes(1, &sender.sent()[2]).is_error,
        "what was refused can be sent again"
    );

    let mut handing = session(1, &with_descriptors(), "");
    let capped = dormouse_content::CappedBytes {
        bytes: "x".into(),
        cut_bytes: 0,
    };
    handing.feed(Input::Host {
        request_id: "o".into(),
        request: HostRequest::Open {
            capped,
            source: "s".into(),
            page_chars: None,
        },
    });
    handing.calls(&[(
        "send_message",
        r#"{"to": "2", "text": "see", "fds": ["fd:1"]}"#,
    )]);
    let mut plain = session(2, MAIL, "");
    let answer = plain.takes(1, &handing.sent()[0]);
    assert!(
        answer.is_error && answer.text.contains("has no descriptors"),
        "{answer:?}"
    );
    assert!(plain.facts.is_empty());
}

#[test]
fn what_would_use_up_the_receivers_budget_is_refused_and_ends_nobody() {
    let mut handing = session(1, &with_descriptors(), "");
    let capped = dormouse_content::CappedBytes {
        bytes: "x".repeat(20).into(),
        cut_bytes: 0,
    };
    handing.feed(Input::Host {
        request_id: "o".into(),
        request: HostRequest::Open {
            capped,
            source: "s".into(),
            page_chars: None,
        },
    });
    let long = format!(r#"{{"to": "2", "text": "{}"}}"#, "y".repeat(40));
    let one = r#"{"to": "2", "text": "see", "fds": ["fd:1"]}"#;
    let twice = r#"{"to": "2", "text": "see", "fds": ["fd:1", "fd:1"]}"#;
    let asked = [
        ("send_message", twice),
        ("send_message", one),
        ("send_message", long.as_str()),
        ("send_message", HELLO),
    ];
    handing.calls(&asked);
    let rest = "[file_descriptor]\nmax_direct_output_chars = 30\n[budget]\nresident_bytes = 40\n";
    let mut receiver = session(2, &with_descriptors(), rest);
    let answers: Vec<_> = handing
        .sent()
        .iter()
        .map(|message| receiver.takes(1, message))
        .collect();
    let refused: Vec<_> = answers.iter().map(|answer| answer.is_error).collect();
    assert_eq!(refused, [true, false, true, false], "{answers:?}");
    assert!(
        answers[0]
            .text
            .contains("cannot take 40 bytes: 40 are left"),
        "{}",
        answers[0].text
    );
    assert!(
        answers[2]
            .text
            .contains("cannot take 40 bytes: 20 are left"),
        "{}",
        answers[2].text
    );
    assert_eq!(receiver.state.exit(), None);
    assert_eq!(receiver.state.table().len(), 1);
}

#[test]
fn an_ended_process_says_so() {
    let (_, message) = sending(HELLO);
    let mut receiver = session(2, MAIL, "");
    receiver.feed(Input::Signal(Signal::Kill));
    assert_eq!(
        receiver.takes(1, &message),
        Answer::failed("Process 2 has ended.")
    );
}

/// As a branch does it whose sender stands before the receipt: the receiver may have come to its
/// end meanwhile.
#[test]
fn a_message_that_is_sent_again_to_one_that_has_ended_is_acknowledged_if_it_was_received() {
    let (_, message) = sending(HELLO);
    let mut receiver = session(2, MAIL, "");
    let receipt = receiver.takes(1, &message);
    receiver.feed(Input::Signal(Signal::Kill));
    assert_eq!(receiver.takes(1, &message), receipt);
    let (call, acked_below, pending) = message;
    let next = CallId {
        seq: call.seq + 1,
        ..call
    };
    assert_eq!(
        receiver.takes(1, &(next, acked_below, pending)),
        Answer::failed("Process 2 has ended.")
    );
}

#[test]
fn a_stopped_process_keeps_what_it_is_told_until_it_goes_on() {
    let (_, message) = sending(HELLO);
    let mut receiver = session(2, MAIL, "");
    receiver.feed(Input::Signal(Signal::Stop));
    assert!(!receiver.takes(1, &message).is_error);
    assert_eq!(
        (receiver.state.phase(), receiver.state.waiting_messages()),
        (&Phase::Idle, 1)
    );
    receiver.feed(Input::Signal(Signal::Continue));
    assert_eq!(receiver.heard(), [HEARD]);
}

#[test]
fn receive_messages_shows_what_processes_said_and_leaves_the_users_words_for_the_next_turn() {
    let (_, message) = sending(HELLO);
    let mut receiver = session(2, MAIL, "");
    receiver.feed(Input::UserInput {
        from: Sender::Host,
        user_input: "work".into(),
    });
    receiver.takes(1, &message);
    receiver.feed(Input::UserInput {
        from: Sender::Process(Pid(7)),
        user_input: "from afar".into(),
    });
    receiver.feed(Input::UserInput {
        from: Sender::Host,
        user_input: "and more".into(),
    });
    receiver.reply(&[("receive_messages", "{}"), ("receive_messages", "{}")]);
    let [first, second] = &receiver.heard()[..] else {
        panic!("two answers")
    };
    assert_eq!(second, "<process_messages count=\"0\"/>");
    assert!(
        first.starts_with("<process_messages count=\"2\">") && first.contains(HEARD),
        "{first}"
    );
    let document = roxmltree::Document::parse(first).expect("XML-1");
    let said: Vec<_> = document
        .descendants()
        .filter(|n| n.has_tag_name("message"))
        .filter_map(|n| n.text())
        .collect();
    assert_eq!(said, ["hello <there>", "from afar"]);
    receiver.restart();
    receiver.reply(&[]);
    assert_eq!(
        receiver.heard(),
        ["and more"],
        "a session hears it in its next turn"
    );
    let again = receiver.takes(1, &message);
    assert!(!again.is_error);
    assert_eq!(
        receiver.state.waiting_messages(),
        0,
        "what was shown is not heard again"
    );
}

#[test]
fn a_call_that_waits_for_a_message_is_answered_when_one_comes_or_its_time_is_over() {
    let (_, message) = sending(HELLO);
    let waiting = || {
        let mut receiver = session(2, MAIL, "");
        receiver.calls(&[("receive_messages", r#"{"timeout_ms": 500}"#)]);
        let Some(Effect::StartWork {
            call,
            work: Work::Wait { timeout_ms: 500 },
        }) = receiver.effects.last()
        else {
            panic!("it waits: {:?}", receiver.effects)
        };
        let call = *call;
        (receiver, call)
    };
    let (mut receiver, call) = waiting();
    receiver.takes(1, &message);
    assert!(
        receiver.heard()[0].starts_with("<process_messages count=\"1\">"),
        "{:?}",
        receiver.heard()
    );
    let facts = receiver.facts.len();
    receiver.feed(Input::Completed {
        call,
        result: Completion::TimedOut,
    });
    assert_eq!(
        receiver.facts.len(),
        facts,
        "a time that is over too late changes nothing"
    );

    let (mut receiver, call) = waiting();
    receiver.restart();
    assert!(
        matches!(
            receiver.effects.last(),
            Some(Effect::StartWork {
                work: Work::Wait { .. },
                ..
            })
        ),
        "it waits again"
    );
    receiver.feed(Input::Completed {
        call,
        result: Completion::TimedOut,
    });
    assert_eq!(receiver.heard(), ["<process_messages count=\"0\"/>"]);
}

/// A process with children 7, 8, … that run in the background.
fn parent(children: u64) -> (Replay, Vec<CallId>) {
    let mut parent = session(1, MAIL, "");
    let spawn = (
        "spawn",
        r#"{"program_name": "helper", "query": "q", "wait": false}"#,
    );
    parent.calls(&vec![spawn; children as usize]);
    let calls = open_calls(&parent);
    for (child, call) in (7..).zip(&calls) {
        parent.feed(Input::Child {
            call: *call,
            event: ChildEvent::Started { child: Pid(child) },
        });
    }
    (parent, calls)
}

/// The tool calls that it made last.
fn open_calls(run: &Replay) -> Vec<CallId> {
    let Phase::Acting { pending_calls, .. } = run.state.phase() else {
        panic!("it acts")
    };
    pending_calls
        .iter()
        .map(|pending_call| pending_call.call)
        .collect()
}

fn ends(parent: &mut Replay, call: CallId, child: u64) {
    let exit = Exit::new(ExitStatus::Done, format!("said {child}"));
    parent.feed(Input::Child {
        call,
        event: ChildEvent::Ended {
            index: 0,
            child: Pid(child),
            exit,
        },
    });
}

#[test]
fn wait_is_answered_with_the_last_words_of_those_that_it_waits_for() {
    let (mut parent, calls) = parent(3);
    parent.reply(&[("wait", r#"{"pids": [7, 8]}"#)]);
    ends(&mut parent, calls[0], 7);
    ends(&mut parent, calls[2], 9);
    assert!(matches!(parent.state.phase(), Phase::Acting { .. }));
    parent.restart();
    ends(&mut parent, calls[1], 8);
    let heard = parent.heard().concat();
    assert!(
        heard.contains("<child_ended pid=\"7\" status=\"done\">said 7</child_ended>"),
        "{heard}"
    );
    assert!(
        heard.contains("said 8") && !heard.contains("said 9"),
        "{heard}"
    );
    assert_eq!(
        parent.state.waiting_messages(),
        1,
        "the third is heard when the turn ends"
    );
    parent.reply(&[("wait", "{\"pids\": [9]}")]);
    assert!(
        parent.heard().concat().contains("said 9"),
        "one that has ended unheard is waited for no longer"
    );
    parent.reply(&[("wait", "{\"pids\": [9]}")]);
    assert!(
        parent.heard().concat().contains("Process 9 is no child"),
        "{:?}",
        parent.heard()
    );
}

/// What `receive_messages` showed of a child is no reason to give up the wait for the other.
#[test]
fn a_wait_that_comes_back_from_the_journal_still_waits_for_those_that_run() {
    let (mut parent, calls) = parent(2);
    parent.reply(&[
        ("wait", r#"{"pids": [7, 8]}"#),
        ("receive_messages", r#"{"timeout_ms": 50}"#),
    ]);
    ends(&mut parent, calls[0], 7);
    parent.restart();
    assert!(
        matches!(parent.state.phase(), Phase::Acting { .. }),
        "it still waits: {:?}",
        parent.state.phase()
    );
    ends(&mut parent, calls[1], 8);
    let heard = parent.heard();
    assert!(
        heard[0].starts_with("<wait_result>") && heard[0].contains("said 8"),
        "{heard:?}"
    );
    assert!(heard[1].contains("said 7"), "{heard:?}");
}

#[test]
fn wait_for_all_counts_those_that_are_on_their_way() {
    let mut parent = session(1, MAIL, "");
    let spawn = (
        "spawn",
        r#"{"program_name": "helper", "query": "q", "wait": false}"#,
    );
    parent.calls(&[("wait", "{}"), spawn]);
    let call = open_calls(&parent)[1];
    parent.feed(Input::Child {
        call,
        event: ChildEvent::Started { child: Pid(7) },
    });
    assert!(
        matches!(parent.state.phase(), Phase::Acting { .. }),
        "it waits"
    );
    ends(&mut parent, call, 7);
    assert!(parent.heard()[0].contains("said 7"), "{:?}", parent.heard());
    parent.reply(&[("wait", "{}")]);
    assert_eq!(
        parent.heard(),
        ["<wait_result/>"],
        "there is nobody to wait for"
    );
}

/// The wait counts a child that a later call of the reply asks for, until that call is refused.
#[test]
fn a_wait_that_is_answered_where_it_begins_starts_no_timer() {
    let mut parent = session(1, MAIL, "");
    let spawn = (
        "spawn",
        r#"{"program_name": "nobody", "query": "q", "wait": false}"#,
    );
    parent.calls(&[("wait", r#"{"timeout_ms": 900}"#), spawn]);
    assert_eq!(parent.heard()[0], "<wait_result/>");
    let waits = |effect: &&Effect| {
        let work = match effect {
            Effect::StartWork { work, .. } => work,
            _ => return false,
        };
        matches!(work, Work::Wait { .. })
    };
    assert!(
        parent.effects.iter().find(waits).is_none(),
        "{:?}",
        parent.effects
    );
}

#[test]
fn wait_says_who_still_runs_when_its_time_is_over() {
    let (mut parent, calls) = parent(2);
    parent.reply(&[("wait", r#"{"timeout_ms": 10}"#)]);
    let Some(Effect::StartWork {
        call,
        work: Work::Wait { .. },
    }) = parent.effects.last()
    else {
        panic!("it waits")
    };
    let call = *call;
    ends(&mut parent, calls[0], 7);
    parent.feed(Input::Completed {
        call,
        result: Completion::TimedOut,
    });
    let heard = parent.heard().concat();
    assert!(
        heard.starts_with("<wait_result timed_out=\"true\" running=\"8\">")
            && heard.contains("said 7"),
        "{heard}"
    );
}

#[test]
fn an_answer_shows_as_many_messages_as_it_may_hold_and_the_rest_waits() {
    let mut receiver = session(
        2,
        &with_descriptors(),
        "[file_descriptor]\nmax_read_chars = 250\n",
    );
    receiver.feed(Input::UserInput {
        from: Sender::Host,
        user_input: "work".into(),
    });
    for sender in 5..=9 {
        let text = "x".repeat(40);
        receiver.feed(Input::UserInput {
            from: Sender::Process(Pid(sender)),
            user_input: text.into(),
        });
    }
    let mut shown = Vec::new();
    for expected in [
        "count=\"2\" waiting=\"3\"",
        "count=\"2\" waiting=\"1\"",
        "count=\"1\">",
    ] {
        receiver.reply(&[("receive_messages", "{}")]);
        let heard = receiver.heard().concat();
        assert!(
            heard.starts_with(&format!("<process_messages {expected}")),
            "{heard}"
        );
        let document = roxmltree::Document::parse(&heard).expect("XML-1");
        let messages = document
            .descendants()
            .filter(|node| node.has_tag_name("process_message"));
        shown.extend(messages.map(|node| node.attribute("from").unwrap().to_owned()));
    }
    assert_eq!(shown, ["5", "6", "7", "8", "9"]);
}

#[test]
fn a_copy_of_a_process_does_not_send_again_what_the_other_sends() {
    let (mut sender, message) = sending(HELLO);
    let (program, around) = (
        sender.state.program().clone(),
        Arc::new(HostContext::new(&TOOL_SET)),
    );
    let image = image_of_copy(sender.state.image(), 9);
    let copy = Replay::of(
        State::from_image(Pid(7), program, around, image).expect("a copy is valid"),
        9,
    );
    assert!(copy.sent().is_empty());
    assert!(
        copy.heard()[0].contains("Its effect is unknown"),
        "{:?}",
        copy.heard()
    );
    sender.restart();
    assert_eq!(sender.sent(), [message], "the process itself does");
}

#[test]
fn who_has_written_can_be_answered_wherever_it_is() {
    let (_, message) = sending(HELLO);
    let mut receiver = session(2, MAIL, "");
    receiver.takes(1, &message);
    let to = |receiver: &mut Replay, pid: u64| {
        receiver.reply(&[(
            "send_message",
            &format!("{{\"to\": {pid}, \"text\": \"well\"}}"),
        )]);
        let (call, _, pending) = receiver.sent().pop().expect("it sends");
        receiver.feed(Input::Completed {
            call,
            result: Completion::MessageSent(Answer::shown("kept")),
        });
        pending.to
    };
    assert_eq!(to(&mut receiver, 1), Address::Correspondent(Pid(1)));
    assert_eq!(to(&mut receiver, 9), Address::Process(Pid(9)));
}

/// A child of a fork is another process: whoever wrote to its parent has not written to it.
#[test]
fn a_forked_child_has_heard_nobody() {
    let (_, message) = sending(HELLO);
    let mut parent = session(2, &format!("{MAIL}, \"fork\""), "");
    parent.takes(1, &message);
    parent.reply(&[("fork", r#"{"prompts": ["write to 1"]}"#)]);
    let child = parent.effects.iter().find_map(|effect| match effect {
        Effect::StartChildren { children, .. } => Some(children[0].clone()),
        _ => None,
    });
    let child = child.expect("a child is made");
    let around = Arc::new(HostContext::new(&TOOL_SET));
    let child = State::from_image(Pid(3), child.program, around, child.image)
        .expect("a child's image is valid");
    let mut child = Replay::of(child, 9);
    child.reply(&[("send_message", r#"{"to": 1, "text": "well"}"#)]);
    let (call, _, pending) = child.sent().pop().expect("it sends");
    assert_eq!(
        pending.to,
        Address::Process(Pid(1)),
        "the right to answer is the parent's"
    );
    child.feed(Input::Completed {
        call,
        result: Completion::MessageSent(Answer::shown("kept")),
    });
    let facts = child.facts.len();
    assert_eq!(&*child.takes(1, &message).text, "<message_sent to=\"3\"/>");
    assert!(
        child.facts.len() > facts,
        "what the parent has heard is new to the child"
    );
    parent.feed(Input::Signal(Signal::Interrupt));
    parent.calls(&[("send_message", r#"{"to": 1, "text": "well"}"#)]);
    assert_eq!(
        parent.sent().pop().expect("it sends").2.to,
        Address::Correspondent(Pid(1)),
        "the parent keeps it"
    );
}
