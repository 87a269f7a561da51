//! XML-1: what a tool of the kernel answers is one element, and gives back the text shown.

use dormouse_kernel::process::{Fact, State};
use dormouse_kernel::syscall::{self, Group};
use dormouse_proto::message::Block;
use dormouse_proto::record::{CallFact, Phase};
use roxmltree::{Document, Node};

use super::{Held, Violation, ensure};
use crate::world::World;

/// How an answer begins that no tool gave: it was refused, or its call was given up.
const PLAIN: [&str; 5] = [
    "Interrupted",
    "Access denied",
    "No model is asked",
    "Refused",
    "Not run: ",
];

/// How an answer begins that a tool of the kernel gives.
const KERNELS: [&str; 10] = [
    "<fd_",
    "<fork_result",
    "<explore_result",
    "<spawned",
    "<goto",
    "<temp_file",
    "<message_sent",
    "<process_messages",
    "<wait_result",
    "<process_list",
];

impl World {
    pub(super) fn xml_1(&mut self, before: &State, after: &State, fact: &Fact) -> Held {
        if let Fact::Compacted { summary, .. } = fact {
            let mut texts = summary.blocks.iter().filter_map(|block| match block {
                Block::Text { text, .. } => Some(text),
                _ => None,
            });
            return texts.try_for_each(|text| self.xml_of(after, text, Must::Parse));
        }
        let Fact::Call(CallFact::ToolReturned { call, answer, .. }) = fact else {
            return Ok(());
        };
        let of = |state: &State| match state.phase() {
            Phase::Acting { pending_calls, .. } => pending_calls
                .iter()
                .find(|pending_call| pending_call.call == *call)
                .map(|pending_call| pending_call.tool.clone()),
            _ => None,
        };
        let Some(tool) = of(before).or_else(|| of(after)) else {
            return self.xml_of(after, &answer.text, Must::Nothing);
        };
        let is_ours = syscall::tool(&tool).is_some_and(|tool| tool.group != Group::Processes);
        // A recorded answer follows a notice that says so.
        let text = match answer.text.split_once("</recorded_answer>\n") {
            Some((notice, text)) if notice.starts_with("<recorded_answer ") => text,
            _ => &answer.text,
        };
        let is_plain = PLAIN.iter().any(|plain| text.starts_with(plain))
            || text.starts_with("There is no tool");
        self.xml_of(
            after,
            text,
            if is_ours && !is_plain {
                Must::Parse
            } else {
                Must::Nothing
            },
        )
    }

    fn xml_of(&mut self, state: &State, text: &str, must: Must) -> Held {
        let is_kernels = KERNELS.iter().any(|tag| text.starts_with(tag));
        if must == Must::Nothing && (!is_kernels || text.starts_with("<fd_result a=")) {
            return Ok(());
        }
        self.tally.count("answers parsed");
        let document = Document::parse(text).map_err(|error| {
            Violation::of(
                "XML-1",
                format!("an answer does not parse: {error}\n{text}"),
            )
        })?;
        let root = document.root_element();
        if root.tag_name().name() == "fd_content" && root.attribute("sanitized").is_none() {
            self.shown(state, root)?;
        }
        Ok(())
    }

    /// The text that a parser gives back is a part of what the descriptor holds.
    fn shown(&mut self, state: &State, root: Node<'_, '_>) -> Held {
        let Some((_, entry)) = root
            .attribute("fd")
            .and_then(|fd| state.table().resolve(fd).ok())
        else {
            return Ok(());
        };
        let shown: String = root.children().filter_map(|node| node.text()).collect();
        let shown = match root.attribute("line_ending") {
            Some("crlf") => shown.replace('\n', "\r\n"),
            _ => shown,
        };
        let is_part = entry
            .content
            .unlimited_reader()
            .text()
            .expect("it is in memory")
            .contains(&shown)
            || entry
                .content
                .unlimited_reader()
                .pretty()
                .is_ok_and(|pretty| pretty.text().expect("it is in memory").contains(&shown));
        self.tally.count("texts given back");
        ensure(is_part, "XML-1", || {
            format!(
                "{shown:?} is shown of {:?}",
                entry.content.unlimited_reader().text()
            )
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Must {
    Parse,
    Nothing,
}
