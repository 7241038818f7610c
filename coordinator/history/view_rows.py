"""view_rows: the rows of SQL views, made without SQL; and a group as Kafka describes it.

Names of columns and values are those of spark_jobs/sql as JSON has them; tests compare both.
"""

from __future__ import annotations

from typing import Any

from coordinator.config import Config
from coordinator.events import Describe
from coordinator.groups import describe
from coordinator.history.epoch_history import Epoch
from coordinator.history.log_reader import shown_time
from coordinator.history.ownership_history import STATIC_RETURN, History, Moment, Ownership
from coordinator.spans import Spans, TopicKey, plain, stamped
from coordinator.state import GroupState, State


def group_rows(state: State) -> list[dict[str, Any]]:
    """Return all groups, and ids that have offsets only, as rows of the view `groups`."""
    rows = []
    for group_id in sorted(state.groups.keys() | state.offsets.keys()):
        group = state.groups.get(group_id)
        rows.append(
            {
                "group_id": group_id,
                "group_type": "consumer" if group else "classic",
                "state": (group.state if group else GroupState.EMPTY).value,
                "group_epoch": group.epoch if group else None,
                "assignment_epoch": _known(group.assignment_epoch) if group else None,
                "assignor": (group.assignor or None) if group else None,
                "partial": group.partial if group else None,
                "members": len(group.members) if group else 0,
            }
        )
    return rows


def _known(epoch: int) -> int | None:
    return None if epoch < 0 else epoch


def epoch_rows(history: History) -> list[dict[str, Any]]:
    """Return the epochs of a group as rows of the view `epochs`."""
    return [_epoch(epoch) for epoch in history.epochs.rows]


def _epoch(epoch: Epoch) -> dict[str, Any]:
    computed = epoch.computed_at_ms
    return {
        "group_id": epoch.group_id,
        "group_epoch": epoch.group_epoch,
        "position": epoch.position,
        "at": shown_time(epoch.at_ms),
        "reason": epoch.reason,
        "member_id": epoch.member_id,
        "topics_changed": epoch.topics_changed,
        "assignment_epoch": epoch.assignment_epoch,
        "computed_at": None if computed is None else shown_time(computed),
        "assignor": epoch.assignor,
        "moved": epoch.moved,
        "partial": epoch.partial,
    }


def history_rows(history: History) -> list[dict[str, Any]]:
    """Return who owned what in a group as rows of the view `assignment_history`."""
    return [_ownership(history.group_id, row) for row in history.rows()]


def _ownership(group_id: str, row: Ownership) -> dict[str, Any]:
    since, until = row.since, row.until
    return {
        "group_id": group_id,
        "topic": row.key.name,
        "topic_id": row.key.topic_id,
        "first_partition": row.first,
        "last_partition": row.end - 1,
        "partition_count": row.end - row.first,
        "member_id": row.member_id,
        "instance_id": row.instance_id,
        "since": shown_time(since.at_ms),
        "since_position": since.position,
        "assignment_epoch": since.cause.epoch,
        "reason": since.cause.reason,
        "reason_member_id": since.cause.member_id,
        "until": shown_time(until.at_ms) if until else None,
        "until_position": until.position if until else None,
        "until_epoch": until.cause.epoch if until else None,
        "until_reason": until.cause.reason if until else None,
        "until_member_id": until.cause.member_id if until else None,
        "revoked": row.revoked,
    }


def explained(history: History) -> list[dict[str, Any]]:
    """Return the epochs of a group, each with what members got and lost by it."""
    rows = epoch_rows(history)
    begun: dict[int, list[int]] = {}
    for row in rows:
        begun.setdefault(row["group_epoch"], []).append(row["position"])
    got: dict[int, list[Ownership]] = {}
    lost: dict[int, list[Ownership]] = {}
    for owned in history.rows():
        since, until = owned.since, owned.until
        # The return of a static member is no epoch's work.
        if since.cause.reason != STATIC_RETURN:
            got.setdefault(_last(begun, since), []).append(owned)
        if until is not None and until.cause.reason != STATIC_RETURN:
            # The end of a member is in the log right before the epoch that begins by it.
            position = _last(begun, until) if owned.revoked else _next(begun, until)
            lost.setdefault(position, []).append(owned)
    for row in rows:
        row["got"] = _ranges(got.get(row["position"], []))
        row["lost"] = _ranges(lost.get(row["position"], []))
    return rows


def _last(begun: dict[int, list[int]], moment: Moment) -> int:
    """Return where the epoch of a cause began; a group that is made anew counts from 2 again."""
    found = begun.get(moment.cause.epoch or 0, ())
    return max((position for position in found if position < moment.position), default=0)


def _next(begun: dict[int, list[int]], moment: Moment) -> int:
    found = begun.get(moment.cause.epoch or 0, ())
    return min((position for position in found if position > moment.position), default=0)


def _ranges(owned: list[Ownership]) -> list[dict[str, Any]]:
    """Return what members own together, touching ranges merged."""
    spans: dict[str, list[tuple[TopicKey, int, int]]] = {}
    for row in owned:
        spans.setdefault(row.member_id, []).append((row.key, row.first, row.end))
    return [
        {
            "member_id": member_id,
            "topic": key.name,
            "topic_id": key.topic_id,
            "first_partition": first,
            "partition_count": end - first,
        }
        for member_id, some in sorted(spans.items())
        for key, first, end in plain(stamped(sorted(some), 0))
    ]


def description(state: State, config: Config, group_id: str) -> dict[str, Any] | None:
    """Return a group as Kafka's ConsumerGroupDescribe does, in snake case, with a little more.

    That is: each member's state and what it still has to give up, and the committed offsets.

    Returns
    -------
    dict
        None when there is no such group, nor any offset of it.
    """
    group = state.groups.get(group_id)
    offsets = state.offsets.get(group_id, {})
    if group is None and not offsets:
        return None
    response = describe(state, config, Describe(group_id)).response
    assert isinstance(response, dict)
    if group is None:  # offsets alone make what Kafka calls a simple group
        state_name = GroupState.EMPTY.value
        response |= {"error_code": 0, "error_message": None, "group_state": state_name}
    else:
        for row in response["members"]:
            current = group.members[row["member_id"]].current
            row["member_state"] = current.state.name
            row["pending_revocation"] = {"topic_partitions": _partitions(plain(current.pending))}
    response["offsets"] = [
        {
            "topic_name": topic,
            "partition": partition,
            "offset": record.offset,
            "metadata": record.metadata,
            "committed_at": shown_time(record.commit_timestamp),
        }
        for (topic, partition), record in sorted(offsets.items())
    ]
    return response


def _partitions(spans: Spans) -> list[dict[str, Any]]:
    found: dict[TopicKey, list[int]] = {}
    for key, first, end in spans:
        found.setdefault(key, []).extend(range(first, end))
    return [
        {"topic_id": key.topic_id, "topic_name": key.name, "partitions": partitions}
        for key, partitions in found.items()
    ]
