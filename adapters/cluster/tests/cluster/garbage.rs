//! Garbage collection of a cluster: what a shard refers to stays, wherever it came from; the rest
//! goes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use dormouse::ports::{BlobReader, StoreError, SweepMode};
use dormouse::retention::{EndedRule, Retention};
use dormouse_cluster::{
    Cluster, ClusterCollection, ClusterError, ClusterProcess, OBJECT_GRACE, ProgramFiles, Refusal,
    shard_of,
};
use dormouse_objects::{ObjectContents, ObjectOptions};
use dormouse_postgres::{Database, LargeContent, LargeContents, ShardId};
use dormouse_proto::id::ContentHash;

use crate::common::{LEASE, LONG_LEASE, SHARDS, World, files, http, until, within};

const LARGE: usize = 64 << 10;
const LINES: usize = 4000;

/// A session that keeps its first input as a descriptor, and reads the end of it when it is asked
/// to.
fn keeper() -> ProgramFiles {
    let program = r#"
        [model]
        name = "keeper"
        provider = "scripted"
        script = "script.toml"
        [tools]
        enabled = ["read_fd"]
    "#;
    let script = format!(
        r#"
        [[turn]]
        when.tool = "read_fd"
        text = "{{{{ last }}}}"
        [[turn]]
        when.prompt = "^read$"
        calls = [{{ tool = "read_fd", args = {{ fd = "fd:1", mode = "line", start = {LINES}, count = 1 }} }}]
        [[turn]]
        text = "kept"
        "#
    );
    files(program, &script)
}

/// A content that is an object, or with fewer lines one that is in the database.
fn content(name: &str, lines: usize) -> String {
    (1..=lines)
        .map(|n| format!("line {n} of the content {name}\n"))
        .collect()
}

/// Says that a put was made, and waits until it may go on.
type Stop = (Sender<()>, Receiver<()>);

/// Objects in a folder. A put can be stopped after it was made.
#[derive(Clone)]
struct Objects {
    objects: ObjectContents,
    after_put: Arc<Mutex<Option<Stop>>>,
}

impl Objects {
    fn new(folder: &tempfile::TempDir) -> Self {
        let url = format!("file://{}", folder.path().display());
        Self {
            objects: ObjectContents::open(ObjectOptions::new(url)).unwrap(),
            after_put: Arc::default(),
        }
    }

    fn names(&self) -> BTreeSet<String> {
        let listed = LargeContents::list(&self.objects);
        listed.map(|it| it.unwrap().name.to_string()).collect()
    }

    /// Stops the next put, after it was made: the receiver learns of it, and the sender ends it.
    fn stop_next_put(&self) -> (Receiver<()>, Sender<()>) {
        let (is_put, put) = channel();
        let (go_on, may_go_on) = channel();
        *self.after_put.lock().unwrap() = Some((is_put, may_go_on));
        (put, go_on)
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.objects.fmt(f)
    }
}

impl LargeContents for Objects {
    fn put_if_absent(
        &self,
        name: ContentHash,
        bytes: Bytes,
        index: Bytes,
    ) -> Result<(), StoreError> {
        LargeContents::put_if_absent(&self.objects, name, bytes, index)?;
        let stopped = self.after_put.lock().unwrap().take();
        if let Some((is_put, may_go_on)) = stopped {
            is_put.send(()).unwrap();
            may_go_on.recv().unwrap();
        }
        Ok(())
    }

    fn open(&self, name: ContentHash) -> Result<Option<Arc<dyn BlobReader>>, StoreError> {
        LargeContents::open(&self.objects, name)
    }

    fn delete(&self, names: &[ContentHash]) -> Result<(), StoreError> {
        LargeContents::delete(&self.objects, names)
    }

    fn list(&self) -> Box<dyn Iterator<Item = Result<LargeContent, StoreError>> + '_> {
        LargeContents::list(&self.objects)
    }
}

/// A node with objects.
async fn join(world: &World, name: &str, objects: &Objects) -> Cluster {
    let options = world.options(name);
    let options = options.large_contents(Arc::new(objects.clone()), LARGE);
    let options = options.failover_limit(Duration::from_secs(3));
    world.join(options).await
}

/// Starts a session that keeps a content, in a shard that `is_wanted`.
async fn keep(
    cluster: &Cluster,
    content: &str,
    is_wanted: impl Fn(ShardId) -> bool,
) -> ClusterProcess {
    loop {
        let start = cluster.start(keeper()).session().without_input();
        let process = within(start.into_future()).await.unwrap();
        if is_wanted(shard_of(process.pid())) {
            within(process.input(content)).await.unwrap();
            answered(&process, 2).await;
            return process;
        }
        within(process.kill()).await.unwrap();
    }
}

/// Waits until the conversation of a session has so many messages, and it rests.
async fn answered(process: &ClusterProcess, messages: usize) {
    until("the session has answered", async || {
        let info = within(process.info()).await.unwrap();
        info.status == "idle" && within(process.inspect()).await.unwrap().messages >= messages
    })
    .await;
}

/// Has sessions read their contents, which a node that never had them in memory does, and checks
/// what they said.
async fn check_readable(world: &World, objects: &Objects, sessions: &[(&ClusterProcess, &str)]) {
    let node = join(world, "reader", objects).await;
    world.settled(&node, &["reader"]).await;
    let mut pids = Vec::new();
    for (session, _) in sessions {
        let process = node.process(session.pid());
        within(process.input("read")).await.unwrap();
        // A call of the tool, its answer, and the text.
        answered(&process, 6).await;
        pids.push(within(process.info()).await.unwrap().row.pid);
    }
    within(node.drain()).await;
    for (pid, (_, name)) in pids.into_iter().zip(sessions) {
        let texts = world.conversation(pid).await;
        let last = texts.last().unwrap();
        let line = format!("line {LINES} of the content {name}");
        assert!(last.contains(&line), "{name}: {last}");
    }
}

/// Deletes ended trees at once.
fn nothing_ended() -> Retention {
    Retention {
        ended: EndedRule::ForMs(0),
        ..Retention::default()
    }
}

async fn collect(cluster: &Cluster, mode: SweepMode, grace: Duration) -> ClusterCollection {
    let collection = within(cluster.collect_garbage(nothing_ended(), mode, grace));
    let collection = collection.await.unwrap();
    assert!(collection.unreadable.is_empty(), "{collection:?}");
    collection
}

async fn count(world: &World, table: &str) -> u64 {
    let sql = format!("SELECT count(*) FROM {{schema}}.{table}");
    world.sql(&sql).await[0].parse().unwrap()
}

async fn metric(cluster: &Cluster, name: &str) -> f64 {
    let address = cluster.address().unwrap();
    let page = http().get(format!("http://{address}/metrics")).send();
    let page = page.await.unwrap().text().await.unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}: {page}"))
        .trim()
        .parse()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_that_a_shard_refers_to_stay_and_the_rest_goes() {
    let (world, folder) = (World::new(LONG_LEASE), tempfile::tempdir().unwrap());
    let objects = Objects::new(&folder);
    let a = join(&world, "a", &objects).await;
    world.settled(&a, &["a"]).await;
    let shared = content("shared", LINES);
    let first = keep(&a, &shared, |_| true).await;
    let second = keep(&a, &shared, |it| it != shard_of(first.pid())).await;
    let moving = keep(&a, &content("moving", LINES), |_| true).await;
    let target = ShardId((shard_of(moving.pid()).0 + 1) % SHARDS);
    let moved = within(a.move_tree(moving.pid(), target)).await.unwrap();
    let gone = keep(&a, &content("gone", LINES), |_| true).await;
    let small = keep(&a, &content("small", 1500), |_| true).await;
    assert_eq!(objects.names().len(), 3);
    let in_database = count(&world, "content").await;
    for ended in [&first, &gone, &small] {
        within(ended.kill()).await.unwrap();
    }

    let counted = collect(&a, SweepMode::Count, Duration::ZERO).await;
    assert!(counted.failed.is_empty(), "{counted:?}");
    assert_eq!(counted.objects, None);
    assert_eq!(objects.names().len(), 3, "counting deletes nothing");
    assert_eq!(count(&world, "content").await, in_database);

    let young = collect(&a, SweepMode::Free, OBJECT_GRACE).await;
    assert_eq!(young.shards, counted.shards);
    assert!(young.shards.processes >= 4, "{young:?}");
    assert_eq!(young.objects.unwrap().deleted, 0, "they are too young");
    // The shards that the first and the moved session were in refer to their contents no more.
    assert_eq!(count(&world, "content_ref").await, 2);
    assert!(count(&world, "content").await < in_database, "{young:?}");

    let freed = collect(&a, SweepMode::Free, Duration::ZERO).await;
    assert_eq!(freed.shards.processes, 0, "they were deleted before");
    let of_objects = freed.objects.unwrap();
    assert_eq!((of_objects.objects, of_objects.deleted), (3, 1));
    assert!(of_objects.deleted_bytes > LARGE as u64, "{of_objects:?}");
    assert_eq!(objects.names().len(), 2);
    let again = collect(&a, SweepMode::Free, Duration::ZERO).await;
    assert_eq!(again.objects.unwrap().deleted, 0);

    assert_eq!(metric(&a, "dormouse_garbage_objects_total").await, 1.0);
    let processes = metric(&a, "dormouse_garbage_processes_total").await;
    assert_eq!(processes, young.shards.processes as f64);
    assert!(metric(&a, "dormouse_garbage_collections_total").await >= 3.0);
    assert!(metric(&a, "dormouse_garbage_contents_total").await >= 4.0);
    let error = within(gone.info()).await.unwrap_err();
    assert!(
        matches!(
            &error,
            ClusterError::Refused {
                kind: Refusal::NotFound,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(within(moving.info()).await.unwrap().row.pid, moved.pid());
    within(a.drain()).await;
    // As if it had been lost before it recorded that the move is done: the old tree, which is to be
    // ended before its shard is opened, is there no more.
    let sql = "UPDATE {schema}.tree_move SET state = 'moved' RETURNING id";
    assert_eq!(world.sql(sql).await.len(), 1);
    let kept = [(&second, "shared"), (&moving, "moving")];
    check_readable(&world, &objects, &kept).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_content_that_was_put_and_is_not_committed_yet_stays() {
    let (world, folder) = (World::new(LONG_LEASE), tempfile::tempdir().unwrap());
    let objects = Objects::new(&folder);
    let a = join(&world, "a", &objects).await;
    world.settled(&a, &["a"]).await;
    let (put, go_on) = objects.stop_next_put();
    let start = a.start(keeper()).session();
    let start = start.input(content("new", LINES));
    let started = tokio::spawn(start.into_future());
    let put = tokio::task::spawn_blocking(move || put.recv_timeout(Duration::from_secs(60)));
    put.await.unwrap().unwrap();
    assert_eq!(objects.names().len(), 1);
    // Another node could collect objects now, and this one begins a collection.
    let (options, other) = (world.database(), objects.clone());
    let collected = tokio::task::spawn_blocking(move || {
        let database = Database::connect(&options).unwrap();
        database.collect_objects(&other, Duration::ZERO).unwrap()
    });
    assert_eq!(collected.await.unwrap().deleted, 0);
    let whole = {
        let a = a.clone();
        tokio::spawn(async move { collect(&a, SweepMode::Free, Duration::ZERO).await })
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    go_on.send(()).unwrap();
    let session = within(started).await.unwrap().unwrap();
    let whole = whole.await.unwrap();
    assert!(whole.failed.is_empty(), "{whole:?}");
    assert_eq!(whole.objects.unwrap().deleted, 0);
    answered(&session, 2).await;
    within(a.drain()).await;
    check_readable(&world, &objects, &[(&session, "new")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_collects_all_nodes_and_a_shard_without_an_owner_keeps_everything() {
    let (world, folder) = (World::new(LEASE), tempfile::tempdir().unwrap());
    let objects = Objects::new(&folder);
    let a = join(&world, "a", &objects).await;
    let options = world.options("b").labels(["gpu"]);
    let options = options.large_contents(Arc::new(objects.clone()), LARGE);
    let b = world.join(options).await;
    world.settled(&a, &["a", "b"]).await;
    let program = world.connect().await;
    let start = program.start(keeper()).need("gpu").session();
    let start = start.input(content("gpu", LINES));
    let at_gpu = within(start.into_future()).await.unwrap();
    answered(&at_gpu, 2).await;
    let gone = keep(&program, &content("gone", LINES), |_| true).await;
    within(gone.kill()).await.unwrap();
    let collection = collect(&program, SweepMode::Free, Duration::ZERO).await;
    assert!(collection.failed.is_empty(), "{collection:?}");
    assert!(collection.shards.processes >= 1, "{collection:?}");
    assert_eq!(collection.objects.unwrap().deleted, 1);

    within(at_gpu.kill()).await.unwrap();
    within(b.drain()).await;
    let collection = collect(&a, SweepMode::Free, Duration::ZERO).await;
    let failed: Vec<_> = collection.failed.iter().map(|(shard, _)| *shard).collect();
    assert!(failed.contains(&shard_of(at_gpu.pid())), "{collection:?}");
    let is_unowned = |error: &ClusterError| matches!(error, ClusterError::NoOwner { .. });
    assert!(collection.failed.iter().all(|(_, error)| is_unowned(error)));
    assert_eq!(collection.objects.unwrap().deleted, 0);
    assert_eq!(objects.names().len(), 1);
    within(a.drain()).await;
}
