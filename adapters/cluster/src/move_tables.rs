//! The table of trees that move. The methods block.

use std::collections::{BTreeMap, HashMap};

use dormouse::id::Pid;
use dormouse::ports::StoreError;
use dormouse_postgres::{Claim, Row, ShardId};

use crate::tables::{Tables, parameters};

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveState {
    /// The old tree is the tree.
    Wanted,
    /// The new tree is the tree. It may not run yet.
    Moved,
    /// The new tree runs.
    Done,
    /// It does not move.
    Refused,
}

/// A move, as the table has it.
#[derive(Clone, Debug)]
pub(crate) struct TreeMove {
    pub(crate) id: String,
    pub(crate) root: Pid,
    pub(crate) to: ShardId,
    pub(crate) attempt: u64,
    pub(crate) state: MoveState,
    /// The old pid and the new pid of each process, the root first, once it has moved.
    pub(crate) pids: Vec<(Pid, Pid)>,
    /// Why it was refused.
    pub(crate) why: Option<String>,
}

impl Tables {
    /// Asks for a move, unless one of this root was asked for. Returns the one that there is.
    pub(crate) fn ask_move(
        &self,
        id: &str,
        root: Pid,
        from: Option<ShardId>,
        to: ShardId,
    ) -> Result<Option<TreeMove>, StoreError> {
        let doing = "ask for a move";
        let sql = "INSERT INTO {schema}.tree_move (id, root, from_shard, to_shard)
            VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
        let from = from.map(|from| from.0 as i32);
        let parameters = parameters![id.to_owned(), root.0 as i64, from, to.0 as i32];
        self.0.query(doing, sql, parameters)?;
        let sql = "SELECT id, root, to_shard, attempt, state, old_pids, new_pids, why FROM {schema}.tree_move
            WHERE id = $1 OR (root = $2 AND from_shard = $3 AND state <> 'refused')";
        let parameters = parameters![id.to_owned(), root.0 as i64, from];
        let rows = self.0.query(doing, sql, parameters)?;
        rows.first().map(tree_move).transpose()
    }

    /// The move of a root of this cluster that was not refused, if there is one.
    pub(crate) fn move_of_root(&self, root: Pid) -> Result<Option<TreeMove>, StoreError> {
        let sql = "SELECT id, root, to_shard, attempt, state, old_pids, new_pids, why FROM {schema}.tree_move
            WHERE root = $1 AND from_shard IS NOT NULL AND state <> 'refused'";
        let rows = self
            .0
            .query("read a move", sql, parameters![root.0 as i64])?;
        rows.first().map(tree_move).transpose()
    }

    /// A move.
    pub(crate) fn tree_move(&self, id: &str) -> Result<Option<TreeMove>, StoreError> {
        let sql = "SELECT id, root, to_shard, attempt, state, old_pids, new_pids, why FROM {schema}.tree_move
            WHERE id = $1";
        let rows = self
            .0
            .query("read a move", sql, parameters![id.to_owned()])?;
        rows.first().map(tree_move).transpose()
    }

    /// The moves from these shards that are not done.
    pub(crate) fn unfinished_moves(
        &self,
        from: &[ShardId],
    ) -> Result<Vec<(ShardId, TreeMove)>, StoreError> {
        let sql = "SELECT id, root, to_shard, attempt, state, old_pids, new_pids, why, from_shard FROM {schema}.tree_move
            WHERE from_shard = ANY ($1) AND state IN ('wanted', 'moved') ORDER BY asked_at";
        let from: Vec<i32> = from.iter().map(|shard| shard.0 as i32).collect();
        let rows = self.0.query("list moves", sql, parameters![from])?;
        let from = |row: &Row| ShardId(row.get::<_, i32>(8).unsigned_abs());
        rows.iter()
            .map(|row| Ok((from(row), tree_move(row)?)))
            .collect()
    }

    /// Where the processes went that have left a shard.
    pub(crate) fn moved_pids(&self, from: ShardId) -> Result<HashMap<Pid, Pid>, StoreError> {
        let sql = "SELECT old_pids, new_pids FROM {schema}.tree_move
            WHERE from_shard = $1 AND state IN ('moved', 'done')";
        let parameters = parameters![from.0 as i32];
        let rows = self
            .0
            .query("read where trees have gone", sql, parameters)?;
        Ok(rows.iter().flat_map(|row| pids(row, 0)).collect())
    }

    /// The attempt of each move to a shard that is the tree; `None` while none is.
    pub(crate) fn moves_to(
        &self,
        to: ShardId,
    ) -> Result<BTreeMap<String, Option<u64>>, StoreError> {
        let sql = "SELECT id, CASE WHEN state IN ('moved', 'done') THEN attempt END FROM {schema}.tree_move
            WHERE to_shard = $1";
        let parameters = parameters![to.0 as i32];
        let rows = self
            .0
            .query("read which trees have come", sql, parameters)?;
        let attempt = |row: &Row| row.get::<_, Option<i64>>(1).map(i64::unsigned_abs);
        Ok(rows.iter().map(|row| (row.get(0), attempt(row))).collect())
    }

    /// Begins an attempt: none of those before can be committed any more. `None` if the move is no
    /// longer wanted. `source` is the claim of the shard that the tree leaves, if there is one.
    pub(crate) fn begin_attempt(
        &self,
        id: &str,
        source: Option<&Claim>,
    ) -> Result<Option<u64>, StoreError> {
        let sql = "UPDATE {schema}.tree_move SET attempt = attempt + 1 WHERE id = $1 AND state = 'wanted'
            AND (from_shard IS NULL OR EXISTS (SELECT FROM {schema}.shard AS s WHERE s.id = from_shard AND s.epoch = $2))
            RETURNING attempt";
        let epoch = source.map_or(0, |claim| claim.owner().0 as i64);
        let parameters = parameters![id.to_owned(), epoch];
        let rows = self.0.query("begin to move a tree", sql, parameters)?;
        Ok(rows.first().map(|row| row.get::<_, i64>(0).unsigned_abs()))
    }

    /// Commits an attempt: from now on its copy is the tree. Returns whether it is; not if the
    /// shard that the tree leaves has another owner by now, in which the old tree may run.
    pub(crate) fn commit_move(
        &self,
        id: &str,
        attempt: u64,
        source: Option<&Claim>,
        pids: &[(Pid, Pid)],
    ) -> Result<bool, StoreError> {
        let doing = "move a tree";
        // The lock makes a claim wait, so that the next owner sees what is committed here.
        let sql =
            "WITH source AS (SELECT id FROM {schema}.shard WHERE id = $5 AND epoch = $6 FOR SHARE)
            UPDATE {schema}.tree_move SET state = 'moved', old_pids = $3, new_pids = $4
            WHERE id = $1 AND attempt = $2 AND state = 'wanted'
            AND (from_shard IS NULL OR from_shard IN (SELECT id FROM source))";
        let column = |pid: fn(&(Pid, Pid)) -> Pid| {
            let column = pids.iter().map(|pids| pid(pids).0 as i64);
            column.collect::<Vec<i64>>()
        };
        let parameters = parameters![
            id.to_owned(),
            attempt as i64,
            column(|pids| pids.0),
            column(|pids| pids.1),
            source.map(|claim| claim.shard().0 as i32),
            source.map(|claim| claim.owner().0 as i64),
        ];
        self.0.query(doing, sql, parameters)?;
        // If the statement was sent twice, the second one has changed nothing.
        let row = self.tree_move(id)?;
        Ok(row.is_some_and(|row| {
            row.attempt == attempt && matches!(row.state, MoveState::Moved | MoveState::Done)
        }))
    }

    /// Records that the new tree runs.
    pub(crate) fn finish_move(&self, id: &str) -> Result<(), StoreError> {
        let sql = "UPDATE {schema}.tree_move SET state = 'done' WHERE id = $1 AND state = 'moved'";
        self.0
            .query("finish a move", sql, parameters![id.to_owned()])
            .map(drop)
    }

    /// Records that a tree does not move.
    pub(crate) fn refuse_move(&self, id: &str, why: &str) -> Result<(), StoreError> {
        let sql = "UPDATE {schema}.tree_move SET state = 'refused', why = $2 WHERE id = $1 AND state = 'wanted'";
        let parameters = parameters![id.to_owned(), why.to_owned()];
        self.0.query("refuse a move", sql, parameters).map(drop)
    }
}

fn tree_move(row: &Row) -> Result<TreeMove, StoreError> {
    let state = match row.get::<_, &str>(4) {
        "wanted" => MoveState::Wanted,
        "moved" => MoveState::Moved,
        "done" => MoveState::Done,
        "refused" => MoveState::Refused,
        other => {
            return Err(StoreError::Damaged {
                what: format!("a move has the state {other:?}, which this version does not know"),
            });
        }
    };
    Ok(TreeMove {
        id: row.get(0),
        root: Pid(row.get::<_, i64>(1).unsigned_abs()),
        to: ShardId(row.get::<_, i32>(2).unsigned_abs()),
        attempt: row.get::<_, i64>(3).unsigned_abs(),
        state,
        pids: pids(row, 5),
        why: row.get(7),
    })
}

/// Old and new pids, in two columns.
fn pids(row: &Row, column: usize) -> Vec<(Pid, Pid)> {
    let pid = |pid: i64| Pid(pid.unsigned_abs());
    let (old, new): (Vec<i64>, Vec<i64>) = (row.get(column), row.get(column + 1));
    let both = old.into_iter().zip(new);
    both.map(|(old, new)| (pid(old), pid(new))).collect()
}
