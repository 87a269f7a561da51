//! What the database alone takes: one INSERT of a record, by a bare client on a connection of its
//! own.

use std::time::{Duration, Instant};

use anyhow::Result;
use dormouse::ports::SyncLevel;
use tokio_postgres::{Client, Statement};

use crate::report::Durations;
use crate::schema::Schema;

/// The bytes of a record: about those of a fact.
pub(crate) const RECORD_BYTES: usize = 256;

/// Inserts records into a table with the columns and the index of the store's.
pub(crate) struct PlainInsert {
    client: Client,
    insert: Statement,
    number: i64,
    bytes: Vec<u8>,
}

impl PlainInsert {
    /// The schema must have the tables of the store.
    pub(crate) async fn new(schema: &Schema, sync_level: SyncLevel) -> Result<Self> {
        let client = schema.client().await?;
        let level = match sync_level {
            SyncLevel::Written => "off",
            SyncLevel::Synced => "on",
        };
        let table = format!("plain_{level}");
        client
            .batch_execute(&format!(
                "SET synchronous_commit = {level};
                CREATE TABLE IF NOT EXISTS {table} (LIKE record INCLUDING ALL);
                TRUNCATE {table}"
            ))
            .await?;
        let insert = client
            .prepare(&format!(
                "INSERT INTO {table} (shard, kind, id, number, in_commit, at_ms, bytes)
                VALUES (0, 3, 1, $1, $1, 1700000000000, $2)"
            ))
            .await?;
        Ok(Self {
            client,
            insert,
            number: 0,
            bytes: vec![0xa5; RECORD_BYTES],
        })
    }

    /// Inserts one record. Returns how long that took.
    pub(crate) async fn once(&mut self) -> Result<Duration> {
        self.number += 1;
        let begun = Instant::now();
        self.client
            .execute(&self.insert, &[&self.number, &self.bytes])
            .await?;
        Ok(begun.elapsed())
    }

    pub(crate) async fn times(&mut self, count: usize) -> Result<Durations> {
        let mut durations = Durations::default();
        for _ in 0..count {
            durations.push(self.once().await?);
        }
        Ok(durations)
    }
}

/// `per_unit` INSERTs one after the other take so many times one.
pub(crate) fn multiplied(alone: &Durations, per_unit: u32) -> Durations {
    Durations(alone.0.iter().map(|one| *one * per_unit).collect())
}
