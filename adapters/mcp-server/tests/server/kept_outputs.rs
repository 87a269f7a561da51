//! Tests of outputs that outlive their session.

use dormouse_mcp_server::{KeepLimits, KeptOutputs, McpServer};
use serde_json::{Value, json};

use super::support::{Client, large, parse_page, server};

async fn keeping_server(folder: &std::path::Path, limits: KeepLimits) -> McpServer {
    let (server, ..) = server().await;
    server.keep_outputs(KeptOutputs::open(folder, limits).unwrap())
}

/// Calls a tool in a session of its own, and returns the texts of the answer.
async fn call_once(server: &McpServer, tool: &str, args: Value) -> Vec<String> {
    let mut client = Client::initialized(server).await;
    let answer = client
        .request("tools/call", json!({"name": tool, "arguments": args}))
        .await;
    client.close_input().await;
    let blocks = answer["result"]["content"].as_array().unwrap().iter();
    blocks
        .map(|block| block["text"].as_str().unwrap().to_owned())
        .collect()
}

/// The name in the notice of an answer.
fn name_in(texts: &[String]) -> String {
    let word = texts[1]
        .split([' ', ','])
        .find(|word| word.starts_with("kept-"));
    word.unwrap_or_else(|| panic!("{texts:?}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_session_reads_and_searches_an_output_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let server = keeping_server(folder.path(), KeepLimits::default()).await;
    let name = name_in(&call_once(&server, "large", json!({"bytes": 200_000})).await);
    // Another server of the same folder, as if the program were started for each call.
    let other = keeping_server(folder.path(), KeepLimits::default()).await;
    let mut read = String::new();
    for page in 1.. {
        let answer = call_once(&other, "read_fd", json!({"fd": name, "page": page})).await;
        assert_eq!(answer.len(), 1, "it is kept already: {answer:?}");
        let (text, pages) = parse_page(&answer[0]);
        read.push_str(&text);
        if page == pages {
            break;
        }
    }
    assert_eq!(read, large(200_000));
    let found = call_once(
        &other,
        "search_fd",
        json!({"fd": name, "query": "line 17:"}),
    )
    .await;
    assert!(found[0].contains("line 17:"), "{found:?}");
    let handle = format!("{{{{{name} lines 1-1}}}}");
    let echoed = call_once(&other, "echo", json!({"text": handle})).await;
    assert!(echoed[0].starts_with("line 0:"), "{echoed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_an_output_is_known_in_its_own_session_too() {
    let folder = tempfile::tempdir().unwrap();
    let server = keeping_server(folder.path(), KeepLimits::default()).await;
    let mut client = Client::initialized(&server).await;
    let large = json!({"name": "large", "arguments": {"bytes": 20_000}});
    let answer = client.request("tools/call", large).await;
    let notice = answer["result"]["content"][1]["text"].as_str().unwrap();
    assert!(notice.contains("fd:1 is kept-"), "{notice}");
    let name = name_in(&[String::new(), notice.to_owned()]);
    let page = client.call("read_fd", json!({"fd": name, "page": 1})).await;
    assert!(page.0.contains("fd=\"fd:1\""), "{page:?}");
    let uri = format!("fd://{name}?page=1");
    let mut later = Client::initialized(&server).await;
    let read = later.request("resources/read", json!({"uri": uri})).await;
    let contents = &read["result"]["contents"][0];
    assert_eq!(contents["uri"], uri, "{read}");
    assert!(contents["text"].as_str().unwrap().starts_with("line 0:"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_for_an_unknown_output_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let server = keeping_server(folder.path(), KeepLimits::default()).await;
    let unknown = call_once(&server, "read_fd", json!({"fd": "fd:1", "page": 1})).await;
    assert!(
        unknown[0].contains("not_found") && unknown[1].contains("begins with kept-"),
        "{unknown:?}"
    );
    let never = format!("kept-{}", "0".repeat(25));
    let unknown = call_once(&server, "read_fd", json!({"fd": never, "page": 1})).await;
    assert!(unknown[0].contains("Call the tool again"), "{unknown:?}");
    let small = call_once(&server, "echo", json!({"text": "small"})).await;
    assert_eq!(small, ["small"]);
}
