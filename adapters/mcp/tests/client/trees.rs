//! Which trees of processes share a server.

use dormouse_actors::ports::ToolServers;
use dormouse_mcp::McpClient;
use dormouse_proto::id::Pid;
use dormouse_tests::within;

use crate::support::Fixture;

#[tokio::test]
async fn each_tree_has_a_server_of_its_own_until_the_tree_ends() {
    let fixture = Fixture::new(McpClient::default().connection_per_tree(), "good");
    fixture.offers().await.unwrap();
    for root in [1, 2, 1, 2] {
        fixture.call_in_tree(Pid(root), "echo", "x").await.unwrap();
    }
    assert_eq!(
        fixture.starts(),
        2,
        "the first tree took the server that was asked for its tools"
    );
    within(fixture.client.end_tree(Pid(1))).await;
    fixture.call_in_tree(Pid(2), "echo", "x").await.unwrap();
    assert_eq!(fixture.starts(), 2, "the server of the other tree goes on");
    fixture.call_in_tree(Pid(1), "echo", "x").await.unwrap();
    assert_eq!(fixture.starts(), 3);
}

#[tokio::test]
async fn the_declaration_of_a_server_decides_whether_it_is_shared() {
    for (client, shared, starts) in [
        (McpClient::default().connection_per_tree(), Some(true), 1),
        (McpClient::default(), None, 1),
        (McpClient::default(), Some(false), 2),
    ] {
        let fixture = Fixture::with_change(client, "good", |server| server.shared = shared);
        for root in [1, 2] {
            fixture.call_in_tree(Pid(root), "echo", "x").await.unwrap();
        }
        assert_eq!(fixture.starts(), starts, "{shared:?}");
    }
}
