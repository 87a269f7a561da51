//! A small tree for tests of what becomes of trees: one process makes a file and forks two; the
//! first looks the second up and writes to it, and both append to the file. Nothing depends on a
//! pid, so that it goes on under others.

use std::collections::BTreeMap;

use dormouse::id::Pid;
use dormouse::message::Block;
use dormouse::model::{Reply, Request};
use dormouse::ports::Model;
use dormouse::process::{Exit, ExitStatus, ProcessRow};
use dormouse::{Kernel, Process};

use crate::{FnModel, asks, says};

/// How its program goes on behind the model's name.
pub const TOOLS: &str = "max_iterations = 30\n[tools]\nenabled = [\"fork\", \"create_temp_file\", \
\"append_temp_file\", \"read_temp_file\", \"list_processes\", \"send_message\", \
\"receive_messages\"]\n";

/// All that tools answered in a conversation, in order.
#[must_use]
pub fn answers(request: &Request) -> Vec<String> {
    let blocks = request.messages.iter().flat_map(|message| &message.blocks);
    let result = |block: &Block| match block {
        Block::ToolResult { text, .. } => Some(text.to_string()),
        _ => None,
    };
    blocks.filter_map(result).collect()
}

/// The number of the sibling in a list of processes.
fn sibling(list: &str) -> u64 {
    let line = list
        .lines()
        .find(|line| line.contains("relation=\"sibling\""))
        .expect("it has a sibling");
    let number = line
        .split("pid=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    number
        .and_then(|number| number.parse().ok())
        .expect("each line says a pid")
}

/// What one of its processes says next.
///
/// # Panics
/// Where something was answered that cannot be.
#[must_use]
pub fn swarm(request: &Request) -> Reply {
    let answers = answers(request);
    let forked = answers
        .iter()
        .position(|text| text.starts_with("You are child"));
    let Some(at) = forked else {
        return match &answers[..] {
            [] => asks(&[("create_temp_file", r#"{"content": "begun\n"}"#)]),
            [_] => asks(&[("fork", r#"{"prompts": ["writer", "reader"]}"#)]),
            [_, _] => asks(&[("read_temp_file", r#"{"temp_file_id": "temp:1"}"#)]),
            [_, children, file] => says(&format!("{children}\n{file}")),
            more => panic!("{more:?}"),
        };
    };
    let append = |line: &str| {
        let args = format!("{{\"temp_file_id\": \"temp:1\", \"content\": \"{line}\\n\"}}");
        asks(&[("append_temp_file", &args)])
    };
    match (&answers[at..], answers[at].ends_with("writer")) {
        ([_], true) => asks(&[("list_processes", "{}")]),
        ([_, list], true) => asks(&[(
            "send_message",
            &format!("{{\"to\": {}, \"text\": \"hello\"}}", sibling(list)),
        )]),
        ([_, _, sent], true) => append(if sent.starts_with("<message_sent to=") {
            "sent"
        } else {
            "lost"
        }),
        ([_], false) => asks(&[("receive_messages", r#"{"timeout_ms": 60000}"#)]),
        ([_, heard], false) => append(&format!("heard {}", heard.matches("hello").count())),
        (_, is_writer) => says(if is_writer { "written" } else { "read" }),
    }
}

/// The model of its processes.
pub fn model() -> impl Model {
    FnModel(|request: Request| async move { Ok(swarm(&request)) })
}

/// That a swarm came to its end: both children said their last word once, and each line is in the
/// file once.
///
/// # Panics
/// Where it did not.
#[track_caller]
pub fn check_end(exit: &Exit, of: &str) {
    assert_eq!(exit.status, ExitStatus::Done, "{of}: {}", exit.message);
    for words in [
        "begun",
        "\nsent\n",
        "\nheard 1\n",
        ">written<",
        ">read<",
        "children=\"2\"",
    ] {
        assert_eq!(
            exit.message.matches(words).count(),
            1,
            "{of}: {words:?} in {}",
            exit.message
        );
    }
}

/// The rows of a kernel, by pid.
///
/// # Panics
/// Where it was shut down.
pub async fn rows(kernel: &Kernel) -> BTreeMap<Pid, ProcessRow> {
    kernel
        .processes()
        .await
        .expect("the kernel runs")
        .into_iter()
        .map(|info| (info.row.pid, info.row))
        .collect()
}

/// The process that the tree of a process begins with.
///
/// # Panics
/// Where there is none.
pub async fn root_of(kernel: &Kernel, mut pid: Pid) -> Process {
    let rows = rows(kernel).await;
    while let Some(parent) = rows[&pid].parent {
        pid = parent;
    }
    kernel.process(pid).await.expect("it was just listed")
}
