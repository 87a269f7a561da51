//! The connections of a database, and how statements are tried again.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBuilder};
use deadpool_postgres::{
    Client, ClientWrapper, Hook, HookError, Manager, ManagerConfig, Pool, PoolBuilder,
    RecyclingMethod, Runtime,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::error::{AttemptError, DatabaseError, other_error};
use crate::options::{ANSWER_GRACE, DatabaseOptions, Timeouts};
use crate::tls;

/// The parameters of a statement.
pub type Parameters = Vec<Box<dyn ToSql + Send + Sync>>;

/// Builds [`Parameters`].
macro_rules! parameters {
    ($($parameter:expr),* $(,)?) => {
        vec![$(Box::new($parameter) as Box<dyn tokio_postgres::types::ToSql + Send + Sync>),*]
    };
}
pub(crate) use parameters;

/// A bounded pool of connections. Clones share it.
#[derive(Clone)]
pub(crate) struct Connections {
    pool: Pool,
    pub(crate) schema: Arc<str>,
    pub(crate) timeouts: Timeouts,
}

impl Connections {
    pub(crate) fn new(options: &DatabaseOptions) -> Result<Self, DatabaseError> {
        Self::of(
            pool_builder(options)?.max_size(options.connections()),
            options,
        )
    }

    /// One connection, whose only transaction reads everything as of one moment.
    pub(crate) fn of_snapshot(options: &DatabaseOptions) -> Result<Self, DatabaseError> {
        let builder = pool_builder(options)?.max_size(1);
        Self::of(builder.post_create(begin_snapshot()), options)
    }

    fn of(pool: PoolBuilder, options: &DatabaseOptions) -> Result<Self, DatabaseError> {
        let doing = "make its pool of connections";
        let pool = pool.build();
        Ok(Self {
            pool: pool.map_err(|error| other_error(doing, error.to_string()))?,
            schema: options.schema_name().into(),
            timeouts: options.timeouts(),
        })
    }

    /// The same connections, with another limit for how long operations try again.
    pub(crate) fn with_outage_limit(&self, outage_limit: Duration) -> Self {
        let mut connections = self.clone();
        connections.timeouts.outage = outage_limit;
        connections
    }

    /// Executes a statement, with the schema's name in place of `{schema}`. The statement must be
    /// one that may be executed twice: it is sent again when the connection was lost.
    pub(crate) async fn query(
        &self,
        doing: &str,
        template: &str,
        parameters: Parameters,
    ) -> Result<Vec<Row>, AttemptError> {
        let sql = template.replace("{schema}", &self.schema);
        #[cfg(dormouse_planted)]
        let sql = crate::planted::without_guard(sql);
        let sql: Arc<str> = sql.into();
        let parameters = Arc::new(parameters);
        let execute = move |client: Arc<Client>| {
            let (sql, parameters) = (Arc::clone(&sql), Arc::clone(&parameters));
            async move {
                let statement = client.prepare_cached(&sql).await?;
                let parameters: Vec<_> = parameters
                    .iter()
                    .map(|parameter| &**parameter as &(dyn ToSql + Sync))
                    .collect();
                client.query(&statement, &parameters).await
            }
        };
        self.retry(doing, execute).await
    }

    /// Calls `operation` with a connection, and again with another one while that fails for a
    /// transient reason and the outage limit has not passed.
    pub(crate) async fn retry<T, F>(
        &self,
        doing: &str,
        operation: impl Fn(Arc<Client>) -> F,
    ) -> Result<T, AttemptError>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let give_up = Instant::now() + self.timeouts.outage;
        let mut waits = waits();
        loop {
            let error = match self.attempt(&operation).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let wait = waits.next().unwrap_or(LONGEST_WAIT);
            if !error.is_transient() || Instant::now() + wait > give_up {
                return Err(error);
            }
            tracing::warn!(%error, wait_ms = wait.as_millis() as u64, "cannot {doing} yet");
            tokio::time::sleep(wait).await;
        }
    }

    async fn attempt<T, F>(&self, operation: impl Fn(Arc<Client>) -> F) -> Result<T, AttemptError>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let client = Arc::new(self.pool.get().await?);
        let limit = self.timeouts.statement + ANSWER_GRACE;
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
}

fn pool_builder(options: &DatabaseOptions) -> Result<PoolBuilder, DatabaseError> {
    let manager = Manager::from_config(
        options.connection_config()?,
        tls::connector(options)?,
        ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        },
    );
    let timeouts = options.timeouts();
    Ok(Pool::builder(manager)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(timeouts.statement))
        .create_timeout(Some(timeouts.connect)))
}

/// Begins the transaction of a connection that only reads. A second connection is refused: it would
/// read as of another moment.
fn begin_snapshot() -> Hook {
    let is_begun = Arc::new(AtomicBool::new(false));
    Hook::async_fn(move |client: &mut ClientWrapper, _| {
        let is_begun = Arc::clone(&is_begun);
        Box::pin(async move {
            if is_begun.load(Ordering::Relaxed) {
                return Err(HookError::message(
                    "the connection was lost, and with it the moment that everything is read as of: \
                     read again",
                ));
            }
            let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
            client
                .batch_execute(begin)
                .await
                .map_err(HookError::Backend)?;
            is_begun.store(true, Ordering::Relaxed);
            Ok(())
        })
    })
}

const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The waits between attempts: they double, and are spread by chance, so that the programs that
/// lost the same server do not all return at once.
fn waits() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(LONGEST_WAIT)
        .without_max_times()
        .with_jitter()
        .build()
}
