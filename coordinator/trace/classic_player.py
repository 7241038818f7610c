"""Play operations of the classic protocol, and show answers at once or when they come later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coordinator.core.bounded import INT32_MAX
from coordinator.core.classic_events import (
    CONSUMER,
    NAMED_SINCE,
    WAITING,
    JoinGroup,
    JoinGroupResponse,
    Parked,
    SyncGroupResponse,
    is_unnamed_sync,
)
from coordinator.core.events import (
    Answer,
    Result,
)
from coordinator.core.state.groups import State
from coordinator.core.state.records import ClassicGroupWritten, Record
from coordinator.errors import ErrorCode, GroupError
from coordinator.runtime.event_processor import EventProcessor
from coordinator.trace.classic_json import (
    show_error,
    show_group,
    show_leave,
    show_no_group,
    show_parked,
)
from coordinator.trace.fields import TraceError, read_group_ids, show_commit
from coordinator.trace.requests import requests_of

STRICT_DESCRIBE_VERSION = 6
"""The first version in which an unknown group is an error."""


class DrawnIds:
    """The ids for new members: Kafka's are random, and a trace numbers them."""

    def __init__(self) -> None:
        self._drawn = 0

    def next(self) -> tuple[str, str]:
        """Return the next id in a classic and in a consumer group, without drawing it."""
        return f"${self._drawn + 1:03}", f"$c{self._drawn + 1:03}"

    def note_join(self, event: JoinGroup, answer: Answer, *, consumer_group: bool) -> None:
        """Draw an id if a join used one.

        Parameters
        ----------
        consumer_group
            Whether the join was to a live consumer group that takes classic members. It draws an
            id before it checks the request's protocols.
        """
        if event.member_id:
            return
        response = answer.response if isinstance(answer, Result) else None
        taken = response is WAITING or (
            isinstance(response, JoinGroupResponse)
            and response.error_code in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}
        )
        self._drawn += taken or consumer_group


class ClassicPlayer:
    """The ids that were drawn, and the late answers since the last line."""

    def __init__(self) -> None:
        self._ids = DrawnIds()
        self._answered: list[tuple[int, int, Parked]] = []

    def run(
        self, processor: EventProcessor, op: Mapping[str, Any], number: int, now_ms: int
    ) -> tuple[dict[str, Any], list[Record]]:
        """Run an operation, and return its answer and its records.

        Raises
        ------
        TraceError
            The operation is invalid.
        """
        kind, group_id = op["op"], op.get("group", "g")
        if not isinstance(group_id, str):
            raise TraceError(f"group is {group_id!r}: give a group id")
        if kind == "seed_group":
            return {}, [_seed_group(processor, op, now_ms)]
        if type(op.get("version", 0)) is not int:
            raise TraceError(f"version is {op['version']!r}: give a number")
        if kind == "sync_group" and _is_unnamed(op):
            refusal = SyncGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return {"response": show_parked(refusal)}, []
        events = requests_of(op, number, self._ids.next())
        policy = processor.config.kafka.migration_policy
        consumer_group = _takes_classic(processor.state, policy, group_id)
        answers = processor.run(events)
        for event, answer in zip(events, answers, strict=True):
            if isinstance(event, JoinGroup):
                self._ids.note_join(event, answer, consumer_group=consumer_group)
        records = [r for one in answers if isinstance(one, Result) for r in one.records]
        return show_answers(op, answers), records

    def note_answered(self, processor: EventProcessor, now_ms: int) -> None:
        """Collect the answers that waiting joins and syncs have received."""
        found = processor.parked.take_answered()
        self._answered += [(now_ms, number, one) for number, one in found if one is not None]

    def take_answered(self) -> dict[str, Any]:
        """Return the collected answers once, sorted by time and number."""
        found, self._answered = sorted(self._answered, key=lambda one: one[:2]), []
        completed = [
            {"op": number, "at": at, "response": show_parked(answer)}
            for at, number, answer in found
        ]
        return {"completed": completed} if completed else {}


def _seed_group(processor: EventProcessor, op: Mapping[str, Any], now_ms: int) -> Record:
    """Write the record of an Empty group to the log, as if another coordinator had."""
    group_id, generation = op.get("group", "g"), op.get("generation", 0)
    state = processor.state
    if not group_id or any(group_id in m for m in (state.groups, state.classic, state.offsets)):
        raise TraceError(f"group is {group_id!r}: give the id of a group that does not exist")
    if type(generation) is not int or not -INT32_MAX - 1 <= generation <= INT32_MAX:
        raise TraceError(f"generation is {generation!r}: give a 32-bit number")
    record = ClassicGroupWritten(group_id, generation, CONSUMER, state_timestamp=now_ms)
    processor.log.append([record], now_ms)
    processor.load()
    return record


def _is_unnamed(op: Mapping[str, Any]) -> bool:
    """Whether a sync does not name its protocol although it must."""
    return is_unnamed_sync(
        op.get("version", NAMED_SINCE), op.get("protocol_type", CONSUMER), op.get("protocol_name")
    )


def _takes_classic(state: State, policy: str, group_id: str) -> bool:
    """Whether a join would be to a live consumer group that takes classic members."""
    group = state.groups.get(group_id)
    return group is not None and bool(group.members) and policy != "disabled"


def show_answers(op: Mapping[str, Any], answers: list[Answer]) -> dict[str, Any]:
    """Return an operation's answer without its records."""
    kind, first = op["op"], answers[0] if answers else None
    if kind == "describe_groups":
        strict = op.get("version", STRICT_DESCRIBE_VERSION) >= STRICT_DESCRIBE_VERSION
        pairs = zip(read_group_ids(op), answers, strict=True)
        return {"groups": [_described(group_id, one, strict=strict) for group_id, one in pairs]}
    if kind == "delete_groups":
        pairs = zip(read_group_ids(op), answers, strict=True)
        return {"results": {group_id: _code(one).name for group_id, one in pairs}}
    if isinstance(first, GroupError):
        shown = show_error(first.code)
        if kind == "join_group":
            shown["member_id"] = op.get("member_id", "")
        if kind == "leave_group":
            shown["members"] = []
        return {"response": shown}
    found = first.response if first is not None else None
    if found is WAITING:
        return {"waiting": True}
    return _SHOWN[kind](found)


def _described(group_id: str, answer: Answer, *, strict: bool) -> dict[str, Any]:
    if isinstance(answer, GroupError):
        return show_no_group(group_id, answer.code if strict else ErrorCode.NONE)
    return show_group(answer.response)  # type: ignore[arg-type]


def _code(answer: Answer) -> ErrorCode:
    return answer.code if isinstance(answer, GroupError) else ErrorCode.NONE


def _show_list(rows: Any) -> dict[str, Any]:  # noqa: ANN401 - the answer to ListGroups
    names = {"group_id": "group", "group_state": "state", "group_type": "type"}
    return {"groups": [{names.get(key, key): row[key] for key in row} for row in rows]}


def _show_fetch(found: Any) -> dict[str, Any]:  # noqa: ANN401 - the answer to OffsetFetch
    offsets = {
        topic: {str(p): -1 if one is None else one.offset for p, one in partitions.items()}
        for topic, partitions in found.items()
    }
    return {"response": {**show_error(ErrorCode.NONE), "offsets": offsets}}


_SHOWN: dict[str, Callable[[Any], dict[str, Any]]] = {
    "join_group": lambda found: {"response": show_parked(found)},
    "sync_group": lambda found: {"response": show_parked(found)},
    "heartbeat_classic": lambda code: {"response": show_error(code)},
    "leave_group": lambda found: {"response": show_leave(found)},
    "list_groups": _show_list,
    "offset_commit": show_commit,
    "offset_fetch": _show_fetch,
}
