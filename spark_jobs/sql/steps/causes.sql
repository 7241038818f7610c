-- A step of `assignment_history`: why a target moves partitions. It has the reasons of all group
-- epochs that it covers, and their member if it is only one.
WITH recorded AS (
    SELECT group_id, position, target_position,
        transform(split(nullif(reason, ''), $separator), one -> $code_of_one) AS codes,
        concat(reason, CASE
            WHEN size(topics_changed) > 3 THEN concat(
                ' (', array_join(slice(topics_changed, 1, 3), '; '),
                ' and ', size(topics_changed) - 3, ' more)'
            )
            WHEN size(topics_changed) > 0 THEN concat(' (', array_join(topics_changed, '; '), ')')
            ELSE ''
        END) AS reason,
        -- The member did not cause these: it only sent the first heartbeat afterwards.
        IF(
            reason IN ($text_of_topics_changed, $text_of_finishing_moves), NULL, member_id
        ) AS member_id
    FROM $begun_epochs
    WHERE target_position IS NOT NULL
)
SELECT
    group_id,
    target_position,
    array_join(array_distinct(transform(
        sort_array(collect_set(struct(position, reason))), one -> one.reason
    )), $separator) AS reason,
    array_distinct(flatten(transform(
        sort_array(collect_set(struct(position, codes)) FILTER (WHERE codes IS NOT NULL)),
        one -> one.codes
    ))) AS codes,
    IF(count(member_id) = count(*) AND min(member_id) = max(member_id), min(member_id), NULL)
        AS member_id
FROM recorded
GROUP BY group_id, target_position
