-- Budgets of labels that hold for the whole cluster, and the slices of them that shards have.
--
-- Arrays have three amounts, in this order: input tokens, output tokens, cost in billionths.

-- A budget whose periods change, or that is removed and set again, has another generation: it counts from zero.
CREATE SEQUENCE {schema}.label_generation;
CREATE TABLE {schema}.label_budget (
    label text PRIMARY KEY,
    generation bigint NOT NULL DEFAULT nextval('{schema}.label_generation'),
    period text NOT NULL,
    zone text NOT NULL,
    limits bigint[] NOT NULL
);

-- What a shard has used in the period that ends at `until_ms`, as it said last, and what it may use in all. `epoch` is that of the owner who
-- said so.
CREATE TABLE {schema}.label_slice (
    label text,
    shard integer,
    epoch bigint NOT NULL,
    generation bigint NOT NULL,
    until_ms bigint NOT NULL,
    used bigint[] NOT NULL,
    granted bigint[] NOT NULL,
    PRIMARY KEY (label, shard)
) WITH (fillfactor = 50);
CREATE INDEX label_slice_shard ON {schema}.label_slice (shard);

-- Takes over what a shard has used of a label, and changes its slice: `more` lets it grow, `keep` leaves it, `return` cuts it down to
-- what is used. All slices of a period together are at most the limit, except for what shards have used beyond theirs. Returns the slice and what the other
-- shards have used; no row if the budget is another, or a later owner of the shard has spoken.
CREATE FUNCTION {schema}.share_label(in_label text, in_shard integer, in_epoch bigint, in_generation bigint, in_until_ms bigint, in_used bigint[], in_change text)
RETURNS TABLE (out_granted bigint[], out_elsewhere bigint[]) LANGUAGE plpgsql AS $$
DECLARE
    budget_limits bigint[];
    others bigint[];
    own bigint[];
    own_epoch bigint;
    room bigint;
    wanted bigint;
BEGIN
    -- One shard at a time. What follows sees what the one before has written.
    SELECT limits INTO budget_limits FROM {schema}.label_budget WHERE label = in_label AND generation = in_generation FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT epoch, CASE WHEN generation = in_generation AND until_ms = in_until_ms THEN granted END
        INTO own_epoch, own FROM {schema}.label_slice WHERE label = in_label AND shard = in_shard;
    IF own_epoch > in_epoch THEN
        RETURN;
    END IF;
    SELECT
        ARRAY[coalesce(sum(granted[1]), 0), coalesce(sum(granted[2]), 0), coalesce(sum(granted[3]), 0)],
        ARRAY[coalesce(sum(used[1]), 0), coalesce(sum(used[2]), 0), coalesce(sum(used[3]), 0)]
        INTO others, out_elsewhere FROM {schema}.label_slice
        WHERE label = in_label AND shard <> in_shard AND generation = in_generation AND until_ms = in_until_ms;
    out_granted := in_used;
    FOR i IN 1..3 LOOP
        CONTINUE WHEN budget_limits[i] IS NULL;
        room := greatest(0, budget_limits[i] - others[i]);
        wanted := CASE in_change
            WHEN 'return' THEN in_used[i]
            WHEN 'keep' THEN coalesce(own[i], 0)
            -- A quarter of what nobody has, and no crumbs.
            ELSE greatest(coalesce(own[i], 0), in_used[i] + greatest((room - in_used[i]) / 4, budget_limits[i] / 256, 1))
        END;
        out_granted[i] := greatest(in_used[i], least(wanted, room));
    END LOOP;
    INSERT INTO {schema}.label_slice AS s (label, shard, epoch, generation, until_ms, used, granted)
        VALUES (in_label, in_shard, in_epoch, in_generation, in_until_ms, in_used, out_granted)
        ON CONFLICT (label, shard) DO UPDATE SET epoch = excluded.epoch, generation = excluded.generation,
            until_ms = excluded.until_ms, used = excluded.used, granted = excluded.granted;
    RETURN NEXT;
END
$$;
