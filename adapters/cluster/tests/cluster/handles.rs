//! Handles on processes, from a node and from a program that is none.

use dormouse::checkpoint::Scope;
use dormouse::id::Pid;
use dormouse_cluster::{
    ClusterError, ClusterEvent, ClusterPosition, Refusal, Runs, Signal, pids_of,
};
use dormouse_postgres::ShardId;
use futures_util::StreamExt;

use crate::common::{LONG_LEASE, SHARDS, World, echo, files, until, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_is_valid_wherever_the_process_runs() {
    let world = World::new(LONG_LEASE);
    let a = world.join(world.options("a")).await;
    let b = world.join(world.options("b")).await;
    world.settled(&a, &["a", "b"]).await;
    let outside = world.connect().await;

    for cluster in [&a, &b, &outside] {
        for n in 0..6 {
            let process = cluster.start(echo()).session().without_input();
            let process = within(process.into_future()).await.unwrap();
            let mut events = Box::pin(process.events());
            // Until the watcher is connected, events are not for it.
            let first = async {
                loop {
                    process.input(format!("hello {n}")).await.unwrap();
                    let event =
                        tokio::time::timeout(std::time::Duration::from_millis(500), events.next());
                    if let Ok(Some(event)) = event.await {
                        return event;
                    }
                }
            };
            within(first).await;
            let ended = async {
                loop {
                    if let Some(ClusterEvent::TurnEnded(exit)) = events.next().await {
                        return exit;
                    }
                }
            };
            assert!(within(ended).await.message.contains(&format!("hello {n}")));
            let checkpoint = within(process.checkpoint("here", Scope::Tree))
                .await
                .unwrap();
            let at = ClusterPosition::Checkpoint(checkpoint.id);
            let branch = within(process.branch(at, Runs::AtOnce)).await.unwrap();
            assert_ne!(branch.pid(), process.pid());
            within(branch.kill()).await.unwrap();
            assert_eq!(within(branch.wait()).await.unwrap().status.word(), "killed");
            within(process.signal(Signal::Stop, Scope::Tree))
                .await
                .unwrap();
            assert_eq!(within(process.info()).await.unwrap().status, "stopped");
            within(process.signal(Signal::Continue, Scope::Tree))
                .await
                .unwrap();
            within(process.interrupt()).await.unwrap();
            within(process.kill()).await.unwrap();
            let exit = within(process.wait()).await.unwrap();
            let last = async { events.by_ref().collect::<Vec<_>>().await };
            assert_eq!(within(last).await.last(), Some(&ClusterEvent::Exited(exit)));
            let refused = within(process.input("late")).await.unwrap_err();
            assert!(
                matches!(
                    refused,
                    ClusterError::Refused {
                        kind: Refusal::Ended,
                        ..
                    }
                ),
                "{refused}"
            );
        }
    }
    let unknown = outside.process(*pids_of(ShardId(1)).end());
    let refused = within(unknown.info()).await.unwrap_err();
    assert!(
        matches!(
            refused,
            ClusterError::Refused {
                kind: Refusal::NotFound,
                ..
            }
        ),
        "{refused}"
    );

    // All processes of all shards, in pages.
    let mut pids: Vec<Pid> = Vec::new();
    loop {
        let page = within(outside.processes(pids.last().copied(), 5))
            .await
            .unwrap();
        if page.is_empty() {
            break;
        }
        pids.extend(page.iter().map(|info| info.row.pid));
    }
    assert_eq!(pids.len(), 36);
    assert!(pids.is_sorted());
    let invalid = within(outside.start("[model]\nname = 'x'").into_future())
        .await
        .unwrap_err();
    assert!(
        matches!(
            invalid,
            ClusterError::Refused {
                kind: Refusal::Invalid,
                ..
            }
        ),
        "{invalid}"
    );
    within(b.drain()).await;
    within(a.drain()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_executed_once_however_often_it_is_made() {
    let world = World::new(LONG_LEASE);
    let node = world.join(world.options("a")).await;
    world.settled(&node, &["a"]).await;
    let start = || {
        within(
            node.start(echo())
                .session()
                .without_input()
                .request_id("one")
                .into_future(),
        )
    };
    let (first, second) = tokio::join!(start(), start());
    let process = first.unwrap();
    assert_eq!(process.pid(), second.unwrap().pid());
    assert_eq!(start().await.unwrap().pid(), process.pid());
    let input = || within(process.input_as("in", "once"));
    let (first, second) = tokio::join!(input(), input());
    first.unwrap();
    second.unwrap();
    input().await.unwrap();
    within(process.input_as("in 2", "twice")).await.unwrap();
    until("both are answered", async || {
        process.info().await.unwrap().status == "idle"
    })
    .await;
    within(node.drain()).await;
    let texts = world.conversation(process.pid()).await;
    assert_eq!(
        texts.iter().filter(|text| *text == "once").count(),
        1,
        "{texts:?}"
    );
    assert_eq!(
        texts.iter().filter(|text| text.contains("twice")).count(),
        2,
        "{texts:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_node_takes_its_part_and_nothing_else_moves() {
    let world = World::new(LONG_LEASE);
    let a = world.join(world.options("a")).await;
    world.settled(&a, &["a"]).await;
    let before = world
        .sql("SELECT epoch::text FROM {schema}.shard ORDER BY id")
        .await;
    let b = world.join(world.options("b")).await;
    world.settled(&a, &["a", "b"]).await;
    until("each shard has an owner", async || {
        world.owners().await.len() == SHARDS as usize
    })
    .await;
    let owners = world.owners().await;
    let after = world
        .sql("SELECT epoch::text FROM {schema}.shard ORDER BY id")
        .await;
    for (shard, owner) in &owners {
        let index = *shard as usize;
        assert_eq!(owner == "a", before[index] == after[index], "{owners:?}");
    }
    assert!(owners.values().any(|owner| owner == "b"));
    within(b.drain()).await;
    within(a.drain()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_numbers_and_the_facts_of_a_process_can_be_read_from_everywhere() {
    let world = World::new(LONG_LEASE);
    let a = world.join(world.options("a")).await;
    world.settled(&a, &["a"]).await;
    let program = "[model]\nname = 'm'\nprovider = 'scripted'\nscript = 'script.toml'\n\
                   [tools]\nenabled = ['read_fd']\n";
    let script = "[[turn]]\nwhen.round = 0\ncalls = [{ tool = 'read_fd', args = { fd = 'fd:9' } }]\n\
                  [[turn]]\ntext = 'there is none'\n";
    let outside = world.connect().await;
    let process = outside.start(files(program, script)).input("go");
    let process = within(process.into_future()).await.unwrap();
    within(process.wait()).await.unwrap();

    let facts = within(process.log()).await.unwrap();
    let answers = facts.iter().filter(|fact| fact.name == "tool_returned");
    assert_eq!(answers.count(), 1, "{facts:?}");
    let view = within(process.inspect()).await.unwrap();
    assert_eq!(facts.last().unwrap().number, view.fact);
    // The input, the call, its answer and the last reply.
    assert_eq!((view.messages, view.descriptors), (4, 0), "{view:?}");
    assert!(
        view.produced_chars > 0 && view.produced_chars == view.entered_chars,
        "{view:?}"
    );
    let nobody = outside.process(Pid(process.pid().0 + 1));
    for refused in [
        within(nobody.log()).await.err(),
        within(nobody.inspect()).await.err(),
    ] {
        let refused = refused.unwrap();
        assert!(matches!(refused, ClusterError::Refused { .. }), "{refused}");
    }
    within(a.drain()).await;
}
