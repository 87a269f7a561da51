//! Tables, connections and secrets.

mod common;

use std::thread;

use common::{FACTS, append, claimed, for_each_server, put};
use dormouse_postgres::{Database, DatabaseError, DatabaseOptions};

const PASSWORD: &str = "a-password-of-tests";

#[test]
fn programs_that_start_at_once_make_the_tables_once() {
    for_each_server(|server| {
        let options = server.options();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..6)
                .map(|_| scope.spawn(|| Database::connect(&options)))
                .collect();
            for thread in threads {
                let database = thread.join().unwrap().unwrap();
                database.create_shards(1).unwrap();
                let versions = server.sql(&format!(
                    "SELECT version FROM {}.migration",
                    database.schema()
                ));
                assert_eq!(versions, ["1"]);
            }
        });
    });
}

#[test]
fn a_later_schema_is_refused_and_left_alone() {
    for_each_server(|server| {
        let schema = common::new_schema();
        let options = server.options_for(&schema);
        drop(common::connect(&options));
        server.sql(&format!("INSERT INTO {schema}.migration VALUES (99)"));
        let refused = Database::connect(&options).unwrap_err();
        assert!(
            matches!(
                refused,
                DatabaseError::NewerSchema {
                    found: 99,
                    known: 1,
                    ..
                }
            ),
            "{refused}"
        );
        assert!(refused.to_string().contains(&schema), "{refused}");
    });
}

#[test]
fn tables_of_another_crate_have_migrations_of_their_own() {
    const FIRST: &str = "CREATE TABLE {schema}.thing (n integer)";
    const SECOND: &str = "INSERT INTO {schema}.thing VALUES (7)";
    for_each_server(|server| {
        let database = server.database();
        for migrations in [&[FIRST][..], &[FIRST, SECOND], &[FIRST, SECOND]] {
            database.migrate("thing_migration", migrations).unwrap();
        }
        let rows = database.query("read things", "SELECT n FROM {schema}.thing", vec![]);
        let numbers: Vec<i32> = rows.unwrap().iter().map(|row| row.get(0)).collect();
        assert_eq!(numbers, [7]);
        let refused = database.migrate("thing_migration", &[FIRST]).unwrap_err();
        assert!(
            matches!(
                refused,
                DatabaseError::NewerSchema {
                    found: 2,
                    known: 1,
                    ..
                }
            ),
            "{refused}"
        );
        let versions = format!("SELECT version FROM {}.migration", database.schema());
        assert_eq!(server.sql(&versions), ["1"]);
    });
}

#[test]
fn a_role_that_may_create_nothing_uses_tables_that_exist() {
    for_each_server(|server| {
        let schema = common::new_schema();
        drop(common::connect(&server.options_for(&schema)));
        server.sql(&format!(
            "CREATE ROLE {schema} LOGIN PASSWORD '{PASSWORD}';
             GRANT USAGE ON SCHEMA {schema} TO {schema};
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {schema}"
        ));
        let url = server.url.replace("//dormouse:", &format!("//{schema}:"));
        let (log, owner) = claimed(&Database::connect(&common::options(&url, &schema)).unwrap());
        append(&log, owner, &[put(FACTS, 1, "x")]).unwrap();
        // A schema that somebody else has made for the role.
        let second = common::new_schema();
        server.sql(&format!("CREATE SCHEMA {second} AUTHORIZATION {schema}"));
        drop(common::connect(&common::options(&url, &second)));
    });
}

#[test]
fn a_wrong_password_is_refused_at_once_and_not_shown() {
    for_each_server(|server| {
        let url = server.url.replace(PASSWORD, "a-wrong-secret");
        let options = common::options(&url, "dormouse");
        let begun = std::time::Instant::now();
        let refused = Database::connect(&options).unwrap_err();
        assert!(
            begun.elapsed() < std::time::Duration::from_secs(4),
            "it was tried again"
        );
        let said = format!("{refused} {refused:?} {options:?}");
        assert!(said.contains("password authentication failed"), "{said}");
        assert!(!said.contains("a-wrong-secret"), "{said}");
    });
}

#[test]
fn a_password_of_code_is_used() {
    for_each_server(|server| {
        let url = server.url.replace(&format!(":{PASSWORD}"), "");
        let schema = common::new_schema();
        let options = DatabaseOptions::without_password(&url)
            .unwrap()
            .schema(&schema)
            .unwrap();
        assert!(Database::connect(&options).is_err());
        drop(common::connect(&options.password(PASSWORD)));
    });
}

#[test]
fn a_connection_is_encrypted_and_verified_as_its_mode_says() {
    let authority = std::env::var("DORMOUSE_POSTGRES_CA");
    let authority = authority.expect("DORMOUSE_POSTGRES_CA names a file: run .ci/postgres");
    for_each_server(|server| {
        // The certificate is one for `localhost` of an authority that only `sslrootcert` makes
        // known.
        let by_name = server.url.replace("127.0.0.1", "localhost");
        let trusted = format!("sslmode=verify-full&sslrootcert={authority}");
        for (url, parameters, expected) in [
            (&server.url, "sslmode=disable", Ok("f")),
            (&server.url, "", Ok("t")),
            (&server.url, "sslmode=prefer", Ok("t")),
            (&server.url, "sslmode=require", Ok("t")),
            (&by_name, &trusted, Ok("t")),
            (&server.url, &trusted, Err("certificate not valid for name")),
            (&by_name, "sslmode=verify-full", Err("UnknownIssuer")),
            (
                &by_name,
                "sslmode=verify-full&sslrootcert=/nowhere.pem",
                Err("/nowhere.pem"),
            ),
        ] {
            let schema = common::new_schema();
            let url = format!("{url}?application_name={schema}&{parameters}");
            let begun = std::time::Instant::now();
            let connected = Database::connect(&common::options(url.trim_end_matches('&'), &schema));
            match (connected, expected) {
                (Ok(database), Ok(is_encrypted)) => {
                    let sql = format!(
                        "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                         WHERE application_name = '{schema}'"
                    );
                    assert_eq!(server.sql(&sql), [is_encrypted], "{parameters}");
                    drop(database);
                }
                (Err(error), Err(why)) => {
                    assert!(error.to_string().contains(why), "{parameters}: {error}");
                    assert!(
                        begun.elapsed() < std::time::Duration::from_secs(4),
                        "it was tried again"
                    );
                }
                (connected, expected) => panic!("{parameters}: {connected:?}, {expected:?}"),
            }
        }
    });
}

#[test]
fn all_shards_share_a_few_connections() {
    for_each_server(|server| {
        let database = common::connect(&server.options().max_connections(3));
        thread::scope(|scope| {
            for shard in 0..64 {
                let database = &database;
                scope.spawn(move || {
                    let log = dormouse_postgres::PostgresLog::unleased(
                        database,
                        dormouse_postgres::ShardId(shard),
                    );
                    let owner = dormouse_records::RecordLog::claim(&log).unwrap();
                    for number in 1..=10 {
                        append(&log, owner, &[put(FACTS, number, "x")]).unwrap();
                    }
                });
            }
        });
        let schema = database.schema();
        let connections = server.sql(&format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{schema}'"
        ));
        assert_eq!(connections, ["3"]);
        assert_eq!(
            server.sql(&format!("SELECT count(*) FROM {schema}.record")),
            ["640"]
        );
    });
}
