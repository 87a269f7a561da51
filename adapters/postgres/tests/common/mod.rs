//! Servers of PostgreSQL, and a schema of its own for each test.
//!
//! `.ci/postgres` starts the servers. Without it the tests fail.

#![expect(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod proxy;

use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use dormouse_actors::ports::{OwnerToken, StoreError, SyncLevel};
use dormouse_postgres::{Database, DatabaseOptions, PostgresLog, ShardId};
use dormouse_proto::id::{CommitNumber, ContentHash};
use dormouse_records::{NewContent, RecordBatch, RecordLog, RecordOp, Stream, StreamKind};

/// Calls a test once for each server, one after another.
pub(crate) fn for_each_server(test: impl Fn(&Server)) {
    let urls = std::env::var("DORMOUSE_POSTGRES_URLS");
    let urls = urls.expect("DORMOUSE_POSTGRES_URLS names the servers: run .ci/postgres");
    let urls: Vec<_> = urls.split(',').filter(|url| !url.is_empty()).collect();
    assert!(!urls.is_empty(), "DORMOUSE_POSTGRES_URLS names a server");
    for url in urls {
        let server = Server {
            url: url.to_owned(),
        };
        eprintln!("on {}", server.sql("SHOW server_version")[0]);
        test(&server);
    }
}

/// A server.
pub(crate) struct Server {
    pub(crate) url: String,
}

impl Server {
    /// Options for a new schema. The connections have the name of the schema.
    pub(crate) fn options(&self) -> DatabaseOptions {
        self.options_for(&new_schema())
    }

    pub(crate) fn options_for(&self, schema: &str) -> DatabaseOptions {
        options(&format!("{}?application_name={schema}", self.url), schema)
    }

    /// A database with some shards, in a new schema.
    pub(crate) fn database(&self) -> Database {
        connect(&self.options())
    }

    pub(crate) fn port(&self) -> u16 {
        let address = self.url.rsplit_once('@').expect("it has a user").1;
        let (host, _) = address.split_once('/').expect("it has a database");
        host.rsplit_once(':')
            .expect("it has a port")
            .1
            .parse()
            .expect("it is a number")
    }

    /// The address through another port of this machine, without TLS.
    pub(crate) fn url_through(&self, port: u16, schema: &str) -> String {
        let url = self
            .url
            .replace(&format!(":{}/", self.port()), &format!(":{port}/"));
        format!("{url}?sslmode=disable&application_name={schema}")
    }

    /// Executes SQL as an administrator. Returns the first column of the rows.
    pub(crate) fn sql(&self, sql: &str) -> Vec<String> {
        block_on(async {
            let connected = tokio_postgres::connect(&self.url, tokio_postgres::NoTls).await;
            let (client, connection) = connected.expect("the server answers");
            tokio::spawn(connection);
            rows_of(&client, sql).await
        })
    }

    /// Opens a transaction, which is rolled back when the value is dropped.
    pub(crate) fn transaction(&self, sql: &str) -> OpenTransaction {
        let runtime = runtime();
        let client = runtime.block_on(async {
            let connected = tokio_postgres::connect(&self.url, tokio_postgres::NoTls).await;
            let (client, connection) = connected.expect("the server answers");
            tokio::spawn(connection);
            client
                .batch_execute(&format!("BEGIN; {sql}"))
                .await
                .expect("it is valid");
            client
        });
        OpenTransaction { client, runtime }
    }

    /// Ends the connections of a schema, and returns how many there were.
    pub(crate) fn terminate(&self, schema: &str) -> usize {
        let sql = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{schema}'"
        );
        self.sql(&sql).len()
    }

    /// Waits until this query returns true.
    pub(crate) fn wait_until(&self, sql: &str) {
        for _ in 0..2_000 {
            if self.sql(sql) == ["t"] {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("never true: {sql}");
    }
}

pub(crate) struct OpenTransaction {
    client: tokio_postgres::Client,
    runtime: tokio::runtime::Runtime,
}

impl OpenTransaction {
    pub(crate) fn commit(self) {
        let commit = self.client.batch_execute("COMMIT");
        self.runtime.block_on(commit).expect("it is open");
    }

    pub(crate) fn rollback(self) {
        let rollback = self.client.batch_execute("ROLLBACK");
        self.runtime.block_on(rollback).expect("it is open");
    }
}

async fn rows_of(client: &tokio_postgres::Client, sql: &str) -> Vec<String> {
    let messages = client.simple_query(sql).await;
    let messages = messages.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let first = |message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => {
            Some(row.get(0).unwrap_or_default().to_owned())
        }
        _ => None,
    };
    messages.into_iter().filter_map(first).collect()
}

fn runtime() -> tokio::runtime::Runtime {
    let builder = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    builder.expect("a thread can be started")
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime().block_on(future)
}

/// The name of a schema that no other test has.
pub(crate) fn new_schema() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let time = time.expect("it is later than 1970").as_micros();
    format!("t{time}_{}_{number}", std::process::id())
}

pub(crate) fn options(url: &str, schema: &str) -> DatabaseOptions {
    let options = DatabaseOptions::new(url).expect("the address is valid");
    options.schema(schema).expect("the name is valid")
}

pub(crate) const SHARDS: u32 = 100;

pub(crate) fn connect(options: &DatabaseOptions) -> Database {
    let database = Database::connect(options).expect("the server answers");
    database.create_shards(SHARDS).expect("the server answers");
    database
}

pub(crate) const FACTS: Stream = stream(StreamKind::Fact, 1);

pub(crate) const fn stream(kind: StreamKind, id: u64) -> Stream {
    Stream { kind, id }
}

pub(crate) fn put(stream: Stream, number: u64, bytes: impl Into<Vec<u8>>) -> RecordOp {
    let bytes = Bytes::from(bytes.into());
    RecordOp::Put {
        stream,
        number,
        bytes,
    }
}

/// A content whose name is its first byte repeated.
pub(crate) fn content(name: u8, bytes: Vec<u8>) -> NewContent {
    NewContent {
        name: ContentHash([name; 32]),
        bytes: bytes.into(),
        index: Bytes::from(format!("index of {name}")),
    }
}

pub(crate) fn append(
    log: &PostgresLog,
    owner: OwnerToken,
    ops: &[RecordOp],
) -> Result<CommitNumber, StoreError> {
    append_all(log, owner, &[], ops)
}

pub(crate) fn append_all(
    log: &PostgresLog,
    owner: OwnerToken,
    contents: &[NewContent],
    ops: &[RecordOp],
) -> Result<CommitNumber, StoreError> {
    let batch = RecordBatch {
        contents,
        ops,
        at_ms: 1_700_000_000_000,
        sync_level: SyncLevel::Synced,
    };
    log.append(owner, &batch)
}

/// The log of shard 0 with a new owner.
pub(crate) fn claimed(database: &Database) -> (PostgresLog, OwnerToken) {
    let log = PostgresLog::unleased(database, ShardId(0));
    let owner = log.claim().expect("the server answers");
    (log, owner)
}

/// The numbers and bytes of a stream.
pub(crate) fn numbers(log: &PostgresLog, stream: Stream) -> Vec<u64> {
    let records = log.read(stream, 0..=u64::MAX).expect("the server answers");
    records.iter().map(|record| record.number).collect()
}
