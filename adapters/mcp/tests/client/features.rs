//! What goes beyond the tools: a client behind the kernel that servers can ask, requests that are
//! passed on, deadlines.

use std::sync::{Arc, Mutex, Weak};

use dormouse_actors::ports::{
    OffersTo, ServerAnswer, ServerClient, ServerRequestError, ToolServers,
};
use dormouse_mcp::McpClient;
use dormouse_proto::id::Pid;
use dormouse_tests::within;
use futures_util::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};

use crate::support::Fixture;

/// A client that can show its folders, and nothing else.
#[derive(Default)]
struct Folders {
    notified: Mutex<Vec<String>>,
}

impl ServerClient for Folders {
    fn capabilities(&self) -> Value {
        json!({ "roots": {} })
    }

    fn request(
        &self,
        _server: &Arc<str>,
        method: &str,
        _params: Value,
    ) -> BoxFuture<'static, ServerAnswer> {
        let answer = match method {
            "roots/list" => Ok(json!({ "roots": [] })),
            _ => Err(ServerRequestError::unknown_method(method)),
        };
        async move { answer }.boxed()
    }

    fn notify(&self, _server: &Arc<str>, method: &str, _params: Value) {
        self.notified.lock().unwrap().push(method.to_owned());
    }
}

/// A tree whose client shows its folders, after the tools were listed for it.
async fn serving(fixture: &Fixture, root: Pid) -> Arc<Folders> {
    let folders = Arc::new(Folders::default());
    let client: Weak<dyn ServerClient> = Arc::<Folders>::downgrade(&folders);
    let to = OffersTo::NewTree(client.clone());
    within(fixture.client.offers(&fixture.host, &fixture.server, to))
        .await
        .unwrap();
    fixture.client.serve_client(root, client);
    folders
}

#[tokio::test]
async fn a_server_asks_the_client_of_the_tree_that_calls_it_and_no_other() {
    let fixture = Fixture::new(McpClient::default().connection_per_tree(), "good");
    let folders = serving(&fixture, Pid(1)).await;
    let asked = |elicitation, roots| {
        json!({ "elicitation/create": elicitation, "ping": "answered", "roots/list": roots,
            "sampling/createMessage": -32601 })
    };
    let answers = fixture.call_in_tree(Pid(1), "ask", "").await.unwrap();
    let answers: Value = serde_json::from_str(&answers).unwrap();
    assert_eq!(answers, asked(-32601, json!("answered")));
    assert_eq!(
        fixture.starts(),
        1,
        "the tools were listed by the same server"
    );
    let answers = fixture.call_in_tree(Pid(2), "ask", "").await.unwrap();
    let answers: Value = serde_json::from_str(&answers).unwrap();
    assert_eq!(answers, asked(-32601, json!(-32601)), "no client is behind");
    fixture.call_in_tree(Pid(1), "change", "new").await.unwrap();
    assert_eq!(
        *folders.notified.lock().unwrap(),
        ["notifications/tools/list_changed"]
    );
    drop(folders);
    let answers = fixture.call_in_tree(Pid(1), "ask", "").await.unwrap();
    let answers: Value = serde_json::from_str(&answers).unwrap();
    assert_eq!(answers, asked(-32601, json!(-32601)), "the client has left");
}

#[tokio::test]
async fn a_tree_with_a_client_does_not_take_a_connection_that_serves_none() {
    let fixture = Fixture::new(McpClient::default().connection_per_tree(), "good");
    // An embedder lists the tools of the server.
    fixture.offers().await.unwrap();
    let folders = Arc::new(Folders::default());
    let client: Weak<dyn ServerClient> = Arc::<Folders>::downgrade(&folders);
    fixture.client.serve_client(Pid(1), client);
    let answers = fixture.call_in_tree(Pid(1), "ask", "").await.unwrap();
    let answers: Value = serde_json::from_str(&answers).unwrap();
    assert_eq!(answers["roots/list"], "answered");
    assert_eq!(fixture.starts(), 2);
}

#[tokio::test]
async fn requests_are_passed_on_and_their_errors_come_back() {
    let fixture = Fixture::new(McpClient::default(), "good");
    let request = |method: &str, params: Value| {
        let sent = fixture
            .client
            .request(&fixture.host, &fixture.server, Pid(1), method, params);
        within(sent)
    };
    let introduction = within(
        fixture
            .client
            .introduction(&fixture.host, &fixture.server, Pid(1)),
    );
    assert_eq!(
        introduction.await.unwrap()["capabilities"]["tools"]["listChanged"],
        true
    );
    let read = request("resources/read", json!({ "uri": "note://1" })).await;
    assert_eq!(
        read.unwrap()["contents"],
        json!([{ "uri": "note://1", "text": "what note://1 says" }])
    );
    let refused = request("prompts/get", json!({ "name": "none" })).await;
    assert_eq!(
        refused,
        Err(ServerRequestError::Refused {
            code: -32601,
            message: "no method prompts/get".to_owned(),
            data: None,
        })
    );
}

#[tokio::test]
async fn a_call_to_a_silent_server_ends_at_the_deadline_and_says_which_one() {
    let fixture = Fixture::with_change(McpClient::default(), "good", |server| {
        server.deadline_ms = 50;
        server.max_duration_ms = 7_000;
    });
    let error = fixture.call("never", "").await.unwrap_err();
    assert!(
        error.contains("neither answered nor reported progress for 50 ms")
            && error.contains("`deadline`"),
        "{error}"
    );
    let policy = fixture.offers().await.unwrap()[0].policy;
    assert_eq!(
        policy.deadline_ms, 7_000,
        "the kernel bounds the whole call"
    );
}
