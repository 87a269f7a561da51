-- Shards, their records and their contents. `{schema}` is replaced by the schema's name.

-- A shard is a log with one owner. `epoch` is the token of the owner. `writes` counts the guarded
-- writes. `nonce` names the last of them, and `claim_nonce` the last claim, so that a program that
-- lost its connection can find out whether it was the one.
CREATE TABLE {schema}.shard (
    id integer PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    claim_nonce bigint NOT NULL DEFAULT 0,
    last_commit bigint NOT NULL DEFAULT 0,
    writes bigint NOT NULL DEFAULT 0,
    nonce bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10); -- Each commit rewrites a row: its versions stay on one page, and leave no garbage behind.

-- What the last write of earlier owners was.
CREATE TABLE {schema}.ended_epoch (
    shard integer,
    epoch bigint,
    last_commit bigint NOT NULL,
    nonce bigint NOT NULL,
    PRIMARY KEY (shard, epoch)
);

-- Apart from `shard`, so that a renewal never waits for a commit.
CREATE TABLE {schema}.lease (
    shard integer PRIMARY KEY,
    epoch bigint NOT NULL,
    node text NOT NULL,
    until timestamptz NOT NULL
) WITH (fillfactor = 10);

-- `id` and `number` are unsigned: 0 is stored as the least bigint, so that the order is the same.
CREATE TABLE {schema}.record (
    shard integer,
    kind smallint,
    id bigint,
    number bigint,
    in_commit bigint NOT NULL,
    at_ms bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (shard, kind, id, number)
);

-- `body` is drawn by the writer: two uploads of one content, whose stored bytes may differ, never mix.
CREATE TABLE {schema}.content (
    shard integer,
    name bytea,
    body bigint NOT NULL,
    length bigint NOT NULL,
    index bytea NOT NULL,
    PRIMARY KEY (shard, name)
);
ALTER TABLE {schema}.content ALTER COLUMN index SET STORAGE EXTERNAL;

-- External storage is not compressed: a part of a chunk is read without the rest of it.
CREATE TABLE {schema}.content_chunk (
    shard integer,
    body bigint,
    number integer,
    bytes bytea NOT NULL,
    PRIMARY KEY (shard, body, number)
);
ALTER TABLE {schema}.content_chunk ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- Bodies that are uploaded in parts, and belong to no content yet.
CREATE TABLE {schema}.upload (
    shard integer,
    body bigint,
    epoch bigint NOT NULL,
    PRIMARY KEY (shard, body)
);

-- Contents in the object store that all shards share, by the shards that refer to them. The object
-- of a reference may be missing, if its writer ended before it had put it.
CREATE TABLE {schema}.content_ref (
    shard integer,
    name bytea,
    length bigint NOT NULL,
    PRIMARY KEY (shard, name)
);
CREATE INDEX content_ref_name ON {schema}.content_ref (name);

-- Objects that are being deleted.
CREATE TABLE {schema}.object_deletion (
    name bytea PRIMARY KEY,
    begun_at timestamptz NOT NULL
);

-- Writes a batch, if `in_epoch` is the epoch of the shard and `in_writes` the number of its writes.
-- Called again with the same nonce, it writes nothing and gives the same answer.
--
-- out_outcome: 'written'; 'stale' if another owner has claimed the shard; 'moved' if this owner has
-- written since; null if there is no such shard.
CREATE FUNCTION {schema}.write_batch(
    in_shard integer, in_epoch bigint, in_writes bigint, in_nonce bigint, in_step integer, in_is_synced boolean, in_at_ms bigint,
    in_deleted_kinds smallint[], in_deleted_ids bigint[], in_deleted_up_to bigint[],
    in_kinds smallint[], in_ids bigint[], in_numbers bigint[], in_records bytea[],
    in_names bytea[], in_bodies bigint[], in_lengths bigint[], in_indexes bytea[],
    in_chunk_bodies bigint[], in_chunk_numbers integer[], in_chunks bytea[],
    in_deleted_names bytea[],
    OUT out_outcome text, OUT out_epoch bigint, OUT out_writes bigint, OUT out_commit bigint
) LANGUAGE plpgsql AS $$
DECLARE
    new_bodies bigint[];
    old_bodies bigint[];
BEGIN
    -- The last commit of an earlier program may not be on disk yet: a write that waits for the disk also waits for it.
    IF NOT in_is_synced THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;

    UPDATE {schema}.shard
        SET writes = writes + 1, nonce = in_nonce, last_commit = last_commit + in_step
        WHERE id = in_shard AND epoch = in_epoch AND writes = in_writes
        RETURNING 'written', epoch, writes, last_commit
        INTO out_outcome, out_epoch, out_writes, out_commit;
    IF NOT FOUND THEN
        SELECT CASE WHEN epoch <> in_epoch THEN 'stale' WHEN nonce <> in_nonce THEN 'moved' ELSE 'written' END,
            epoch, writes, last_commit
            INTO out_outcome, out_epoch, out_writes, out_commit
            FROM {schema}.shard WHERE id = in_shard;
        IF out_outcome = 'stale' THEN
            SELECT 'written', last_commit INTO out_outcome, out_commit
                FROM {schema}.ended_epoch WHERE shard = in_shard AND epoch = in_epoch AND nonce = in_nonce;
            IF NOT FOUND THEN
                out_outcome := 'stale';
            END IF;
        END IF;
        RETURN;
    END IF;

    IF cardinality(in_names) > 0 THEN
        WITH added AS (
            INSERT INTO {schema}.content (shard, name, body, length, index)
                SELECT in_shard, c.name, c.body, c.length, c.index
                FROM unnest(in_names, in_bodies, in_lengths, in_indexes) AS c (name, body, length, index)
                ON CONFLICT DO NOTHING
                RETURNING body
        )
        SELECT coalesce(array_agg(body), '{}') INTO new_bodies FROM added;
        INSERT INTO {schema}.content_chunk (shard, body, number, bytes)
            SELECT in_shard, c.body, c.number, c.bytes
            FROM unnest(in_chunk_bodies, in_chunk_numbers, in_chunks) AS c (body, number, bytes)
            WHERE c.body = ANY (new_bodies);
        -- What was uploaded in parts belongs to a content now, or to one that another upload has brought before.
        DELETE FROM {schema}.upload WHERE shard = in_shard AND body = ANY (in_bodies);
        IF cardinality(new_bodies) < cardinality(in_bodies) THEN
            DELETE FROM {schema}.content_chunk
                WHERE shard = in_shard AND body = ANY (in_bodies) AND NOT body = ANY (new_bodies);
        END IF;
    END IF;

    IF cardinality(in_deleted_names) > 0 THEN
        WITH deleted AS (
            DELETE FROM {schema}.content WHERE shard = in_shard AND name = ANY (in_deleted_names) RETURNING body
        )
        SELECT coalesce(array_agg(body), '{}') INTO old_bodies FROM deleted;
        -- Uploads that their owner did not finish.
        WITH deleted AS (
            DELETE FROM {schema}.upload WHERE shard = in_shard AND epoch < in_epoch RETURNING body
        )
        SELECT old_bodies || coalesce(array_agg(body), '{}') INTO old_bodies FROM deleted;
        DELETE FROM {schema}.content_chunk WHERE shard = in_shard AND body = ANY (old_bodies);
        DELETE FROM {schema}.content_ref WHERE shard = in_shard AND name = ANY (in_deleted_names);
    END IF;

    -- The program has reduced the operations of the batch to deletions followed by writes of different records.
    IF cardinality(in_deleted_kinds) > 0 THEN
        DELETE FROM {schema}.record AS r
            USING unnest(in_deleted_kinds, in_deleted_ids, in_deleted_up_to) AS d (kind, id, up_to)
            WHERE r.shard = in_shard AND r.kind = d.kind AND r.id = d.id AND r.number <= d.up_to;
    END IF;
    IF cardinality(in_kinds) > 0 THEN
        INSERT INTO {schema}.record (shard, kind, id, number, in_commit, at_ms, bytes)
            SELECT in_shard, r.kind, r.id, r.number, out_commit, in_at_ms, r.bytes
            FROM unnest(in_kinds, in_ids, in_numbers, in_records) AS r (kind, id, number, bytes)
            ON CONFLICT (shard, kind, id, number)
            DO UPDATE SET in_commit = excluded.in_commit, at_ms = excluded.at_ms, bytes = excluded.bytes;
    END IF;
END
$$;

-- Stores a part of a content that is too large for one batch. Returns whether the owner may still write.
CREATE FUNCTION {schema}.upload_chunks(
    in_shard integer, in_epoch bigint, in_body bigint, in_first integer, in_chunks bytea[]
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    -- A claim waits for this lock, or has raised the epoch.
    PERFORM FROM {schema}.shard WHERE id = in_shard AND epoch = in_epoch FOR SHARE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO {schema}.upload (shard, body, epoch) VALUES (in_shard, in_body, in_epoch) ON CONFLICT DO NOTHING;
    INSERT INTO {schema}.content_chunk (shard, body, number, bytes)
        SELECT in_shard, in_body, (in_first + c.number - 1)::integer, c.bytes
        FROM unnest(in_chunks) WITH ORDINALITY AS c (bytes, number)
        ON CONFLICT DO NOTHING;
    RETURN true;
END
$$;

-- Raises the epoch of a shard from `in_seen_epoch`. `in_node` gets a lease; without a node there is none, and a lease of
-- another node ends. Called again with the same nonce, it changes nothing and gives the same answer.
--
-- out_outcome: 'claimed'; 'held' if the lease of another node has not ended, and the claim is not forced; 'moved' if the
-- epoch is another one than `in_seen_epoch`; null if there is no such shard.
CREATE FUNCTION {schema}.claim(
    in_shard integer, in_seen_epoch bigint, in_nonce bigint, in_node text, in_lease_ms bigint, in_is_forced boolean,
    OUT out_outcome text, OUT out_epoch bigint
) LANGUAGE plpgsql AS $$
DECLARE
    seen {schema}.shard;
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    -- Waits for the write of the present owner, if there is one.
    SELECT * INTO seen FROM {schema}.shard WHERE id = in_shard FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF seen.epoch <> in_seen_epoch THEN
        out_outcome := CASE seen.claim_nonce WHEN in_nonce THEN 'claimed' ELSE 'moved' END;
        out_epoch := seen.epoch;
        RETURN;
    END IF;
    IF NOT in_is_forced AND EXISTS (
        SELECT FROM {schema}.lease WHERE shard = in_shard AND until > clock_timestamp()
    ) THEN
        out_outcome := 'held';
        out_epoch := seen.epoch;
        RETURN;
    END IF;

    -- Microseconds since 1970, if they are higher: no epoch is given twice even after a standby was promoted that had not
    -- received the last claim.
    out_outcome := 'claimed';
    out_epoch := greatest(seen.epoch + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    INSERT INTO {schema}.ended_epoch (shard, epoch, last_commit, nonce)
        VALUES (in_shard, seen.epoch, seen.last_commit, seen.nonce);
    DELETE FROM {schema}.ended_epoch WHERE shard = in_shard AND epoch <= (
        SELECT epoch FROM {schema}.ended_epoch WHERE shard = in_shard ORDER BY epoch DESC OFFSET 100 LIMIT 1
    );
    UPDATE {schema}.shard SET epoch = out_epoch, claim_nonce = in_nonce, nonce = 0 WHERE id = in_shard;
    DELETE FROM {schema}.lease WHERE shard = in_shard;
    IF in_node IS NOT NULL THEN
        INSERT INTO {schema}.lease (shard, epoch, node, until)
            VALUES (in_shard, out_epoch, in_node, clock_timestamp() + in_lease_ms * interval '1 millisecond');
    END IF;
END
$$;

-- The number of the lock of an object: the first 8 bytes of its name, which is a hash.
CREATE FUNCTION {schema}.object_lock(in_name bytea) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    $$ SELECT ('x' || encode(substr(in_name, 1, 8), 'hex'))::bit(64)::bigint $$;

-- Makes a shard refer to objects. Returns those that are being deleted, to which it does not refer then.
CREATE FUNCTION {schema}.refer_to_objects(
    in_shard integer, in_names bytea[], in_lengths bigint[]
) RETURNS SETOF bytea LANGUAGE plpgsql AS $$
DECLARE
    each_name bytea;
BEGIN
    FOR each_name IN SELECT n FROM unnest(in_names) AS n ORDER BY n LOOP
        PERFORM pg_advisory_xact_lock_shared({schema}.object_lock(each_name));
    END LOOP;
    INSERT INTO {schema}.content_ref (shard, name, length)
        SELECT in_shard, r.name, r.length FROM unnest(in_names, in_lengths) AS r (name, length)
        WHERE NOT EXISTS (SELECT FROM {schema}.object_deletion AS d WHERE d.name = r.name)
        ON CONFLICT DO NOTHING;
    RETURN QUERY SELECT d.name FROM {schema}.object_deletion AS d WHERE d.name = ANY (in_names);
END
$$;

-- Announces the deletion of those objects that no shard refers to, and returns them. One that is announced already is left
-- out, unless that is `in_abandoned_ms` ago.
CREATE FUNCTION {schema}.announce_object_deletions(
    in_names bytea[], in_abandoned_ms bigint
) RETURNS SETOF bytea LANGUAGE plpgsql AS $$
DECLARE
    each_name bytea;
BEGIN
    FOR each_name IN SELECT n FROM unnest(in_names) AS n ORDER BY n LOOP
        PERFORM pg_advisory_xact_lock({schema}.object_lock(each_name));
    END LOOP;
    RETURN QUERY INSERT INTO {schema}.object_deletion AS d (name, begun_at)
        SELECT n, clock_timestamp() FROM unnest(in_names) AS n
        WHERE NOT EXISTS (SELECT FROM {schema}.content_ref AS r WHERE r.name = n)
        ON CONFLICT (name) DO UPDATE SET begun_at = excluded.begun_at
            WHERE d.begun_at < clock_timestamp() - in_abandoned_ms * interval '1 millisecond'
        RETURNING d.name;
END
$$;
