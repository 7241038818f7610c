"""Play operations as JSON lines (docs/reference/formats.md#trace-operations); time is virtual.

It converts operations to events and results to Kafka's JSON, and moves the clock of a virtual
coordinator.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from coordinator.config import Config, ConfigError, LeaseConfig
from coordinator.core.events import (
    HEARTBEAT,
    JOIN_PHASE,
    SESSION,
    SYNC_PHASE,
    ConfigureGroup,
    DeleteGroup,
    DescribeGroup,
    Event,
    Heartbeat,
    OffsetCommit,
    Result,
)
from coordinator.core.state.partition_spans import kafka_id, make_id
from coordinator.core.state.records import MembersAdvanced
from coordinator.errors import ErrorCode, GroupError
from coordinator.kafka_config import kafka_config
from coordinator.runtime import responses
from coordinator.runtime.event_processor import EventProcessor, Fired
from coordinator.runtime.responses import HeartbeatAnswer
from coordinator.runtime.timers import EXPIRE
from coordinator.storage.record_log import MemoryLog, RecordLog
from coordinator.trace.classic_player import ClassicPlayer
from coordinator.trace.fields import (
    TraceError,
    or_default,
    read_names,
    read_object,
    read_offsets,
    show_commit,
)
from coordinator.trace.kafka_json import record_json, select_kafka_records, to_camel_case
from coordinator.trace.player import Player
from coordinator.trace.requests import CLASSIC_FIELDS

CLASSIC_SETTINGS = frozenset(
    {"group.max.size", "group.initial.rebalance.delay.ms", "group.consumer.migration.policy"}
)
TRACE_ASSIGNORS = "uniform,range"
"""Kafka's assignors, in Kafka's order. A trace that uses others configures them."""

OPERATIONS: dict[str, frozenset[str]] = {
    "config": frozenset({"now", "props", "auto_tasks"}),
    "topics": frozenset({"set", "ids", "delete"}),
    "heartbeat": frozenset(
        {
            *("group", "member", "epoch", "instance_id", "rack", "rebalance_timeout_ms"),
            *("subscribed", "regex", "server_assignor", "owned", "version"),
        }
    ),
    "commit": frozenset({"group", "member", "epoch", "offsets"}),
    "advance": frozenset({"ms"}),
    "describe": frozenset({"group"}),
    "delete_group": frozenset({"group"}),
    "group_config": frozenset({"group", "props"}),
    "reload": frozenset(),
    "timers": frozenset(),
    "log": frozenset(),
    **CLASSIC_FIELDS,
}
"""The fields of each operation; `op`, `id`, `why`, `advance_ms` and `answer` go with any."""
ANY = frozenset({"op", "id", "why", "advance_ms"})
ADVANCE_MAX_MS = 366 * 86_400_000
"""How far one operation may move the clock; the timers on the way fire one by one."""
END_OF_TIME_MS = 253_402_300_799_999
"""The year 9999."""
PARTITIONS_MAX = 1_000_000


class JsonTrace:
    """One coordinator on a virtual clock.

    Parameters
    ----------
    open_log
        Opens the log: anew (True) at each `config`, the same one again (False) at each `reload`.
    records
        Whether answers include the records that were written.
    """

    def __init__(
        self,
        open_log: Callable[[Config, bool], RecordLog] | None = None,
        *,
        records: bool = False,
        config: Config | None = None,
    ) -> None:
        self._memory: MemoryLog | None = None
        self._open_log = open_log or self._open_memory
        self._records = records
        self._base = config or Config()
        self._auto_tasks = True
        self._world: Player | None = None
        self._number = 0
        """The number of the operation, counted from `config`."""
        self._numbered = False
        """Whether answers include the number: in the classic protocol, where joins wait."""
        self._classic = ClassicPlayer()

    def close(self) -> None:
        """Close the log."""
        if self._world is not None:
            self._world.processor.log.close()

    def run(self, op: Mapping[str, Any]) -> dict[str, Any]:
        """Run one operation and return its answer.

        Raises
        ------
        TraceError
            It is not a valid operation, or it comes before `config`.
        """
        _check_values(op)
        kind = op.get("op", "heartbeat")
        if not isinstance(kind, str) or kind not in OPERATIONS:
            raise TraceError(f"unknown op {kind!r}: the operations are {', '.join(OPERATIONS)}")
        unknown = op.keys() - OPERATIONS[kind] - ANY
        if unknown:
            fields = ", ".join(sorted(OPERATIONS[kind] | ANY))
            raise TraceError(f"{kind} has {min(unknown)!r}: its fields are {fields}")
        if kind == "config":
            return self._config(op) | self._told_number()
        if self._world is None:
            self._config({})
        self._number += 1
        fired = self._move_clock(_read_integer(op, "advance_ms", 0)) if "advance_ms" in op else []
        if kind in CLASSIC_FIELDS:
            self._numbered = True
            answer = self._run_classic(op)
        else:
            answer = getattr(self, f"_{kind}")(op)
        if kind == "advance":
            fired += answer.pop("fired")
        if self._auto_tasks:
            self._begun.do_tasks()
        wrote = [self._timer_json(one) for one in fired if one.records]
        if wrote:
            answer["timers"] = wrote
        self._classic.note_answered(self._running, self._now)
        return {"now": self._now, **self._told_number(), **answer, **self._classic.take_answered()}

    # One method an operation ---------------------------------------------------------------------

    def _config(self, op: Mapping[str, Any]) -> dict[str, Any]:
        props = {"group.consumer.assignors": TRACE_ASSIGNORS, **read_object(op, "props")}
        try:
            # No other coordinator has confirmed heartbeats: after a reload, timers run as Kafka's.
            config = replace(self._base, kafka=kafka_config(props), lease=LeaseConfig(check_ms=0))
        except ConfigError as error:
            raise TraceError(f"config: {error}") from None
        now = _check_time(_read_integer(op, "now", self._world.now if self._world else 0))
        self._auto_tasks = bool(op.get("auto_tasks", True))
        self.close()
        self._number, self._classic = 0, ClassicPlayer()
        self._numbered = "why" in op or bool(CLASSIC_SETTINGS & props.keys())
        world = Player(config, now=now)
        world.take_over(self._open_log(config, True))
        self._world = world
        return {"now": now}

    def _topics(self, op: Mapping[str, Any]) -> dict[str, Any]:
        ids, gone = read_object(op, "ids"), read_names(op, "delete", "topics")
        for name, partitions in read_object(op, "set").items():
            if isinstance(partitions, int) and partitions > PARTITIONS_MAX:
                raise TraceError(
                    f"topic {name!r} has {partitions} partitions: give at most {PARTITIONS_MAX}, "
                    f"because a trace lists each of them"
                )
            try:
                self._begun.catalog.set(name, partitions, ids.get(name))
            except ConfigError as error:
                raise TraceError(f"topics: {error}") from None
        for name in gone:
            self._begun.catalog.delete(name)
        self._running.see_topics()
        shown = {
            name: {"id": seen.topic_id, "partitions": seen.partitions}
            for name, seen in sorted(self._begun.catalog.topics().items())
        }
        return {"topics": shown} if shown else {}

    def _heartbeat(self, op: Mapping[str, Any]) -> dict[str, Any]:
        fields = {
            "group_id": op.get("group", "g"),
            "member_id": op.get("member", ""),
            "member_epoch": op.get("epoch"),
            "instance_id": op.get("instance_id"),
            "rack_id": op.get("rack"),
            "rebalance_timeout_ms": or_default(op.get("rebalance_timeout_ms"), -1),
            "subscribed_topic_names": op.get("subscribed"),
            "subscribed_topic_regex": op.get("regex"),
            "server_assignor": op.get("server_assignor"),
            "topic_partitions": self._by_id(op.get("owned")),
            "by_topic_id": True,
            "client_id": "client",
            "client_host": "localhost/127.0.0.1",
        }
        answer, records = self._ask(Heartbeat, fields)
        return {"response": _heartbeat_json(responses.heartbeat_answer(answer)), **records}

    def _commit(self, op: Mapping[str, Any]) -> dict[str, Any]:
        try:
            offsets = read_offsets(op)
        except TraceError as error:
            raise TraceError(f"commit: {error}") from None
        fields = {
            "group_id": op.get("group", "g"),
            "member_id": op.get("member", ""),
            "member_epoch": op.get("epoch"),
            "offsets": offsets,
        }
        answer, records = self._ask(OffsetCommit, fields)
        if isinstance(answer, GroupError):
            return {"response": _error_json(answer)}
        return {**show_commit(answer.response), **records}  # type: ignore[arg-type]

    def _advance(self, op: Mapping[str, Any]) -> dict[str, Any]:
        return {"fired": self._move_clock(_read_integer(op, "ms", 0))}

    def _move_clock(self, ms: int) -> list[Fired]:
        """Move the clock, and fire each timer at its own time."""
        if ms < 0:
            raise TraceError(f"the clock cannot go back by {-ms} ms: give 0 or more")
        if ms > ADVANCE_MAX_MS:
            raise TraceError(
                f"the clock cannot move {ms} ms at once: give {ADVANCE_MAX_MS} or less"
            )
        end = _check_time(self._now + ms)
        fired: list[Fired] = []
        for some in self._begun.pass_until(end):
            fired += some
            self._classic.note_answered(self._running, self._now)
            if self._auto_tasks:
                self._begun.do_tasks()
        return fired

    def _describe(self, op: Mapping[str, Any]) -> dict[str, Any]:
        (answer,) = self._running.run([DescribeGroup(op.get("group", "g"))])
        if isinstance(answer, GroupError):
            return {"response": _error_json(answer)}
        described: Any = answer.response
        return {"group": to_camel_case(described.fields())}

    def _delete_group(self, op: Mapping[str, Any]) -> dict[str, Any]:
        answer, records = self._ask(DeleteGroup, {"group_id": op.get("group", "g")})
        code = answer.code if isinstance(answer, GroupError) else ErrorCode.NONE
        return {"error": code.name, **records}

    def _group_config(self, op: Mapping[str, Any]) -> dict[str, Any]:
        fields = {
            "group_id": op.get("group", "g"),
            "settings": {name: str(value) for name, value in read_object(op, "props").items()},
        }
        answer, _ = self._ask(ConfigureGroup, fields)
        return {"response": _error_json(answer)} if isinstance(answer, GroupError) else {}

    def _reload(self, _op: Mapping[str, Any]) -> dict[str, Any]:
        """Fail over: another coordinator claims the log and replays it."""
        self._running.log.close()
        self._running.parked.release()
        self._classic.note_answered(self._running, self._now)
        self._begun.take_over(self._open_log(self._running.config, False))
        return {}

    def _log(self, _op: Mapping[str, Any]) -> dict[str, Any]:
        """Return the records of the log, without those that only advance epochs."""
        records = [one for batch in list(self._running.log.replay()) for one in batch.records]
        alone = select_kafka_records(r for r in records if not isinstance(r, MembersAdvanced))
        return {"log": [record_json(one, self._running.state) for one in alone]}

    def _run_classic(self, op: Mapping[str, Any]) -> dict[str, Any]:
        """Run an operation of the classic protocol."""
        try:
            answer, records = self._classic.run(self._running, op, self._number, self._now)
        except TraceError as error:
            raise TraceError(f"{op['op']}: {error}") from None
        return {**answer, **self._records_json(records)}

    def _timers(self, _op: Mapping[str, Any]) -> dict[str, Any]:
        pending = [
            {"at": due.at_ms, "timer": _timer_name(*due.key)} for due in self._running.timers.all()
        ]
        return {"pending": pending}

    # Helpers -------------------------------------------------------------------------------------

    def _by_id(self, owned: object) -> object:
        """Replace topic names by the topics' current ids, as clients report partitions."""
        if not isinstance(owned, Mapping):
            return owned
        topics = self._begun.catalog.topics()
        return {
            kafka_id(topics[name].topic_id if name in topics else make_id(name)): partitions
            for name, partitions in owned.items()
        }

    @property
    def _begun(self) -> Player:
        assert self._world is not None
        return self._world

    @property
    def _running(self) -> EventProcessor:
        return self._begun.processor

    @property
    def _now(self) -> int:
        return self._begun.now

    def _open_memory(self, _config: Config, anew: bool) -> RecordLog:  # noqa: FBT001 - a callback
        storage = self._memory.storage if self._memory and not anew else None
        self._memory = MemoryLog(storage)
        return self._memory

    def _ask(
        self, kind: Callable[..., Event], fields: Mapping[str, object]
    ) -> tuple[Result | GroupError, dict[str, Any]]:
        """Run one request; return its answer, and its records if they are to be shown."""
        (answer,) = self._running.run([kind(**fields)])
        return answer, self._records_json(answer.records if isinstance(answer, Result) else [])

    def _records_json(self, records: Iterable[Any]) -> dict[str, Any]:
        if not self._records:
            return {}
        found = [record_json(r, self._running.state) for r in select_kafka_records(records)]
        return {"records": found} if found else {}

    def _told_number(self) -> dict[str, int]:
        return {"n": self._number} if self._numbered else {}

    def _timer_json(self, one: Fired) -> dict[str, Any]:
        shown = [record_json(r, self._running.state) for r in select_kafka_records(one.records)]
        return {"at": one.due.at_ms, "timer": _timer_name(*one.due.key), "records": shown}


def run_lines(lines: Iterable[str], trace: JsonTrace) -> Iterator[dict[str, Any]]:
    """Run operations given as JSON lines. Of a line {"op": {…}, "answer": …} the `op` is run.

    Raises
    ------
    TraceError
        A line is not JSON, or not a valid operation. The message has the line's number.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            op = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"line {number}: not JSON: {error}") from None
        if isinstance(op, dict) and isinstance(op.get("op"), dict):
            op = op["op"]
        if not isinstance(op, dict):
            raise TraceError(f"line {number}: give one operation per line, as an object")
        try:
            yield trace.run(op)
        except TraceError as error:
            raise TraceError(f"line {number}: {error}") from None


def _heartbeat_json(answer: HeartbeatAnswer) -> dict[str, Any]:
    error = {
        "error": answer.error,
        "error_code": answer.error_code,
        "error_message": answer.error_message,
    }
    if answer.error_code != 0:
        return error
    return {
        "member_id": answer.member_id,
        "member_epoch": answer.member_epoch,
        "heartbeat_interval_ms": answer.heartbeat_interval_ms,
        "assignment": answer.assignment,
        **error,
    }


def _error_json(error: GroupError) -> dict[str, Any]:
    return {"error": error.code.name, "error_code": int(error.code), "error_message": error.message}


def _timer_name(kind: str, group_id: str, member_id: str) -> str:
    if kind == EXPIRE:
        return EXPIRE
    if kind in {HEARTBEAT, JOIN_PHASE, SYNC_PHASE}:
        return "-".join([kind, group_id, *([member_id] if member_id else [])])
    return f"{'session' if kind == SESSION else 'rebalance'}-timeout-{group_id}-{member_id}"


def _read_integer(op: Mapping[str, Any], name: str, default: int) -> int:
    value = or_default(op.get(name), default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TraceError(f"{name} is {value!r}: give a whole number of ms")
    return value


def _check_time(ms: int) -> int:
    if not 0 <= ms <= END_OF_TIME_MS:
        raise TraceError(f"the clock would be at {ms} ms: give 0 to {END_OF_TIME_MS}")
    return ms


def _check_values(op: Mapping[str, Any]) -> None:
    """Refuse values that an answer cannot repeat: numbers beyond 64 bits, invalid Unicode."""
    try:
        msgspec.json.encode(op)
    except (UnicodeEncodeError, OverflowError, TypeError, RecursionError) as error:
        raise TraceError(f"a value cannot be written: {error}") from None
