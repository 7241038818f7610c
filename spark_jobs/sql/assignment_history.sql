-- Who owned what, from when until when, and why: one row per range. A row covers partitions with the
-- same owner, times and reasons; until is null while they are owned. A member owns partitions that it
-- must give up until it has given them up.
-- In SQL, too, since one process needs 1.9 GiB for a group of 1,000,000 members: here executors share it.
WITH changes AS (
    SELECT group_id, member_id, struct(
            position, recorded_at, incarnation, tombstone, client_id, client_host, instance_id, gives, takes
        ) AS record,
        inline(concat(
            transform(array_except(ranges, before), came -> struct(came AS range, 1 AS change)),
            transform(array_except(before, ranges), went -> struct(went AS range, -1 AS change))
        ))
    FROM $owned
),
gathered AS (
    SELECT group_id, member_id, range.topic, range.topic_id,
        collect_set(struct(
            range.first_partition AS low,
            range.first_partition + range.partition_count AS high,
            IF(range.pending, change, 0) AS pending,
            change,
            record
        )) AS changes
    FROM changes
    GROUP BY group_id, member_id, range.topic, range.topic_id
),
cut AS (
    SELECT *,
        array_sort(array_distinct(concat(changes.low, changes.high))) AS edges
    FROM gathered
),
-- Ranges, cut at all bounds of the member's ranges: any two pieces are equal or disjoint.
pieces AS (
    SELECT group_id, member_id, topic, topic_id,
        inline(flatten(transform(changes, one -> transform(
            filter(
                zip_with(slice(edges, 1, size(edges) - 1), slice(edges, 2, size(edges) - 1),
                    (low, high) -> struct(low, high)),
                piece -> piece.low >= one.low AND piece.low < one.high
            ),
            piece -> struct(piece.low, piece.high, one.pending, one.change, one.record)
        ))))
    FROM cut
),
net AS (
    SELECT group_id, member_id, topic, topic_id, low, high, record,
        sum(change) AS change,
        sum(pending) AS pending
    FROM pieces
    GROUP BY group_id, member_id, topic, topic_id, low, high, record
),
turns AS (
    SELECT group_id, member_id, topic, topic_id, low, high,
        array_sort(collect_set(record) FILTER (WHERE change = 1)) AS began,
        array_sort(collect_set(struct(record, pending)) FILTER (WHERE change = -1)) AS ended,
        array_sort(collect_set(record) FILTER (WHERE pending = 1)) AS pended
    FROM net
    GROUP BY group_id, member_id, topic, topic_id, low, high
),
-- A piece begins and ends in turn, so the nth end belongs to the nth beginning. The cause of an end
-- while pending is what made the piece pending, unless the member ended.
tenures AS (
    SELECT group_id, member_id, topic, topic_id, low, high, pended,
        inline(transform(began, (since, i) -> struct(since, get(ended, i) AS ended)))
    FROM turns
),
explained AS (
    SELECT group_id, member_id, topic, topic_id, low, high, since,
        ended.record AS until,
        IF(ended.pending = -1 AND NOT ended.record.tombstone,
            array_max(filter(pended, one -> one.position < ended.record.position)).takes,
            ended.record.takes
        ) AS taken
    FROM tenures
),
alike AS (
    SELECT group_id, member_id, topic, topic_id, since, until, taken,
        array_sort(collect_set(struct(low, high))) AS parts
    FROM explained
    GROUP BY group_id, member_id, topic, topic_id, since, until, taken
),
-- Adjacent pieces with equal columns are one range: it begins where no other piece ends, and ends
-- where no other begins.
ranges AS (
    SELECT *,
        inline(zip_with(
            array_except(parts.low, parts.high), array_except(parts.high, parts.low),
            (low, high) -> struct(low, high)
        ))
    FROM alike
)
SELECT
    group_id,
    since.incarnation,
    topic,
    topic_id,
    low AS first_partition,
    high - 1 AS last_partition,
    high - low AS partition_count,
    member_id,
    since.instance_id,
    since.client_id,
    since.client_host,
    since.recorded_at AS since,
    since.position AS since_position,
    since.gives.epoch AS assignment_epoch,
    since.gives.reason,
    since.gives.codes AS reason_codes,
    since.gives.member_id AS reason_member_id,
    until.recorded_at AS until,
    until.position AS until_position,
    taken.epoch AS until_epoch,
    taken.reason AS until_reason,
    taken.codes AS until_reason_codes,
    taken.member_id AS until_member_id,
    NOT until.tombstone AS revoked
FROM ranges
