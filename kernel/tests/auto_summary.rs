//! Summaries that are made without being asked for: of which descriptors, and what comes of a
//! reply.

use crate::process_reads::{Run, output};
use dormouse_kernel::process::{BusyReason, Effect, Fact, Input, Signal};
use dormouse_kernel::syscall::PendingSummary;
use dormouse_proto::budget::Change;
use dormouse_proto::id::FdId;
use dormouse_proto::message::Block;
use dormouse_proto::model::{ModelError, ModelErrorKind, Reply, StopReason, Usage};
use dormouse_proto::record::{Annotation, DescriptorFact};

const PROGRAM: &str = r#"
[model]
name = "m"
provider = "scripted"
[tools]
enabled = ["read_fd", "rename_fd", "grep"]
[linked_programs]
me = "p.toml"
[file_descriptor]
max_direct_output_chars = 50
auto_summary_chars = 80
summary_model = "small"
"#;

/// A process whose tool returned this output, with what was asked of the summary model.
fn after_output(bytes: Vec<u8>) -> (Run, Vec<PendingSummary>) {
    let mut run = Run::of(PROGRAM);
    run.reply(&[("grep", "{}")]);
    let call = run.running_tools()[0];
    run.feed(output(call, bytes));
    run.read();
    let mut asked = Vec::new();
    while !run.reads.is_empty() {
        run.read();
        asked.extend(run.effects.iter().filter_map(|effect| match effect {
            Effect::Summarize {
                pending,
                request,
                model,
            } => {
                assert_eq!((&*request.model, &*model.name), ("small", "small"));
                Some(pending.clone())
            }
            _ => None,
        }));
    }
    (run, asked)
}

fn said(text: &str) -> Result<Reply, ModelError> {
    Ok(Reply {
        blocks: vec![Block::text(text)],
        stop: StopReason::EndTurn,
        usage: Usage {
            input_tokens: 7,
            ..Usage::default()
        },
    })
}

fn summaries(run: &Run) -> Vec<(FdId, String)> {
    let summary = |fact: &Fact| match fact {
        Fact::Descriptor(DescriptorFact::Annotated {
            id,
            note: Annotation::Summarized { summary, .. },
        }) => Some((id.clone(), summary.to_string())),
        _ => None,
    };
    run.facts.iter().filter_map(summary).collect()
}

/// Tokens that were charged outside of a summary.
fn charged_tokens(run: &Run) -> u64 {
    let usage = |fact: &Fact| match fact {
        Fact::Budget(Change::Used { usage, .. }) => usage.input_tokens,
        _ => 0,
    };
    run.facts.iter().map(usage).sum()
}

#[test]
fn long_text_is_summarized_and_nothing_else() {
    let cases = [
        ("a".repeat(81).into_bytes(), 1),
        ("a".repeat(80).into_bytes(), 0),
        ("é".repeat(80).into_bytes(), 0),
        ("é".repeat(81).into_bytes(), 1),
        (vec![0xff; 200], 0),
        (b"small".to_vec(), 0),
    ];
    for (bytes, expected) in cases {
        let (_, asked) = after_output(bytes.clone());
        assert_eq!(asked.len(), expected, "{bytes:?}");
    }
}

#[test]
fn a_summary_becomes_a_note_beside_the_turn() {
    let (mut run, mut asked) = after_output(vec![b'a'; 100]);
    let pending = asked.remove(0);
    assert!(pending.prompt.contains("fd:2"), "{}", pending.prompt);
    run.model_call();
    run.end_turn();
    assert_eq!(run.state.busy_reason(), Some(BusyReason::Summary));
    let result = said("Many letters.");
    run.feed(Input::Summarized { pending, result });
    assert_eq!(run.state.busy_reason(), None);
    assert_eq!(summaries(&run), [(FdId::Fd(2), "Many letters.".to_owned())]);
    assert_eq!(charged_tokens(&run), 0, "the note has the usage");
}

#[test]
fn what_comes_of_no_use_is_charged_and_changes_nothing() {
    let unavailable = || Err(ModelError::new(ModelErrorKind::Unavailable, "gone"));
    for (result, charged) in [(said(" "), 7), (unavailable(), 0)] {
        let (mut run, mut asked) = after_output(vec![b'a'; 100]);
        let pending = asked.remove(0);
        run.feed(Input::Summarized { pending, result });
        assert_eq!((summaries(&run).len(), charged_tokens(&run)), (0, charged));
    }
    let (mut run, mut asked) = after_output(vec![b'a'; 100]);
    let pending = asked.remove(0);
    for text in ["first", "second"] {
        let (pending, result) = (pending.clone(), said(text));
        run.feed(Input::Summarized { pending, result });
    }
    assert_eq!(summaries(&run), [(FdId::Fd(2), "first".to_owned())]);
    assert_eq!(charged_tokens(&run), 7);
}

#[test]
fn a_stopped_process_asks_for_no_summary() {
    let mut run = Run::of(PROGRAM);
    run.reply(&[("grep", "{}")]);
    let call = run.running_tools()[0];
    run.feed(output(call, vec![b'a'; 100]));
    run.feed(Input::Signal(Signal::Stop));
    while !run.reads.is_empty() {
        run.read();
        let asks = |effect: &Effect| matches!(effect, Effect::Summarize { .. });
        assert!(!run.effects.iter().any(asks));
    }
}
