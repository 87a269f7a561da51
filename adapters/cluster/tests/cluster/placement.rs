//! Programs that need labels of nodes run there, and only there.

use dormouse_cluster::{ClusterError, shard_of};

use crate::common::{LONG_LEASE, World, echo, files, within};

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
