"""Check that a request has the right types, before its values are read."""

from __future__ import annotations

from itertools import chain
from typing import get_args

import msgspec
import pyarrow as pa

from coordinator.core.bounded import INT32_MAX, TEXT_MAX
from coordinator.core.classic_events import (
    ClassicHeartbeat,
    DescribeClassicGroup,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from coordinator.core.events import (
    AlterConfig,
    ConfigureGroup,
    DecidePlan,
    DeleteGroup,
    DescribeConfig,
    DescribeGroup,
    Event,
    Heartbeat,
    InstallAssignment,
    ListGroupIds,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    PrepareAssignment,
    TxnOffsetCommit,
)
from coordinator.core.state.partition_spans import MANY
from coordinator.core.state.records import PlanMade
from coordinator.errors import ErrorCode, GroupError

REQUESTS = (
    Heartbeat,
    OffsetCommit,
    OffsetFetch,
    OffsetDelete,
    DescribeGroup,
    ListGroups,
    ListGroupIds,
    DeleteGroup,
    ConfigureGroup,
    AlterConfig,
    DescribeConfig,
    PrepareAssignment,
    JoinGroup,
    SyncGroup,
    ClassicHeartbeat,
    LeaveGroup,
    DescribeClassicGroup,
)
NAMES_MAX = 100_000
"""Names that a member may subscribe to: others wait while they are looked at and written."""


def _encode(value: object) -> None:
    """Pass over what finds topics: it is the shell's, and is not written."""
    if not callable(value):
        raise TypeError(f"a {type(value).__name__} cannot be written")


_JSON = msgspec.json.Encoder(enc_hook=_encode)


def check_types(event: Event) -> None:
    """Refuse a request with a field of another type, out of bounds, or of no valid Unicode.

    Raises
    ------
    GroupError
        INVALID_REQUEST; the message names the field.
    """
    if isinstance(event, TxnOffsetCommit):
        event = event.commit
    try:
        if isinstance(event, REQUESTS):
            if isinstance(event, Heartbeat):
                _refuse_many(event)
                if _owns_right_types(event):
                    event = msgspec.structs.replace(event, topic_partitions=None)
            msgspec.convert(msgspec.structs.asdict(event), type(event))
            _JSON.encode(event)
        elif isinstance(event, InstallAssignment):
            _check_install(event)
        elif isinstance(event, DecidePlan):
            _check_plan(event)
        elif not isinstance(event, get_args(Event)):
            raise GroupError(
                ErrorCode.INVALID_REQUEST,
                f"{type(event).__name__} is not a request: give a Heartbeat or another event of "
                "events.py.",
            )
    except msgspec.ValidationError as error:
        raise GroupError(ErrorCode.INVALID_REQUEST, f"The request is refused: {error}.") from None
    except (UnicodeEncodeError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise GroupError(
            ErrorCode.INVALID_REQUEST,
            f"The request is refused because it cannot be written: {error}.",
        ) from None


def _owns_right_types(event: Heartbeat) -> bool:
    """Whether what very many topics are owned of has the right types; else `convert` names it.

    It would make a list of each.
    """
    owned = event.topic_partitions
    if type(owned) is not dict or len(owned) < MANY:
        return False
    if set(map(type, owned)) != {str} or not set(map(type, owned.values())) <= {list, tuple}:
        return False
    numbers = list(chain.from_iterable(owned.values()))
    if set(map(type, numbers)) != {int} or max(map(len, owned)) > TEXT_MAX:
        return False
    "".join(owned).encode()
    return bool(0 <= min(numbers) <= max(numbers) <= INT32_MAX)


def _refuse_many(event: Heartbeat) -> None:
    names = event.subscribed_topic_names
    if names is not None and len(names) > NAMES_MAX:
        raise GroupError(
            ErrorCode.INVALID_REQUEST,
            f"subscribed_topic_names has {len(names)} names, at most {NAMES_MAX} are allowed: "
            "subscribe by subscribed_topic_regex.",
        )


def _check_plan(event: DecidePlan) -> None:
    for name in ("action", "group_id", "plan_id", "by", "reason", "request_id"):
        value = getattr(event, name)
        if not isinstance(value, str) or len(value) > TEXT_MAX:
            raise GroupError(
                ErrorCode.INVALID_REQUEST,
                f"{name} is not a text of at most {TEXT_MAX} characters: give one.",
            )
        value.encode()
    if event.plan is not None and not isinstance(event.plan, PlanMade):
        raise GroupError(
            ErrorCode.INVALID_REQUEST,
            f"plan is {type(event.plan).__name__}: give the result of `plan`.",
        )


def _check_install(event: InstallAssignment) -> None:
    if not isinstance(event.ranges, pa.Table):
        raise GroupError(
            ErrorCode.INVALID_REQUEST,
            f"ranges is {type(event.ranges).__name__}: give an Arrow table with member_id, topic, "
            "first_partition, partition_count.",
        )
    texts = {"group_id": str, "computation_id": str, "assignor": str, "group_epoch": int}
    for name, kind in texts.items():
        if not isinstance(getattr(event, name), kind):
            raise GroupError(
                ErrorCode.INVALID_REQUEST,
                f"{name} is not of type {kind.__name__}: give one that is.",
            )
