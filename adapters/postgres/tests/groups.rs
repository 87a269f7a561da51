//! Commits of several shards in one statement.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::thread;

use common::{FACTS, Server, append, for_each_server, put};
use dormouse_actors::ports::{OwnerToken, StoreError};
use dormouse_postgres::{Database, PostgresLog, ShardId};
use dormouse_proto::id::CommitNumber;
use dormouse_records::RecordLog;

const WRITERS: u32 = 10;

/// The number 2 of a record, as the database stores it.
const SECOND: i64 = i64::MIN + 2;

/// Logs of the shards 0 to 9, each with its first commit.
fn logs(database: &Database) -> Vec<(PostgresLog, OwnerToken)> {
    let log = |shard| {
        let log = PostgresLog::unleased(database, ShardId(shard));
        let owner = log.claim().unwrap();
        append(&log, owner, &[put(FACTS, 1, "x")]).unwrap();
        (log, owner)
    };
    (0..WRITERS).map(log).collect()
}

/// Lets the shards 1 to 9 commit while the only statement on its way, that of shard 0, waits for
/// a lock. Calls `meanwhile` before it goes on.
fn write_together(
    server: &Server,
    database: &Database,
    logs: &[(PostgresLog, OwnerToken)],
    meanwhile: impl FnOnce(),
) -> Vec<Result<CommitNumber, StoreError>> {
    let schema = database.schema();
    let lock = format!("SELECT FROM {schema}.shard WHERE id = 0 FOR UPDATE");
    let lock = server.transaction(&lock);
    thread::scope(|scope| {
        let write =
            |(log, owner): &(PostgresLog, OwnerToken)| append(log, *owner, &[put(FACTS, 2, "y")]);
        let first = scope.spawn(move || write(&logs[0]));
        server.wait_until(&format!(
            "SELECT count(*) = 1 FROM pg_stat_activity
             WHERE application_name = '{schema}' AND wait_event_type = 'Lock'"
        ));
        let others: Vec<_> = logs[1..]
            .iter()
            .map(|log| scope.spawn(move || write(log)))
            .collect();
        // Long enough for all to wait behind the first; if one came late, it would still be
        // written.
        thread::sleep(std::time::Duration::from_millis(500));
        meanwhile();
        lock.rollback();
        first.join().unwrap().unwrap();
        others
            .into_iter()
            .map(|write| write.join().unwrap())
            .collect()
    })
}

#[test]
fn of_commits_that_are_sent_together_each_is_judged_by_itself() {
    for_each_server(|server| {
        let database = common::connect(&server.options().max_connections(1));
        let schema = database.schema();
        let logs = logs(&database);
        let outcomes = write_together(server, &database, &logs, || {
            server.sql(&format!(
                "UPDATE {schema}.shard SET epoch = epoch + 1 WHERE id = 3"
            ));
        });
        for (outcome, shard) in outcomes.iter().zip(1..) {
            match outcome {
                Err(StoreError::Stale { .. }) => assert_eq!(shard, 3),
                outcome => assert_eq!(*outcome.as_ref().unwrap(), CommitNumber(2)),
            }
        }
        let transactions = server.sql(&format!(
            "SELECT count(DISTINCT xmin::text) FROM {schema}.record WHERE number = {SECOND} AND shard > 0"
        ));
        assert_eq!(transactions, ["1"]);
        let records = server.sql(&format!(
            "SELECT count(*) FROM {schema}.record WHERE number = {SECOND}"
        ));
        assert_eq!(records, ["9"]);
    });
}

#[test]
fn a_commit_that_fails_takes_no_other_with_it() {
    for_each_server(|server| {
        let database = common::connect(&server.options().max_connections(1));
        let schema = database.schema();
        let logs = logs(&database);
        server.sql(&format!(
            "CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'this disk is full'; END $$;
             CREATE TRIGGER fail BEFORE INSERT ON {schema}.record FOR EACH ROW
                 WHEN (NEW.shard = 4) EXECUTE FUNCTION {schema}.fail()"
        ));
        let outcomes = write_together(server, &database, &logs, || {});
        for (outcome, shard) in outcomes.iter().zip(1..) {
            match outcome {
                Err(error) => assert!(
                    shard == 4 && error.to_string().contains("disk is full"),
                    "{error}"
                ),
                Ok(commit) => assert_eq!(*commit, CommitNumber(2)),
            }
        }
        server.sql(&format!("DROP TRIGGER fail ON {schema}.record"));
        let (log, owner) = &logs[4];
        assert_eq!(
            append(log, *owner, &[put(FACTS, 2, "z")]).unwrap(),
            CommitNumber(2)
        );
    });
}
