//! A database: its connections, the thread that drives them, and how callers wait for it.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use deadpool_postgres::Client;
use dormouse_actors::ports::{StoreError, SyncLevel};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::Row;

use crate::connections::{Connections, Parameters};
use crate::error::{AttemptError, DatabaseError, other_error, store_error};
use crate::group::{GroupAnswer, GroupQueue, RecordWrite, send_waiting};
use crate::migrate;
use crate::options::{DatabaseOptions, Timeouts};

/// A PostgreSQL database with the shards of a system. Cheap to clone: all clones share one pool of
/// connections and one thread.
///
/// The methods block, and may be called from any thread. While the server cannot be reached, they
/// try again with increasing waits, until the [outage limit](DatabaseOptions::outage_limit).
#[derive(Clone)]
pub struct Database(Arc<Shared>);

struct Shared {
    /// Taken when it is dropped.
    runtime: Option<Runtime>,
    connections: Connections,
    /// The commits of each level that wait.
    written: Arc<GroupQueue>,
    synced: Arc<GroupQueue>,
}

impl Database {
    /// Connects, and brings the tables up to date. Costs one connection and two round trips, if the
    /// tables are up to date.
    ///
    /// # Errors
    /// [`DatabaseError`]; a server that cannot be reached is tried for the
    /// [connect timeout](DatabaseOptions::connect_timeout).
    pub fn connect(options: &DatabaseOptions) -> Result<Self, DatabaseError> {
        Self::connect_within(options.timeouts().connect, options)
    }

    /// As [`connect`](Self::connect), but a server that cannot be reached is tried for `limit`. For
    /// programs that are started together with their server.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_within(
        limit: Duration,
        options: &DatabaseOptions,
    ) -> Result<Self, DatabaseError> {
        let database = Self::on(options, Connections::new(options)?)?;
        migrate::migrate(&database, limit, "migration", migrate::MIGRATIONS)?;
        Ok(database)
    }

    /// Connects for reading: everything that is read through this value and its clones is as of the
    /// moment of this call, whatever is written meanwhile. Writes nothing, and brings no tables up
    /// to date. Reads one after the other, on one connection; once that is lost, every read fails.
    /// The server keeps what it would else clean up until the last clone is dropped.
    ///
    /// # Errors
    /// [`DatabaseError`]; [`DatabaseError::OlderSchema`] if no program of this version has written.
    pub fn connect_snapshot(options: &DatabaseOptions) -> Result<Self, DatabaseError> {
        let database = Self::on(options, Connections::of_snapshot(options)?)?;
        migrate::check(&database, "migration", migrate::MIGRATIONS)?;
        Ok(database)
    }

    fn on(options: &DatabaseOptions, connections: Connections) -> Result<Self, DatabaseError> {
        let doing = "start the thread of its connections";
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("dormouse-postgres")
            .enable_all()
            .build()
            .map_err(|error| other_error(doing, error.to_string()))?;
        // The other half of the connections is left for reads, however many shards write.
        let statements = options.connections().div_ceil(2);
        let group_queue = |level| Arc::new(GroupQueue::new(level, statements));
        Ok(Self(Arc::new(Shared {
            runtime: Some(runtime),
            connections,
            written: group_queue(SyncLevel::Written),
            synced: group_queue(SyncLevel::Synced),
        })))
    }

    /// Brings tables of another crate in this schema up to date: applies those of `migrations`,
    /// each a text of SQL with `{schema}`, whose numbers (from 1) the table `{schema}.{table}` does
    /// not have. The tables of this crate have numbers of their own.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn migrate(
        &self,
        table: &'static str,
        migrations: &'static [&'static str],
    ) -> Result<(), DatabaseError> {
        migrate::migrate(self, self.timeouts().connect, table, migrations)
    }

    /// The schema of the tables.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.0.connections.schema
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.0.connections.timeouts
    }

    /// Executes a statement, in one round trip once a connection has prepared it. `{schema}` in it
    /// is replaced by the name of the schema. The statement must be one that may be executed twice:
    /// it is sent again when the connection was lost. For tables of other crates
    /// ([`migrate`](Self::migrate)); those of this one are its own.
    ///
    /// # Errors
    /// [`StoreError::Io`]. The statement may have been executed, or may still be.
    pub fn query(
        &self,
        doing: &str,
        template: &'static str,
        parameters: Parameters,
    ) -> Result<Vec<Row>, StoreError> {
        self.query_within(self.timeouts().outage, doing, template, parameters)
    }

    /// As [`query`](Self::query), with a limit of its own for how long it tries again.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub fn query_within(
        &self,
        outage_limit: Duration,
        doing: &str,
        template: &'static str,
        parameters: Parameters,
    ) -> Result<Vec<Row>, StoreError> {
        let connections = self.0.connections.with_outage_limit(outage_limit);
        let logged_doing = doing.to_owned();
        self.wait_for(doing, async move {
            connections.query(&logged_doing, template, parameters).await
        })
    }

    /// Executes one statement that returns one row.
    pub(crate) fn query_one(
        &self,
        doing: &str,
        template: &'static str,
        parameters: Parameters,
    ) -> Result<Row, StoreError> {
        let rows = self.query(doing, template, parameters)?;
        let row = rows.into_iter().next();
        row.ok_or_else(|| other_error(doing, "the server has returned no row"))
    }

    /// Writes records of a shard in one statement, possibly together with those of other shards.
    ///
    /// # Errors
    /// [`StoreError::Io`]. The records may be written, or may still be.
    pub(crate) fn write_records(
        &self,
        sync_level: SyncLevel,
        write: RecordWrite,
    ) -> Result<GroupAnswer, StoreError> {
        let queue = match sync_level {
            SyncLevel::Written => &self.0.written,
            SyncLevel::Synced => &self.0.synced,
        };
        let (answer, starts_task) = queue.push(write);
        if starts_task && let Some(runtime) = &self.0.runtime {
            runtime.spawn(send_waiting(Arc::clone(queue), self.0.connections.clone()));
        }
        let answer = answer.recv();
        answer.unwrap_or_else(|_| Err(thread_has_ended("write a commit")))
    }

    /// Calls `operation` with a connection, and again with another one while that fails for a
    /// transient reason and less than `outage_limit` has passed.
    pub(crate) fn run<T, F>(
        &self,
        outage_limit: Duration,
        doing: &str,
        operation: impl Fn(Arc<Client>) -> F + Send + Sync + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, tokio_postgres::Error>> + Send,
    {
        let connections = self.0.connections.with_outage_limit(outage_limit);
        let logged_doing = doing.to_owned();
        self.wait_for(doing, async move {
            connections.retry(&logged_doing, operation).await
        })
    }

    /// Waits for a future, which the database's own thread drives, so that the caller may be in any
    /// runtime or none.
    fn wait_for<T: Send + 'static>(
        &self,
        doing: &str,
        future: impl Future<Output = Result<T, AttemptError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        if let Some(runtime) = &self.0.runtime {
            runtime.spawn(async move {
                // The receiver waits until it has got the value.
                let _ = sender.send(future.await);
            });
        }
        match receiver.recv() {
            Ok(result) => result.map_err(|error| store_error(doing, &error)),
            Err(_) => Err(thread_has_ended(doing)),
        }
    }
}

fn thread_has_ended(doing: &str) -> StoreError {
    other_error(doing, "the thread of its connections has ended")
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("schema", &self.schema())
            .finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The last clone may be dropped in a runtime of the caller, where waiting would panic.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
