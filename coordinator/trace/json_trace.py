"""Play operations as JSON lines (docs/reference/formats.md#trace-operations); time is virtual.

It reads operations for the player, and shows what came of them as Kafka's JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from coordinator.config import Config, ConfigError, LeaseConfig
from coordinator.config.kafka import kafka_config
from coordinator.core.bounded import INT32_MAX
from coordinator.core.classic_events import CONSUMER
from coordinator.core.events import HEARTBEAT, JOIN_PHASE, SESSION, SYNC_PHASE, Result
from coordinator.core.state.records import ClassicGroupWritten, MembersAdvanced, Record
from coordinator.runtime.event_processor import Fired
from coordinator.runtime.timers import EXPIRE
from coordinator.trace import requests
from coordinator.trace.classic_json import show_parked
from coordinator.trace.fields import TraceError, or_default, read_names, read_object
from coordinator.trace.kafka_json import record_json, select_kafka_records
from coordinator.trace.player import OpenLog, Player
from coordinator.trace.requests import REQUESTS, Op, read_requests

CLASSIC_SETTINGS = frozenset(
    {"group.max.size", "group.initial.rebalance.delay.ms", "group.consumer.migration.policy"}
)
TRACE_ASSIGNORS = "uniform,range"
"""Kafka's assignors, in Kafka's order. A trace that uses others configures them."""

OPERATIONS: dict[str, frozenset[str]] = {
    name: frozenset(fields.split())
    for name, fields in {
        "config": "now props auto_tasks",
        "topics": "set ids delete",
        "advance": "ms",
        "reload": "",
        "timers": "",
        "log": "",
        "seed_group": "group generation",
        **{name: request.fields for name, request in REQUESTS.items()},
    }.items()
}
"""The fields of each operation; `op`, `id`, `why`, `advance_ms` and `answer` go with any."""
ANY = frozenset({"op", "id", "why", "advance_ms"})
ADVANCE_MAX_MS = 366 * 86_400_000
"""How far one operation may move the clock; the timers on the way fire one by one."""
END_OF_TIME_MS = 253_402_300_799_999
"""The year 9999."""
PARTITIONS_MAX = 1_000_000


class JsonTrace:
    """Operations of one script, and their answers.

    Parameters
    ----------
    open_log
        Opens the log: a new one (True) at each `config`, the same again (False) at each `reload`.
    records
        Whether answers include the records that were written.
    config
        The settings that `config` does not give.

    Attributes
    ----------
    player
        The coordinator, once the first operation has run.
    """

    def __init__(
        self,
        open_log: OpenLog | None = None,
        *,
        records: bool = False,
        config: Config | None = None,
    ) -> None:
        self.player = Player(open_log)
        self._records = records
        self._base = config or Config()
        self._number = -1
        """The number of the operation; `config` is 0."""
        self._numbered = False
        """Whether answers include the number: in the classic protocol, where joins wait."""

    def close(self) -> None:
        """Close the log."""
        self.player.close()

    def run(self, op: Op) -> dict[str, Any]:
        """Run one operation and return its answer.

        Raises
        ------
        TraceError
            It is not a valid operation.
        """
        _check_values(op)
        kind = op.get("op", requests.HEARTBEAT)
        if not isinstance(kind, str) or kind not in OPERATIONS:
            raise TraceError(f"unknown op {kind!r}: the operations are {', '.join(OPERATIONS)}")
        unknown = op.keys() - OPERATIONS[kind] - ANY
        if unknown:
            fields = ", ".join(sorted(OPERATIONS[kind] | ANY))
            raise TraceError(f"{kind} has {min(unknown)!r}: its fields are {fields}")
        if self._number < 0 and kind != "config":
            self._config({})
        try:
            return self._run(kind, op)
        except (TraceError, ConfigError) as error:
            raise TraceError(f"{kind}: {error}") from None

    def _run(self, kind: str, op: Op) -> dict[str, Any]:
        if kind == "config":
            return self._config(op) | self._show_number()
        self._number += 1
        fired = self._move_clock(op, "advance_ms") if "advance_ms" in op else []
        if kind == "advance":
            answer: dict[str, Any] = {}
            fired += self._move_clock(op, "ms")
        elif kind in REQUESTS:
            answer = self._send(REQUESTS[kind], op)
        else:
            answer = getattr(self, f"_{kind}")(op)
        self.player.finish()
        wrote = [self._show_timer(one) for one in fired if one.records]
        if wrote:
            answer["timers"] = wrote
        return {"now": self.player.now, **self._show_number(), **answer, **self._show_completed()}

    # One method an operation ---------------------------------------------------------------------

    def _config(self, op: Op) -> dict[str, Any]:
        props = {"group.consumer.assignors": TRACE_ASSIGNORS, **read_object(op, "props")}
        # No other coordinator has confirmed heartbeats: after a reload, timers run as Kafka's.
        config = replace(self._base, kafka=kafka_config(props), lease=LeaseConfig(check_ms=0))
        known = self.player.now if self._number >= 0 else 0
        now = _check_time(_read_integer(op, "now", known))
        self.player.begin(config, now=now)
        self.player.tasks_wait = not op.get("auto_tasks", True)
        self._number = 0
        self._numbered = "why" in op or bool(CLASSIC_SETTINGS & props.keys())
        return {"now": now}

    def _topics(self, op: Op) -> dict[str, Any]:
        counts, ids = read_object(op, "set"), read_object(op, "ids")
        for name, partitions in counts.items():
            if isinstance(partitions, int) and partitions > PARTITIONS_MAX:
                raise TraceError(
                    f"topic {name!r} has {partitions} partitions: give at most {PARTITIONS_MAX}, "
                    f"because a trace lists each of them"
                )
        self.player.change_topics(counts, ids, read_names(op, "delete", "topics"))
        shown = {
            name: {"id": seen.topic_id, "partitions": seen.partitions}
            for name, seen in sorted(self.player.catalog.topics().items())
        }
        return {"topics": shown} if shown else {}

    def _send(self, request: requests.Request, op: Op) -> dict[str, Any]:
        self._numbered |= request.classic
        answers = self.player.send(read_requests(op, self.player, self._number))
        records = [r for one in answers if isinstance(one, Result) for r in one.records]
        return {**request.show(op, answers), **self._show_records(records)}

    def _move_clock(self, op: Op, field: str) -> list[Fired]:
        """Move the clock, and fire each timer at its own time."""
        ms = _read_integer(op, field, 0)
        if ms < 0:
            raise TraceError(f"the clock cannot go back by {-ms} ms: give 0 or more")
        if ms > ADVANCE_MAX_MS:
            raise TraceError(
                f"the clock cannot move {ms} ms at once: give {ADVANCE_MAX_MS} or less"
            )
        _check_time(self.player.now + ms)
        return self.player.advance(ms)

    def _reload(self, _op: Op) -> dict[str, Any]:
        self.player.reload()
        return {}

    def _log(self, _op: Op) -> dict[str, Any]:
        """Return the records of the log, without those that only advance epochs."""
        log = self.player.processor.log
        records = [one for batch in list(log.replay()) for one in batch.records]
        alone = select_kafka_records(r for r in records if not isinstance(r, MembersAdvanced))
        return {"log": self._all_json(alone)}

    def _timers(self, _op: Op) -> dict[str, Any]:
        due = self.player.processor.timers.all()
        return {"pending": [{"at": one.at_ms, "timer": _timer_name(*one.key)} for one in due]}

    def _seed_group(self, op: Op) -> dict[str, Any]:
        """Write the record of an Empty group to the log, as if another coordinator had."""
        self._numbered = True
        group_id, generation = op.get("group", "g"), op.get("generation", 0)
        state = self.player.processor.state
        known = (state.groups, state.classic, state.offsets)
        if not isinstance(group_id, str) or not group_id or any(group_id in one for one in known):
            raise TraceError(f"group is {group_id!r}: give the id of a group that does not exist")
        if type(generation) is not int or not -INT32_MAX - 1 <= generation <= INT32_MAX:
            raise TraceError(f"generation is {generation!r}: give a 32-bit number")
        now = self.player.now
        record = ClassicGroupWritten(group_id, generation, CONSUMER, state_timestamp=now)
        self.player.seed(record)
        return self._show_records([record])

    # Showing -------------------------------------------------------------------------------------

    def _show_number(self) -> dict[str, int]:
        return {"n": self._number} if self._numbered else {}

    def _show_completed(self) -> dict[str, Any]:
        """Return what earlier joins and syncs were answered meanwhile."""
        completed = [
            {"op": number, "at": at, "response": show_parked(answer)}
            for at, number, answer in self.player.take_answered()
        ]
        return {"completed": completed} if completed else {}

    def _show_records(self, records: Iterable[Record]) -> dict[str, Any]:
        found = self._all_json(select_kafka_records(records)) if self._records else []
        return {"records": found} if found else {}

    def _show_timer(self, one: Fired) -> dict[str, Any]:
        shown = self._all_json(select_kafka_records(one.records))
        return {"at": one.due.at_ms, "timer": _timer_name(*one.due.key), "records": shown}

    def _all_json(self, records: Iterable[Record]) -> list[dict[str, Any]]:
        return [record_json(one, self.player.processor.state) for one in records]


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
