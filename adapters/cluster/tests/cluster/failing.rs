//! A shard whose commits fail each time is left alone for longer and longer, and its node says so.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use dormouse_cluster::shard_of;

use crate::common::{LONG_LEASE, World, get, http, until, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_fails_each_time_is_opened_again_ever_later_and_goes_on_at_the_end() {
    let world = World::new(LONG_LEASE);
    let _a = world.spawn("a", &[]);
    let cluster = world.connect().await;
    world.settled(&cluster, &["a"]).await;
    let program = world.steps_until_told();
    let process = within(cluster.start(program).input("p").into_future());
    let process = process.await.unwrap();
    until("some effects", async || !world.ledger().is_empty()).await;
    let shard = shard_of(process.pid());

    world
        .sql(&format!(
            "CREATE FUNCTION {{schema}}.fail() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 RAISE EXCEPTION 'No space left on device' USING ERRCODE = 'disk_full';
             END
             $$;
             CREATE TRIGGER fail BEFORE INSERT ON {{schema}}.record
                 FOR EACH ROW WHEN (new.shard = {}) EXECUTE FUNCTION {{schema}}.fail()",
            shard.0
        ))
        .await;
    let epoch = format!("SELECT epoch FROM {{schema}}.shard WHERE id = {}", shard.0);
    let (mut epochs, begun) = (BTreeSet::new(), Instant::now());
    while begun.elapsed() < Duration::from_secs(12) {
        epochs.extend(world.sql(&epoch).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // At once, and after waits of 1, 2, 4 and 8 seconds.
    let claims = epochs.len() - 1;
    assert!((2..=4).contains(&claims), "{claims} claims");

    let address = cluster.nodes().await.unwrap().remove(0).address;
    let why = http().get(format!("http://{address}/readyz"));
    let why = why.send().await.unwrap().text().await.unwrap();
    assert!(
        why.starts_with(&format!("not ready\n{shard} has failed ")),
        "{why}"
    );
    assert!(why.contains("No space left on device"), "{why}");

    world.sql("DROP TRIGGER fail ON {schema}.record").await;
    world.tell_to_end();
    within(process.wait()).await.unwrap();
    until("the node is ready", async || {
        get(&address, "readyz").await == 200
    })
    .await;
}
