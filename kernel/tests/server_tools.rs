//! What a provider's own tools return: it is opened, told of and counted, once.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_kernel::process::{
    Birth, Completion, Effect, HostContext, Input, Preloads, Report, State, initial_image,
};
use dormouse_kernel::program::compile;
use dormouse_kernel::syscall::TOOL_SET;
use dormouse_proto::budget::NANOS_PER_UNIT;
use dormouse_proto::id::{FdId, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::message::{Block, Raw};
use dormouse_proto::model::{Reply, StopReason, Usage};
use dormouse_proto::process::Priority;
use dormouse_proto::record::Lifetime;
use dormouse_proto::tool::Access;
use serde_json::{Value, json};

use crate::replay::Replay;

const PNG: &str = "iVBORw0KGgo=";

fn process() -> State {
    let text = "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [\"list_fds\", \
                \"goto\"]\n[file_descriptor]\nmax_direct_output_chars = 20\n[prices.m]\ninput = 1\n\
                output = 1\nserver_tools = { web_fetch = 0.25 }\n";
    let compiled = compile(
        Path::new("p.toml"),
        &mut |_| Ok(Bytes::from_static(text.as_bytes())),
        &[],
    );
    let program = compiled
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .program;
    let around = Arc::new(HostContext::new(&TOOL_SET));
    let birth = Birth {
        access: Access::Write,
        depth: 0,
        lifetime: Lifetime::Session,
        priority: Priority::Normal,
        preloads: &Preloads::default(),
        input: Some(&"go".into()),
    };
    let image = initial_image(&program, &around, birth, 0);
    State::from_image(Pid(1), program, around, image).expect("an image that was just made is valid")
}

fn opaque(format: &str, json: &Value) -> Block {
    Block::Opaque(Raw::new(format, json.to_string()))
}

fn fetched(text: &str) -> [Block; 2] {
    let source = json!({"type": "text", "media_type": "text/plain", "data": text});
    let page =
        json!({"type": "web_fetch_result", "content": {"type": "document", "source": source}});
    [
        json!({"type": "server_tool_use", "id": "s", "name": "web_fetch", "input": {"url": "https://u"}}),
        json!({"type": "web_fetch_tool_result", "tool_use_id": "s", "content": page}),
    ]
    .map(|block| opaque("anthropic", &block))
}

fn list_fds() -> Block {
    Block::ToolUse {
        id: "u".into(),
        name: "list_fds".into(),
        args: "{}".into(),
        raw: None,
    }
}

impl Replay {
    fn replied(&mut self, blocks: Vec<Block>, stop: StopReason) {
        let call = self.thinking();
        let usage = Usage::default();
        self.feed(Input::Completed {
            call,
            result: Completion::Model(Ok(Reply {
                blocks,
                stop,
                usage,
            })),
        });
        let image = self.state.image();
        let (program, host) = (self.state.program().clone(), HostContext::new(&TOOL_SET));
        let loaded = State::from_image(Pid(1), program, Arc::new(host), image).unwrap();
        assert_eq!(loaded.server_tool_calls(), self.state.server_tool_calls());
    }

    fn says(&mut self, text: &str) {
        self.feed(Input::UserInput {
            from: Sender::Host,
            user_input: text.into(),
        });
    }

    /// The notes in the message that was sent last.
    fn notes(&self) -> Vec<String> {
        let request = self.request();
        let blocks = &request.messages.last().unwrap().blocks;
        let texts = blocks.iter().filter_map(|block| match block {
            Block::Text { text, .. } if text.starts_with("<fd_attachments") => {
                Some(text.to_string())
            }
            _ => None,
        });
        texts.collect()
    }

    fn content(&self, fd: u32) -> Bytes {
        let entry = self.state.table().get(&FdId::Fd(fd)).unwrap();
        entry.content.bytes_if_resident().unwrap()
    }

    fn counted(&self) -> Vec<(String, u32)> {
        let calls = self.state.server_tool_calls().iter();
        calls
            .map(|(tool, count)| (tool.to_string(), *count))
            .collect()
    }
}

#[test]
fn a_large_result_is_a_descriptor_and_the_next_message_says_so_once() {
    let page = "page ".repeat(10);
    let mut run = Replay::of(process(), 0);
    let [call, result] = fetched(&page);
    run.replied(
        vec![call.clone(), result.clone(), list_fds()],
        StopReason::ToolUse,
    );
    assert_eq!(run.content(1), page);
    let notes = run.notes();
    let expected = "<fd_attachment fd=\"fd:1\" source=\"server:web_fetch\" \
                    media_type=\"text/plain\" bytes=\"50\"/>";
    assert!(
        notes.len() == 1 && notes[0].ends_with(expected),
        "{notes:?}"
    );
    assert_eq!(run.counted(), [("web_fetch".to_owned(), 1)]);
    // The same page again is a descriptor of its own, and its note names that one only.
    run.replied(vec![call, result], StopReason::EndTurn);
    run.says("and?");
    let notes = run.notes();
    assert!(
        notes.len() == 1 && notes[0].contains("fd=\"fd:2\""),
        "{notes:?}"
    );
    assert!(!notes[0].contains("fd:1"), "{notes:?}");
    assert_eq!(run.counted(), [("web_fetch".to_owned(), 2)]);
    assert_eq!(run.state.usage().cost_nanos, NANOS_PER_UNIT / 2);
    run.replied(vec![Block::text("so")], StopReason::EndTurn);
    run.says("more");
    assert_eq!(run.notes(), [""; 0]);
}

#[test]
fn a_small_result_is_only_counted_and_a_note_waits_while_the_provider_pauses() {
    let mut run = Replay::of(process(), 0);
    run.replied(fetched("short").into(), StopReason::EndTurn);
    run.says("and?");
    assert_eq!((run.notes().len(), run.state.table().len()), (0, 0));
    let long = "a long page ".repeat(5);
    run.replied(fetched(&long).into(), StopReason::Pause);
    assert_eq!(run.notes(), [""; 0], "the last message is the model's");
    run.replied(vec![Block::text("so")], StopReason::EndTurn);
    run.says("and?");
    assert_eq!(run.notes().len(), 1);
    assert_eq!(run.counted(), [("web_fetch".to_owned(), 2)]);
}

#[test]
fn an_image_that_the_model_makes_is_a_descriptor_and_the_turn_says_so() {
    let gemini = opaque(
        "gemini",
        &json!({"inlineData": {"mimeType": "image/png", "data": PNG}, "thoughtSignature": "s"}),
    );
    let openai = opaque(
        "openai-responses",
        &json!({"type": "image_generation_call", "id": "ig", "status": "completed", "result": PNG}),
    );
    let cases = [(gemini, "reply", 0), (openai, "server:image_generation", 1)];
    for (image, source, calls) in cases {
        for text in ["", "Here."] {
            let mut run = Replay::of(process(), 0);
            let words = Some(Block::text(text)).filter(|_| !text.is_empty());
            let blocks = words.into_iter().chain([image.clone()]).collect();
            run.replied(blocks, StopReason::EndTurn);
            assert_eq!(*run.content(1), *b"\x89PNG\r\n\x1a\n");
            let told = run.effects.iter().find_map(|effect| match effect {
                Effect::Report(Report::Turn { outcome }) => Some(outcome.message.to_string()),
                _ => None,
            });
            let expected = format!("{text}\n\n[fd:1: image/png, 8 bytes]");
            assert_eq!(told.as_deref(), Some(expected.trim_start()));
            run.says("thanks");
            let note = run.notes().concat();
            assert!(note.contains(&format!("source=\"{source}\"")), "{note}");
            assert_eq!(run.state.server_tool_calls().len(), calls);
        }
    }
}

#[test]
fn outputs_that_are_not_kept_are_told() {
    let image = |data: &str| {
        let part = json!({"inlineData": {"mimeType": "image/png", "data": data}});
        opaque("gemini", &part)
    };
    let told = |run: &Replay| {
        let mut effects = run.effects.iter().rev();
        effects.find_map(|effect| match effect {
            Effect::Report(Report::Turn { outcome }) => Some(outcome.message.to_string()),
            _ => None,
        })
    };
    // Unpadded text in the alphabet for addresses is base64, too.
    let mut run = Replay::of(process(), 0);
    run.replied(vec![image("iVBORw0KGgo")], StopReason::EndTurn);
    assert_eq!(told(&run).unwrap(), "[fd:1: image/png, 8 bytes]");
    run.says("more");
    run.replied(vec![image("no base64 at all!")], StopReason::EndTurn);
    let why = "image/png is not kept: what the provider sent is not base64";
    assert_eq!(told(&run).unwrap(), format!("[{why}]"));
    run.says("more");
    assert_eq!(
        run.notes(),
        [format!(
            "<fd_attachments missing=\"1\">{why}</fd_attachments>"
        )]
    );
    run.replied(vec![image(PNG); 70], StopReason::EndTurn);
    assert_eq!(run.state.table().len(), 65);
    let lines = told(&run).unwrap();
    assert!(
        lines.starts_with("[fd:2: ") && lines.contains("\n[fd:65: "),
        "{lines}"
    );
    assert!(
        lines.ends_with(
            "\n[6 further outputs are not kept: at most 64 of a reply become descriptors]"
        ),
        "{lines}"
    );
    run.says("more");
    let note = run.notes().concat();
    assert!(
        note.contains("fd=\"fd:2\"") && !note.contains("fd=\"fd:1\""),
        "{note}"
    );
    assert!(
        note.contains("<fd_attachments total=\"70\" kept=\"64\">"),
        "{note}"
    );
}

#[test]
fn a_file_that_the_adapter_fetched_is_a_descriptor_and_a_missing_one_is_told() {
    let note = |json: Value| Block::Opaque(Raw::adapter_block(json.to_string()));
    let file = note(
        json!({"type": "file", "tool": "code_execution", "id": "f1", "name": "p.png",
        "media_type": "image/png", "data": PNG}),
    );
    let missing = note(json!({"type": "file", "tool": "code_execution", "id": "f2",
        "error": "status 404"}));
    let mut run = Replay::of(process(), 0);
    let blocks = vec![Block::text("Here."), file, missing.clone()];
    run.replied(blocks, StopReason::EndTurn);
    assert_eq!(*run.content(1), *b"\x89PNG\r\n\x1a\n");
    let told = run.effects.iter().find_map(|effect| match effect {
        Effect::Report(Report::Turn { outcome }) => Some(outcome.message.to_string()),
        _ => None,
    });
    let why = "f2 is at the provider and could not be fetched: status 404";
    let expected = format!("Here.\n\n[fd:1: p.png, image/png, 8 bytes]\n[{why}]");
    assert_eq!(told, Some(expected));
    run.says("thanks");
    let notes = run.notes().concat();
    let kept = "<fd_attachment fd=\"fd:1\" source=\"server:code_execution\" name=\"p.png\" \
                media_type=\"image/png\" bytes=\"8\"/>";
    let not_kept = format!("<fd_attachments missing=\"1\">{why}</fd_attachments>");
    assert!(
        notes.contains(kept) && notes.ends_with(&not_kept),
        "{notes}"
    );
    run.replied(vec![missing], StopReason::EndTurn);
    run.says("and?");
    assert_eq!(run.notes(), [not_kept]);
}
