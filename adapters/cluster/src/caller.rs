//! Brings calls to the node that holds their shard, wherever that is, and to the next one if that
//! node is gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dormouse_postgres::{LargeContents, ShardId};
use serde::{Deserialize, Serialize};

use crate::call::{Call, CallError, Reply, StartCall, WAIT_AT_MOST, final_error};
use crate::collections::Collections;
use crate::database::on_database;
use crate::error::{ClusterError, Refusal};
use crate::execute::execute;
use crate::held::Held;
use crate::shard::shard_of;
use crate::tables::Tables;

/// The path of calls at a node.
pub(crate) const CALL_PATH: &str = "/v1/call";

/// The most bytes of a call: the files of a program, as base64.
pub(crate) const MAX_CALL_BYTES: usize = 96 << 20;

/// How long another node may take for a call, other than a wait or a garbage collection.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The pauses between attempts. They double.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// A call as it is sent to a node.
#[derive(Serialize, Deserialize)]
pub(crate) struct AddressedCall {
    pub(crate) shard: u32,
    pub(crate) call: Call,
}

/// Makes calls for this program, which may be a node or not.
pub(crate) struct Caller {
    pub(crate) tables: Tables,
    /// The shards of this program. Empty if it is no node.
    pub(crate) held: Arc<Held>,
    pub(crate) http: reqwest::Client,
    pub(crate) token: String,
    /// How long a call is tried again while no node answers for its shard.
    pub(crate) failover_limit: Duration,
    /// Where large contents of this node's shards are.
    pub(crate) objects: Option<Arc<dyn LargeContents>>,
    /// The garbage collections of this node.
    pub(crate) collections: Arc<Collections>,
    /// The addresses of owners, as they were last seen.
    routes: Mutex<HashMap<ShardId, String>>,
}

impl Caller {
    pub(crate) fn new(
        tables: Tables,
        token: String,
        failover_limit: Duration,
        objects: Option<Arc<dyn LargeContents>>,
    ) -> Result<Self, ClusterError> {
        // As for this machine: no proxy belongs between nodes, wherever they are.
        let local = reqwest::Url::parse("http://127.0.0.1").map_err(options_error)?;
        let http = dormouse_http::client(&local, None).map_err(options_error)?;
        let http = http
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .build();
        Ok(Self {
            tables,
            held: Arc::default(),
            http: http.map_err(options_error)?,
            token,
            failover_limit,
            objects,
            collections: Arc::default(),
            routes: Mutex::default(),
        })
    }

    fn routes(&self) -> MutexGuard<'_, HashMap<ShardId, String>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call until it has a reply, or may not be made again. A wait is made for ever.
    /// A process that has moved is asked where it has gone.
    pub(crate) async fn call(&self, shard: ShardId, call: Call) -> Result<Reply, ClusterError> {
        let mut shard = shard;
        let begun = Instant::now();
        let is_wait = matches!(call, Call::Wait { .. });
        let mut call = call;
        let mut may_be_done = false;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.attempt(shard, call.clone()).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            match &error {
                CallError::Refused { .. } | CallError::Unknown(_) => {
                    return Err(final_error(&call, error));
                }
                CallError::WrongToken => return Err(self.wrong_token(shard)),
                CallError::Moved { to } => {
                    (shard, call) = (shard_of(*to), call.readdressed(*to));
                    continue;
                }
                CallError::NotOwner(_) => {}
                CallError::Interrupted(_) => {
                    may_be_done = true;
                    if !call.may_be_repeated() {
                        return Err(final_error(&call, error));
                    }
                    if let Call::Start(start) = &mut call {
                        **start = StartCall {
                            may_have_begun: true,
                            ..(**start).clone()
                        };
                    }
                }
            }
            tracing::debug!(%shard, what = call.what(), %error, "a call is made again");
            self.forget_route(shard);
            let waited = begun.elapsed();
            if waited > self.failover_limit && !is_wait {
                return Err(match may_be_done {
                    true => final_error(&call, error),
                    false => ClusterError::NoOwner {
                        shard,
                        waited,
                        why: error.to_string(),
                    },
                });
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(MAX_PAUSE);
        }
    }

    /// Makes a call once: here, if the shard is here, or at the node that holds it.
    pub(crate) async fn attempt(&self, shard: ShardId, call: Call) -> Result<Reply, CallError> {
        if let Some(held) = self.held.get(shard) {
            return execute(self, shard, &held, call).await;
        }
        let address = self.address(shard).await?;
        let timeout = match call {
            Call::Wait { .. } | Call::Collect { .. } => WAIT_AT_MOST + CONNECT_TIMEOUT * 2,
            _ => CALL_TIMEOUT,
        };
        let request = self
            .http
            .post(format!("http://{address}{CALL_PATH}"))
            .bearer_auth(&self.token)
            .timeout(timeout)
            .json(&AddressedCall {
                shard: shard.0,
                call,
            });
        let response = request.send().await.map_err(request_error)?;
        match response.status().as_u16() {
            200 => response.json().await.map_err(request_error)?,
            401 => Err(CallError::WrongToken),
            400 | 415 | 422 => Err(CallError::refused(
                Refusal::Invalid,
                format!(
                    "the node at {address} does not understand this call, since it has another \
                     version. Nothing was done: upgrade all nodes, and then the programs that use them"
                ),
            )),
            status => Err(CallError::Interrupted(format!(
                "the node at {address} answered with status {status}"
            ))),
        }
    }

    /// Where the node listens that holds a shard.
    pub(crate) async fn address(&self, shard: ShardId) -> Result<String, CallError> {
        let known = self.routes().get(&shard).cloned();
        if let Some(address) = known {
            return Ok(address);
        }
        let tables = self.tables.clone();
        let found = on_database(move || tables.owner_address(shard)).await;
        // Nothing was asked of a node yet.
        let found = found.map_err(|error| CallError::NotOwner(error.to_string()))?;
        let address = found.ok_or_else(|| CallError::NotOwner(format!("no node holds {shard}")))?;
        self.routes().insert(shard, address.clone());
        Ok(address)
    }

    pub(crate) fn forget_route(&self, shard: ShardId) {
        self.routes().remove(&shard);
    }

    fn wrong_token(&self, shard: ShardId) -> ClusterError {
        let address = self.routes().get(&shard).cloned().unwrap_or_default();
        ClusterError::WrongToken { address }
    }
}

/// A request that failed before there was a connection has not arrived.
pub(crate) fn request_error(error: reqwest::Error) -> CallError {
    let is_unsent = error.is_connect() || error.is_builder();
    let text = with_causes(&error);
    match is_unsent {
        true => CallError::NotOwner(text),
        false => CallError::Interrupted(text),
    }
}

fn options_error(error: impl std::error::Error) -> ClusterError {
    ClusterError::Options(with_causes(&error))
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
