//! A node is stopped for longer than its lease, and wakes up as a zombie.

use std::time::Duration;

use futures_util::future::join_all;

use crate::common::{LEASE, STEPS, World, http, until, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_wakes_up_after_its_lease_does_and_commits_nothing() {
    let world = World::new(LEASE);
    let a = world.spawn("a", &[]);
    let b = world.spawn("b", &[]);
    let cluster = world.connect().await;
    world.settled(&cluster, &["a", "b"]).await;
    let names: Vec<String> = (0..12).map(|n| format!("p{n}")).collect();
    let starts = names
        .iter()
        .map(|name| cluster.start(world.steps()).input(&**name).into_future());
    let processes: Vec<_> = within(join_all(starts)).await;
    let processes: Vec<_> = processes
        .into_iter()
        .map(|started| started.unwrap())
        .collect();
    until("some effects", async || world.ledger().len() > 20).await;
    let owners = world.owners().await;
    let was_at_a = |pid| owners[&dormouse_cluster::shard_of(pid).0] == "a";
    a.signal("STOP");
    tokio::time::sleep(2 * LEASE).await;
    until("b has all shards", async || {
        let owners = world.owners().await;
        owners.len() == 8 && owners.values().all(|node| node == "b")
    })
    .await;
    let address = "SELECT address FROM {schema}.node WHERE name = 'a'";
    let address = world.sql(address).await.remove(0);
    a.signal("CONT");
    for process in &processes {
        let exit = within(process.wait()).await.unwrap();
        assert!(exit.message.ends_with("is done"), "{exit:?}");
    }
    // The zombie has had time to act; it may also have come back as a node by now.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let effects = world.effects();
    for (process, name) in processes.iter().zip(&names) {
        let made = effects.get(name).copied().unwrap_or_default();
        match was_at_a(process.pid()) {
            true => assert!((STEPS - 1..=STEPS).contains(&made), "{name} made {made}"),
            false => assert_eq!(made, STEPS, "{name}"),
        }
    }
    // It had kernels that ran, and has stopped all of them.
    let of_a = owners.values().filter(|owner| *owner == "a").count();
    let metrics = http()
        .get(format!("http://{address}/metrics"))
        .send()
        .await
        .unwrap();
    let metrics = metrics.text().await.unwrap();
    assert!(
        metrics.contains(&format!("dormouse_shards_lost_total {of_a}\n")),
        "{metrics}"
    );
    // It is a node again, with its shards, and all processes are where they were.
    world.settled(&cluster, &["a", "b"]).await;
    until("a has its shards again", async || {
        world.owners().await == owners
    })
    .await;
    let listed = within(cluster.processes(None, 1000)).await.unwrap();
    assert_eq!(listed.len(), names.len());
    assert!(listed.iter().all(|info| info.status == "done"));
    drop((a, b));
}
