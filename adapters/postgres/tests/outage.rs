//! Lost connections and servers: what was acknowledged is there, nothing is written twice, and an
//! unknown outcome is found out before it is answered.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use common::proxy::{Fault, Proxy};
use common::{FACTS, Server, append, append_all, claimed, content, for_each_server, numbers, put};
use dormouse_actors::ports::{OwnerToken, StoreError};
use dormouse_postgres::{Database, PostgresLog, ShardId};
use dormouse_proto::id::CommitNumber;
use dormouse_records::RecordLog;

/// One test at a time: some restart the servers.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A database with one connection through a proxy, on which the statements of a write are prepared.
struct Proxied {
    proxy: Proxy,
    log: PostgresLog,
    owner: OwnerToken,
}

fn proxied(server: &Server) -> Proxied {
    let proxy = Proxy::to(server.port());
    let schema = common::new_schema();
    let url = server.url_through(proxy.port(), &schema);
    let options = common::options(&url, &schema).max_connections(1);
    let (log, owner) = claimed(&common::connect(&options));
    append(&log, owner, &[put(FACTS, 1, "first")]).unwrap();
    Proxied { proxy, log, owner }
}

#[test]
fn a_write_whose_request_or_answer_is_lost_is_made_once() {
    let _alone = alone();
    for_each_server(|server| {
        for fault in [Fault::LoseRequest, Fault::LoseAnswer] {
            let Proxied { proxy, log, owner } = proxied(server);
            for number in 2..=4 {
                proxy.arm(fault);
                let commit = append(&log, owner, &[put(FACTS, number, "x")]).unwrap();
                assert!(proxy.is_disarmed());
                assert_eq!(
                    commit,
                    CommitNumber(number),
                    "the number of commits is that of appends"
                );
            }
            assert_eq!(numbers(&log, FACTS), [1, 2, 3, 4]);
        }
    });
}

#[test]
fn a_write_that_the_server_gets_late_changes_nothing() {
    let _alone = alone();
    for_each_server(|server| {
        let Proxied { proxy, log, owner } = proxied(server);
        proxy.arm(Fault::Delay);
        let delayed = [put(FACTS, 2, "delayed"), put(FACTS, 3, "delayed")];
        assert_eq!(append(&log, owner, &delayed).unwrap(), CommitNumber(2));
        // Later writes, over what the delayed statement wrote.
        assert_eq!(
            append(&log, owner, &[put(FACTS, 3, "later")]).unwrap(),
            CommitNumber(3)
        );
        assert_eq!(proxy.release(), 1);
        assert_eq!(&log.latest(FACTS, 3).unwrap().unwrap().bytes[..], b"later");
        assert_eq!(append(&log, owner, &[]).unwrap(), CommitNumber(3));
        assert_eq!(
            append(&log, owner, &[put(FACTS, 4, "x")]).unwrap(),
            CommitNumber(4)
        );
    });
}

#[test]
fn a_deletion_that_the_server_gets_late_leaves_what_was_written_again() {
    let _alone = alone();
    for_each_server(|server| {
        let Proxied { proxy, log, owner } = proxied(server);
        let new = content(7, vec![1, 2, 3]);
        append_all(&log, owner, std::slice::from_ref(&new), &[]).unwrap();
        log.delete_contents(owner, &[content(8, vec![]).name])
            .unwrap();
        proxy.arm(Fault::Delay);
        log.delete_contents(owner, &[new.name]).unwrap();
        append_all(&log, owner, std::slice::from_ref(&new), &[]).unwrap();
        assert_eq!(proxy.release(), 1);
        assert_eq!(log.contents().unwrap(), [(new.name, 3)]);
    });
}

#[test]
fn a_lost_answer_of_a_superseded_owner_is_still_found_out() {
    let _alone = alone();
    for_each_server(|server| {
        for (fault, expected) in [(Fault::LoseAnswer, Some(2)), (Fault::LoseRequest, None)] {
            let Proxied { proxy, log, owner } = proxied(server);
            let schema = log_schema(server);
            proxy.arm(fault);
            // The shard is claimed as soon as the connection of the write is gone. It is claimed
            // before the write is sent again, since that waits for the row.
            let outcome = thread::scope(|scope| {
                let write = scope.spawn(|| append(&log, owner, &[put(FACTS, 2, "x")]));
                while !proxy.is_disarmed() {
                    thread::sleep(Duration::from_millis(1));
                }
                if fault == Fault::LoseAnswer {
                    server.wait_until(&format!(
                        "SELECT last_commit = 2 FROM {schema}.shard WHERE id = 0"
                    ));
                }
                server.sql(&format!(
                    "SELECT {schema}.claim(0, {}, 5, NULL, 0, true)",
                    owner.0
                ));
                write.join().unwrap()
            });
            match (expected, outcome) {
                (Some(commit), Ok(found)) => assert_eq!(found, CommitNumber(commit)),
                (None, Err(StoreError::Stale { .. })) => {}
                // The write may also have been sent again before the claim.
                (None, Ok(found)) => {
                    assert_eq!((found, numbers(&log, FACTS)), (CommitNumber(2), vec![1, 2]))
                }
                (expected, outcome) => panic!("{expected:?}: {outcome:?}"),
            }
            let after = append(&log, owner, &[put(FACTS, 9, "x")]).unwrap_err();
            assert!(matches!(after, StoreError::Stale { .. }), "{after}");
        }
    });
}

/// The schema that was made last.
fn log_schema(server: &Server) -> String {
    let sql = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 't%' ORDER BY oid DESC LIMIT 1";
    server.sql(sql).remove(0)
}

#[test]
fn a_connection_that_is_terminated_while_its_write_waits_is_replaced() {
    let _alone = alone();
    for_each_server(|server| {
        let database = server.database();
        let schema = database.schema().to_owned();
        let (log, owner) = claimed(&database);
        append(&log, owner, &[put(FACTS, 1, "x")]).unwrap();
        let lock = server.transaction(&format!(
            "SELECT FROM {schema}.shard WHERE id = 0 FOR UPDATE"
        ));
        let is_waiting = format!(
            "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = '{schema}' AND wait_event_type = 'Lock'"
        );
        let commit = thread::scope(|scope| {
            let write = scope.spawn(|| append(&log, owner, &[put(FACTS, 2, "x")]));
            for _ in 0..2 {
                server.wait_until(&is_waiting);
                assert!(server.terminate(&schema) > 0);
            }
            server.wait_until(&is_waiting);
            lock.rollback();
            write.join().unwrap().unwrap()
        });
        assert_eq!(commit, CommitNumber(2));
        assert_eq!(numbers(&log, FACTS), [1, 2]);
    });
}

/// Writes until it is told to stop. Returns the number of each acknowledged commit.
fn write_until(
    log: &PostgresLog,
    owner: OwnerToken,
    stop: &AtomicBool,
) -> BTreeMap<u64, CommitNumber> {
    let mut acknowledged = BTreeMap::new();
    for number in 1.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let commit = append(log, owner, &[put(FACTS, number, "x")]).unwrap();
        acknowledged.insert(number, commit);
    }
    acknowledged
}

/// Checks that each record was written by the commit that was acknowledged, one commit each.
fn check_acknowledged(
    log: &PostgresLog,
    owner: OwnerToken,
    acknowledged: &BTreeMap<u64, CommitNumber>,
) {
    let records = log.read(FACTS, 0..=u64::MAX).unwrap();
    let written: BTreeMap<_, _> = records
        .iter()
        .map(|record| (record.number, record.commit))
        .collect();
    assert_eq!(&written, acknowledged);
    let count = acknowledged.len() as u64;
    assert!(
        acknowledged.values().map(|commit| commit.0).eq(1..=count),
        "a commit was made twice"
    );
    assert_eq!(append(log, owner, &[]).unwrap(), CommitNumber(count));
}

#[test]
fn connections_that_are_terminated_at_any_time_lose_nothing() {
    let _alone = alone();
    for_each_server(|server| {
        let database = server.database();
        let (log, owner) = claimed(&database);
        let stop = AtomicBool::new(false);
        let acknowledged = thread::scope(|scope| {
            let writer = scope.spawn(|| write_until(&log, owner, &stop));
            let mut terminated = 0;
            for pause_ms in 0..40 {
                thread::sleep(Duration::from_millis(pause_ms * 7 % 23));
                terminated += server.terminate(database.schema());
            }
            stop.store(true, Ordering::Relaxed);
            let acknowledged = writer.join().unwrap();
            eprintln!(
                "{terminated} connections terminated, {} commits",
                acknowledged.len()
            );
            assert!(terminated > 10);
            acknowledged
        });
        check_acknowledged(&log, owner, &acknowledged);
    });
}

fn restart(server: &Server, mode: &str) {
    let script = std::env::var("DORMOUSE_POSTGRES_RESTART");
    let script = script.expect("DORMOUSE_POSTGRES_RESTART restarts the servers: run .ci/postgres");
    let status = Command::new(format!("{script}{}", server.port()))
        .arg(mode)
        .status();
    assert!(status.expect("the script can be run").success());
}

#[test]
fn a_server_that_is_restarted_or_crashes_loses_nothing_that_was_acknowledged() {
    let _alone = alone();
    for_each_server(|server| {
        let database = server.database();
        let (log, owner) = claimed(&database);
        let stop = AtomicBool::new(false);
        let acknowledged = thread::scope(|scope| {
            let writer = scope.spawn(|| write_until(&log, owner, &stop));
            for mode in ["fast", "immediate"] {
                thread::sleep(Duration::from_millis(200));
                restart(server, mode);
            }
            thread::sleep(Duration::from_millis(500));
            stop.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        check_acknowledged(&log, owner, &acknowledged);
        // Readers and claims go on too.
        let (again, _) = claimed(&database);
        assert_eq!(numbers(&again, FACTS).len(), acknowledged.len());
    });
}

#[test]
fn a_server_that_cannot_be_reached_is_an_error_without_the_password() {
    for_each_server(|server| {
        // A port where nobody listens.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let schema = common::new_schema();
        let options = common::options(&server.url_through(port, &schema), &schema);
        let options = options.connect_timeout(Duration::from_millis(500));
        let error = Database::connect(&options).unwrap_err();
        assert!(error.to_string().contains("refused"), "{error}");
        let said = format!("{error} {error:?} {options:?}");
        assert!(!said.contains("a-password-of-tests"), "{said}");
    });
}

#[test]
fn after_an_outage_that_was_too_long_a_write_that_arrived_is_found_by_the_next_one() {
    let _alone = alone();
    for_each_server(|server| {
        for (fault, expected) in [
            (Fault::LoseAnswer, vec![1, 2]),
            (Fault::LoseRequest, vec![1]),
        ] {
            let proxy = Proxy::to(server.port());
            let schema = common::new_schema();
            let options = common::options(&server.url_through(proxy.port(), &schema), &schema);
            let options = options
                .max_connections(1)
                .outage_limit(Duration::from_millis(400));
            let (log, owner) = claimed(&common::connect(&options));
            append(&log, owner, &[put(FACTS, 1, "x")]).unwrap();
            proxy.arm(fault);
            let error = thread::scope(|scope| {
                let write = scope.spawn(|| append(&log, owner, &[put(FACTS, 2, "x")]));
                while !proxy.is_disarmed() {
                    thread::yield_now();
                }
                proxy.set_down(true);
                write.join().unwrap().unwrap_err()
            });
            assert!(matches!(error, StoreError::Io { .. }), "{error}");
            proxy.set_down(false);
            let next = append(&log, owner, &[put(FACTS, 3, "x")]);
            if fault == Fault::LoseAnswer {
                let moved = next.unwrap_err();
                assert!(
                    moved.to_string().contains("has arrived after all"),
                    "{moved}"
                );
            } else {
                next.unwrap();
            }
            let expected = expected
                .into_iter()
                .chain((fault == Fault::LoseRequest).then_some(3));
            assert_eq!(numbers(&log, FACTS), expected.collect::<Vec<_>>());
            append(&log, owner, &[put(FACTS, 4, "x")]).unwrap();
        }
    });
}

#[test]
fn a_write_that_the_server_takes_too_long_for_fails_and_is_not_made() {
    let _alone = alone();
    for_each_server(|server| {
        let options = server
            .options()
            .statement_timeout(Duration::from_millis(300));
        let database = common::connect(&options);
        let (log, owner) = claimed(&database);
        let schema = database.schema();
        let lock = server.transaction(&format!(
            "SELECT FROM {schema}.shard WHERE id = 0 FOR UPDATE"
        ));
        let error = append(&log, owner, &[put(FACTS, 1, "x")]).unwrap_err();
        assert!(error.to_string().contains("statement timeout"), "{error}");
        lock.rollback();
        append(&log, owner, &[put(FACTS, 2, "x")]).unwrap();
        assert_eq!(numbers(&log, FACTS), [2]);
    });
}

#[test]
fn a_claim_whose_answer_is_lost_is_made_once() {
    let _alone = alone();
    for_each_server(|server| {
        let Proxied { proxy, log, owner } = proxied(server);
        let schema = log_schema(server);
        // Both statements of a claim are prepared: the second message of the next claim is lost.
        log.claim().unwrap();
        let ended = || {
            server.sql(&format!(
                "SELECT count(*) FROM {schema}.ended_epoch WHERE shard = 0"
            ))
        };
        let before: u64 = ended()[0].parse().unwrap();
        let newest = thread::scope(|scope| {
            // The first statement of the claim, which reads the epoch, waits for nothing; its loss
            // is harmless.
            proxy.arm(Fault::LoseAnswer);
            scope.spawn(|| log.claim().unwrap()).join().unwrap()
        });
        assert!(newest > owner);
        let after: u64 = ended()[0].parse().unwrap();
        assert_eq!(after, before + 1);
        // By hand, as the statement that is sent again: the same answer, and no new epoch.
        let claim = |seen: u64| {
            server.sql(&format!(
                "SELECT out_outcome || out_epoch FROM {schema}.claim(0, {seen}, 42, NULL, 0, true)"
            ))
        };
        assert_eq!(claim(newest.0), claim(newest.0));
        assert_eq!(
            PostgresLog::unleased(&server.database(), ShardId(0))
                .contents()
                .unwrap(),
            []
        );
    });
}
