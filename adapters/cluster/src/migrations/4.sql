-- Trees that move from one shard to another, or come from another store.

-- `root` is the pid in `from_shard`, or in the other store if that is null. Only the copy that `attempt` names may become the tree, by
-- the change from `wanted` to `moved`, which also says that the old tree is at its end. `done` says that the new one runs.
CREATE TABLE {schema}.tree_move (
    id text PRIMARY KEY,
    root bigint NOT NULL,
    from_shard integer,
    to_shard integer NOT NULL,
    attempt bigint NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'wanted' CHECK (state IN ('wanted', 'moved', 'done', 'refused')),
    old_pids bigint[] NOT NULL DEFAULT '{}',
    new_pids bigint[] NOT NULL DEFAULT '{}',
    why text,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX tree_move_root ON {schema}.tree_move (root) WHERE from_shard IS NOT NULL AND state <> 'refused';
CREATE INDEX tree_move_from ON {schema}.tree_move (from_shard);
CREATE INDEX tree_move_to ON {schema}.tree_move (to_shard);
