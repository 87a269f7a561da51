//! The table `inbox`: messages for shards whose owner the sender cannot reach.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dormouse::mail::PeerMessage;
use dormouse::ports::StoreError;
use dormouse_postgres::{Row, ShardId};

use crate::call::{Blob, Call, CallError, Reply};
use crate::database::on_database;
use crate::held::ShardState;
use crate::node::{Node, Phase};
use crate::shard::shard_of;
use crate::tables::{Tables, parameters};

/// How often a node looks for messages, and a sender for outcomes.
pub(crate) const POLLED_EVERY: Duration = Duration::from_millis(250);

/// How many messages a node reads at once.
const READ_AT_ONCE: i64 = 100;

/// The key of a message: the shard of its receiver, and its sender and call, which name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MessageKey {
    shard: i32,
    sender: i64,
    epoch: i64,
    call: i64,
}

/// Whether a message was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    Waits,
    NoShard,
}

impl From<&PeerMessage> for MessageKey {
    fn from(message: &PeerMessage) -> Self {
        Self {
            shard: shard_of(message.to).0 as i32,
            sender: message.from.0 as i64,
            epoch: message.call.epoch.into(),
            call: message.call.seq.into(),
        }
    }
}

impl Tables {
    /// Posts a message, unless it waits there already.
    pub(crate) fn post(&self, key: MessageKey, bytes: &[u8]) -> Result<Posted, StoreError> {
        let doing = "post a message";
        let MessageKey {
            shard,
            sender,
            epoch,
            call,
        } = key;
        let sql = "SELECT FROM {schema}.shard WHERE id = $1";
        if self.0.query(doing, sql, parameters![shard])?.is_empty() {
            return Ok(Posted::NoShard);
        }
        let sql = "INSERT INTO {schema}.inbox (shard, sender, epoch, call, bytes, sent_at)
            VALUES ($1, $2, $3, $4, $5, clock_timestamp()) ON CONFLICT DO NOTHING";
        let parameters = parameters![shard, sender, epoch, call, bytes.to_vec()];
        self.0.query(doing, sql, parameters)?;
        Ok(Posted::Waits)
    }

    /// The answer to a message, which leaves the inbox with it; `None` if there is none yet. If the
    /// connection is lost, the answer may be gone, and the message is posted again.
    pub(crate) fn take_outcome(&self, key: MessageKey) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = "DELETE FROM {schema}.inbox WHERE shard = $1 AND sender = $2 AND epoch = $3 AND call = $4
            AND outcome IS NOT NULL RETURNING outcome";
        let parameters = parameters![key.shard, key.sender, key.epoch, key.call];
        let rows = self
            .0
            .query("read the answer to a message", sql, parameters)?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    fn unanswered(&self, shards: Vec<i32>) -> Result<Vec<(MessageKey, Vec<u8>)>, StoreError> {
        let sql = "SELECT shard, sender, epoch, call, bytes FROM {schema}.inbox
            WHERE shard = ANY ($1) AND outcome IS NULL ORDER BY sent_at LIMIT $2";
        let rows = self
            .0
            .query("read the inbox", sql, parameters![shards, READ_AT_ONCE])?;
        let message = |row: &Row| {
            let key = MessageKey {
                shard: row.get(0),
                sender: row.get(1),
                epoch: row.get(2),
                call: row.get(3),
            };
            (key, row.get(4))
        };
        Ok(rows.iter().map(message).collect())
    }

    fn answer(&self, key: MessageKey, outcome: Vec<u8>) -> Result<(), StoreError> {
        let sql = "UPDATE {schema}.inbox SET outcome = $5
            WHERE shard = $1 AND sender = $2 AND epoch = $3 AND call = $4";
        let parameters = parameters![key.shard, key.sender, key.epoch, key.call, outcome];
        self.0.query("answer a message", sql, parameters)?;
        Ok(())
    }
}

impl Node {
    /// Delivers the messages of the inbox to the shards of this node, until it leaves. A message
    /// whose delivery takes long does not hold up the others.
    pub(crate) async fn read_inbox(self: Arc<Self>) {
        let under_way: Arc<Mutex<HashSet<MessageKey>>> = Arc::default();
        while self.phase() != Phase::Left {
            tokio::time::sleep(POLLED_EVERY).await;
            let held = self.caller.held.all();
            let open = held
                .iter()
                .filter(|(_, held)| held.state == ShardState::Open);
            let open: Vec<i32> = open.map(|(shard, _)| shard.0 as i32).collect();
            if open.is_empty() {
                continue;
            }
            let tables = self.caller.tables.clone();
            let messages = match on_database(move || tables.unanswered(open)).await {
                Ok(messages) => messages,
                Err(error) => {
                    tracing::warn!(%error, "the inbox was not read");
                    continue;
                }
            };
            for (key, bytes) in messages {
                let mut keys = under_way.lock().unwrap_or_else(PoisonError::into_inner);
                if !keys.insert(key) {
                    continue;
                }
                drop(keys);
                let (node, under_way) = (self.clone(), under_way.clone());
                tokio::spawn(async move {
                    node.deliver(key, bytes).await;
                    let mut keys = under_way.lock().unwrap_or_else(PoisonError::into_inner);
                    keys.remove(&key);
                });
            }
        }
    }

    async fn deliver(&self, key: MessageKey, bytes: Vec<u8>) {
        let mut shard = ShardId(key.shard.unsigned_abs());
        let message = Blob(bytes.into());
        let mut call = Call::Deliver { message };
        let answer = loop {
            match self.caller.attempt(shard, call.clone()).await {
                Ok(Reply::Answer(answer)) => break answer,
                Err(CallError::Moved { to }) => {
                    (shard, call) = (shard_of(to), call.readdressed(to))
                }
                // It stays there, and is read again.
                Ok(_) | Err(_) => return,
            }
        };
        let tables = self.caller.tables.clone();
        let answered = on_database(move || tables.answer(key, answer.0.to_vec())).await;
        if let Err(error) = answered {
            tracing::warn!(%error, "a message was delivered and not answered: it is delivered again");
        }
    }
}
