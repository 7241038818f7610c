-- The owner, or none, of each range of partitions of existing topics. Kafka's describe
-- shows the same of those that are owned.
-- In SQL, too, since one process needs 1.2 GiB for a group of 1,000,000 members.
WITH owned AS (
    SELECT
        current.group_id,
        current.topic,
        current.topic_id,
        current.first_partition,
        current.first_partition + current.partition_count - 1 AS last_partition,
        current.partition_count,
        current.member_id,
        current.instance_id,
        current.client_id,
        current.client_host,
        current.assignment_epoch,
        current.pending_revocation
    FROM $current_assignments AS current
    JOIN $topics AS topics ON current.topic = topics.topic AND current.topic_id = topics.topic_id
),
named AS (
    -- The topics of equal subscriptions are listed once.
    SELECT DISTINCT group_id, subscribed_topic_names AS topics
    FROM $members
),
matched AS (
    SELECT group_id, regex,
        max_by(tombstone, position) AS ended,
        max_by(topics, position) AS topics
    FROM $log
    WHERE kind = 'regular_expression'
    GROUP BY group_id, regex
),
listed AS (
    SELECT group_id, explode(topics) AS topic
    FROM named
    UNION ALL
    SELECT group_id, explode(topics)
    FROM matched
    WHERE NOT ended
),
wanted AS (
    SELECT DISTINCT listed.group_id, topics.topic, topics.topic_id, partitions
    FROM listed
    JOIN $topics AS topics ON listed.topic = topics.topic
),
-- What is after the last range of a topic ends where the topic does.
bounds AS (
    SELECT wanted.group_id, wanted.topic, wanted.topic_id,
        least(first_partition, partitions) AS low,
        least(last_partition + 1, partitions) AS high
    FROM owned
    JOIN wanted ON owned.group_id = wanted.group_id AND owned.topic = wanted.topic
    UNION ALL
    SELECT group_id, topic, topic_id, partitions, partitions
    FROM wanted
),
placed AS (
    SELECT *, coalesce(max(high) OVER (
            PARTITION BY group_id, topic ORDER BY low
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS covered
    FROM bounds
)
SELECT * FROM owned
UNION ALL
SELECT group_id, topic, topic_id, covered, low - 1, low - covered, NULL, NULL, NULL, NULL, NULL, false
FROM placed
WHERE low > covered
