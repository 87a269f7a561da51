//! The limits of servers hold for all nodes that share them: calls at a time, and tokens of a
//! minute.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse::Kernel;
use dormouse::message::Block;
use dormouse::model::{Delta, ModelError, Reply, Request, StopReason, Usage};
use dormouse::ports::Model;
use dormouse_cluster::{Cluster, ClusterError, ClusterOptions, ClusterProcess, Refusal, shard_of};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};

use crate::common::{LEASE, LONG_LEASE, World, until, within};

const PROGRAM: &str = "[model]\nname = 'm'\nprovider = 'scripted'\n";

/// The variable that names the folder of the calls of a node in a program of its own.
const FOLDER: &str = "DORMOUSE_TEST_CALLS";

/// A model that leaves a file in a folder while a call of it runs, so that all programs together
/// can be counted.
#[derive(Clone)]
struct Counted {
    folder: PathBuf,
    node: &'static str,
    lasts: Duration,
    begun: Arc<AtomicUsize>,
    /// The most calls that ran when one of this node began.
    most: Arc<AtomicUsize>,
}

impl Counted {
    fn new(folder: &Path, node: &'static str, lasts: Duration) -> Self {
        Self {
            folder: folder.to_owned(),
            node,
            lasts,
            begun: Arc::default(),
            most: Arc::default(),
        }
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    async fn join(&self, options: ClusterOptions) -> Cluster {
        let model = self.clone();
        let kernel = move |_| Kernel::builder().model("m", model.clone());
        Cluster::join(options, kernel).await.unwrap()
    }
}

impl Model for Counted {
    fn call<'a>(
        &'a self,
        _: Request,
        _: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let call = async {
            let number = self.begun.fetch_add(1, Ordering::SeqCst);
            let file = self.folder.join(format!("{}-{number}", self.node));
            std::fs::write(&file, "").unwrap();
            self.most
                .fetch_max(running(&self.folder, ""), Ordering::SeqCst);
            tokio::time::sleep(self.lasts).await;
            std::fs::remove_file(&file).unwrap();
            Ok(Reply {
                blocks: vec![Block::text("done")],
                stop: StopReason::EndTurn,
                usage: Usage {
                    input_tokens: 200,
                    ..Usage::default()
                },
            })
        };
        call.boxed()
    }
}

/// How many calls run, of nodes whose names begin so.
fn running(folder: &Path, node: &str) -> usize {
    let files = std::fs::read_dir(folder).unwrap();
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with(node)).count()
}

async fn start_many(cluster: &Cluster, program: &str, count: usize) -> Vec<ClusterProcess> {
    let starts = (0..count).map(|_| cluster.start(program).input("go").into_future());
    let started = within(join_all(starts)).await.into_iter();
    started.map(|started| started.unwrap()).collect()
}

/// Has a process at each of these nodes make a call.
async fn call_at_each(world: &World, cluster: &Cluster, program: &str, nodes: [&str; 2]) {
    let owners = world.owners().await;
    for node in nodes {
        loop {
            let start = cluster.start(program).without_input();
            let process = within(start.into_future()).await.unwrap();
            if owners[&shard_of(process.pid()).0] == node {
                within(process.input("go")).await.unwrap();
                within(process.wait()).await.unwrap();
                break;
            }
            within(process.kill()).await.unwrap();
        }
    }
}

/// Not a test: the node of the test below that is killed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the program of a node, which another test starts"]
async fn node_in_a_program_of_its_own() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let options = World::options_of_child("a", LEASE).shared_model_calls(CALLS);
    let model = Counted::new(&folder, "a", Duration::from_millis(300));
    model.join(options).await.left().await;
}

const CALLS: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn no_more_calls_run_at_all_nodes_than_they_share_also_if_one_is_killed() {
    let world = World::new(LEASE);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let program = "permits::node_in_a_program_of_its_own";
    let a = world.spawn_test("a", program, &[(FOLDER, folder.as_os_str())]);
    let model = Counted::new(folder, "b", Duration::from_millis(300));
    let options = world.options("b").shared_model_calls(CALLS);
    let b = model.join(options).await;
    world.settled(&b, &["a", "b"]).await;
    // However long the starts take, calls wait until the test is over.
    let starting = {
        let b = b.clone();
        tokio::spawn(async move { start_many(&b, PROGRAM, 240).await })
    };
    until("both run calls", async || {
        assert!(running(folder, "") <= CALLS);
        running(folder, "a") > 0 && running(folder, "b") > 0
    })
    .await;
    for _ in 0..150 {
        assert!(running(folder, "") <= CALLS);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let at_both = (model.most(), model.begun());
    a.signal("KILL");
    assert!(!within(a.ended_well()).await);
    // Its calls ended with it.
    for file in std::fs::read_dir(folder).unwrap() {
        let file = file.unwrap();
        if file.file_name().to_string_lossy().starts_with('a') {
            std::fs::remove_file(file.path()).unwrap();
        }
    }
    until("the other node has the calls of both", async || {
        assert!(running(folder, "") <= CALLS);
        running(folder, "b") == CALLS
    })
    .await;
    for process in starting.await.unwrap() {
        within(process.wait()).await.unwrap();
    }
    eprintln!(
        "most calls at both: {at_both:?}, then {}; {} in all",
        model.most(),
        model.begun()
    );
    assert_eq!(model.most(), CALLS);
    within(b.drain()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_take_turns_if_there_are_more_of_them_than_calls() {
    let world = World::new(LONG_LEASE);
    let folder = tempfile::tempdir().unwrap();
    let models =
        ["a", "b"].map(|node| Counted::new(folder.path(), node, Duration::from_millis(20)));
    let mut nodes = Vec::new();
    for model in &models {
        let options = world
            .options(model.node)
            .shared_provider_calls("scripted", 1);
        nodes.push(model.join(options).await);
    }
    world.settled(&nodes[0], &["a", "b"]).await;
    // More than one of them can make in ten turns.
    let processes = start_many(&nodes[0], PROGRAM, 400).await;
    let begun = std::time::Instant::now();
    until("both have made calls", async || {
        models.iter().all(|model| model.begun() > 0)
    })
    .await;
    eprintln!("both made calls after {:?}", begun.elapsed());
    for process in processes {
        within(process.wait()).await.unwrap();
    }
    assert!(models.iter().all(|model| model.most() == 1));
    for node in nodes {
        within(node.drain()).await;
    }
    let shares = world.sql("SELECT node FROM {schema}.permit_share").await;
    assert_eq!(shares, Vec::<String>::new(), "a node that left has none");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tokens_of_a_minute_are_those_of_all_nodes() {
    const TOKENS: usize = 4_000;
    let world = World::new(LONG_LEASE);
    let folder = tempfile::tempdir().unwrap();
    let models =
        ["a", "b"].map(|node| Counted::new(folder.path(), node, Duration::from_millis(20)));
    let mut nodes = Vec::new();
    for model in &models {
        nodes.push(model.join(world.options(model.node).shared_tokens()).await);
    }
    world.settled(&nodes[0], &["a", "b"]).await;
    let program = format!("{PROGRAM}tokens_per_minute = {TOKENS}\n");
    // Each node has a share before the first of them uses all there is for a minute.
    call_at_each(&world, &nodes[0], &program, ["a", "b"]).await;
    let processes = start_many(&nodes[0], &program, 200).await;
    let used = || {
        models
            .iter()
            .map(|model| model.begun() * 200)
            .sum::<usize>()
    };
    until("most tokens are used", async || used() >= TOKENS / 2).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let of_each = models.each_ref().map(|model| model.begun());
    eprintln!("calls of each node in the first minute: {of_each:?}");
    assert!(of_each.iter().all(|begun| *begun > 0), "{of_each:?}");
    // A call that began before the last one ended was estimated, with fewer tokens than it used.
    let in_flight = 2 * 16 * 200;
    assert!(used() <= TOKENS + in_flight, "{}", used());
    let before = used();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(used(), before, "calls go on although the tokens are used");
    for process in processes {
        match within(process.kill()).await {
            Ok(()) => {}
            Err(ClusterError::Refused { kind, .. }) => assert_eq!(kind, Refusal::Ended),
            Err(error) => panic!("{error}"),
        }
    }
    for node in nodes {
        within(node.drain()).await;
    }
}
