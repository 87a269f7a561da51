//! A node is drained: everything goes on elsewhere, and nothing is lost or done twice.

use futures_util::future::join_all;

use crate::common::{LONG_LEASE, STEPS, World, until, within};

async fn drains_by(drain: impl AsyncFn(&dormouse_cluster::Cluster, &crate::common::NodeProgram)) {
    let world = World::new(LONG_LEASE);
    let a = world.spawn("a", &[]);
    let _b = world.spawn("b", &[]);
    let cluster = world.connect().await;
    world.settled(&cluster, &["a", "b"]).await;
    let names: Vec<String> = (0..12).map(|n| format!("p{n}")).collect();
    let starts = names
        .iter()
        .map(|name| cluster.start(world.steps()).input(&**name).into_future());
    let processes: Vec<_> = within(join_all(starts)).await;
    until("some effects", async || world.ledger().len() > 20).await;
    drain(&cluster, &a).await;
    assert!(within(a.ended_well()).await);
    assert_eq!(cluster.nodes().await.unwrap().len(), 1);
    for process in processes {
        let exit = within(process.unwrap().wait()).await.unwrap();
        assert!(exit.message.ends_with("is done"), "{exit:?}");
    }
    let effects = world.effects();
    for name in &names {
        assert_eq!(effects.get(name), Some(&STEPS), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_moves_everything_without_a_lost_or_doubled_effect() {
    drains_by(async |_, node| node.signal("TERM")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_program_can_drain_a_node() {
    drains_by(async |cluster, _| {
        let unknown = cluster.drain_node("c").await.unwrap_err().to_string();
        assert!(unknown.contains("'c'") && unknown.contains("a, b") || unknown.contains("b, a"));
        cluster.drain_node("a").await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_can_be_restarted_one_after_the_other() {
    let world = World::new(LONG_LEASE);
    let mut nodes = ["a", "b", "c"].map(|name| (name, world.spawn(name, &[])));
    let cluster = world.connect().await;
    world.settled(&cluster, &["a", "b", "c"]).await;
    let names: Vec<String> = (0..30).map(|n| format!("p{n}")).collect();
    let mut processes = Vec::new();
    for (name, node) in &mut nodes {
        for each in names.iter().skip(processes.len()).take(10) {
            let start = cluster.start(world.steps()).input(&**each);
            processes.push(within(start.into_future()).await.unwrap());
        }
        node.signal("TERM");
        let old = std::mem::replace(node, world.spawn(name, &[]));
        assert!(within(old.ended_well()).await);
        world.settled(&cluster, &["a", "b", "c"]).await;
    }
    for process in processes {
        let exit = within(process.wait()).await.unwrap();
        assert!(exit.message.ends_with("is done"), "{exit:?}");
    }
    let effects = world.effects();
    for name in &names {
        assert_eq!(effects.get(name), Some(&STEPS), "{name}");
    }
}
