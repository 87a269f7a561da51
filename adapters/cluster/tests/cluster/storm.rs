//! Starts and inputs while a node is killed: each is done once, and is answered.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse_cluster::ClusterProcess;
use futures_util::future::join_all;

use crate::common::{SHORT_LEASE, World, echo, until, within};

const SESSIONS: usize = 8;
const INPUTS: usize = 15;
const STARTS: usize = 60;

#[tokio::test(flavor = "multi_thread")]
async fn starts_and_inputs_are_made_once_while_a_node_is_killed() {
    let world = World::new(SHORT_LEASE);
    let a = world.spawn("a", &[]);
    let b = world.spawn("b", &[]);
    let cluster = world.connect().await;
    world.settled(&cluster, &["a", "b"]).await;
    let sessions = (0..SESSIONS).map(|_| cluster.start(echo()).session().without_input());
    let sessions = within(join_all(sessions.map(IntoFuture::into_future))).await;
    let sessions: Vec<ClusterProcess> = sessions.into_iter().map(Result::unwrap).collect();

    let inputs = sessions.clone().into_iter().map(async |session| {
        for n in 0..INPUTS {
            session.input(format!("input {n}.")).await.unwrap();
        }
    });
    let inputs = tokio::spawn(join_all(inputs));
    let starts = (0..STARTS).map(|n| {
        let start = cluster.start(echo()).input(format!("start {n}"));
        async move {
            tokio::time::sleep(Duration::from_millis(10) * n as u32).await;
            start.await.unwrap().pid()
        }
    });
    let starts = tokio::spawn(join_all(starts.collect::<Vec<_>>()));
    tokio::time::sleep(Duration::from_millis(200)).await;
    a.signal("KILL");
    let started: BTreeSet<_> = within(starts).await.unwrap().into_iter().collect();
    within(inputs).await.unwrap();
    assert_eq!(started.len(), STARTS);
    for session in &sessions {
        until("it is idle", async || {
            session.info().await.unwrap().status == "idle"
        })
        .await;
    }
    let listed = within(cluster.processes(None, 1000)).await.unwrap();
    let listed: BTreeSet<_> = listed.iter().map(|info| info.row.pid).collect();
    let known: BTreeSet<_> = sessions
        .iter()
        .map(ClusterProcess::pid)
        .chain(started)
        .collect();
    assert_eq!(listed, known, "no start has made another process");
    drop((a, b));
    for session in &sessions {
        let texts = world.conversation(session.pid()).await;
        let said = texts.iter().step_by(2);
        let said = said.fold(String::new(), |all, text| all + text);
        for n in 0..INPUTS {
            let text = format!("input {n}.");
            assert_eq!(said.matches(&text).count(), 1, "{text} {texts:?}");
        }
    }
}
