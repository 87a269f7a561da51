//! The conformance suite of stores.

mod common;

use common::{SHARDS, for_each_server};
use dormouse_postgres::{Database, PostgresLog, ShardId};
use dormouse_records::{RecordStore, StoreSecret};
use dormouse_store_conformance::check_store;

/// Runs the suite, with a shard for each case. `open` opens the store before each operation.
fn check(
    database: &Database,
    open: impl Fn(PostgresLog) -> RecordStore<PostgresLog> + Copy + 'static,
) {
    let mut shards = (0..SHARDS).map(ShardId);
    check_store(|| {
        let shard = shards.next().expect("there are more shards than cases");
        let database = database.clone();
        Box::new(move |operation| operation(&open(PostgresLog::unleased(&database, shard))))
    });
}

#[test]
fn the_store_conforms() {
    for_each_server(|server| {
        let database = server.database();
        let mut shards = (0..SHARDS).map(ShardId);
        check_store(|| {
            let shard = shards.next().expect("there are more shards than cases");
            let store = RecordStore::new_on(PostgresLog::unleased(&database, shard));
            Box::new(move |operation| operation(&store))
        });
    });
}

#[test]
fn a_store_that_is_reopened_for_each_operation_conforms() {
    for_each_server(|server| check(&server.database(), RecordStore::new_on));
}

#[test]
fn an_encrypted_store_conforms() {
    for_each_server(|server| {
        check(&server.database(), |log| {
            RecordStore::new_on(log).key(StoreSecret::new([7; 32]))
        });
    });
}
