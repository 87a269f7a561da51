//! Brings the tables of a schema up to date.
//!
//! Each version is a file of SQL, which is never changed once it was published. The versions that
//! a schema lacks are applied in one transaction, by one program at a time.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use crate::database::Database;
use crate::error::DatabaseError;

/// The files of SQL, by version from 1.
pub(crate) const MIGRATIONS: &[&str] = &[include_str!("migrations/1.sql")];

/// A lock of the database. The number is arbitrary, and must never change.
const MIGRATION_LOCK: i64 = 0x646f_726d_6f75_7365;

/// Brings the schema of a database up to date. A server that cannot be reached is tried for
/// `limit`. `table` has the numbers of the applied migrations.
///
/// # Errors
/// [`DatabaseError::NewerSchema`], [`DatabaseError::Store`].
pub(crate) fn migrate(
    database: &Database,
    limit: Duration,
    table: &'static str,
    migrations: &'static [&'static str],
) -> Result<(), DatabaseError> {
    let schema: Arc<str> = database.schema().into();
    let known = migrations.len() as i32;
    let doing = "bring its tables up to date";
    let found = database.run(limit, doing, move |client| {
        let schema = Arc::clone(&schema);
        async move {
            match version_if_any(&client, &schema, table).await? {
                found if found >= known => Ok(found),
                _ => apply_missing(&client, &schema, table, migrations).await,
            }
        }
    })?;
    check_version(database, found, known)
}

/// Checks that the schema of a database is up to date, and writes nothing.
///
/// # Errors
/// [`DatabaseError::OlderSchema`], [`DatabaseError::NewerSchema`], [`DatabaseError::Store`].
pub(crate) fn check(
    database: &Database,
    table: &'static str,
    migrations: &'static [&'static str],
) -> Result<(), DatabaseError> {
    let schema: Arc<str> = database.schema().into();
    let limit = database.timeouts().connect;
    let found = database.run(limit, "read the version of its tables", move |client| {
        let schema = Arc::clone(&schema);
        async move { version_if_any(&client, &schema, table).await }
    })?;
    check_version(database, found, migrations.len() as i32)
}

fn check_version(database: &Database, found: i32, known: i32) -> Result<(), DatabaseError> {
    let schema = database.schema().to_owned();
    match found.cmp(&known) {
        Ordering::Equal => Ok(()),
        Ordering::Less => Err(DatabaseError::OlderSchema {
            schema,
            found,
            known,
        }),
        Ordering::Greater => Err(DatabaseError::NewerSchema {
            schema,
            found,
            known,
        }),
    }
}

/// The version of the schema; 0 if it has no tables.
async fn version_if_any(
    client: &tokio_postgres::Client,
    schema: &str,
    table: &str,
) -> Result<i32, tokio_postgres::Error> {
    let qualified = format!("{schema}.{table}");
    let row = client
        .query_one("SELECT to_regclass($1) IS NOT NULL", &[&qualified])
        .await?;
    match row.get(0) {
        true => version(client, schema, table).await,
        false => Ok(0),
    }
}

/// The version of the schema.
async fn version(
    client: &tokio_postgres::Client,
    schema: &str,
    table: &str,
) -> Result<i32, tokio_postgres::Error> {
    let sql = format!("SELECT coalesce(max(version), 0) FROM {schema}.{table}");
    Ok(client.query_one(&sql, &[]).await?.get(0))
}

/// Applies the missing versions, and returns the version of the schema after that.
async fn apply_missing(
    client: &tokio_postgres::Client,
    schema: &str,
    table: &str,
    migrations: &[&str],
) -> Result<i32, tokio_postgres::Error> {
    // The client is shared, so that a transaction is begun by statement. If one of the statements
    // fails, the connection is not used again with an open transaction.
    let result = apply_in_transaction(client, schema, table, migrations).await;
    if result.is_err() {
        client.batch_execute("ROLLBACK").await?;
    }
    result
}

async fn apply_in_transaction(
    client: &tokio_postgres::Client,
    schema: &str,
    table: &str,
    migrations: &[&str],
) -> Result<i32, tokio_postgres::Error> {
    client
        .batch_execute(&format!(
            "BEGIN; SELECT pg_advisory_xact_lock({MIGRATION_LOCK});
             DO $$ BEGIN IF to_regnamespace('{schema}') IS NULL THEN CREATE SCHEMA {schema}; END IF; END $$;
             CREATE TABLE IF NOT EXISTS {schema}.{table}
                 (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now());"
        ))
        .await?;
    // `CREATE SCHEMA IF NOT EXISTS` would need the right to create one even where it exists.
    // Another program may have applied some while this one waited for the lock.
    let found = version(client, schema, table).await?;
    for (migration, version) in migrations.iter().zip(1..).skip(found.max(0) as usize) {
        let sql = migration.replace("{schema}", schema);
        let insert = format!("INSERT INTO {schema}.{table} (version) VALUES ({version})");
        client.batch_execute(&format!("{sql};{insert}")).await?;
    }
    client.batch_execute("COMMIT").await?;
    Ok(found.max(migrations.len() as i32))
}
