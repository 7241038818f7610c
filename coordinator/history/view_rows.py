"""What commands and pages show of groups: epochs explained, Kafka's ConsumerGroupDescribe."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from assignors import SpecError
from coordinator.config import Config
from coordinator.core.events import DescribeGroup
from coordinator.core.group_admin import CLASSIC_MEMBER, GroupDescription, describe_group
from coordinator.core.state.classic_group import ClassicGroup
from coordinator.core.state.classic_written import record_of
from coordinator.core.state.groups import GroupState, State
from coordinator.core.state.partition_spans import (
    Spans,
    TopicKey,
    add_epoch,
    drop_epochs,
    partitions_by,
)
from coordinator.core.state.records import ClassicMemberWritten, MemberState
from coordinator.core.watched.lags import find_lags
from coordinator.display.times import format_time
from coordinator.history.frames import read_view
from coordinator.history.json_rows import Row, to_json_rows
from coordinator.history.log_reader import LogReader
from coordinator.history.log_rows import LogRows, is_text
from coordinator.history.ownership_view import STATIC_RETURN

WHO = ("member_id", "instance_id", "client_id", "client_host")


def read_rows(reading: LogReader, view: str, group_id: str | None = None) -> pa.Table:
    """Return the rows of a view.

    Raises
    ------
    SpecError
        The log has no such group.
    """
    table = read_view(reading, view, group_id)
    if group_id is not None and not len(table) and not LogRows(reading, group_id).has_group():
        raise reading.unknown(group_id)
    return table


def list_rows(reading: LogReader, view: str, group_id: str | None = None) -> list[Row]:
    """Return the same as JSON values."""
    return to_json_rows(read_rows(reading, view, group_id))


class NeverOwnedError(SpecError):
    """No member of a group ever owned a topic or a partition."""


def pick_owned(
    history: pa.Table, group_id: str, topic: str | None, partition: int | None
) -> pa.Table:
    """Return the rows of `assignment_history` of a topic, or of one of its partitions.

    Raises
    ------
    NeverOwnedError
        There are none.
    """
    if topic is None:
        return history
    rows = history.filter(pc.equal(history["topic"], topic if is_text(topic) else ""))
    if not len(rows):
        owned = ", ".join(sorted(pc.unique(history["topic"]).to_pylist())) or "nothing"
        raise NeverOwnedError(
            f"no member of group {group_id!r} owned topic {topic!r}; its members owned {owned}"
        )
    if partition is None:
        return rows
    last = pc.max(rows["last_partition"]).as_py()
    low, high = rows["first_partition"], rows["last_partition"]
    wanted = min(partition, last + 1)  # Arrow compares no number that is larger than its own
    rows = rows.filter(pc.and_(pc.less_equal(low, wanted), pc.greater_equal(high, wanted)))
    if not len(rows):
        raise NeverOwnedError(
            f"no member of group {group_id!r} owned partition {partition} of topic {topic!r}: give "
            f"one up to {last}"
        )
    return rows


def pick_owners_at(history: pa.Table, position: int) -> pa.Table:
    """Return the rows of `assignment_history` of what members owned at a position."""
    until = history["until_position"]
    goes_on = pc.fill_null(pc.greater(until, position), fill_value=True)
    return history.filter(pc.and_(pc.less_equal(history["since_position"], position), goes_on))


def explain_epochs(reading: LogReader, group_id: str) -> list[Row]:
    """Return the epochs of a group, each with the partitions that members gained and lost by it."""
    rows = list_rows(reading, "epochs", group_id)
    begun: dict[int, list[int]] = {}
    for row in rows:
        begun.setdefault(row["group_epoch"], []).append(row["position"])
    got: dict[int, list[Row]] = {}
    lost: dict[int, list[Row]] = {}
    for owned in list_rows(reading, "assignment_history", group_id):
        # The return of a static member moves partitions without an epoch.
        if owned["reason"] != STATIC_RETURN:
            position = _last(begun, owned["assignment_epoch"], owned["since_position"])
            got.setdefault(position, []).append(owned)
        if owned["until"] is not None and owned["until_reason"] != STATIC_RETURN:
            # The end of a member is in the log right before the epoch that it begins, or, in a
            # classic group, in the same record.
            find = _last if owned["revoked"] else _next
            position = find(begun, owned["until_epoch"], owned["until_position"])
            lost.setdefault(position, []).append(owned)
    for row in rows:
        row["got"] = _ranges(got.get(row["position"], []))
        row["lost"] = _ranges(lost.get(row["position"], []))
    return rows


def _last(begun: dict[int, list[int]], epoch: int | None, position: int) -> int:
    """Return where the epoch of a cause began. A group created again restarts at epoch 2."""
    found = begun.get(epoch or 0, ())
    return max((one for one in found if one <= position), default=0)


def _next(begun: dict[int, list[int]], epoch: int | None, position: int) -> int:
    found = begun.get(epoch or 0, ())
    return min((one for one in found if one >= position), default=0)


def _ranges(owned: list[Row]) -> list[Row]:
    """Return what each member owns in some rows, with adjacent ranges merged."""
    spans: dict[str, list[tuple[TopicKey, int, int]]] = {}
    who = {row["member_id"]: {name: row[name] for name in WHO} for row in owned}
    for row in owned:
        key = TopicKey(row["topic"], row["topic_id"])
        end = row["first_partition"] + row["partition_count"]
        spans.setdefault(row["member_id"], []).append((key, row["first_partition"], end))
    return [
        who[member_id]
        | {
            "topic": key.name,
            "topic_id": key.topic_id,
            "first_partition": first,
            "partition_count": end - first,
        }
        for member_id, some in sorted(spans.items())
        for key, first, end in drop_epochs(add_epoch(sorted(some), 0))
    ]


def describe_with_offsets(state: State, config: Config, group_id: str) -> dict[str, Any] | None:
    """Return a group with the fields of Kafka's ConsumerGroupDescribe, in snake case, and more.

    More are each member's state and pending revocations, and the committed offsets; of a group
    that a Kafka cluster coordinates with the lag that was noted last, where one is known.

    Returns
    -------
    dict
        None if the group does not exist and has no offset.
    """
    group, classic = state.groups.get(group_id), state.classic.get(group_id)
    offsets = state.offsets.get(group_id, {})
    if group is None and classic is None and not offsets:
        return None
    described = describe_group(state, config, DescribeGroup(group_id)).response
    assert isinstance(described, GroupDescription)
    response: dict[str, Any] = described.fields()
    if classic is not None:
        response |= _describe_classic(classic)
    elif group is None:  # only offsets: Kafka calls it a simple group
        state_name = GroupState.EMPTY.value
        response |= {"error_code": 0, "error_message": None, "group_state": state_name}
    else:
        for row in response["members"]:
            current = group.members[row["member_id"]].current
            row["member_state"] = current.state.name
            row["pending_revocation"] = {
                "topic_partitions": _partitions(drop_epochs(current.pending))
            }
    lags = find_lags(state, group_id)
    response["offsets"] = [
        {
            "topic_name": topic,
            "partition": partition,
            "offset": record.offset,
            **({} if lags is None else {"lag": lags.get((topic, partition))}),
            "metadata": record.metadata,
            "committed_at": format_time(record.commit_timestamp),
        }
        for (topic, partition), record in sorted(offsets.items())
    ]
    return response


def _describe_classic(group: ClassicGroup) -> dict[str, Any]:
    """Describe a classic group in the words of the others."""
    written = record_of(group)
    return {
        "error_code": 0,
        "error_message": None,
        "group_state": group.state.value,
        "group_epoch": group.generation,
        "assignment_epoch": group.generation,
        "assignor_name": group.assignor,
        "protocol_type": written.protocol_type,
        "protocol_name": written.protocol,
        "leader": written.leader,
        "members": [
            _describe_classic_member(group, one)
            for one in sorted(written.members, key=lambda one: one.member_id)
        ],
    }


def _describe_classic_member(group: ClassicGroup, written: ClassicMemberWritten) -> dict[str, Any]:
    owned = {"topic_partitions": _partitions(group.members[written.member_id].assigned)}
    return {
        "member_id": written.member_id,
        "instance_id": written.instance_id,
        "rack_id": None,
        "member_epoch": group.generation,
        "client_id": written.client_id,
        "client_host": written.client_host,
        "subscribed_topic_names": list(written.subscribed_topic_names),
        "subscribed_topic_regex": "",
        "assignment": owned,
        "target_assignment": owned,
        "member_type": CLASSIC_MEMBER,
        "member_state": MemberState.STABLE.name,
        "pending_revocation": {"topic_partitions": []},
    }


def _partitions(spans: Spans) -> list[dict[str, Any]]:
    return [
        {"topic_id": key.topic_id, "topic_name": key.name, "partitions": partitions}
        for key, partitions in partitions_by(lambda key: key, spans).items()
    ]
