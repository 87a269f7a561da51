-- Limits of servers of models that all nodes share, and the share that each node has of them.

-- `resource` is calls (at a time) or tokens (that count in a minute). A share counts until `until`. `need` is what the next call of the
-- node needs, which waits since `waiting_since`. `total` is the limit, as the node knows it.
CREATE TABLE {schema}.permit_share (
    server text,
    resource text,
    node text,
    sequence bigint NOT NULL,
    share bigint NOT NULL,
    demand bigint NOT NULL,
    need bigint NOT NULL,
    total bigint,
    waiting_since timestamptz,
    until timestamptz NOT NULL,
    PRIMARY KEY (server, resource, node)
) WITH (fillfactor = 20);

-- Takes over what a node uses and wants, and changes its share. `in_keep` is what it uses, or may use until it has the answer: a share never
-- gets smaller than that. All shares together are at most the total, except for what nodes use beyond theirs.
--
-- A share moves towards its target. If there is enough for all, that is the demand and an equal part of the rest. Otherwise shares are in
-- proportion to demand; but the node whose next call waits longest gets as much as this call needs, so that no call starves.
--
-- Returns the share, the target and the total; a report that comes late changes nothing.
CREATE FUNCTION {schema}.share_permits(in_server text, in_resource text, in_node text, in_sequence bigint, in_keep bigint, in_demand bigint, in_need bigint,
    in_total bigint, in_waited_ms bigint, in_lease_ms bigint)
RETURNS TABLE (out_share bigint, out_target bigint, out_total bigint) LANGUAGE plpgsql AS $$
DECLARE
    first_node {schema}.permit_share;
    all_demand numeric;
    nodes bigint;
    first_target bigint;
    others bigint;
BEGIN
    -- One node at a time. What follows sees what the one before has written.
    PERFORM pg_advisory_xact_lock(hashtextextended('{schema} ' || in_resource || ' ' || in_server, 0));
    DELETE FROM {schema}.permit_share WHERE server = in_server AND resource = in_resource AND until < clock_timestamp();
    INSERT INTO {schema}.permit_share AS p (server, resource, node, sequence, share, demand, need, total, waiting_since, until)
        VALUES (in_server, in_resource, in_node, in_sequence, in_keep, in_demand, in_need, in_total,
            clock_timestamp() - in_waited_ms * interval '1 millisecond', clock_timestamp() + in_lease_ms * interval '1 millisecond')
        ON CONFLICT (server, resource, node) DO UPDATE SET sequence = excluded.sequence, share = excluded.share, demand = excluded.demand,
            need = excluded.need, total = excluded.total, waiting_since = excluded.waiting_since, until = excluded.until
            WHERE p.sequence < excluded.sequence;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT coalesce(min(total), 0), sum(demand), count(*), coalesce(sum(share) FILTER (WHERE node <> in_node), 0)
        INTO out_total, all_demand, nodes, others FROM {schema}.permit_share WHERE server = in_server AND resource = in_resource;
    IF all_demand <= out_total THEN
        out_target := in_demand + floor((out_total - all_demand) / nodes);
    ELSE
        SELECT * INTO first_node FROM {schema}.permit_share
            WHERE server = in_server AND resource = in_resource
            ORDER BY waiting_since NULLS LAST, node LIMIT 1;
        first_target := least(out_total, greatest(first_node.need, ceil(out_total * first_node.demand / all_demand)));
        IF first_node.node = in_node THEN
            out_target := first_target;
        ELSE
            out_target := floor((out_total - first_target) * coalesce(in_demand / nullif(all_demand - first_node.demand, 0), 0));
        END IF;
    END IF;
    out_share := in_keep + greatest(0, least(out_target - in_keep, out_total - others - in_keep));
    UPDATE {schema}.permit_share SET share = out_share WHERE server = in_server AND resource = in_resource AND node = in_node;
    RETURN NEXT;
END
$$;
