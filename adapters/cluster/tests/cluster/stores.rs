//! A whole store goes into a cluster, and comes out again.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use dormouse::id::Pid;
use dormouse::label::{Label, LabelBudget};
use dormouse::{Amount, Budget, Kernel, Position};
use dormouse_cluster::{Cluster, pids_of};
use dormouse_postgres::ShardId;

use crate::common::{LONG_LEASE, World, until, within};

const SESSIONS: usize = 6;

/// A store of another database: one of its shards, which nothing else uses.
async fn other_store(world: &World) -> Kernel {
    let node = world.join(world.options("other")).await;
    within(node.drain()).await;
    world.open_shard(ShardId(0)).await
}

async fn texts(kernel: &Kernel, pid: Pid) -> Vec<String> {
    let conversation = kernel.conversation(pid, Position::Now).await.unwrap();
    let messages = conversation.messages.iter();
    messages.map(|message| message.text().to_string()).collect()
}

async fn fill(kernel: &Kernel) -> Vec<Pid> {
    let program = "[model]\nname = 'echo'\nprovider = 'scripted'\nscript = 'script.toml'\n";
    let script = "[[turn]]\ntext = 'turn {{ turn }}: {{ prompt }}'\n";
    let file = |name: &str, text: &str| (name.to_owned(), Bytes::from(text.to_owned()));
    let files: BTreeMap<_, _> = [file("p.toml", program), file("script.toml", script)].into();
    let program = kernel.compile("p.toml", &files).unwrap().program;
    let mut pids = Vec::new();
    for n in 0..SESSIONS {
        let start = kernel.start(program.clone()).label("user", "anna");
        let session = start.name(format!("s{n}")).session().without_input();
        let session = session.await.unwrap();
        within(session.turn("one")).await.unwrap();
        pids.push(session.pid());
    }
    let once = kernel.start(program).input("once").await.unwrap();
    within(once.wait()).await.unwrap();
    pids.push(once.pid());
    let limits = Budget::default().with(Amount::OutputTokens, Some(1_000_000));
    let budget = LabelBudget::per_month(limits);
    kernel.set_label_budget(anna(), budget).await.unwrap();
    pids
}

fn anna() -> Label {
    "user=anna".parse().unwrap()
}

/// Imports a store by a call that is cut off at more and more places.
async fn import_in_pieces(cluster: &Cluster, source: &Kernel) -> BTreeMap<Pid, Pid> {
    for (cut_off, millis) in (10..).step_by(30).enumerate() {
        let import = cluster.import_store("team", source);
        if let Ok(imported) = tokio::time::timeout(Duration::from_millis(millis), import).await {
            eprintln!("the import was cut off {cut_off} times");
            return imported.unwrap().pids;
        }
    }
    unreachable!("there is time for all of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_goes_into_a_cluster_and_comes_out_again() {
    let (from, world, to) = (
        World::new(LONG_LEASE),
        World::new(LONG_LEASE),
        World::new(LONG_LEASE),
    );
    let source = other_store(&from).await;
    let old = fill(&source).await;
    source.shutdown().await.unwrap();
    // Nothing runs in it from now on.
    let source = from.open_shard(ShardId(0)).await;
    let cluster = world.join(world.options("a")).await;
    world.settled(&cluster, &["a"]).await;
    let pids = import_in_pieces(&cluster, &source).await;
    assert_eq!(pids.keys().copied().collect::<Vec<_>>(), old);
    let again = within(cluster.import_store("team", &source)).await.unwrap();
    assert_eq!(again.pids, pids, "no tree comes twice");
    assert!(again.budgets.is_empty(), "they came with the first call");
    let budgets = cluster.label_budgets().await.unwrap();
    assert_eq!(budgets[0].label, anna());
    source.shutdown().await.unwrap();

    // A node keeps a budget half a second after it was set, and counts nothing of before.
    tokio::time::sleep(Duration::from_secs(3)).await;
    // The sessions go on, and what had ended has ended.
    for (n, old) in old.iter().enumerate() {
        let process = cluster.process(pids[old]);
        let info = within(process.info()).await.unwrap();
        if n == SESSIONS {
            assert_eq!(info.status, "done");
            continue;
        }
        assert_eq!(info.row.name.as_deref(), Some(&*format!("s{n}")));
        assert!(info.row.labels.contains(&anna()), "{:?}", info.row.labels);
        within(process.input("two")).await.unwrap();
    }
    until("all have answered", async || {
        // Each has said "one" before, which counts no more.
        cluster.label_budgets().await.unwrap()[0].amounts[0].used >= 2 * SESSIONS as u64
    })
    .await;

    let target = other_store(&to).await;
    let brought = within(cluster.export_store(&target)).await.unwrap();
    assert_eq!(brought.len(), SESSIONS + 1);
    let again = within(cluster.export_store(&target)).await.unwrap();
    assert_eq!(again, brought);
    within(cluster.drain()).await;
    assert_eq!(target.processes().await.unwrap().len(), SESSIONS + 1);
    for (n, old) in old.iter().enumerate().take(SESSIONS) {
        let here = brought[&pids[old]];
        assert!(pids_of(ShardId(0)).contains(&here));
        let session = target.resume(here).await.unwrap();
        session.input("three").await.unwrap();
        until("it has answered", async || {
            texts(&target, here).await.len() == 6
        })
        .await;
        let said = texts(&target, here).await;
        assert_eq!(said[1..4], ["turn 0: one", "two", "turn 1: two"], "{n}");
        assert_eq!(said[5], "turn 2: three");
    }
    target.shutdown().await.unwrap();
}
