-- Nodes, the needs of shards, requests and messages between shards. `{schema}` is replaced by the schema's name.

-- What nodes and their clients show to each other. Only who can read the database can speak to a node.
CREATE TABLE {schema}.cluster (
    id boolean PRIMARY KEY DEFAULT true CHECK (id),
    token text NOT NULL
);

-- `id` names a run of a node, `name` the node. It lives until `lease_ms` after it was seen.
CREATE TABLE {schema}.node (
    id text PRIMARY KEY,
    name text NOT NULL,
    address text NOT NULL,
    labels text[] NOT NULL,
    lease_ms bigint NOT NULL,
    seen_at timestamptz NOT NULL,
    draining boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

-- The labels that the owner of a shard must have, sorted. A shard without a row needs none.
CREATE TABLE {schema}.shard_needs (
    shard integer PRIMARY KEY,
    needs text[] NOT NULL
);

-- Inputs that were begun. `last_commit` is a commit of the shard before the one that has the input. `nonce` is that of the
-- first attempt, so that it knows itself if the answer of its statement is lost.
CREATE TABLE {schema}.request (
    id text PRIMARY KEY,
    pid bigint NOT NULL,
    last_commit bigint NOT NULL,
    nonce text NOT NULL,
    begun_at timestamptz NOT NULL
);
CREATE INDEX request_pid ON {schema}.request (pid);
CREATE INDEX request_begun_at ON {schema}.request (begun_at);

-- Messages for shards whose owner the sender cannot reach. The sender reads the outcome and deletes the row.
CREATE TABLE {schema}.inbox (
    shard integer,
    sender bigint,
    epoch bigint,
    call bigint,
    bytes bytea NOT NULL,
    outcome bytea,
    sent_at timestamptz NOT NULL,
    PRIMARY KEY (shard, sender, epoch, call)
);

-- The shards with exactly these needs. Creates `in_count` of them if there are none; for no needs, and beyond
-- `in_max` shards, never.
CREATE FUNCTION {schema}.shards_with_needs(in_needs text[], in_count integer, in_max integer)
RETURNS SETOF integer LANGUAGE plpgsql AS $$
DECLARE
    first_new integer;
BEGIN
    IF cardinality(in_needs) = 0 THEN
        RETURN QUERY SELECT s.id FROM {schema}.shard AS s
            WHERE NOT EXISTS (SELECT FROM {schema}.shard_needs AS n WHERE n.shard = s.id);
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM {schema}.shard_needs WHERE needs = in_needs) THEN
        -- One program at a time.
        PERFORM pg_advisory_xact_lock(7235419263584367972);
        IF NOT EXISTS (SELECT FROM {schema}.shard_needs WHERE needs = in_needs) THEN
            SELECT coalesce(max(id), -1) + 1 INTO first_new FROM {schema}.shard;
            IF first_new + in_count <= in_max THEN
                INSERT INTO {schema}.shard_needs (shard, needs)
                    SELECT n, in_needs FROM generate_series(first_new, first_new + in_count - 1) AS n;
                INSERT INTO {schema}.shard (id) SELECT n FROM generate_series(first_new, first_new + in_count - 1) AS n;
            END IF;
        END IF;
    END IF;
    RETURN QUERY SELECT n.shard FROM {schema}.shard_needs AS n WHERE n.needs = in_needs;
END
$$;
