//! A database: its pool of connections, the thread that drives them, and how statements are tried
//! again.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBuilder};
use deadpool_postgres::{
    Client, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime as PoolRuntime,
};
use dormouse_actors::ports::StoreError;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::error::{AttemptError, DatabaseError, other_error, store_error};
use crate::migrate;
use crate::options::{ANSWER_GRACE, DatabaseOptions, Timeouts};
use crate::tls;

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
    pool: Pool,
    schema: String,
    timeouts: Timeouts,
}

/// The parameters of a statement.
pub type Parameters = Vec<Box<dyn ToSql + Send + Sync>>;

/// Builds [`Parameters`].
macro_rules! parameters {
    ($($parameter:expr),* $(,)?) => {
        vec![$(Box::new($parameter) as Box<dyn tokio_postgres::types::ToSql + Send + Sync>),*]
    };
}
pub(crate) use parameters;

impl Database {
    /// Connects, and brings the tables up to date. Costs one connection and two round trips, if the
    /// tables are up to date.
    ///
    /// # Errors
    /// [`DatabaseError`]; a server that cannot be reached is tried for the
    /// [connect timeout](DatabaseOptions::connect_timeout).
    pub fn connect(options: &DatabaseOptions) -> Result<Self, DatabaseError> {
        let doing = "start the thread of its connections";
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("dormouse-postgres")
            .enable_all()
            .build()
            .map_err(|error| other_error(doing, error.to_string()))?;
        let database = Self(Arc::new(Shared {
            runtime: Some(runtime),
            pool: pool(options)?,
            schema: options.schema_name().to_owned(),
            timeouts: options.timeouts(),
        }));
        migrate::migrate(&database, "migration", migrate::MIGRATIONS)?;
        Ok(database)
    }

    /// Brings tables of another crate in this schema up to date: applies those of `migrations`, each
    /// a text of SQL with `{schema}`, whose numbers (from 1) the table `{schema}.{table}` does not
    /// have. The tables of this crate have numbers of their own.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn migrate(
        &self,
        table: &'static str,
        migrations: &'static [&'static str],
    ) -> Result<(), DatabaseError> {
        migrate::migrate(self, table, migrations)
    }

    /// The schema of the tables.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.0.schema
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.0.timeouts
    }

    /// A statement with the schema's name in place of `{schema}`.
    pub(crate) fn sql(&self, template: &str) -> String {
        template.replace("{schema}", &self.0.schema)
    }

    /// Executes a statement, in one round trip once a connection has prepared it. `{schema}` in it is
    /// replaced by the name of the schema. The statement must be one that may be executed twice: it is
    /// sent again when the connection was lost. For tables of other crates
    /// ([`migrate`](Self::migrate)); those of this one are its own.
    ///
    /// # Errors
    /// [`StoreError::Io`]. The statement may have been executed, or may still be.
    pub fn query(
        &self,
        doing: &str,
        template: &str,
        parameters: Parameters,
    ) -> Result<Vec<Row>, StoreError> {
        self.query_within(self.0.timeouts.outage, doing, template, parameters)
    }

    /// As [`query`](Self::query), with a limit of its own for how long it tries again.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub fn query_within(
        &self,
        outage_limit: Duration,
        doing: &str,
        template: &str,
        parameters: Parameters,
    ) -> Result<Vec<Row>, StoreError> {
        let sql: Arc<str> = self.sql(template).into();
        let parameters = Arc::new(parameters);
        self.run(outage_limit, doing, move |client| {
            let (sql, parameters) = (Arc::clone(&sql), Arc::clone(&parameters));
            async move {
                let statement = client.prepare_cached(&sql).await?;
                let parameters: Vec<_> = parameters
                    .iter()
                    .map(|parameter| &**parameter as &(dyn ToSql + Sync))
                    .collect();
                client.query(&statement, &parameters).await
            }
        })
    }

    /// Executes one statement that returns one row.
    pub(crate) fn query_one(
        &self,
        doing: &str,
        template: &str,
        parameters: Parameters,
    ) -> Result<Row, StoreError> {
        let rows = self.query(doing, template, parameters)?;
        let row = rows.into_iter().next();
        row.ok_or_else(|| other_error(doing, "the server has returned no row"))
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
        let pool = self.0.pool.clone();
        let timeouts = self.0.timeouts;
        let logged_doing = doing.to_owned();
        let result = self.wait_for(async move {
            let give_up = Instant::now() + outage_limit;
            let mut waits = waits();
            loop {
                let error = match attempt(&pool, timeouts, &operation).await {
                    Ok(value) => return Ok(value),
                    Err(error) => error,
                };
                let wait = waits.next().unwrap_or(LONGEST_WAIT);
                if !error.is_transient() || Instant::now() + wait > give_up {
                    return Err(error);
                }
                tracing::warn!(%error, wait_ms = wait.as_millis() as u64, "cannot {logged_doing} yet");
                tokio::time::sleep(wait).await;
            }
        });
        match result {
            Some(result) => result.map_err(|error| store_error(doing, error)),
            None => Err(other_error(
                doing,
                "the thread of its connections has ended",
            )),
        }
    }

    /// Waits for a future, which the database's own thread drives, so that the caller may be in any
    /// runtime or none. `None` if the future panicked.
    fn wait_for<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let runtime = self.0.runtime.as_ref()?;
        runtime.spawn(async move {
            // The receiver waits until it has got the value.
            let _ = sender.send(future.await);
        });
        receiver.recv().ok()
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("schema", &self.0.schema)
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

fn pool(options: &DatabaseOptions) -> Result<Pool, DatabaseError> {
    let manager = Manager::from_config(
        options.connection_config()?,
        tls::connector(options)?,
        ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        },
    );
    let timeouts = options.timeouts();
    let pool = Pool::builder(manager)
        .max_size(options.connections())
        .runtime(PoolRuntime::Tokio1)
        .wait_timeout(Some(timeouts.statement))
        .create_timeout(Some(timeouts.connect))
        .build();
    Ok(pool.map_err(|error| other_error("make its pool of connections", error.to_string()))?)
}

const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The waits between attempts: they double, and are spread by chance, so that the programs that lost
/// the same server do not all return at once.
fn waits() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(LONGEST_WAIT)
        .without_max_times()
        .with_jitter()
        .build()
}

async fn attempt<T, F>(
    pool: &Pool,
    timeouts: Timeouts,
    operation: impl Fn(Arc<Client>) -> F,
) -> Result<T, AttemptError>
where
    F: Future<Output = Result<T, tokio_postgres::Error>>,
{
    let client = Arc::new(pool.get().await?);
    let limit = timeouts.statement + ANSWER_GRACE;
    let result = match tokio::time::timeout(limit, operation(Arc::clone(&client))).await {
        Ok(result) => result.map_err(AttemptError::from),
        Err(_) => Err(AttemptError::NoAnswer),
    };
    if result.as_ref().is_err_and(AttemptError::is_transient)
        && let Ok(client) = Arc::try_unwrap(client)
    {
        // Closes the connection: nothing that is sent later may wait behind a lost answer.
        drop(Client::take(client));
    }
    result
}
