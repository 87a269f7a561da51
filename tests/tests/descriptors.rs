//! Descriptors in whole kernels: where they come from, what a model is told of them, what stands
//! for them.

use bytes::Bytes;
use dormouse::host::{LocalHost, Permissions};
use dormouse::message::{Block, Role};
use dormouse::models::Scripted;
use dormouse::store::LogStore;
use dormouse::user_input::InputPart;
use dormouse::{FnTool, Kernel, KernelBuilder, KernelError};
use dormouse_tests::{Requests, program, within};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

const SCRIPT: &str = r#"
[[turn]]
when.prompt = "^Summarize"
text = "Forty lines of fruit."
[[turn]]
when.prompt = "act: "
when.round = 0
calls_json = "{{ (prompt | split('act: ') | last | split('[msg') | first) }}"
[[turn]]
text = "heard"
"#;

/// A kernel with a scripted model `m` that makes the calls it is told, and a tool `echo`.
fn kernel(requests: &Requests) -> KernelBuilder {
    let echo = FnTool::new(
        "echo",
        "Gives its text back.",
        |Text { text }: Text| async move { Ok::<_, String>(text) },
    );
    Kernel::builder()
        .model(
            "m",
            requests.record(Scripted::parse(SCRIPT, "script").unwrap()),
        )
        .tool(echo)
}

fn fruit() -> String {
    (1..=40).map(|number| format!("apple {number}\n")).collect()
}

fn last_results(requests: &Requests) -> Vec<String> {
    let all = requests.all();
    let last = all.last().unwrap().messages.last().unwrap();
    let texts = last.blocks.iter().filter_map(|block| match block {
        Block::ToolResult { text, .. } => Some(text.to_string()),
        _ => None,
    });
    texts.collect()
}

#[tokio::test]
async fn only_the_large_parts_of_an_input_become_descriptors_and_all_keep_their_order() {
    let requests = Requests::default();
    let kernel = kernel(&requests).build().await.unwrap();
    let program = program(
        &kernel,
        "[tools]\nenabled = [\"read_fd\"]\n[file_descriptor]\nmax_input_chars = 100\n",
    );
    let parts = [
        InputPart::text("What grows here?"),
        InputPart::new("file:fruit.txt", fruit()),
        InputPart::new("file:image", vec![0_u8, 0xff]),
        InputPart::text("Answer in one word."),
    ];
    let process = kernel.start(program).input(parts).await.unwrap();
    within(process.wait()).await.unwrap();
    let sent = requests.all();
    let blocks: Vec<_> = sent[0].messages[0]
        .blocks
        .iter()
        .map(|block| match block {
            Block::Text { text, .. } => &**text,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        (blocks.len(), blocks[0], blocks[3]),
        (4, "What grows here?", "Answer in one word.")
    );
    assert!(
        blocks[1].starts_with("<fd_result fd=\"fd:1\" source=\"file:fruit.txt\""),
        "{}",
        blocks[1]
    );
    assert_eq!(blocks[2], "Binary input of 2 bytes, as base64:\nAP8=");
}

#[tokio::test]
async fn a_handle_stands_for_content_only_where_the_program_allows_it() {
    let act = r#"act: [{"tool": "echo", "args": {"text": "{{fd:1 lines 2-3}}"}}, {"tool": "echo", "args": {"text": "{{fd:7}}"}}]"#;
    let expanded = ["apple 2\napple 3\n", "fd:7 not found"];
    let verbatim = ["{{fd:1 lines 2-3}}", "{{fd:7}}"];
    for (expand, expected) in [
        ("[\"echo\"]", expanded),
        ("true", expanded),
        ("false", verbatim),
    ] {
        let requests = Requests::default();
        let kernel = kernel(&requests).build().await.unwrap();
        let rest = format!(
            "[tools]\nenabled = [\"read_fd\", \"echo\"]\n[file_descriptor]\nexpand_fds = {expand}\n"
        );
        let process = kernel
            .start(program(&kernel, &rest))
            .session()
            .without_input()
            .await
            .unwrap();
        within(process.open("file:fruit.txt", fruit(), None))
            .await
            .unwrap();
        process.input(act).await.unwrap();
        within(process.wait_for(|view| view.is_idle() && view.messages == 4))
            .await
            .unwrap();
        let results = last_results(&requests);
        assert!(
            results
                .iter()
                .zip(expected)
                .all(|(result, expected)| result.contains(expected)),
            "{expand}: {results:?}"
        );
        let asked = requests.all()[1].messages[1]
            .blocks
            .iter()
            .filter_map(|block| match block {
                Block::ToolUse { args, .. } => Some(args.contains("{{fd:")),
                _ => None,
            })
            .collect::<Vec<_>>();
        assert_eq!(
            asked,
            [true, true],
            "the conversation keeps what the model wrote"
        );
    }
}

#[tokio::test]
async fn messages_are_descriptors_by_their_position() {
    let requests = Requests::default();
    let kernel = kernel(&requests).build().await.unwrap();
    let rest = "[tools]\nenabled = [\"read_fd\", \"echo\"]\n[file_descriptor]\nreference_messages \
         = true\nexpand_fds = true\n";
    let process = kernel
        .start(program(&kernel, rest))
        .session()
        .input("The bug is in line 7.")
        .await
        .unwrap();
    within(process.wait_for(|view| view.is_idle() && view.messages == 2))
        .await
        .unwrap();
    process
        .input(
            r#"act: [{"tool": "echo", "args": {"text": "{{msg:1}}"}}, {"tool": "read_fd", "args": {"fd": "msg:2"}}]"#,
        )
        .await
        .unwrap();
    within(process.wait_for(|view| view.is_idle() && view.messages == 6))
        .await
        .unwrap();
    let results = last_results(&requests);
    assert_eq!(results[0], "The bug is in line 7.");
    assert!(
        results[1].starts_with("<fd_content fd=\"msg:2\"")
            && results[1].ends_with(">heard</fd_content>"),
        "{}",
        results[1]
    );
    let answer = within(process.call("read_fd", r#"{"fd": "msg:5.1"}"#))
        .await
        .unwrap();
    assert!(
        answer.text.contains("The bug is in line 7."),
        "{}",
        answer.text
    );
    for (number, message) in (1..).zip(&requests.all().last().unwrap().messages) {
        let marker = format!("[msg:{number}]");
        let marked = message
            .blocks
            .iter()
            .any(|block| matches!(block, Block::Text { text, .. } if **text == *marker));
        assert_eq!(marked, message.role == Role::User, "{message:?}");
    }
}

#[tokio::test]
async fn a_summary_is_asked_for_beside_the_conversation_and_survives_a_restart() {
    let (requests, small) = (Requests::default(), Requests::default());
    let folder = tempfile::tempdir().unwrap();
    let build = || {
        let store = LogStore::open(folder.path()).unwrap();
        let model = small.record(Scripted::parse(SCRIPT, "script").unwrap());
        kernel(&requests).store(store).model("small", model).build()
    };
    let rest = "[tools]\nenabled = [\"read_fd\", \
         \"summarize_fd\"]\n[file_descriptor]\nsummary_model = \"small\"\n";
    let first = build().await.unwrap();
    let process = first
        .start(program(&first, rest))
        .session()
        .without_input()
        .await
        .unwrap();
    within(process.open("file:fruit.txt", fruit(), None))
        .await
        .unwrap();
    process
        .input(r#"act: [{"tool": "summarize_fd", "args": {"fd": "fd:1"}}]"#)
        .await
        .unwrap();
    within(process.wait_for(|view| view.is_idle() && view.messages == 4))
        .await
        .unwrap();
    assert!(
        last_results(&requests)[0].contains("Forty lines of fruit."),
        "{:?}",
        last_results(&requests)
    );
    let asked = small.all();
    assert_eq!(
        (asked.len(), &*asked[0].model, asked[0].tools.len()),
        (1, "small", 0)
    );
    assert!(
        asked[0].messages[0].text().contains("apple 40"),
        "all of it is shown"
    );
    let pid = process.pid();
    first.shutdown().await.unwrap();
    let second = build().await.unwrap();
    let process = second.resume(pid).await.unwrap();
    let kept = within(process.call("summarize_fd", r#"{"fd": "fd:1"}"#))
        .await
        .unwrap();
    assert!(kept.text.contains("Forty lines of fruit."), "{}", kept.text);
    assert_eq!(small.all().len(), 1, "it is kept and not asked for again");
}

#[tokio::test]
async fn a_new_descriptor_is_summarized_without_being_asked_and_nothing_sent_changes() {
    let (requests, small) = (Requests::default(), Requests::default());
    let model = small.record(Scripted::parse(SCRIPT, "script").unwrap());
    let kernel = kernel(&requests).model("small", model).build().await;
    let kernel = kernel.unwrap();
    let rest = "[tools]\nenabled = [\"read_fd\", \"list_fds\", \"echo\"]\n[file_descriptor]\n\
                max_direct_output_chars = 50\nauto_summary_chars = 100\nsummary_model = \
                \"small\"\n";
    let process = kernel
        .start(program(&kernel, rest))
        .session()
        .input(format!(
            "act: {}",
            serde_json::json!([
                { "tool": "echo", "args": { "text": fruit() } },
                { "tool": "echo", "args": { "text": &fruit()[..60] } },
            ])
        ))
        .await
        .unwrap();
    within(process.wait_for(|view| view.is_idle() && view.messages == 4))
        .await
        .unwrap();
    let listed = within(async {
        loop {
            let answer = process.call("list_fds", "{}").await.unwrap();
            if answer.text.contains("Forty lines of fruit.") {
                break answer.text;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(
        listed.matches("Forty lines of fruit.").count(),
        1,
        "{listed}"
    );
    assert_eq!(small.all().len(), 1, "the short descriptor has no summary");
    let read = within(process.call("read_fd", r#"{"fd": "fd:1"}"#)).await;
    let read = read.unwrap().text;
    assert!(
        read.starts_with("<fd_content fd=\"fd:1\" summary=\"Forty lines of fruit.\" page=\"1\""),
        "{read}"
    );
    process.input("and?").await.unwrap();
    within(process.wait_for(|view| view.is_idle() && view.messages == 6))
        .await
        .unwrap();
    let all = requests.all();
    let [.., before, last] = &all[..] else {
        panic!("it asked twice")
    };
    assert_eq!(before.messages[..], last.messages[..before.messages.len()]);
}

#[tokio::test]
async fn content_comes_from_a_file_or_a_stream_and_what_is_cut_off_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("fruit.txt"), fruit()).unwrap();
    let host = LocalHost::new(Permissions::none().allow_read("."), folder.path()).unwrap();
    let kernel = kernel(&Requests::default())
        .host(host)
        .build()
        .await
        .unwrap();
    let rest = "[tools]\nenabled = [\"read_fd\", \"echo\"]\n[file_descriptor]\nmax_content_bytes = \
         100\nmax_direct_output_chars = 50\n";
    let process = kernel
        .start(program(&kernel, rest))
        .session()
        .without_input()
        .await
        .unwrap();
    let cut = fruit().len() - 100;
    let chunks = fruit()
        .into_bytes()
        .chunks(7)
        .map(Bytes::copy_from_slice)
        .collect::<Vec<_>>();
    let opened = [
        within(process.open_file("fruit.txt", None)).await.unwrap(),
        within(process.open_stream("file:fruit.txt", futures_util::stream::iter(chunks), None))
            .await
            .unwrap(),
        within(process.open("file:fruit.txt", fruit(), None))
            .await
            .unwrap(),
    ];
    for answer in opened {
        let said = format!("cut_bytes=\"{cut}\"");
        assert!(
            answer.text.contains("total_chars=\"100\"") && answer.text.contains(&said),
            "{}",
            answer.text
        );
    }
    let args = serde_json::json!({ "text": fruit() }).to_string();
    let answer = within(process.call("echo", args)).await.unwrap();
    assert!(
        answer
            .text
            .contains(&format!("{cut} bytes after them were cut off")),
        "{}",
        answer.text
    );
    let missing = within(process.open_file("../nothing.txt", None))
        .await
        .unwrap_err();
    assert!(matches!(missing, KernelError::File(_)), "{missing}");
}
