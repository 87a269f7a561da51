//! Messages between processes of different shards.

use dormouse_cluster::{Cluster, ClusterProcess, ProgramFiles, shard_of};

use crate::common::{SHORT_LEASE, World, echo, files, until, within};

const MESSAGES: usize = 20;

/// A program that sends messages to the process whose pid is its input, one after the other.
fn sender() -> ProgramFiles {
    let program = "[model]\nname = 's'\nprovider = 'scripted'\nscript = 'script.toml'\n\
                   max_iterations = 100\n[tools]\nenabled = ['send_message']\n";
    let script = format!(
        r#"
        [[turn]]
        when.holds = "round < {MESSAGES}"
        delay_ms = 30
        calls = [{{ tool = "send_message", args = {{ to = "{{{{ prompt }}}}", text = "note {{{{ round }}}}." }} }}]
        [[turn]]
        text = "{{{{ last }}}}"
        "#
    );
    files(program, &script)
}

/// A process in a shard of the given node, and one in a shard of another.
async fn pair(world: &World, cluster: &Cluster, node: &str) -> (ClusterProcess, ClusterProcess) {
    let owners = world.owners().await;
    let (mut there, mut elsewhere) = (None, None);
    while there.is_none() || elsewhere.is_none() {
        let process = cluster.start(echo()).session().without_input();
        let process = within(process.into_future()).await.unwrap();
        match owners[&shard_of(process.pid()).0] == node {
            true => there = Some(process),
            false => elsewhere = Some(process),
        }
    }
    (there.unwrap(), elsewhere.unwrap())
}

/// A sender to the process, at another node than the given one.
async fn send_to(
    world: &World,
    cluster: &Cluster,
    to: &ClusterProcess,
    not_at: &str,
) -> ClusterProcess {
    let owners = world.owners().await;
    loop {
        let idle = cluster.start(sender()).session().without_input();
        let idle = within(idle.into_future()).await.unwrap();
        if owners[&shard_of(idle.pid()).0] != not_at {
            within(idle.input(to.pid().to_string())).await.unwrap();
            return idle;
        }
    }
}

async fn idle(process: &ClusterProcess) {
    until("it is idle", async || {
        process.info().await.unwrap().status == "idle"
    })
    .await;
}

/// How often each message is in the conversation of the receiver.
fn check_received(texts: &[String]) {
    for n in 0..MESSAGES {
        let text = format!("note {n}.");
        let times: usize = texts
            .iter()
            .step_by(2)
            .map(|said| said.matches(&text).count())
            .sum();
        assert_eq!(times, 1, "{text} {texts:?}");
    }
}

/// The node whose program is killed while messages are under way.
#[derive(Clone, Copy, PartialEq)]
enum Killed {
    OfReceiver,
    OfSender,
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_arrive_once_though_the_node_of_the_receiver_is_killed() {
    arrive_once_though(Killed::OfReceiver).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_arrive_once_though_the_node_of_the_sender_is_killed() {
    arrive_once_though(Killed::OfSender).await;
}

async fn arrive_once_though(killed: Killed) {
    let world = World::new(SHORT_LEASE);
    let a = world.spawn("a", &[]);
    let b = world.spawn("b", &[]);
    let cluster = world.connect().await;
    world.settled(&cluster, &["a", "b"]).await;
    let (receiver, _) = pair(&world, &cluster, "a").await;
    let sender = send_to(&world, &cluster, &receiver, "a").await;
    until("some messages", async || {
        let info = receiver.info().await.unwrap();
        info.fact.is_some_and(|fact| fact.0 > 10)
    })
    .await;
    match killed {
        Killed::OfReceiver => a.signal("KILL"),
        Killed::OfSender => b.signal("KILL"),
    }
    idle(&sender).await;
    idle(&receiver).await;
    drop((a, b));
    check_received(&world.conversation(receiver.pid()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_be_reached_gets_messages_by_the_inbox() {
    let world = World::new(SHORT_LEASE);
    let a = world.join(world.options("a")).await;
    // Others are told an address where nobody listens.
    let b = world
        .join(world.options("b").advertised("127.0.0.1:1"))
        .await;
    until("each shard has an owner", async || {
        let owners = world.owners().await;
        owners.len() == 8 && owners.values().any(|owner| owner == "b")
    })
    .await;
    until("both hold what is theirs", async || {
        a.is_ready() && b.is_ready()
    })
    .await;
    let (receiver, _) = pair(&world, &b, "b").await;
    let sender = send_to(&world, &b, &receiver, "b").await;
    idle(&sender).await;
    idle(&receiver).await;
    let left = world.sql("SELECT count(*)::text FROM {schema}.inbox").await;
    assert_eq!(left, ["0"]);
    within(b.drain()).await;
    within(a.drain()).await;
    check_received(&world.conversation(receiver.pid()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_no_process_is_answered() {
    let world = World::new(SHORT_LEASE);
    let a = world.join(world.options("a")).await;
    world.settled(&a, &["a"]).await;
    for pid in [(5_u64 << 40) + 77, 4000 << 40] {
        let process = a.start(sender()).input(pid.to_string());
        let process = within(process.into_future()).await.unwrap();
        let exit = within(process.wait()).await.unwrap();
        assert!(exit.message.contains("no process"), "{exit:?}");
    }
    within(a.drain()).await;
}
