//! What the database itself has seen: each claim and each commit of a shard, with the role that
//! made it. A trigger of the runner's own writes it down in the transaction of the claim or the
//! commit.
//!
//! Each node has a role of its own, so that a commit of a node that has lost the shard shows.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use futures_util::StreamExt;
use tokio_postgres::{AsyncMessage, NoTls};

use crate::postgres::{Postgres, url};

/// How long a commit of a role is waited for.
const COMMIT_LIMIT: std::time::Duration = std::time::Duration::from_secs(10);

/// A claim or a write of a shard, in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShardWrite {
    pub(crate) role: String,
    pub(crate) epoch_before: u64,
    pub(crate) epoch: u64,
    pub(crate) commit_before: u64,
    pub(crate) commit: u64,
    pub(crate) at: String,
}

/// Begins to observe the shards of a schema, whose tables exist.
pub(crate) async fn observe(postgres: &Postgres, schema: &str) -> Result<()> {
    let sql = format!(
        "CREATE TABLE {schema}.observed (
            number bigserial PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(),
            shard integer NOT NULL, role text NOT NULL DEFAULT session_user,
            epoch_before bigint NOT NULL, epoch bigint NOT NULL,
            commit_before bigint NOT NULL, commit bigint NOT NULL
        );
        CREATE TABLE {schema}.watched (role text PRIMARY KEY);
        CREATE FUNCTION {schema}.observe() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO {schema}.observed (shard, epoch_before, epoch, commit_before, commit)
                VALUES (new.id, old.epoch, new.epoch, old.last_commit, new.last_commit);
            PERFORM pg_notify('committed', role) FROM {schema}.watched
                WHERE role = session_user AND new.last_commit > old.last_commit;
            RETURN NULL;
        END
        $$;
        CREATE TRIGGER observe AFTER UPDATE ON {schema}.shard
            FOR EACH ROW EXECUTE FUNCTION {schema}.observe();"
    );
    postgres
        .sql(&sql)
        .await
        .context("the shards cannot be observed")?;
    Ok(())
}

/// Waits until the database at the port has made a commit of a role, which may not know it yet.
pub(crate) async fn until_commit(port: u16, schema: &str, role: &str) -> Result<()> {
    let (client, mut connection) = tokio_postgres::connect(&url(port), NoTls).await?;
    let (sender, mut committed) = tokio::sync::mpsc::unbounded_channel();
    let driver = tokio::spawn(async move {
        let mut messages =
            futures_util::stream::poll_fn(|context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(notification) = message {
                // The receiver goes once it has heard of one.
                let _ = sender.send(notification.payload().to_owned());
            }
        }
    });
    let watched = format!("INSERT INTO {schema}.watched VALUES ('{role}') ON CONFLICT DO NOTHING");
    client
        .batch_execute(&format!("LISTEN committed; {watched}"))
        .await?;
    let outcome = tokio::time::timeout(COMMIT_LIMIT, committed.recv()).await;
    let forget = format!("DELETE FROM {schema}.watched WHERE role = '{role}'");
    // In the background: the caller acts on the commit at once.
    tokio::spawn(async move {
        let _ = client.batch_execute(&forget).await;
        driver.abort();
    });
    outcome?.context("the database has gone")?;
    Ok(())
}

/// What was seen, by shard.
pub(crate) async fn read(
    postgres: &Postgres,
    schema: &str,
) -> Result<BTreeMap<u32, Vec<ShardWrite>>> {
    let sql = format!(
        "SELECT shard, role, epoch_before, epoch, commit_before, commit, at
         FROM {schema}.observed ORDER BY number"
    );
    let mut shards: BTreeMap<u32, Vec<ShardWrite>> = BTreeMap::new();
    for row in postgres.sql(&sql).await? {
        let number = |column: usize| row[column].parse::<u64>();
        let write = ShardWrite {
            role: row[1].clone(),
            epoch_before: number(2)?,
            epoch: number(3)?,
            commit_before: number(4)?,
            commit: number(5)?,
            at: row[6].clone(),
        };
        shards.entry(row[0].parse()?).or_default().push(write);
    }
    Ok(shards)
}
