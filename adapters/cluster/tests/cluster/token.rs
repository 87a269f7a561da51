//! Who may speak to a node.

use crate::common::{LONG_LEASE, World, get, http};

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_the_token_is_refused_and_health_needs_none() {
    let world = World::new(LONG_LEASE);
    let node = world.join(world.options("a")).await;
    world.settled(&node, &["a"]).await;
    let address = node.address().unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let call = "{\"shard\":0,\"call\":{\"processes\":{\"after\":null,\"limit\":1}}}";
    let token = world
        .sql("SELECT token FROM {schema}.cluster")
        .await
        .remove(0);
    for (given, expected) in [
        (Some(format!("Bearer {token}")), 200),
        (Some(format!("Bearer {token}x")), 401),
        (Some("Bearer ".to_owned()), 401),
        (Some(token), 401),
        (None, 401),
    ] {
        let request = http()
            .post(format!("http://{address}/v1/call"))
            .header("content-type", "application/json")
            .body(call);
        let request = match &given {
            Some(given) => request.header("authorization", given),
            None => request,
        };
        let response = request.send().await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{given:?}");
    }
    assert_eq!(get(address, "v1/events/1").await, 401);
    assert_eq!(get(address, "healthz").await, 200);
    assert_eq!(get(address, "readyz").await, 200);
    let metrics = http()
        .get(format!("http://{address}/metrics"))
        .send()
        .await
        .unwrap();
    let metrics = metrics.text().await.unwrap();
    for line in [
        "dormouse_shards_held 8",
        "dormouse_epoch_changes_total 8",
        "dormouse_processes 0",
        "dormouse_refused_calls_total 5",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    node.drain().await;
}
