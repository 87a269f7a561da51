//! A kernel on the store: a scripted process that is continued by a second kernel.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::for_each_server;
use dormouse::Kernel;
use dormouse::models::Scripted;
use dormouse_postgres::{ClaimMode, Database, DatabaseError, PostgresLog, ShardId};
use dormouse_records::RecordStore;

const PROGRAM: &str = "
[model]
name = 'counts'
provider = 'scripted'
";

const SCRIPT: &str = "
[[turn]]
text = 'This is turn {{ turn }} of our conversation.'
";

async fn open(log: PostgresLog) -> Kernel {
    Kernel::open(RecordStore::new_on(log))
        .model("counts", Scripted::parse(SCRIPT, "counts").unwrap())
        .build()
        .await
        .unwrap()
}

async fn turn(kernel: &Kernel) -> String {
    let session = match kernel.process_named("session").await {
        Ok(session) => session,
        Err(_) => {
            let start = kernel.start(kernel.parse(PROGRAM).unwrap().program);
            start
                .session()
                .name("session")
                .without_input()
                .await
                .unwrap()
        }
    };
    session.turn("Hello?").await.unwrap().message.to_string()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(future)
}

#[test]
fn a_process_continues_where_the_kernel_before_left_it() {
    for_each_server(|server| {
        let options = server.options();
        let database = common::connect(&options);
        // Dropped in the middle, as by a crash; then shut down; each time in another runtime.
        let first = run(async {
            let kernel = open(PostgresLog::unleased(&database, ShardId(0))).await;
            turn(&kernel).await
        });
        assert!(first.contains("turn 0 "), "{first}");
        drop(database);
        let database = Database::connect(&options).unwrap();
        let second = run(async {
            let kernel = open(PostgresLog::unleased(&database, ShardId(0))).await;
            let second = turn(&kernel).await;
            kernel.shutdown().await.unwrap();
            second
        });
        assert!(second.contains("turn 1 "), "{second}");
    });
}

#[test]
fn a_node_takes_the_shard_of_another_one_that_runs_on() {
    for_each_server(|server| {
        let database = server.database();
        let lease = std::time::Duration::from_secs(60);
        run(async {
            let claim = |node, mode| {
                database
                    .claim_shard(ShardId(1), node, lease, mode)
                    .unwrap()
                    .unwrap()
            };
            let zombie = open(PostgresLog::claimed(
                &database,
                &claim("a", ClaimMode::IfFree),
            ))
            .await;
            assert!(turn(&zombie).await.contains("turn 0 "));
            let successor = open(PostgresLog::claimed(
                &database,
                &claim("b", ClaimMode::Force),
            ))
            .await;
            assert!(turn(&successor).await.contains("turn 1 "));
            // The first node still has the process in memory, and can commit nothing.
            let session = zombie.process_named("session").await.unwrap();
            let refused =
                tokio::time::timeout(std::time::Duration::from_secs(20), session.turn("Hello?"))
                    .await;
            assert!(!matches!(refused, Ok(Ok(_))), "{refused:?}");
            assert!(turn(&successor).await.contains("turn 2 "));
            successor.shutdown().await.unwrap();
        });
    });
}

#[test]
fn a_snapshot_shows_one_moment_and_takes_nothing_from_the_owner() {
    for_each_server(|server| {
        let options = server.options();
        let schema = server.options();
        let refused = Database::connect_snapshot(&schema).unwrap_err();
        assert!(
            matches!(refused, DatabaseError::OlderSchema { found: 0, .. }),
            "{refused}"
        );
        let database = common::connect(&options);
        run(async {
            let owner = open(PostgresLog::unleased(&database, ShardId(0))).await;
            turn(&owner).await;
            let pid = owner.process_named("session").await.unwrap().pid();
            let read = async || {
                let snapshot = Database::connect_snapshot(&options).unwrap();
                let log = PostgresLog::read_only(&snapshot, ShardId(0));
                (open(log).await, snapshot)
            };
            let (earlier, snapshot) = read().await;
            let facts = async |kernel: &Kernel| kernel.log(pid).await.unwrap().len();
            let before = facts(&earlier).await;
            turn(&owner).await;
            assert_eq!(facts(&earlier).await, before);
            let (later, _) = read().await;
            assert!(facts(&later).await > before);
            let refused = later.process(pid).await.unwrap().input("Hello?").await;
            assert!(refused.is_err(), "{refused:?}");
            assert!(turn(&owner).await.contains("turn 2 "));
            // What is read after a loss would be as of another moment.
            let kill = format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{}'",
                snapshot.schema()
            );
            server.sql(&kill);
            let lost = earlier.log(pid).await.unwrap_err().to_string();
            assert!(lost.contains("read again"), "{lost}");
            owner.shutdown().await.unwrap();
        });
    });
}
