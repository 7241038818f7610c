-- A step of `epochs`: topic changes, for each group that subscribes to the topic at any time.
WITH subscriptions AS (
    -- The names of equal subscriptions are parsed once.
    SELECT group_id, subscribed_topic_names, topics, min(position) AS position
    FROM $log
    WHERE kind IN ('member_metadata', 'regular_expression') AND NOT tombstone
    GROUP BY group_id, subscribed_topic_names, topics
),
names AS (
    SELECT group_id, position,
        explode(coalesce(topics, from_json(subscribed_topic_names, 'array<string>'))) AS topic
    FROM subscriptions
),
subscribed AS (
    SELECT group_id, topic, min(position) AS subscribed_at
    FROM names
    GROUP BY group_id, topic
),
steps AS (
    SELECT topic, position, tombstone, topic_id, partitions,
        lag(struct(tombstone, topic_id, partitions)) OVER (PARTITION BY topic ORDER BY position)
            AS before
    FROM $log
    WHERE kind = 'topic'
)
SELECT
    subscribed.group_id,
    subscribed.subscribed_at,
    steps.position,
    concat(steps.topic, CASE
        WHEN tombstone THEN ' was deleted'
        WHEN before IS NULL OR before.tombstone THEN ' was created'
        WHEN before.topic_id != steps.topic_id THEN ' was re-created'
        WHEN before.partitions < partitions THEN
            concat(' grew from ', before.partitions, ' to ', partitions, ' partitions')
        WHEN before.partitions > partitions THEN
            concat(' shrank from ', before.partitions, ' to ', partitions, ' partitions')
        ELSE ' has other racks'
    END) AS change
FROM steps
JOIN subscribed ON steps.topic = subscribed.topic
