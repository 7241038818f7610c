"""The columns of each view and their Arrow types, in order; times are UTC.

The views `log` and `targets` have the columns of those tables of the store, but for `at`, which is
`recorded_at`, and for `shard`, which `log` has.
"""

from __future__ import annotations

import pyarrow as pa

from coordinator.storage.record_schema import SCHEMA
from coordinator.storage.target_table import ARROW_SCHEMA

TEXT, INT, LONG, REAL = pa.string(), pa.int32(), pa.int64(), pa.float64()
TEXTS = pa.list_(TEXT)
TIME = pa.timestamp("us", tz="UTC")
OWNED = SCHEMA.field("assigned").type
"""Ranges of partitions that a member owns, each with the epoch in which it was assigned."""

MOVES = SCHEMA.field("planned_moves").type
"""Ranges of partitions that a plan gives to another member."""

# fmt: off
_COLUMNS = {
    "assignment_history": {
        "group_id": TEXT, "incarnation": INT, "topic": TEXT, "topic_id": TEXT,
        "first_partition": INT, "last_partition": INT, "partition_count": INT,
        "member_id": TEXT, "instance_id": TEXT,
        "client_id": TEXT, "client_host": TEXT, "since": TIME, "since_position": LONG,
        "assignment_epoch": INT, "reason": TEXT, "reason_codes": TEXTS, "reason_member_id": TEXT,
        "until": TIME, "until_position": LONG, "until_epoch": INT, "until_reason": TEXT,
        "until_reason_codes": TEXTS, "until_member_id": TEXT, "revoked": pa.bool_(),
    },
    "audit": {
        "position": LONG, "recorded_at": TIME, "action": TEXT, "principal": TEXT,
        "client_id": TEXT, "client_host": TEXT, "group_id": TEXT, "operation": TEXT,
        "resource_type": TEXT, "resource_name": TEXT, "count": LONG,
        "details": pa.map_(TEXT, TEXT), "shard": INT,
    },
    "current_assignments": {
        "group_id": TEXT, "member_id": TEXT, "instance_id": TEXT, "client_id": TEXT,
        "client_host": TEXT, "member_epoch": INT, "state": TEXT, "topic_id": TEXT, "topic": TEXT,
        "first_partition": INT, "partition_count": INT, "assignment_epoch": INT,
        "pending_revocation": pa.bool_(),
    },
    "epochs": {
        "group_id": TEXT, "incarnation": INT, "group_epoch": INT, "position": LONG,
        "recorded_at": TIME, "reason": TEXT, "reason_codes": TEXTS, "member_id": TEXT,
        "instance_id": TEXT, "client_id": TEXT, "client_host": TEXT, "topics_changed": TEXTS,
        "assignment_epoch": INT, "target_position": LONG, "computed_at": TIME, "assignor": TEXT,
        "moved": LONG, "partial": pa.bool_(), "reached_at": TIME,
    },
    "events": {
        "position": LONG, "recorded_at": TIME, "group_id": TEXT, "incarnation": INT,
        "event": TEXT, "group_epoch": INT, "member_id": TEXT, "instance_id": TEXT,
        "client_id": TEXT, "client_host": TEXT, "former_member_id": TEXT, "topic": TEXT,
        "topic_id": TEXT, "first_partition": INT, "last_partition": INT, "partition_count": INT,
        "reason": TEXT, "reason_codes": TEXTS, "reason_member_id": TEXT, "moved": LONG,
        "seconds": REAL, "plan_id": TEXT, "shard": INT,
    },
    "groups": {
        "group_id": TEXT, "incarnation": INT, "group_type": TEXT, "state": TEXT,
        "group_epoch": INT, "assignment_epoch": INT, "assignor": TEXT, "partial": pa.bool_(),
        "members": LONG, "observed": TEXT, "observed_since": TIME, "shard": INT,
    },
    "members": {
        "group_id": TEXT, "member_id": TEXT, "instance_id": TEXT, "rack_id": TEXT,
        "client_id": TEXT, "client_host": TEXT, "client_software": TEXT,
        "subscribed_topic_names": pa.list_(TEXT),
        "subscribed_topic_regex": TEXT, "rebalance_timeout_ms": LONG, "server_assignor": TEXT,
        "state": TEXT, "member_epoch": INT, "assigned": OWNED, "pending": OWNED,
    },
    "memberships": {
        "group_id": TEXT, "incarnation": INT, "member_id": TEXT, "instance_id": TEXT,
        "client_id": TEXT, "client_host": TEXT, "since": TIME, "since_position": LONG,
        "since_epoch": INT, "until": TIME, "until_position": LONG, "until_epoch": INT,
        "until_reason": TEXT, "until_reason_codes": TEXTS, "fenced": pa.bool_(), "seconds": REAL,
    },
    "offset_commits": {
        "group_id": TEXT, "topic": TEXT, "topic_id": TEXT, "partition": INT, "position": LONG,
        "recorded_at": TIME, "offset": LONG, "leader_epoch": INT, "metadata": TEXT,
        "committed_at": TIME, "deleted": pa.bool_(),
    },
    "offsets": {
        "group_id": TEXT, "topic": TEXT, "topic_id": TEXT, "partition": INT, "offset": LONG,
        "leader_epoch": INT, "metadata": TEXT, "committed_at": TIME,
    },
    "partition_owners": {
        "group_id": TEXT, "topic": TEXT, "topic_id": TEXT, "first_partition": INT,
        "last_partition": INT, "partition_count": INT, "member_id": TEXT, "instance_id": TEXT,
        "client_id": TEXT, "client_host": TEXT, "assignment_epoch": INT,
        "pending_revocation": pa.bool_(),
    },
    "plans": {
        "group_id": TEXT, "incarnation": INT, "plan_id": TEXT, "status": TEXT,
        "group_epoch": INT, "position": LONG, "recorded_at": TIME, "assignor": TEXT,
        "principal": TEXT, "reason": TEXT, "expires_at": TIME, "moved": LONG, "placed": LONG,
        "moved_weight": REAL,
        "makespan_before": REAL, "makespan_after": REAL, "lower_bound": REAL, "decided_at": TIME,
        "decided_by": TEXT, "decision_reason": TEXT, "applied_epoch": INT, "moves": MOVES,
    },
    "rebalances": {
        "group_id": TEXT, "incarnation": INT, "group_epoch": INT, "last_epoch": INT,
        "epochs": LONG, "position": LONG, "recorded_at": TIME, "reason": TEXT,
        "reason_codes": TEXTS, "member_id": TEXT, "instance_id": TEXT, "client_id": TEXT,
        "client_host": TEXT, "settled_position": LONG, "settled_at": TIME, "seconds": REAL,
        "waited_for": TEXT, "moved": LONG, "partitions": LONG,
    },
    "target_assignments": {
        "group_id": TEXT, "assignment_epoch": INT, "member_id": TEXT, "topic_id": TEXT,
        "topic": TEXT, "first_partition": INT, "partition_count": INT,
    },
    "topics": {
        "topic": TEXT, "topic_id": TEXT, "partitions": INT,
    },
    "unowned": {
        "group_id": TEXT, "incarnation": INT, "topic": TEXT, "topic_id": TEXT,
        "first_partition": INT, "last_partition": INT, "partition_count": INT,
        "former_member_id": TEXT, "since": TIME, "since_position": LONG, "reason": TEXT,
        "reason_codes": TEXTS, "reason_member_id": TEXT, "member_id": TEXT, "until": TIME,
        "until_position": LONG, "seconds": REAL,
    },
    "waits": {
        "group_id": TEXT, "incarnation": INT, "assignment_epoch": INT, "member_id": TEXT,
        "instance_id": TEXT, "client_id": TEXT, "client_host": TEXT,
        "pending_revocation": pa.bool_(), "since": TIME, "since_position": LONG, "until": TIME,
        "until_position": LONG, "seconds": REAL, "reached": pa.bool_(),
    },
}
# fmt: on
VIEW_SCHEMAS = {view: pa.schema(columns) for view, columns in _COLUMNS.items()}
"""The schema of each view, by the view's name."""
RANGES = {
    "topic": TEXT, "topic_id": TEXT, "first_partition": INT, "last_partition": INT,
    "partition_count": INT,
}  # fmt: skip
FUNCTION_SCHEMAS = {
    "assignment_at": pa.schema(
        RANGES
        | dict.fromkeys(("member_id", "instance_id", "client_id", "client_host"), TEXT)
        | {"assignment_epoch": INT, "pending_revocation": pa.bool_()}
    ),
    "compare_epochs": pa.schema(RANGES | {"former_member_id": TEXT, "member_id": TEXT}),
    "loads_at": pa.schema(
        dict.fromkeys(("member_id", "instance_id", "client_id", "client_host"), TEXT)
        | {"partitions": LONG, "weight": REAL}
    ),
    "owners_if": pa.schema(RANGES | {"former_member_id": TEXT, "member_id": TEXT}),
}
"""The schema of each table function (functions.py), by its name."""
FUNCTION_ARGUMENTS: dict[str, dict[str, type]] = {
    "assignment_at": {"epoch": int},
    "compare_epochs": {"epoch": int, "other_epoch": int},
    "loads_at": {"epoch": int},
    "owners_if": {"without": str},
}
"""What each of them takes after the group's id, with its type."""
GROUP_COLUMNS = pa.schema(
    [
        column
        for column in VIEW_SCHEMAS["groups"]
        if column.name not in {"incarnation", "observed", "observed_since", "shard"}
    ]
)
"""The columns of `groups` that follow from a group's last records alone."""
_LOG = SCHEMA.remove(SCHEMA.get_field_index("at"))
TABLE_SCHEMAS = {
    "log": pa.schema([*_LOG, pa.field("recorded_at", TIME), pa.field("shard", INT)]),
    "targets": ARROW_SCHEMA,
}
"""The schemas of the views that are a table of the store."""
SCHEMAS = VIEW_SCHEMAS | TABLE_SCHEMAS
"""Of all views, by name: frames.py computes them."""
WITHOUT_GROUPS = frozenset(view for view in SCHEMAS if "group_id" not in SCHEMAS[view].names)
"""Views that have no column `group_id`."""
OF_EACH_SHARD = frozenset({"topics"})
"""Views whose rows every shard has."""
