"""Answers to what is not a heartbeat, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coordinator.errors import ErrorCode
from tests.support.traces.text import ranges


def described(found: Any) -> Iterator[str]:
    if found["error_code"]:
        yield ErrorCode(found["error_code"]).name
        return
    epochs = f"group epoch {found['group_epoch']}, target epoch {found['assignment_epoch']}"
    yield f"{found['group_state']}, {epochs}, assignor {found['assignor_name']}"
    for member in found["members"]:
        held = {t["topic_name"]: t["partitions"] for t in member["assignment"]["topic_partitions"]}
        target = member["target_assignment"]["topic_partitions"]
        wanted = {t["topic_name"]: t["partitions"] for t in target}
        text = f"{member['member_id']} at epoch {member['member_epoch']}, has {ranges(held)}"
        yield text + (f", target {ranges(wanted)}" if wanted != held else "")


def prepared(found: Any) -> Iterator[str]:
    yield f"{found['computation_id']} is to compute the target for group epoch {found['group_epoch']}"
    topics = [f"{row['topic']}={row['partitions']}" for row in found["topics"].to_pylist()]
    yield f"topics {', '.join(topics) or 'nothing'}"
    owned: dict[str, dict[str, list[int]]] = {}
    for row in found["owned"].to_pylist():
        first, end = row["first_partition"], row["first_partition"] + row["partition_count"]
        of_member = owned.setdefault(row["member_id"], {})
        of_member.setdefault(row["topic"], []).extend(range(first, end))
    for row in found["members"].to_pylist():
        member = row["member_id"]
        yield f"{member} subscribes {', '.join(row['subscribed'])}, owns {ranges(owned.get(member, {}))}"


def offsets(found: Any) -> str:
    parts = [
        f"{topic} {partition}={'none' if record is None else record.offset}"
        for topic, partitions in found.items()
        for partition, record in partitions.items()
    ]
    return ", ".join(parts) or "no offsets"
