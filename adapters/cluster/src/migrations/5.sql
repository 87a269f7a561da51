-- What a node reads to learn whether anything has changed, and which version of the calls a node speaks.

-- Rises with each change of the nodes, of the shards and of their needs. The end of a node's life by its lease is a change that
-- nobody writes: the node that watches it raises the number.
CREATE TABLE {schema}.placement (
    id boolean PRIMARY KEY DEFAULT true CHECK (id),
    generation bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO {schema}.placement (generation) VALUES (1);

CREATE FUNCTION {schema}.raise_placement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {schema}.placement SET generation = generation + 1;
    RETURN NULL;
END
$$;
-- For each row: a sign of life is an INSERT too, which mostly has none to insert.
CREATE TRIGGER raise_placement AFTER INSERT OR DELETE ON {schema}.node
    FOR EACH ROW EXECUTE FUNCTION {schema}.raise_placement();
-- A sign of life is no change, unless it comes late: then somebody may have read that the life had ended. They come each third of a lease.
CREATE TRIGGER raise_placement_changed AFTER UPDATE ON {schema}.node
    FOR EACH ROW WHEN (
        old.draining <> new.draining OR old.seen_at + old.lease_ms * interval '1 millisecond' * 2 / 3 < new.seen_at
    ) EXECUTE FUNCTION {schema}.raise_placement();
CREATE TRIGGER raise_placement AFTER INSERT OR DELETE ON {schema}.shard
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.raise_placement();
CREATE TRIGGER raise_placement AFTER INSERT OR DELETE ON {schema}.shard_needs
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.raise_placement();

-- Those of before do not say it.
ALTER TABLE {schema}.node ADD COLUMN protocol integer NOT NULL DEFAULT 0;

-- Moves are looked for twice a second, and those that are done stay.
CREATE INDEX tree_move_unfinished ON {schema}.tree_move (from_shard) WHERE state IN ('wanted', 'moved');
