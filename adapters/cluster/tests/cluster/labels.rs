//! Budgets of labels hold for all shards: whatever is killed and drained, the trees of all nodes
//! together stay within them, and what a shard has not used comes back.

use std::time::Duration;

use dormouse::label::{Label, LabelBudget};
use dormouse::{Amount, Budget};
use dormouse_cluster::{Cluster, ClusterError, LabelAmount, shard_of};
use futures_util::future::join_all;

use crate::common::{LEASE, LONG_LEASE, STEPS, World, until, within};

/// How many tokens a reply of [`World::steps`] has at most.
const REPLY_TOKENS: u64 = 40;
const TREES: usize = 24;

fn anna() -> Label {
    "user=anna".parse().unwrap()
}

fn tokens(output_tokens: u64) -> LabelBudget {
    let limits = Budget::default().with(Amount::OutputTokens, Some(output_tokens));
    // No midnight comes while the test runs.
    LabelBudget::per_month(limits)
}

async fn amount(cluster: &Cluster) -> LabelAmount {
    let labels = cluster.label_budgets().await.unwrap();
    let [label] = &labels[..] else {
        panic!("{labels:?}");
    };
    assert_eq!((&label.label, label.amounts.len()), (&anna(), 1));
    label.amounts[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_together_stay_within_a_budget_also_if_one_is_killed() {
    const LIMIT: u64 = 1200;
    let world = World::new(LEASE);
    let a = world.spawn("a", &[]);
    let b = world.spawn("b", &[]);
    let cluster = world.connect().await;
    world.settled(&cluster, &["a", "b"]).await;
    cluster
        .set_label_budget(anna(), tokens(LIMIT))
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let names: Vec<String> = (0..TREES).map(|n| format!("p{n}")).collect();
    let starts = names.iter().map(|name| {
        let start = cluster.start(world.steps()).input(&**name);
        start.label("user", "anna").into_future()
    });
    let processes: Vec<_> = within(join_all(starts)).await;
    let processes: Vec<_> = processes
        .into_iter()
        .map(|started| started.unwrap())
        .collect();
    until("a third is used", async || {
        amount(&cluster).await.used > LIMIT / 3
    })
    .await;
    let leased = amount(&cluster).await;
    a.signal("KILL");
    until("all is used", async || {
        let amount = amount(&cluster).await;
        assert!(
            amount.used <= LIMIT + TREES as u64 * REPLY_TOKENS,
            "{amount:?}"
        );
        amount.used >= LIMIT && amount.leased == 0
    })
    .await;
    // Nothing begins any more.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let used = amount(&cluster).await;
    eprintln!("killed at {leased:?}; used {used:?}");
    assert!(used.used <= LIMIT + TREES as u64 * REPLY_TOKENS, "{used:?}");
    let effects: usize = world.effects().values().sum();
    assert!(effects < TREES * STEPS, "the budget holds nothing up");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        world.effects().values().sum::<usize>(),
        effects,
        "work goes on"
    );

    cluster
        .set_label_budget(anna(), tokens(1_000_000))
        .await
        .unwrap();
    for process in &processes {
        let exit = within(process.wait()).await.unwrap();
        assert!(exit.message.ends_with("is done"), "{exit:?}");
    }
    // What is counted is what the records of the shards have.
    until("all is reported", async || {
        amount(&cluster).await.leased == 0
    })
    .await;
    let counted = amount(&cluster).await.used;
    b.signal("TERM");
    assert!(within(b.ended_well()).await);
    assert_eq!(amount(&cluster).await.used, counted);
    let mut recorded = 0;
    let mut shards: Vec<_> = processes.iter().map(|it| shard_of(it.pid())).collect();
    shards.sort_by_key(|shard| shard.0);
    shards.dedup();
    for shard in shards {
        let kernel = world.open_shard(shard).await;
        let spent = kernel.labels().into_iter().map(|label| label.spent);
        recorded += spent.map(|spent| spent.output_tokens).sum::<u64>();
        kernel.shutdown().await.unwrap();
    }
    assert_eq!(recorded, counted);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_shard_does_not_use_comes_back() {
    let world = World::new(LONG_LEASE);
    let a = world.join(world.options("a")).await;
    let b = world.join(world.options("b")).await;
    world.settled(&a, &["a", "b"]).await;
    let none = LabelBudget::per_day(Budget::default());
    let none = a.set_label_budget(anna(), none).await.unwrap_err();
    assert!(matches!(none, ClusterError::Label(_)), "{none}");
    a.set_label_budget(anna(), tokens(1000)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let start = || {
        let start = b.start(crate::common::echo()).session();
        start.label("user", "anna").without_input().into_future()
    };
    let mut sessions = Vec::new();
    for _ in 0..12 {
        sessions.push(within(start()).await.unwrap());
    }
    let say = async |text: &str| {
        for session in &sessions {
            within(session.input(text)).await.unwrap();
        }
    };
    say("one").await;
    until("each has answered", async || {
        amount(&a).await.used >= 12 * 2
    })
    .await;
    let busy = amount(&a).await;
    assert!(busy.leased > 0, "{busy:?}");
    until("all came back", async || amount(&a).await.leased == 0).await;
    // A node that leaves keeps nothing.
    let used = amount(&a).await.used;
    say("two").await;
    until("more is used", async || amount(&a).await.used > used).await;
    within(b.drain()).await;
    within(a.drain()).await;
    let left = amount(&a).await;
    assert_eq!(left.leased, 0, "{left:?}");
    a.remove_label_budget(anna()).await.unwrap();
    assert!(a.label_budgets().await.unwrap().is_empty());
}
