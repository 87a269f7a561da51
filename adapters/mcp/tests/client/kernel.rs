//! Tests of whole kernels whose models call tools of a server: a large result is read as a
//! descriptor, and the server asks the user.

use std::path::Path;
use std::time::Duration;

use dormouse::host::{LocalHost, Permissions};
use dormouse::model::Request;
use dormouse::{Event, Kernel, ServerQuestion, WantedAnswer};
use dormouse_mcp::McpClient;
use dormouse_tests::{FnModel, Requests, asks, check_histories, results, says, within};
use futures_util::StreamExt;
use serde_json::json;

use crate::support::script_path;

fn program(kernel: &Kernel, folder: &Path, selection: &str) -> dormouse::program::Program {
    let servers = serde_json::json!({"mcpServers": {"s": {"command": "python3", "args": [script_path()], "env": {"A": "${PATH}"}}}});
    std::fs::write(folder.join("mcp.json"), servers.to_string()).unwrap();
    let text = format!(
        "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = \
         [\"read_fd\"]\n[mcp]\nconfig_path = \"mcp.json\"\n[tools.mcp]\ns = {selection}\n"
    );
    std::fs::write(folder.join("main.toml"), text).unwrap();
    kernel
        .load(folder.join("main.toml"))
        .unwrap_or_else(|errors| panic!("{errors}"))
        .program
}

#[tokio::test]
async fn a_large_result_of_a_server_is_read_as_a_descriptor() {
    let (folder, requests) = (tempfile::tempdir().unwrap(), Requests::default());
    let model = requests.record(FnModel(|request: Request| async move {
        Ok(match results(&request, 0).as_slice() {
            [] => asks(&[
                ("s__huge", r#"{"text": "100000"}"#),
                ("loud", r#"{"text": "hi"}"#),
            ]),
            [_, _] => asks(&[("read_fd", r#"{"fd": "fd:1", "page": 2}"#)]),
            [(page, false)] => says(&page.chars().filter(|c| *c == 'h').count().to_string()),
            other => says(&format!("{other:?}")),
        })
    }));
    let permissions = Permissions::none()
        .allow_run("python3")
        .allow_env("PATH")
        .allow_write(".");
    let host = LocalHost::new(permissions, folder.path()).unwrap();
    let kernel = Kernel::builder()
        .model("m", model)
        .host(host)
        .tool_servers(McpClient::default())
        .build()
        .await
        .unwrap();
    let program = program(
        &kernel,
        folder.path(),
        "[\"huge\", { name = \"echo\", alias = \"loud\", description = \"Says it.\" }]",
    );
    let process = kernel.start(program).input("go").await.unwrap();
    let exit = within(process.wait()).await.unwrap();
    let count: usize = exit
        .message
        .parse()
        .unwrap_or_else(|_| panic!("{}", exit.message));
    assert!(count >= 4_000, "{count}");
    let first = &requests.all()[0];
    let names: Vec<_> = first.tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["read_fd", "s__huge", "loud"]);
    assert_eq!(&*first.tools[2].description, "Says it.");
    let answers = results(&requests.all()[1], 0);
    assert!(
        answers[0].0.starts_with("<fd_result") && answers[1].0.contains("echo: hi"),
        "{answers:?}"
    );
    check_histories(&requests);
    within(kernel.shutdown()).await.unwrap();
}

/// A kernel whose model calls the tool `ask` of a server once, and says what it returns.
async fn asking_kernel(folder: &Path, expires_after: Duration) -> Kernel {
    let model = FnModel(|request: Request| async move {
        Ok(match results(&request, 0).as_slice() {
            [] => asks(&[("s__ask", "{}")]),
            [(answer, _)] => says(answer),
            other => says(&format!("{other:?}")),
        })
    });
    let permissions = Permissions::none()
        .allow_run("python3")
        .allow_env("PATH")
        .allow_write(".");
    Kernel::builder()
        .model("m", model)
        .host(LocalHost::new(permissions, folder).unwrap())
        .tool_servers(McpClient::default())
        .server_questions(expires_after)
        .build()
        .await
        .unwrap()
}

/// Runs a process whose server asks, lets `answer` answer, and returns how the server was answered.
async fn answered(
    expires_after: Duration,
    answer: impl AsyncFnOnce(&Kernel, ServerQuestion),
) -> String {
    let folder = tempfile::tempdir().unwrap();
    let kernel = asking_kernel(folder.path(), expires_after).await;
    let program = program(&kernel, folder.path(), "[\"ask\"]");
    let mut events = kernel.events();
    let process = kernel.start(program).input("go").await.unwrap();
    let question = loop {
        if let Event::ServerAsks { question } = within(events.next()).await.unwrap() {
            break question;
        }
    };
    let id = question.id;
    answer(&kernel, question).await;
    let exit = within(process.wait()).await.unwrap();
    let closed = loop {
        if let Event::ServerQuestionClosed { id } = within(events.next()).await.unwrap() {
            break id;
        }
    };
    assert_eq!(closed, id);
    assert_eq!(kernel.pending().await.unwrap().server_questions, []);
    let late = kernel.answer_server(id, json!({})).unwrap_err().to_string();
    assert!(late.contains("does not wait"), "{late}");
    within(kernel.shutdown()).await.unwrap();
    let answers: serde_json::Value = serde_json::from_str(exit.message.lines().last().unwrap())
        .unwrap_or_else(|_| panic!("{}", exit.message));
    assert_eq!(answers["sampling/createMessage"], -32601);
    answers["elicitation/create"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_server_asks_the_user_and_its_call_waits_for_the_answer() {
    let minute = Duration::from_secs(60);
    let accepted = answered(minute, async |kernel, question| {
        assert_eq!((&*question.server, &*question.text), ("s", "?"));
        assert!(matches!(question.wanted, WantedAnswer::Value(_)));
        let pending = kernel.pending().await.unwrap();
        assert_eq!(pending.server_questions, std::slice::from_ref(&question));
        let wrong = kernel.answer_server(question.id, json!("yes"));
        let wrong = wrong.unwrap_err().to_string();
        assert!(wrong.contains("object"), "{wrong}");
        kernel.answer_server(question.id, json!({})).unwrap();
    });
    assert_eq!(accepted.await, "accept");
    let declined = answered(minute, async |kernel, question| {
        kernel.decline_server(question.id).unwrap();
    });
    assert_eq!(declined.await, "decline");
    let expired = answered(Duration::from_millis(50), async |_, _| {});
    assert_eq!(expired.await, "cancel");
}
