//! Leases: who may claim a shard, and until when.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::thread;
use std::time::Duration;

use common::{FACTS, append, for_each_server, put};
use dormouse_actors::ports::StoreError;
use dormouse_postgres::{Claim, ClaimMode, Database, PostgresLog, ShardId};
use dormouse_records::RecordLog;

const LONG: Duration = Duration::from_secs(600);

fn claim(database: &Database, node: &str, lease: Duration, mode: ClaimMode) -> Option<Claim> {
    database.claim_shard(ShardId(3), node, lease, mode).unwrap()
}

#[test]
fn a_shard_is_claimed_when_it_is_free_released_or_taken_by_force() {
    for_each_server(|server| {
        let database = server.database();
        let first = claim(&database, "a", LONG, ClaimMode::IfFree).expect("it is free");
        assert!(first.is_surely_held());
        assert!(first.surely_held_for() <= LONG.mul_f32(0.9));
        assert!(claim(&database, "b", LONG, ClaimMode::IfFree).is_none());
        assert!(
            claim(&database, "a", LONG, ClaimMode::IfFree).is_none(),
            "a name is a run"
        );
        let status = &database.shards().unwrap()[3];
        assert_eq!((status.shard, status.owner), (ShardId(3), first.owner()));
        let (node, left) = status.lease.clone().expect("there is a lease");
        assert!(node == "a" && left <= LONG && left > LONG / 2, "{left:?}");

        database.release(std::slice::from_ref(&first)).unwrap();
        assert!(!first.is_surely_held());
        assert_eq!(database.shards().unwrap()[3].lease, None);
        let second = claim(&database, "b", LONG, ClaimMode::IfFree).expect("it was released");
        assert!(second.owner() > first.owner());
        // A release that comes late takes nothing from the next node.
        database.release(&[first]).unwrap();
        assert!(claim(&database, "c", LONG, ClaimMode::IfFree).is_none());

        let log = PostgresLog::claimed(&database, &second);
        let owner = log.claim().unwrap();
        assert_eq!(owner, second.owner());
        append(&log, owner, &[put(FACTS, 1, "x")]).unwrap();
        let third = claim(&database, "c", LONG, ClaimMode::Force).expect("it is taken by force");
        let refused = append(&log, owner, &[put(FACTS, 2, "x")]).unwrap_err();
        assert!(
            matches!(refused, StoreError::Stale { newest, .. } if newest == third.owner()),
            "{refused}"
        );
        let refused = log.claim().unwrap_err();
        assert!(matches!(refused, StoreError::Stale { .. }), "{refused}");
        assert_eq!(
            database.renew(&[second.clone(), third.clone()]).unwrap(),
            [ShardId(3)]
        );
        assert!(!second.is_surely_held() && third.is_surely_held());
    });
}

#[test]
fn a_lease_ends_by_the_clock_of_the_database() {
    for_each_server(|server| {
        let database = server.database();
        let lease = Duration::from_millis(300);
        let first = claim(&database, "a", lease, ClaimMode::IfFree).expect("it is free");
        // Whenever the database says that the shard is free, the first node knows that it is not
        // surely held any more.
        let second = loop {
            let claimed = claim(&database, "b", LONG, ClaimMode::IfFree);
            if let Some(second) = claimed {
                break second;
            }
            thread::sleep(Duration::from_millis(5));
        };
        assert!(!first.is_surely_held());
        assert!(second.is_surely_held());
        assert_eq!(database.renew(&[first]).unwrap(), [ShardId(3)]);
    });
}

#[test]
fn a_renewal_lasts_the_whole_lease_again_for_all_shards_of_a_node() {
    for_each_server(|server| {
        let database = server.database();
        let lease = Duration::from_secs(2);
        let claims: Vec<_> = (0..common::SHARDS)
            .filter_map(|shard| {
                database
                    .claim_shard(ShardId(shard), "a", lease, ClaimMode::IfFree)
                    .unwrap()
            })
            .collect();
        assert_eq!(claims.len() as u32, common::SHARDS);
        let schema = database.schema();
        server.sql(&format!("UPDATE {schema}.lease SET until = clock_timestamp() - interval '1 hour' WHERE shard < 50"));
        // Half of them have ended, and nobody has claimed those.
        assert_eq!(database.renew(&claims).unwrap(), []);
        assert!(claims.iter().all(Claim::is_surely_held));
        let shards = database.shards().unwrap();
        assert!(shards.iter().all(|status| status.lease.is_some()));
        assert_eq!(database.renew(&[]).unwrap(), []);
    });
}

#[test]
fn a_renewal_does_not_wait_for_a_commit() {
    for_each_server(|server| {
        let options = server.options().statement_timeout(Duration::from_secs(5));
        let database = common::connect(&options);
        let first = claim(&database, "a", LONG, ClaimMode::IfFree).expect("it is free");
        let schema = database.schema();
        let commit = server.transaction(&format!(
            "UPDATE {schema}.shard SET writes = writes + 1 WHERE id = 3"
        ));
        assert_eq!(database.renew(&[first]).unwrap(), []);
        commit.rollback();
    });
}

#[test]
fn of_nodes_that_claim_at_once_one_gets_the_shard() {
    for_each_server(|server| {
        let database = server.database();
        for shard in 0..10 {
            let nodes = ["a", "b", "c", "d", "e", "f"];
            let claims: Vec<Claim> = thread::scope(|scope| {
                let threads = nodes.map(|node| {
                    let database = &database;
                    scope.spawn(move || {
                        database
                            .claim_shard(ShardId(shard), node, LONG, ClaimMode::IfFree)
                            .unwrap()
                    })
                });
                threads
                    .into_iter()
                    .filter_map(|thread| thread.join().unwrap())
                    .collect()
            });
            assert_eq!(claims.len(), 1);
        }
    });
}

#[test]
fn shards_are_created_once() {
    for_each_server(|server| {
        let database = server.database();
        let before = database.shards().unwrap();
        database.create_shards(common::SHARDS).unwrap();
        database.create_shards(5).unwrap();
        assert_eq!(database.shards().unwrap(), before);
        database.create_shards(common::SHARDS + 1).unwrap();
        assert_eq!(database.shards().unwrap().len() as u32, common::SHARDS + 1);
        let unknown = database
            .claim_shard(ShardId(5_000), "a", LONG, ClaimMode::Force)
            .unwrap_err();
        assert!(unknown.to_string().contains("create_shards"), "{unknown}");
    });
}

#[test]
fn a_claimed_log_whose_database_has_lost_commits_is_to_be_opened_again() {
    for_each_server(|server| {
        let schema = common::new_schema();
        let database = common::connect(&server.options_for(&schema));
        let held = claim(&database, "a", LONG, ClaimMode::IfFree).expect("it is free");
        let log = PostgresLog::claimed(&database, &held);
        append(&log, held.owner(), &[put(FACTS, 1, "x")]).unwrap();
        // As after a failover to a standby that had not received the last write.
        server.sql(&format!(
            "UPDATE {schema}.shard SET writes = writes - 1 WHERE id = 3"
        ));
        let failed = append(&log, held.owner(), &[put(FACTS, 2, "x")]).unwrap_err();
        assert!(matches!(failed, StoreError::Failed(_)), "{failed}");
        assert!(failed.to_string().contains("has lost some"), "{failed}");
    });
}
