//! Messages to processes of other shards.
//!
//! A message goes straight to the node that holds the shard of its receiver. If that node cannot be
//! reached from here, the message goes through the table `inbox`, which every owner of the shard
//! reads. The kernel of the sender sends it until it is answered, and that of the receiver keeps it
//! once (MAIL-1), whatever way it came.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use dormouse::id::Pid;
use dormouse::mail::PeerMessage;
use dormouse::ports::{PeerError, Peers};
use dormouse::record::codec;
use dormouse::tool::Answer;
use dormouse_postgres::ShardId;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::call::{Blob, Call, CallError, Reply};
use crate::caller::Caller;
use crate::database::on_database;
use crate::inbox::{POLLED_EVERY, Posted};
use crate::shard::shard_of;

/// How long an answer through the inbox is waited for before the direct way is tried again.
const INBOX_PATIENCE: Duration = Duration::from_secs(5);

/// Other shards, as the kernel of one sees them.
pub(crate) struct ShardPeers {
    /// The caller holds the kernel, which holds this.
    caller: Weak<Caller>,
    own: ShardId,
}

impl ShardPeers {
    pub(crate) fn new(caller: &Arc<Caller>, own: ShardId) -> Self {
        let caller = Arc::downgrade(caller);
        Self { caller, own }
    }
}

impl Peers for ShardPeers {
    fn owns(&self, pid: Pid) -> bool {
        shard_of(pid) != self.own
    }

    fn send(&self, message: PeerMessage) -> BoxFuture<'static, Result<Answer, PeerError>> {
        let caller = self.caller.upgrade();
        async move {
            let caller = caller.ok_or_else(|| PeerError("this program has left".to_owned()))?;
            let mut message = message;
            loop {
                let bytes = Bytes::from(codec::encode(&message).map_err(peer_error)?);
                let shard = shard_of(message.to);
                let call = Call::Deliver {
                    message: Blob(bytes.clone()),
                };
                match caller.attempt(shard, call).await {
                    Ok(Reply::Answer(answer)) => {
                        return codec::decode(&answer.0).map_err(peer_error);
                    }
                    Ok(_) => return Err(PeerError("the node answered something else".to_owned())),
                    Err(CallError::Moved { to }) => message.to = to,
                    Err(error) => {
                        tracing::debug!(%shard, %error, "a message goes through the inbox");
                        caller.forget_route(shard);
                        return through_inbox(&caller, &message, bytes).await;
                    }
                }
            }
        }
        .boxed()
    }
}

async fn through_inbox(
    caller: &Caller,
    message: &PeerMessage,
    bytes: Bytes,
) -> Result<Answer, PeerError> {
    let (tables, key) = (caller.tables.clone(), message.into());
    let posted = on_database(move || tables.post(key, &bytes)).await;
    if posted.map_err(peer_error)? == Posted::NoShard {
        return Ok(Answer::failed(format!(
            "There is no process {}.",
            message.to
        )));
    }
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < INBOX_PATIENCE {
        tokio::time::sleep(POLLED_EVERY).await;
        let tables = caller.tables.clone();
        let outcome = on_database(move || tables.take_outcome(key)).await;
        if let Some(outcome) = outcome.map_err(peer_error)? {
            return codec::decode(&outcome).map_err(peer_error);
        }
    }
    Err(PeerError(
        "no node has read it from the inbox yet".to_owned(),
    ))
}

fn peer_error(error: impl std::fmt::Display) -> PeerError {
    PeerError(error.to_string())
}
