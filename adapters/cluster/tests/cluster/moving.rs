//! Trees move to other shards: one of both trees goes on, at whatever step a node dies.

use std::ffi::OsStr;
use std::fmt;

use dormouse::Kernel;
use dormouse::host::{LocalHost, Permissions};
use dormouse::models::ScriptedProvider;
use dormouse_cluster::{
    Cluster, ClusterError, ClusterEvent, ClusterProcess, MoveError, Refusal, shard_of,
};
use dormouse_postgres::ShardId;
use futures_util::StreamExt;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::common::{LEASE, LONG_LEASE, World, echo, until, within};

/// The variables that name a node in a program of its own, and the step of a move at which it dies.
const NODE: &str = "DORMOUSE_TEST_NODE";
const STEP: &str = "DORMOUSE_TEST_STEP";

/// Aborts the program when it says that it has come to a step.
struct DiesAt(String);

impl Visit for &DiesAt {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "step" && value == self.0 {
            std::process::abort();
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

impl Subscriber for DiesAt {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut &*self);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Not a test: a node that dies at a step of a move.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the program of a node, which another test starts"]
async fn node_that_dies() {
    let dies_at = DiesAt(std::env::var(STEP).unwrap());
    tracing::subscriber::set_global_default(dies_at).unwrap();
    let options = World::options_of_child(&std::env::var(NODE).unwrap(), LEASE);
    let kernel = |_| {
        let permissions = Permissions::none().allow_run("sh").allow_unconfined("sh");
        let host = LocalHost::new(permissions, std::env::temp_dir()).unwrap();
        Kernel::builder()
            .provider("scripted", ScriptedProvider)
            .reach(dormouse::mail::Reach::Everyone)
            .host(host)
    };
    Cluster::join(options, kernel).await.unwrap().left().await;
}

/// A tree at node `a` that goes on until it is told to end, and a shard of node `b`.
async fn tree_and_target(world: &World, cluster: &Cluster) -> (ClusterProcess, String, ShardId) {
    let owners = world.owners().await;
    let target = owners.iter().find(|(_, node)| *node == "b");
    let target = ShardId(*target.unwrap().0);
    for n in 0.. {
        let name = format!("p{n}");
        let start = cluster.start(world.steps_until_told()).input(&*name);
        let start = start.name("mover").label("user", "anna");
        // One that is at b, or has the name of another of its shard, is not the one to move.
        let Ok(started) = within(start.into_future()).await else {
            continue;
        };
        if owners[&shard_of(started.pid()).0] == "a" {
            return (started, name, target);
        }
        within(started.kill()).await.unwrap();
    }
    unreachable!("one of many is at a");
}

/// Moves a tree while the node `dies` dies at a step.
async fn moves_although(dies: &str, step: &str) {
    let world = World::new(LEASE);
    let nodes = ["a", "b"].map(|node| match node == dies {
        true => {
            let variables = [(NODE, OsStr::new(node)), (STEP, OsStr::new(step))];
            world.spawn_test(node, "moving::node_that_dies", &variables)
        }
        false => world.spawn(node, &[]),
    });
    let cluster = world.connect().await;
    world.settled(&cluster, &["a", "b"]).await;
    let (old, name, target) = tree_and_target(&world, &cluster).await;
    until("some effects", async || {
        world.effects().get(&name).is_some_and(|made| *made > 2)
    })
    .await;
    let new = within(cluster.move_tree(old.pid(), target)).await.unwrap();
    let is_dead = cluster.nodes().await.unwrap().len() == 1;
    assert!(is_dead, "{dies} did not die at {step}");
    assert_eq!(shard_of(new.pid()), target);
    // A move can take several attempts: whatever they take, the tree has not ended before it moved.
    world.tell_to_end();
    let mut steps = 0;
    // By the old number as by the new one.
    for process in [&old, &new] {
        let exit = within(process.wait()).await.unwrap();
        let message = exit.message.to_string();
        let said = message.strip_suffix(" steps").and_then(|n| n.parse().ok());
        steps = said.unwrap_or_else(|| panic!("{dies} {step}: {message}"));
        let row = within(process.info()).await.unwrap().row;
        assert_eq!(row.pid, new.pid());
        assert_eq!(row.name.as_deref(), Some("mover"));
        assert!(row.labels.iter().any(|it| it.to_string() == "user=anna"));
    }
    let made = world.effects()[&name];
    assert!(
        (steps - 1..=steps).contains(&made),
        "{dies} {step}: {made} of {steps}"
    );
    let again = within(cluster.move_tree(old.pid(), target)).await.unwrap();
    assert_eq!(again.pid(), new.pid());
    // Of all copies, one has come to its end by itself.
    let listed = within(cluster.processes(None, 1000)).await.unwrap();
    let done = listed.iter().filter(|info| info.status == "done");
    assert_eq!(done.count(), 1, "{dies} {step}: {listed:?}");
    drop(nodes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_moves_although_its_node_dies_before_the_move_is_committed() {
    for step in ["begun", "exported", "copied"] {
        moves_although("a", step).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_moves_although_its_node_dies_after_the_move_is_committed() {
    for step in ["moved", "opened", "resumed"] {
        moves_although("a", step).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_moves_although_the_node_dies_that_it_moves_to() {
    for step in ["taken", "resuming"] {
        moves_although("b", step).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_and_events_follow_a_tree_that_moves_to_and_fro() {
    let world = World::new(LONG_LEASE);
    let a = world.join(world.options("a")).await;
    world.settled(&a, &["a"]).await;
    let session = a.start(echo()).session().without_input();
    let session = within(session.into_future()).await.unwrap();
    let stopped = a.start(echo()).session().without_input();
    let stopped = within(stopped.into_future()).await.unwrap();
    within(session.input("one")).await.unwrap();
    let home = shard_of(session.pid());
    let [first, second] = [1, 2].map(|n| ShardId((home.0 + n) % crate::common::SHARDS));
    let mut places = vec![session.clone()];
    let events = session.events().collect::<Vec<_>>();
    let events = tokio::spawn(events);
    for to in [first, second, home] {
        // By the first number, which leads to the present one.
        places.push(within(a.move_tree(session.pid(), to)).await.unwrap());
        assert_eq!(shard_of(places.last().unwrap().pid()), to);
        within(session.input("more")).await.unwrap();
    }
    let last = places.last().unwrap();
    let info = within(session.info()).await.unwrap();
    assert_eq!(info.row.pid, last.pid());
    // What is stopped stays stopped.
    let signal = dormouse_cluster::Signal::Stop;
    let scope = dormouse::checkpoint::Scope::Process;
    within(stopped.signal(signal, scope)).await.unwrap();
    let to = ShardId((shard_of(stopped.pid()).0 + 3) % crate::common::SHARDS);
    let moved = within(a.move_tree(stopped.pid(), to)).await.unwrap();
    until("it is stopped there", async || {
        within(moved.info()).await.unwrap().status == "stopped"
    })
    .await;

    let none = within(a.move_tree(last.pid(), ShardId(4000))).await;
    assert!(
        matches!(none, Err(MoveError::NoShard(ShardId(4000)))),
        "{none:?}"
    );
    let unknown = dormouse::id::Pid(last.pid().0 + 999);
    let unknown = within(a.move_tree(unknown, first)).await.unwrap_err();
    assert!(matches!(unknown, MoveError::Refused { .. }), "{unknown}");
    until("the last has an answer", async || {
        within(session.info()).await.unwrap().status == "idle"
    })
    .await;
    within(session.kill()).await.unwrap();
    let events = within(events).await.unwrap();
    let last_event = events.last().unwrap();
    assert!(matches!(last_event, ClusterEvent::Exited(_)), "{events:?}");
    let late = within(session.input("late")).await.unwrap_err();
    assert!(
        matches!(
            &late,
            ClusterError::Refused {
                kind: Refusal::Ended,
                ..
            }
        ),
        "{late}"
    );
    within(a.drain()).await;
    let texts = world.conversation(last.pid()).await;
    let expected = [
        "one",
        "turn 0: one",
        "more",
        "turn 1: more",
        "more",
        "turn 2: more",
        "more",
        "turn 3: more",
    ];
    assert_eq!(texts, expected);
}
