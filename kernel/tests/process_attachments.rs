//! What a tool produces beside its text: a descriptor for each, shown to the model where it can be,
//! in every later request and in those of forks.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_kernel::process::{
    Birth, Completion, Effect, HostContext, HostRequest, HostTool, Input, Preloads, State,
    initial_image,
};
use dormouse_kernel::program::compile;
use dormouse_kernel::syscall::TOOL_SET;
use dormouse_kernel::table::attachment::MAX_ATTACHMENTS;
use dormouse_proto::id::{FdId, Pid};
use dormouse_proto::message::Block;
use dormouse_proto::model::Request;
use dormouse_proto::process::Priority;
use dormouse_proto::record::Lifetime;
use dormouse_proto::tool::{Access, Attachment, ToolOutput, ToolPolicy, ToolSpec};

use crate::replay::Replay;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x20\0\0\0\x10 and so on";
const WITH_DESCRIPTORS: &str = "enabled = [\"plot\", \"fork\", \"goto\", \"read_fd\"]\n";

fn process(tools: &str) -> Replay {
    let text = format!("[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\n{tools}");
    let compiled = compile(
        Path::new("p.toml"),
        &mut |_| Ok(Bytes::from(text.clone())),
        &["plot"],
    );
    let program = compiled
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .program;
    let spec = ToolSpec {
        name: "plot".into(),
        description: "draws".into(),
        schema: "{}".into(),
    };
    let tools = BTreeMap::from([(
        "plot".into(),
        HostTool {
            spec,
            policy: ToolPolicy::default(),
        },
    )]);
    let around = Arc::new(HostContext {
        tools,
        ..HostContext::new(&TOOL_SET)
    });
    let birth = Birth {
        access: Access::Admin,
        depth: 0,
        lifetime: Lifetime::Task,
        priority: Priority::Normal,
        preloads: &Preloads::default(),
        input: Some(&"go".into()),
    };
    let image = initial_image(&program, &around, birth, 0);
    Replay::of(
        State::from_image(Pid(1), program, around, image).expect("it was just made"),
        0,
    )
}

fn attached(media_type: &str, bytes: &'static [u8]) -> Attachment {
    Attachment {
        name: None,
        media_type: media_type.into(),
        bytes: Bytes::from_static(bytes),
    }
}

impl Replay {
    fn plots(&mut self, text: &str, attached: Vec<Attachment>) -> Request {
        self.reply(&[("plot", "{}")]);
        let call = self.called().expect("plot is called");
        self.feed(Input::Completed {
            call,
            result: Completion::Tool(ToolOutput {
                attached,
                ..ToolOutput::ok(text.to_owned())
            }),
        });
        self.request()
    }
}

/// The last message: texts, and what is shown.
fn last(request: &Request) -> (String, Vec<FdId>) {
    let blocks = &request.messages.last().expect("something was said").blocks;
    let texts = blocks.iter().filter_map(|block| match block {
        Block::ToolResult { text, .. } => Some(text.to_string()),
        _ => None,
    });
    let shown = blocks.iter().filter_map(|block| match block {
        Block::Media {
            answers: Some(_),
            media,
        } => Some(media.fd.clone()),
        _ => None,
    });
    (texts.collect(), shown.collect())
}

#[test]
fn each_attachment_is_a_descriptor_and_what_can_be_shown_is() {
    for tools in [WITH_DESCRIPTORS, "enabled = [\"plot\"]\n"] {
        let mut run = process(tools);
        let request = run.plots(
            "Two curves.",
            vec![attached("image/png", PNG), attached("text/csv", b"1,2")],
        );
        let (text, shown) = last(&request);
        assert_eq!(
            text,
            "Two curves.\n<fd_attachment fd=\"fd:1\" source=\"tool:plot\" media_type=\"image/png\" \
             bytes=\"34\"/>\n<fd_attachment fd=\"fd:2\" source=\"tool:plot\" \
             media_type=\"text/csv\" bytes=\"3\"/>"
        );
        assert_eq!(shown, [FdId::Fd(1)]);
        assert_eq!(
            request.media,
            BTreeMap::from([(FdId::Fd(1), Bytes::from_static(PNG))])
        );
        let later = run.plots("", vec![attached("image/png", PNG)]);
        assert_eq!(
            later.media.keys().collect::<Vec<_>>(),
            [&FdId::Fd(1), &FdId::Fd(3)],
            "it is sent again"
        );
        assert!(
            last(&later).0.starts_with("<fd_attachment fd=\"fd:3\""),
            "nothing stands for no text"
        );
    }
}

#[test]
fn a_flood_of_attachments_is_cut_and_said_to_be() {
    let mut run = process(WITH_DESCRIPTORS);
    let request = run.plots("", vec![attached("text/plain", b"x"); MAX_ATTACHMENTS + 2]);
    let (text, _) = last(&request);
    assert_eq!(text.matches("<fd_attachment ").count(), MAX_ATTACHMENTS);
    assert!(
        text.contains("<fd_attachments total=\"66\" kept=\"64\">"),
        "{text}"
    );
    assert_eq!(run.state.table().entries().len(), MAX_ATTACHMENTS);
}

#[test]
fn a_fork_shows_what_its_parent_was_shown_and_knows_what_it_inherited() {
    let mut run = process(WITH_DESCRIPTORS);
    let before = run.plots("", vec![attached("image/png", PNG)]);
    assert!(before.forked_at.is_empty());
    run.reply(&[("fork", r#"{"prompts": ["look at it"]}"#)]);
    let children = run.effects.iter().find_map(|effect| match effect {
        Effect::StartChildren { children, .. } => Some(children.clone()),
        _ => None,
    });
    let child = children.expect("a child begins").remove(0);
    let (program, around) = (
        run.state.program().clone(),
        Arc::new(HostContext::new(&TOOL_SET)),
    );
    let mut child = Replay::of(
        State::from_image(Pid(2), program, around, child.image).expect("it is valid"),
        0,
    );
    let request = child.request();
    assert_eq!(request.media.len(), 1);
    assert_eq!(
        request.forked_at,
        [before.messages.len() + 1],
        "its parent's reply is its own as well"
    );
    assert_eq!(request.messages.len(), before.messages.len() + 2);
    child.feed(Input::Host {
        request_id: "t".into(),
        request: HostRequest::Goto {
            position: "msg:1".into(),
            message: "anew".into(),
        },
    });
    let request = child.request();
    assert!(
        request.forked_at.is_empty() && request.media.is_empty(),
        "{:?}",
        request.forked_at
    );
}
