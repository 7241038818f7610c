"""What two users ask under access lists, and what of an answer counts: also asked of Kafka 4.4.0."""

from __future__ import annotations

import uuid
from dataclasses import fields, is_dataclass

from coordinator.wire.codec import Api

TOPICS = {"open": 2, "hidden": 2}
ACLS = """
super_users = ["User:admin"]

[[acls]]
principal = "User:alice"
operations = ["READ"]
resource_type = "GROUP"
resource_name = "mine"

[[acls]]
principal = "User:alice"
operations = ["READ", "DELETE", "ALTER_CONFIGS"]
resource_type = "GROUP"
resource_name = "team-"
pattern_type = "PREFIXED"

[[acls]]
principal = "User:alice"
operations = ["READ"]
permission = "DENY"
resource_type = "GROUP"
resource_name = "team-secret"

[[acls]]
principal = "User:alice"
operations = ["DESCRIBE"]
permission = "DENY"
resource_type = "GROUP"
resource_name = "team-hid"
pattern_type = "PREFIXED"

[[acls]]
principal = "User:*"
operations = ["DESCRIBE"]
resource_type = "GROUP"
resource_name = "public"

[[acls]]
principal = "User:alice"
operations = ["ALL"]
resource_type = "GROUP"
resource_name = "elsewhere"
host = "10.9.8.7"

[[acls]]
principal = "User:alice"
operations = ["READ"]
resource_type = "TOPIC"
resource_name = "open"

[[acls]]
principal = "User:bob"
operations = ["DESCRIBE"]
resource_type = "TOPIC"
resource_name = "*"

[[acls]]
principal = "User:bob"
operations = ["DESCRIBE", "DESCRIBE_CONFIGS"]
resource_type = "CLUSTER"
resource_name = "kafka-cluster"
"""
GROUPS = {
    "mine": ["open"], "team-a": ["open"], "team-mixed": ["open", "hidden"], "team-secret": ["open"],
    "team-hidden": ["open"], "public": ["open"], "other": ["open"], "elsewhere": ["open"],
}  # fmt: skip
"""Each with one member that is subscribed to these, and offset 5 of partition 0 of both topics."""
NAMES = [*GROUPS, "nobodys"]
KEPT = {
    "error_code", "name", "topic", "group_id", "key", "resource_type", "resource_name",
    "partition_index", "index", "committed_offset", "authorized_operations",
    "topic_authorized_operations", "cluster_authorized_operations", "groups", "topics", "results",
    "responses", "coordinators", "partitions", "partition_responses", "topic_id",
}  # fmt: skip
BEAT = {
    "member_epoch": 0, "rebalance_timeout": 60_000, "topic_partitions": (),
}  # fmt: skip
NO_FETCH = {
    "max_wait": 0, "min_bytes": 0, "max_bytes": 1, "isolation_level": 0, "session_id": 0,
    "session_epoch": -1, "forgotten_topics_data": (), "rack_id": "", "replica_id": -1,
}  # fmt: skip
OF_ONE = {
    "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1,
    "partition_max_bytes": 1, "last_fetched_epoch": -1,
}  # fmt: skip


def cases(ids):
    """Yield (api, version, fields): everything that a user asks; `ids` are those of topics."""
    both = ["open", "hidden", "nowhere"]
    yield Api.FIND_COORDINATOR, 4, {"coordinator_keys": NAMES, "key_type": 0}
    for name in ("mine", "other"):
        yield Api.FIND_COORDINATOR, 3, {"key": name, "key_type": 0}
    yield Api.LIST_GROUPS, 4, {}
    yield Api.CONSUMER_GROUP_DESCRIBE, 0, {"group_ids": NAMES}
    yield Api.CONSUMER_GROUP_DESCRIBE, 0, {
        "group_ids": NAMES, "include_authorized_operations": True,
    }  # fmt: skip
    yield Api.DESCRIBE_GROUPS, 5, {"groups": ["other", "nobodys"]}
    for group in ("mine", "other", "team-secret", "elsewhere"):
        for topics in (["open"], ["open", "hidden"], ["nowhere"]):
            beat = {"group_id": group, "member_id": "x" + group, "subscribed_topic_names": topics}
            yield Api.CONSUMER_GROUP_HEARTBEAT, 1, BEAT | beat
        leave = {"group_id": group, "member_id": "x" + group, "member_epoch": -1}
        yield Api.CONSUMER_GROUP_HEARTBEAT, 1, BEAT | leave
    named = [{"name": t, "partition_indexes": [0, 1]} for t in both]
    by_id = [{"topic_id": ids[t], "partition_indexes": [0, 1]} for t in both]
    for group in ("mine", "public", "other"):
        yield Api.OFFSET_FETCH, 7, {"group_id": group, "topics": named}
        yield Api.OFFSET_FETCH, 7, {"group_id": group, "topics": None}
        yield Api.OFFSET_FETCH, 1, {"group_id": group, "topics": named}
    yield Api.OFFSET_FETCH, 9, {"groups": [{"group_id": g, "topics": named} for g in NAMES]}
    yield Api.OFFSET_FETCH, 9, {"groups": [{"group_id": g, "topics": None} for g in NAMES]}
    yield Api.OFFSET_FETCH, 10, {"groups": [{"group_id": g, "topics": by_id} for g in NAMES]}
    for group in ("mine", "public", "other", "team-secret"):
        offset = [
            {"partition_index": p, "committed_offset": 7, "committed_metadata": ""} for p in (0, 1)
        ]
        words = {"group_id": group, "generation_id_or_member_epoch": 99, "member_id": "nobody"}
        yield Api.OFFSET_COMMIT, 9, words | {
            "topics": [{"name": t, "partitions": offset} for t in both],
        }  # fmt: skip
        yield Api.OFFSET_COMMIT, 10, words | {
            "topics": [{"topic_id": ids[t], "partitions": offset} for t in both],
        }  # fmt: skip
    for group in ("team-a", "mine", "other"):
        yield Api.OFFSET_DELETE, 0, {
            "group_id": group,
            "topics": [{"name": t, "partitions": [{"partition_index": 1}]} for t in both],
        }  # fmt: skip
    yield Api.METADATA, 12, {"topics": None}
    yield Api.METADATA, 12, {"topics": [{"name": t, "topic_id": uuid.UUID(int=0)} for t in both]}
    yield Api.METADATA, 12, {"topics": [{"name": None, "topic_id": ids[t]} for t in both]}
    yield Api.METADATA, 9, {
        "topics": [{"name": t} for t in both], "include_topic_authorized_operations": True,
    }  # fmt: skip
    yield Api.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": True}
    yield Api.LIST_OFFSETS, 7, {
        "replica_id": -1, "isolation_level": 0,
        "topics": [{"name": t, "partitions": [{"partition_index": 0, "current_leader_epoch": -1,
                                               "timestamp": -2}]} for t in both],
    }  # fmt: skip
    yield Api.FETCH, 12, NO_FETCH | {"topics": [{"topic": t, "partitions": [OF_ONE]} for t in both]}
    yield Api.FETCH, 13, NO_FETCH | {
        "topics": [{"topic_id": ids[t], "partitions": [OF_ONE]} for t in both],
    }  # fmt: skip
    named_groups = [{"resource_type": 32, "resource_name": g} for g in NAMES]
    for one in named_groups:
        yield Api.DESCRIBE_CONFIGS, 4, {"resources": [one | {"configuration_keys": None}]}
    refused = [{"resource_type": 32, "resource_name": g, "configs": [
        {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "45000"},
    ]} for g in ("mine", "public", "other", "team-a")]  # fmt: skip
    yield Api.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": refused, "validate_only": True}
    yield Api.DELETE_GROUPS, 2, {"groups_names": ["mine", "public", "other", "team-secret", "nob"]}
    yield Api.DELETE_GROUPS, 2, {"groups_names": ["team-a"]}


def facts(value, names):
    """Return what counts of an answer, in plain values and in an order of its own.

    That Kafka takes no offsets of unknown topics, and has one of its own, has nothing to do with
    access lists.
    """
    if isinstance(value, tuple | list):
        found = [facts(one, names) for one in value]
        return sorted((one for one in found if not _elsewhere(one)), key=str)
    if is_dataclass(value):
        kept = [field.name for field in fields(value) if field.name in KEPT]
        return {name: facts(getattr(value, name), names) for name in kept}
    if isinstance(value, uuid.UUID):
        return names.get(value, "unknown")
    return int(value) if isinstance(value, int) else value


def _elsewhere(one):
    if not isinstance(one, dict):
        return False
    name = one.get("name") or one.get("topic") or one.get("topic_id")
    parts = [part["error_code"] for part in one.get("partitions", ())]
    return name == "__consumer_offsets" or (name == "nowhere" and parts and 29 not in parts)
