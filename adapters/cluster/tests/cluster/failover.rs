//! A node is killed: its trees go on elsewhere, nothing is done twice, and calls find the new
//! owner.

use std::time::Instant;

use futures_util::future::join_all;

use crate::common::{LEASE, STEPS, World, echo, until, within};

#[tokio::test(flavor = "multi_thread")]
async fn the_trees_of_a_killed_node_go_on_elsewhere() {
    let world = World::new(LEASE);
    let a = world.spawn("a", &[]);
    let _b = world.spawn("b", &[]);
    let cluster = world.connect().await;
    world.settled(&cluster, &["a", "b"]).await;

    // A session and an input before, by ids that are used again after the loss.
    let starts = (0..12).map(|n| {
        cluster
            .start(echo())
            .session()
            .without_input()
            .request_id(format!("s{n}"))
    });
    let mut sessions = Vec::new();
    for start in starts {
        sessions.push(within(start.into_future()).await.unwrap());
    }
    let owners = world.owners().await;
    let owner = |pid| &*owners[&dormouse_cluster::shard_of(pid).0];
    let lost = sessions
        .iter()
        .position(|session| owner(session.pid()) == "a");
    let lost = lost.expect("one of 12 is in a shard of a");
    let session = &sessions[lost];
    within(session.input_as("i1", "first")).await.unwrap();

    let names: Vec<String> = (0..12).map(|n| format!("p{n}")).collect();
    let starts = names
        .iter()
        .map(|name| cluster.start(world.steps()).input(&**name).into_future());
    let processes: Vec<_> = within(join_all(starts)).await;
    let processes: Vec<_> = processes
        .into_iter()
        .map(|started| started.unwrap())
        .collect();
    let waits = processes.iter().cloned();
    let waits = waits.map(async |process| process.wait().await);
    let waits = tokio::spawn(join_all(waits));
    until("some effects", async || world.ledger().len() > 20).await;
    let shards_of_a = owners.values().filter(|node| *node == "a").count();
    a.signal("KILL");
    let killed = Instant::now();
    until("b has all shards", async || {
        let owners = world.owners().await;
        owners.len() == owners.values().filter(|node| *node == "b").count() && owners.len() == 8
    })
    .await;
    eprintln!(
        "{shards_of_a} shards of the killed node were claimed after {:?}, with a lease of {LEASE:?}",
        killed.elapsed()
    );

    // What was done before the loss is not done again.
    within(session.input_as("i1", "first")).await.unwrap();
    within(session.input_as("i2", "second")).await.unwrap();
    let again = cluster.start(echo()).session().without_input();
    let again = within(again.request_id(format!("s{lost}")).into_future())
        .await
        .unwrap();
    assert_eq!(again.pid(), session.pid());

    for exit in within(waits).await.unwrap() {
        assert!(exit.unwrap().message.ends_with("is done"));
    }
    let effects = world.effects();
    for (process, name) in processes.iter().zip(&names) {
        let made = effects.get(name).copied().unwrap_or_default();
        match owner(process.pid()) {
            // The effect in flight is unknown to the successor, and is not made again.
            "a" => assert!((STEPS - 1..=STEPS).contains(&made), "{name} made {made}"),
            _ => assert_eq!(made, STEPS, "{name}"),
        }
    }
    drop(_b);
    let texts = world.conversation(session.pid()).await;
    let inputs: Vec<_> = texts.iter().step_by(2).map(|text| &**text).collect();
    assert_eq!(inputs, ["first", "second"], "{texts:?}");
}
