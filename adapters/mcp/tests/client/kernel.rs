//! Test of a whole kernel whose model calls tools of a server and reads a large result as a
//! descriptor.

use std::path::Path;

use dormouse::Kernel;
use dormouse::host::{LocalHost, Permissions};
use dormouse::model::Request;
use dormouse_mcp::McpClient;
use dormouse_tests::{FnModel, Requests, asks, check_histories, results, says, within};

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
