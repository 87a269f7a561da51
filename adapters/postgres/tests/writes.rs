//! What a write does, and whose write is refused.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::thread;

use common::{
    FACTS, SHARDS, append, append_all, claimed, content, for_each_server, numbers, put, stream,
};
use dormouse_actors::ports::{OwnerToken, StoreError, SyncLevel};
use dormouse_postgres::{Database, PostgresLog, ShardId};
use dormouse_proto::id::{CommitNumber, ContentHash};
use dormouse_records::{MemoryLog, RecordBatch, RecordLog, RecordOp, StreamKind};

#[test]
fn random_batches_leave_what_they_leave_in_memory() {
    const KINDS: [StreamKind; 3] = [StreamKind::Process, StreamKind::Fact, StreamKind::Label];
    const IDS: [u64; 4] = [0, 1, i64::MAX as u64 + 1, u64::MAX];
    for_each_server(|server| {
        let database = server.database();
        let (log, owner) = claimed(&database);
        let model = MemoryLog::default();
        let model_owner = model.claim().unwrap();
        let mut random = Random(4711);
        for round in 0..200 {
            let ops: Vec<_> = (0..random.below(12))
                .map(|op| {
                    let stream = stream(KINDS[random.below(3)], IDS[random.below(4)]);
                    let number = [0, 1, 2, 3, 4, u64::MAX][random.below(6)];
                    match random.below(4) {
                        0 => RecordOp::Delete {
                            stream,
                            up_to: number,
                        },
                        _ => put(stream, number, format!("{round} {op}")),
                    }
                })
                .collect();
            let contents: Vec<_> = (0..random.below(3))
                .map(|_| content(random.below(20) as u8, format!("{round}").into_bytes()))
                .collect();
            let deleted = [ContentHash([random.below(20) as u8; 32])];
            let batch = RecordBatch {
                contents: &contents,
                ops: &ops,
                at_ms: round,
                sync_level: [SyncLevel::Written, SyncLevel::Synced][random.below(2)],
            };
            assert_eq!(
                log.append(owner, &batch).unwrap(),
                model.append(model_owner, &batch).unwrap()
            );
            log.delete_contents(owner, &deleted).unwrap();
            model.delete_contents(model_owner, &deleted).unwrap();
        }
        for kind in KINDS {
            assert_eq!(log.read_kind(kind).unwrap(), model.read_kind(kind).unwrap());
            for id in IDS {
                let stream = stream(kind, id);
                for (first, last) in [(0, u64::MAX), (1, 2), (2, 1), (3, u64::MAX)] {
                    let read = |log: &dyn RecordLog| log.read(stream, first..=last).unwrap();
                    assert_eq!(read(&log), read(&model));
                }
                for up_to in [0, 2, u64::MAX - 1, u64::MAX] {
                    assert_eq!(
                        log.latest(stream, up_to).unwrap(),
                        model.latest(stream, up_to).unwrap()
                    );
                }
            }
        }
        let listed = |log: &dyn RecordLog| {
            log.contents()
                .unwrap()
                .into_iter()
                .collect::<BTreeMap<_, _>>()
        };
        assert_eq!(listed(&log), listed(&model));
        for name in listed(&model).into_keys() {
            let bytes = |log: &dyn RecordLog| {
                let reader = log.content(name).unwrap().expect("it is listed");
                (reader.slice(0..reader.length()).unwrap(), reader.index())
            };
            assert_eq!(bytes(&log), bytes(&model));
        }
    });
}

/// A sequence that is the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }
}

#[test]
fn an_earlier_owner_writes_nothing() {
    for_each_server(|server| {
        let database = server.database();
        let (log, owner) = claimed(&database);
        append(&log, owner, &[put(FACTS, 1, "a")]).unwrap();
        let (newer, newer_owner) = claimed(&database);
        assert!(newer_owner > owner);
        let large = content(2, vec![7; 5 << 20]);
        for (contents, ops) in [
            (vec![], vec![put(FACTS, 2, "b")]),
            (vec![content(1, vec![1])], vec![]),
            (vec![large], vec![put(FACTS, 3, "c")]),
            (vec![], vec![]),
        ] {
            let refused = append_all(&log, owner, &contents, &ops).unwrap_err();
            assert!(
                matches!(refused, StoreError::Stale { newest, .. } if newest == newer_owner),
                "{refused}"
            );
        }
        let refused = log
            .delete_contents(owner, &[ContentHash([1; 32])])
            .unwrap_err();
        assert!(matches!(refused, StoreError::Stale { .. }), "{refused}");
        assert_eq!(numbers(&log, FACTS), [1]);
        assert_eq!(log.contents().unwrap(), []);
        assert_eq!(
            append(&newer, newer_owner, &[put(FACTS, 2, "d")]).unwrap(),
            CommitNumber(2)
        );
        let of_no_owner = append(&newer, OwnerToken(u64::MAX >> 1), &[]).unwrap_err();
        assert!(
            matches!(of_no_owner, StoreError::Stale { .. }),
            "{of_no_owner}"
        );
    });
}

/// The append has left the program, and waits in the server, when the shard is claimed.
#[test]
fn a_claim_between_the_preparation_of_a_batch_and_its_write_refuses_it() {
    for_each_server(|server| {
        let database = server.database();
        let schema = database.schema().to_owned();
        let (log, owner) = claimed(&database);
        append(&log, owner, &[put(FACTS, 1, "a")]).unwrap();
        // The claim by hand: the row is locked, the write waits for it, and then the epoch is
        // raised.
        let lock = server.transaction(&format!(
            "UPDATE {schema}.shard SET epoch = epoch + 1 WHERE id = 0"
        ));
        thread::scope(|scope| {
            let write = scope.spawn(|| append(&log, owner, &[put(FACTS, 2, "b")]));
            server.wait_until(&format!(
                "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = '{schema}' AND wait_event_type = 'Lock'"
            ));
            lock.commit();
            let refused = write.join().unwrap().unwrap_err();
            assert!(matches!(refused, StoreError::Stale { .. }), "{refused}");
        });
        assert_eq!(numbers(&log, FACTS), [1]);
    });
}

#[test]
fn of_writers_that_race_each_loses_nothing_that_was_acknowledged() {
    const WRITERS: u64 = 8;
    const RECORDS: u64 = 3;
    for_each_server(|server| {
        let database = server.database();
        let acknowledged: Vec<(CommitNumber, OwnerToken, u64)> = thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let database = &database;
                    scope.spawn(move || race(database, writer, RECORDS))
                })
                .collect();
            writers
                .into_iter()
                .flat_map(|writer| writer.join().unwrap())
                .collect()
        });
        let by_commit: BTreeMap<_, _> = acknowledged
            .iter()
            .map(|(commit, owner, id)| (*commit, (*owner, *id)))
            .collect();
        assert_eq!(
            by_commit.len(),
            acknowledged.len(),
            "a number was given twice"
        );
        assert!(
            by_commit.values().map(|(owner, _)| *owner).is_sorted(),
            "an earlier owner wrote later"
        );
        let log = PostgresLog::unleased(&database, ShardId(0));
        for (commit, (_, id)) in &by_commit {
            let records = log
                .read(stream(StreamKind::Fact, *id), 0..=u64::MAX)
                .unwrap();
            let whole = records.iter().all(|record| record.commit == *commit);
            assert!(
                whole && records.len() as u64 == RECORDS,
                "{commit:?}: {records:?}"
            );
        }
        // What was written is what was acknowledged: nobody lost an answer here.
        let written = log.read_kind(StreamKind::Fact).unwrap();
        assert_eq!(written.len() as u64, RECORDS * acknowledged.len() as u64);
        let owner = log.claim().unwrap();
        assert_eq!(
            append(&log, owner, &[]).unwrap(),
            CommitNumber(acknowledged.len() as u64)
        );
    });
}

/// Claims and writes, and claims again once it is superseded.
fn race(database: &Database, writer: u64, records: u64) -> Vec<(CommitNumber, OwnerToken, u64)> {
    let log = PostgresLog::unleased(database, ShardId(0));
    let mut acknowledged = Vec::new();
    let mut id = writer << 32;
    for _ in 0..10 {
        let owner = log.claim().unwrap();
        for _ in 0..5 {
            id += 1;
            let target = stream(StreamKind::Fact, id);
            let ops: Vec<_> = (1..=records)
                .map(|number| put(target, number, "x"))
                .collect();
            match append(&log, owner, &ops) {
                Ok(commit) => acknowledged.push((commit, owner, id)),
                Err(StoreError::Stale { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    acknowledged
}

#[test]
fn threads_that_share_a_handle_all_write() {
    for_each_server(|server| {
        let database = server.database();
        let (log, owner) = claimed(&database);
        thread::scope(|scope| {
            for id in 0..8 {
                let log = &log;
                scope.spawn(move || {
                    let mut last = CommitNumber(0);
                    for number in 1..=10 {
                        let commit = append(
                            log,
                            owner,
                            &[put(stream(StreamKind::Fact, id), number, "x")],
                        )
                        .unwrap();
                        assert!(commit > last);
                        last = commit;
                    }
                });
            }
        });
        assert_eq!(append(&log, owner, &[]).unwrap(), CommitNumber(80));
    });
}

#[test]
fn a_second_handle_with_the_same_token_cannot_write_over_the_first() {
    for_each_server(|server| {
        let database = server.database();
        let (log, owner) = claimed(&database);
        append(&log, owner, &[put(FACTS, 1, "a")]).unwrap();
        let second = PostgresLog::unleased(&database, ShardId(0));
        append(&second, owner, &[put(FACTS, 2, "b")]).unwrap();
        let refused = append(&log, owner, &[put(FACTS, 2, "c")]).unwrap_err();
        assert!(refused.to_string().contains("two handles"), "{refused}");
        assert_eq!(&log.latest(FACTS, 2).unwrap().unwrap().bytes[..], b"b");
        // Who has read the shard again may go on.
        append(&log, owner, &[put(FACTS, 3, "d")]).unwrap();
    });
}

#[test]
fn a_database_that_lost_writes_says_so() {
    for_each_server(|server| {
        let database = server.database();
        let (log, owner) = claimed(&database);
        append(&log, owner, &[put(FACTS, 1, "a")]).unwrap();
        append(&log, owner, &[put(FACTS, 2, "b")]).unwrap();
        // As a standby that lagged.
        let schema = database.schema();
        server.sql(&format!("UPDATE {schema}.shard SET writes = 1, last_commit = 1, nonce = 5; DELETE FROM {schema}.record WHERE in_commit > 1"));
        let refused = append(&log, owner, &[put(FACTS, 3, "c")]).unwrap_err();
        assert!(refused.to_string().contains("failover"), "{refused}");
        assert_eq!(numbers(&log, FACTS), [1]);
    });
}

#[test]
fn a_level_chooses_synchronous_commit_for_its_commit_only() {
    for_each_server(|server| {
        for (administrator, written, synced) in [
            ("on", "off", "on"),
            ("off", "off", "on"),
            ("remote_apply", "off", "remote_apply"),
        ] {
            let schema = common::new_schema();
            let url = format!(
                "{}?options=-c%20synchronous_commit%3D{administrator}",
                server.url
            );
            let database = common::connect(&common::options(&url, &schema).max_connections(1));
            server.sql(&format!(
                "CREATE TABLE {schema}.seen (level text);
                 CREATE FUNCTION {schema}.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     INSERT INTO {schema}.seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;
                 CREATE TRIGGER see BEFORE INSERT ON {schema}.record FOR EACH ROW EXECUTE FUNCTION {schema}.see()"
            ));
            let (log, owner) = claimed(&database);
            for (number, sync_level) in [
                (1, SyncLevel::Written),
                (2, SyncLevel::Synced),
                (3, SyncLevel::Written),
                (4, SyncLevel::Synced),
            ] {
                let ops = [put(FACTS, number, "x")];
                let batch = RecordBatch {
                    contents: &[],
                    ops: &ops,
                    at_ms: 1,
                    sync_level,
                };
                log.append(owner, &batch).unwrap();
            }
            assert_eq!(
                server.sql(&format!("SELECT level FROM {schema}.seen")),
                [written, synced, written, synced]
            );
        }
    });
}

/// An empty batch that asks for the disk writes a record of its own to the server's log, since the
/// end of a transaction without one waits for nothing.
#[test]
fn an_empty_batch_syncs_what_was_written_before() {
    for_each_server(|server| {
        let database = server.database();
        let (log, owner) = claimed(&database);
        let empty = |sync_level| RecordBatch {
            contents: &[],
            ops: &[],
            at_ms: 1,
            sync_level,
        };
        let ops = [put(FACTS, 1, "x")];
        for _ in 0..20 {
            let batch = RecordBatch {
                ops: &ops,
                ..empty(SyncLevel::Written)
            };
            let commit = log.append(owner, &batch).unwrap();
            let written_to = server.sql("SELECT pg_current_wal_insert_lsn()");
            assert_eq!(
                log.append(owner, &empty(SyncLevel::Synced)).unwrap(),
                commit
            );
            let sql = format!("SELECT pg_current_wal_flush_lsn() >= '{}'", written_to[0]);
            assert_eq!(server.sql(&sql), ["t"]);
        }
    });
}

#[test]
fn a_batch_of_10_000_operations_is_one_commit() {
    for_each_server(|server| {
        let database = server.database();
        let (log, owner) = claimed(&database);
        let ops: Vec<_> = (1..=10_000)
            .map(|number| put(FACTS, number, vec![number as u8; 300]))
            .collect();
        let commit = append(&log, owner, &ops).unwrap();
        let records = log.read(FACTS, 0..=u64::MAX).unwrap();
        assert_eq!(records.len(), 10_000);
        assert!(
            records
                .iter()
                .all(|record| record.commit == commit && record.bytes.len() == 300)
        );
    });
}

#[test]
fn shards_do_not_see_each_other() {
    for_each_server(|server| {
        let database = server.database();
        let logs: Vec<_> = (0..3)
            .map(|shard| PostgresLog::unleased(&database, ShardId(shard)))
            .collect();
        for (log, name) in logs.iter().zip(1..) {
            let owner = log.claim().unwrap();
            append_all(
                log,
                owner,
                &[content(name, vec![name])],
                &[put(FACTS, u64::from(name), "x")],
            )
            .unwrap();
        }
        for (log, name) in logs.iter().zip(1..) {
            assert_eq!(numbers(log, FACTS), [u64::from(name)]);
            assert_eq!(log.contents().unwrap(), [(ContentHash([name; 32]), 1)]);
        }
        let unknown = PostgresLog::unleased(&database, ShardId(SHARDS));
        let error = unknown.claim().unwrap_err();
        assert!(error.to_string().contains("create_shards"), "{error}");
    });
}

#[test]
fn all_calls_may_come_from_any_thread_of_a_runtime() {
    for_each_server(|server| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let options = server.options();
        runtime.block_on(async move {
            // In the runtime itself, and on a thread for blocking calls; the database is dropped in
            // both.
            let in_runtime = common::connect(&options);
            let (log, owner) = claimed(&in_runtime);
            let blocking = tokio::task::spawn_blocking(move || {
                append(&log, owner, &[put(FACTS, 1, "a")]).unwrap();
                assert_eq!(numbers(&log, FACTS), [1]);
            });
            blocking.await.unwrap();
            assert!(in_runtime.shards().is_ok());
        });
    });
}

#[test]
fn reads_find_their_records_by_the_primary_key() {
    for_each_server(|server| {
        let database = server.database();
        let (log, owner) = claimed(&database);
        for id in 0..50 {
            let ops: Vec<_> = (1..=200)
                .map(|number| put(stream(StreamKind::Fact, id), number, vec![1; 100]))
                .collect();
            append(&log, owner, &ops).unwrap();
        }
        let schema = database.schema();
        server.sql(&format!("ANALYZE {schema}.record"));
        for query in [
            "shard = 0 AND kind = 3 AND id = 7 AND number BETWEEN 5 AND 9 ORDER BY number",
            "shard = 0 AND kind = 3 AND id = 7 AND number <= 9 ORDER BY number DESC LIMIT 1",
            "shard = 0 AND kind = 1 ORDER BY id, number",
        ] {
            let plan = server
                .sql(&format!(
                    "EXPLAIN SELECT number, bytes FROM {schema}.record WHERE {query}"
                ))
                .join("\n");
            assert!(
                plan.contains("Index Scan") && !plan.contains("Seq Scan") && !plan.contains("Sort"),
                "{plan}"
            );
        }
    });
}
