//! Where shards are: programs that need labels of nodes run there, and only there; and nodes learn
//! of changes without reading everything again and again.

use std::time::Duration;

use dormouse_cluster::{ClusterError, shard_of};

use crate::common::{LEASE, LONG_LEASE, World, echo, files, until, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_process_with_needs_runs_where_a_node_has_all_of_them() {
    let world = World::new(LONG_LEASE);
    let a = world.join(world.options("a")).await;
    let b = world
        .join(world.options("b").labels(["gpu", "repo:main"]))
        .await;
    world.settled(&a, &["a", "b"]).await;
    let program = "[model]\nname = 'm'\nprovider = 'scripted'\nscript = 'script.toml'\n\
                   [placement]\nneeds = ['gpu']\n";
    let program = files(program, "[[turn]]\ntext = 'on a gpu'\n");
    for _ in 0..8 {
        // Asked of the other node.
        let process = within(a.start(program.clone()).input("go").into_future())
            .await
            .unwrap();
        assert_eq!(&*within(process.wait()).await.unwrap().message, "on a gpu");
        assert!(
            shard_of(process.pid()).0 >= 8,
            "it is in a shard of its own kind"
        );
        assert_eq!(world.owners().await[&shard_of(process.pid()).0], "b");
        assert_eq!(process.node().await.unwrap().as_deref(), Some("b"));
    }
    let missing = a.start(echo()).need("gpu").need("tpu").input("go").await;
    let missing = missing.unwrap_err();
    assert!(
        matches!(&missing, ClusterError::NoNodeWithLabels { needs, .. } if needs == &["gpu", "tpu"]),
        "{missing}"
    );
    let both = within(
        a.start(echo())
            .need("repo:main")
            .need("gpu")
            .input("go")
            .into_future(),
    );
    let both = both.await.unwrap();
    within(both.wait()).await.unwrap();
    assert_eq!(world.owners().await[&shard_of(both.pid()).0], "b");
    // Without the node its shards wait; a successor gets them.
    within(b.drain()).await;
    let c = world.join(world.options("c").labels(["gpu"])).await;
    let process = within(a.start(program).input("go").into_future())
        .await
        .unwrap();
    assert_eq!(&*within(process.wait()).await.unwrap().message, "on a gpu");
    assert_eq!(world.owners().await[&shard_of(process.pid()).0], "c");
    assert!(!world.owners().await.contains_key(&shard_of(both.pid()).0));
    assert_eq!(both.node().await.unwrap(), None);
    within(c.drain()).await;
    within(a.drain()).await;
}

/// The number of the last change.
async fn generation(world: &World) -> u64 {
    let sql = "SELECT generation FROM {schema}.placement";
    world.sql(sql).await[0].parse().unwrap()
}

/// How many rows of shards were read, as the server has counted them by now.
async fn shards_read(world: &World) -> u64 {
    let sql = "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables
        WHERE schemaname = '{schema}' AND relname IN ('shard', 'shard_needs')";
    world.sql(sql).await[0].parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_wait_for_a_change_read_no_shards() {
    const SHARDS: u64 = 64;
    let world = World::new(LONG_LEASE);
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        let options = world.options(name).shards(SHARDS as u32);
        nodes.push(world.join(options).await);
    }
    world.settled(&nodes[0], &["a", "b", "c"]).await;
    // The server counts with some delay.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (before, last) = (shards_read(&world).await, generation(&world).await);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(
        generation(&world).await,
        last,
        "signs of life are no change"
    );
    let read = shards_read(&world).await - before;
    // Three nodes look twelve times each, at 64 shards: 2,304 rows, if each look read all.
    assert!(read < 3 * SHARDS, "{read} rows were read");
    assert!(before > 3 * SHARDS, "the server counts nothing: {before}");
    for node in nodes {
        within(node.drain()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_raises_the_number_and_nothing_else_does() {
    let world = World::new(LONG_LEASE);
    let cluster = world.connect().await;
    let mut last = generation(&world).await;
    for (change, raises) in [
        ("INSERT INTO {schema}.node (id, name, address, labels, lease_ms, seen_at)
            VALUES ('x', 'x', 'x:1', '{}', 9000, clock_timestamp() - interval '1 hour')", true),
        ("UPDATE {schema}.node SET seen_at = clock_timestamp()", true),
        ("UPDATE {schema}.node SET seen_at = seen_at + interval '5 seconds', draining = false", false),
        ("UPDATE {schema}.node SET seen_at = seen_at + interval '7 seconds'", true),
        ("INSERT INTO {schema}.node AS n (id, name, address, labels, lease_ms, seen_at)
            VALUES ('x', 'x', 'x:1', '{}', 9000, now()) ON CONFLICT (id) DO UPDATE SET draining = n.draining", false),
        ("UPDATE {schema}.node SET draining = true", true),
        ("DELETE FROM {schema}.node", true),
        ("INSERT INTO {schema}.shard (id) VALUES (0)", true),
        ("SELECT {schema}.shards_with_needs('{gpu}', 4, 100)", true),
        ("SELECT {schema}.shards_with_needs('{gpu}', 4, 100)", false),
        ("UPDATE {schema}.shard SET writes = writes + 1", false),
    ] {
        world.sql(change).await;
        let now = generation(&world).await;
        assert_eq!(now > last, raises, "{change}");
        last = now;
    }
    drop(cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_that_end_at_once_are_missed() {
    let world = World::new(LEASE);
    let [a, b] = ["a", "b"].map(|name| world.spawn(name, &[]));
    let c = world.join(world.options("c")).await;
    world.settled(&c, &["a", "b", "c"]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    for node in [&a, &b] {
        node.signal("KILL");
    }
    let begun = std::time::Instant::now();
    until("the one that is left has all shards", async || {
        let owners = world.owners().await;
        owners.len() == 8 && owners.values().all(|node| node == "c")
    })
    .await;
    // Without anybody who sees their end, it would be found after a minute.
    assert!(begun.elapsed() < 4 * LEASE, "{:?}", begun.elapsed());
    within(c.drain()).await;
}
