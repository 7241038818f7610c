-- Who deleted or altered what, and who was refused: one row per action or count.
-- In SQL, too, as a permanent view: for auditors, on a platform's catalog and without Muster.
SELECT
    position,
    recorded_at,
    reason AS action,
    nullif(owner, '') AS principal,
    nullif(client_id, '') AS client_id,
    nullif(client_host, '') AS client_host,
    nullif(group_id, '') AS group_id,
    try_element_at(settings, 'operation') AS operation,
    try_element_at(settings, 'resource_type') AS resource_type,
    try_element_at(settings, 'resource_name') AS resource_name,
    coalesce(CAST(try_element_at(settings, 'count') AS BIGINT), 1) AS count,
    settings AS details,
    $shard AS shard
FROM $log
WHERE kind = 'audit'
