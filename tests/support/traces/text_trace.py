"""Plays the commands of tests/traces/*.txt and tells what happened; README.md there has the syntax.

The coordinator is the real event processor over a log in memory, on a clock that stands still until
a command says otherwise. A member is what a client remembers: its epoch and what it may use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from coordinator.config import Config, EngineConfig, LeaseConfig
from coordinator.config.kafka import kafka_config
from coordinator.core.events import (
    JOIN,
    LEAVE,
    LEAVE_FOR_A_WHILE,
    Answer,
    ConfigureGroup,
    DeleteGroup,
    DescribeGroup,
    Event,
    ExpireOffsets,
    Heartbeat,
    HeartbeatResponse,
    InstallAssignment,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    PrepareAssignment,
    Result,
    TargetLost,
    TimerFired,
    TopicsReported,
)
from coordinator.core.group_admin import GroupDescription
from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import drop_epochs
from coordinator.core.state.state_records import records_of
from coordinator.core.state.target_assignment import StoredTarget, WholeTarget
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.errors import GroupError
from coordinator.runtime.timers import EXPIRE
from coordinator.storage.record_log import RecordLog
from coordinator.trace.player import Player
from tests.support import invariants
from tests.support.fingerprint import fingerprint
from tests.support.traces.answers import described, offsets, prepared
from tests.support.traces.client import Client
from tests.support.traces.event_history import AT_ONCE, CHECK, ENGINE
from tests.support.traces.text import (
    duration,
    milliseconds,
    record_text,
    spans_text,
    task_text,
    timer_text,
    topic_names,
)
from tests.support.traces.words import FIELDS, by_member, partitions, table, values
from tests.support.watched_processor import OneByOne

ROUNDS = 60
BEGIN_MS = 1_000_000
SILENT = {"config", "tasks", "die", "hold"}
"""Commands that change nothing in the coordinator."""


class TextTrace(Player):
    """The commands of one script, and the clients of its groups."""

    processor: OneByOne

    def __init__(self) -> None:
        super().__init__()
        self._begin({})

    def play(self, command: str) -> list[str]:
        """Do one command and return what happened, a line each."""
        name, *words = command.replace(",", " ").split()
        method = getattr(self, f"_do_{name.replace('-', '_')}", None)
        if method is None:
            known = sorted(n[4:].replace("_", "-") for n in dir(self) if n.startswith("_do_"))
            raise ValueError(f"{command!r} is no command: the commands are {', '.join(known)}")
        self._lines = []
        self._own = True  # the first event is the command's own: it needs no headline
        method(words)
        self.finish()
        return self._lines or ["ok" if name in SILENT else "nothing changes"]

    @property
    def state(self) -> State:
        """What the coordinator has in memory."""
        return self.processor.state

    # The world -----------------------------------------------------------------------------------

    def _begin(self, settings: dict[str, str]) -> None:
        lease = LeaseConfig(check_ms=int(settings.pop(CHECK, 0)))
        engine = EngineConfig(timeout_ms=int(settings.pop(ENGINE, 600_000)))
        config = Config(kafka=kafka_config(AT_ONCE | settings), lease=lease, engine=engine)
        self._clients: dict[tuple[str, str], Client] = {}
        self._lines: list[str] = []
        self._states: dict[tuple[str, ...], str] = {}
        self._timers: dict[Any, int] = {}
        self.begin(config, now=BEGIN_MS)

    def make_processor(self, log: RecordLog) -> OneByOne:
        """Return one that tells what happens, event by event."""
        processor = OneByOne(log, self.config, lambda: self.now, self.catalog)
        processor.watch = self._happened
        return processor

    def _do_config(self, words: list[str]) -> None:
        """Start over with these settings of the coordinator, under Kafka's names."""
        self._begin(values(words))

    def _do_topics(self, words: list[str]) -> None:
        found = {name: value.partition(":") for name, value in values(words).items()}
        counts = {name: int(count) for name, (count, _, _) in found.items()}
        self.change_topics(counts, {name: new_id or None for name, (_, _, new_id) in found.items()})

    def _do_delete_topics(self, words: list[str]) -> None:
        self.change_topics({}, {}, words)

    def _do_load(self, words: list[str]) -> None:
        """Another coordinator takes over: it claims the log and replays it."""
        if words == ["from", "snapshot"]:
            kept = list(records_of(self.state))
            self.processor.log.snapshot(kept, self.processor.position, self.now)
        before = invariants.as_loaded(fingerprint(self.state))
        self._own, self._timers = False, {}
        self.reload()
        self._tell_states()
        after = invariants.as_loaded(fingerprint(self.state))
        assert after == before, "the log says something else"
        log = self.processor.log
        self._say(
            "load", f"coordinator epoch {log.epoch}, up to position {self.processor.position}"
        )
        self._tell_timers(())

    def _do_advance(self, words: list[str]) -> None:
        """Let time pass; no member beats, timers fire each at its instant."""
        self._own = False
        self.advance(milliseconds(words[0]))

    def _do_live(self, words: list[str]) -> None:
        """Let time pass while clients beat, as often as the answers say."""
        self._own = False
        end = self.now + milliseconds(words[0])
        while self.now < end:
            beats = [c.interval_ms for c in self._clients.values()] or [5_000]
            self.advance(min(end - self.now, *beats))
            for key in list(self._clients):
                self._beat_as_client(*key)

    def _do_tasks(self, words: list[str]) -> None:
        """Do the background work: `now`, or only when it is asked for (`later`)."""
        self.tasks_wait = words == ["later"]

    def do_tasks(self) -> bool:
        """As of any player; what it brings about is not the command's own."""
        self._own = False
        return super().do_tasks()

    # Members -------------------------------------------------------------------------------------

    def _do_join(self, words: list[str]) -> None:
        group, member, *rest = words
        fields, names, _ = self._fields(rest, "subscribes")
        fields = {"rebalance_timeout_ms": 60_000, "topic_partitions": {}, **fields}
        if names or "subscribed_topic_regex" not in fields:
            fields["subscribed_topic_names"] = names
        fields["member_epoch"] = JOIN
        self._heartbeat(group, member, fields)

    def _do_beat(self, words: list[str]) -> None:
        group, member, *rest = words
        fields, names, owned = self._fields(rest, "")
        if names is not None:
            fields["subscribed_topic_names"] = names
        if owned is not None:
            fields |= {"topic_partitions": owned, "by_topic_id": True}
        self._heartbeat(group, member, fields)

    def _do_leave(self, words: list[str]) -> None:
        group, member, *rest = words
        epoch = LEAVE_FOR_A_WHILE if rest[:3] == ["for", "a", "while"] else LEAVE
        instance = self._client(group, member).instance
        fields = {"member_epoch": epoch, "instance_id": instance}
        fields |= self._fields(rest[3:] if epoch == LEAVE_FOR_A_WHILE else rest, "")[0]
        self._heartbeat(group, member, fields)

    def _do_die(self, words: list[str]) -> None:
        """The process is gone without a word."""
        del self._clients[words[0], words[1]]

    def _do_hold(self, words: list[str]) -> None:
        """Let the client keep using what it must give up."""
        self._client(*words).holds = True

    def _do_settle(self, words: list[str]) -> None:
        """Clients beat, one after the other, until a round changes nothing."""
        self._own = False
        for _ in range(ROUNDS):
            before = self.processor.position
            for key in [key for key in self._clients if not words or key[0] == words[0]]:
                self._beat_as_client(*key)
            self.finish()
            if self.processor.position == before:
                break
        for group_id in sorted(words or self.state.groups):
            self._say("rest", self._rest(group_id))

    def _rest(self, group_id: str) -> str:
        group = self.state.groups[group_id]
        topics = self.state.topics
        held = [
            f"{m} {spans_text(drop_epochs(group.members[m].current.assigned), topics)}"
            for m in sorted(group.members)
        ]
        return "; ".join([f"{group_id} {group.state.value} at epoch {group.epoch}", *held])

    def _beat_as_client(self, group: str, member: str) -> None:
        client = self._clients[group, member]
        fields = {"topic_partitions": client.report(), "by_topic_id": True}
        answer = self._heartbeat(group, member, fields)
        if isinstance(answer, GroupError):
            del self._clients[group, member]

    def _heartbeat(self, group: str, member: str, fields: dict[str, Any]) -> Answer:
        client = self._client(group, member)
        lost = fields.pop("lost", False)
        fields = {"member_epoch": client.epoch, **fields}
        (answer,) = self.send([Heartbeat(group, member, **fields)])
        if isinstance(answer, Result) and not lost:
            if fields["member_epoch"] < 0:
                self._clients.pop((group, member), None)
            else:
                client = self._clients.setdefault((group, member), client)
                client.instance = fields.get("instance_id", client.instance)
                if fields["member_epoch"] == JOIN:
                    client.uses = set()
                assert isinstance(answer.response, HeartbeatResponse)
                client.hear(answer.response)
        return answer

    def _client(self, group: str, member: str) -> Client:
        return self._clients.get((group, member)) or Client()

    def _fields(
        self, words: list[str], section: str
    ) -> tuple[dict[str, Any], list[str] | None, dict[str, list[int]] | None]:
        """Return a heartbeat's fields, the names subscribed to, and what is owned, by topic id."""
        fields: dict[str, Any] = {}
        sections: dict[str, list[str]] = {section: []} if section else {}
        for word in words:
            name, equals, value = word.partition("=")
            if word in ("subscribes", "owns"):
                section = word
                sections[word] = []
            elif word == "lost":
                fields["lost"] = True
            elif equals and name in FIELDS:
                fields |= FIELDS[name](value)
            elif section:
                sections[section].append(word)
            else:
                raise ValueError(f"{word!r} is no field: give {', '.join(FIELDS)}")
        names = sections.get("subscribes")
        owned = sections.get("owns")
        return (
            fields,
            None if names is None else [name for name in names if name != "nothing"],
            None if owned is None else self._by_id(partitions(owned)),
        )

    def _by_id(self, owned: dict[str, list[int]]) -> dict[str, list[int]]:
        ids = {name: topic_id for topic_id, name in topic_names(self.state).items()}
        return {ids.get(name, name): found for name, found in owned.items()}

    # Offsets, groups, settings -------------------------------------------------------------------

    def _do_commit_offsets(self, words: list[str]) -> None:
        group, member, *rest = words
        epoch, topic = self._client(group, member).epoch, ""
        given: dict[str, dict[int, tuple[int, str]]] = {}
        for word in rest:
            name, equals, value = word.partition("=")
            if name == "epoch":
                epoch = int(value)
            elif equals:
                given[topic][int(name)] = (int(value), "")
            else:
                topic = word
                given[topic] = {}
        who = ("", -1) if member == "nothing" else (member, epoch)
        self.send([OffsetCommit(group, *who, given)])

    def _do_fetch_offsets(self, words: list[str]) -> None:
        self.send([OffsetFetch(words[0])])

    def _do_delete_offsets(self, words: list[str]) -> None:
        self.send([OffsetDelete(words[0], partitions(words[1:]))])

    def _do_expire_offsets(self, _words: list[str]) -> None:
        self.send([ExpireOffsets()])

    def _do_describe(self, words: list[str]) -> None:
        self.send([DescribeGroup(words[0])])

    def _do_delete_group(self, words: list[str]) -> None:
        self.send([DeleteGroup(words[0])])

    def _do_group_config(self, words: list[str]) -> None:
        self.send([ConfigureGroup(words[0], values(words[1:]))])

    # Targets computed outside --------------------------------------------------------------------

    def _do_prepare(self, words: list[str]) -> None:
        self.send([PrepareAssignment(words[0], words[1])])

    def _do_install(self, words: list[str]) -> None:
        group, computation, *rest = words
        found = self.state.groups.get(group)
        waiting = found.computation if found else None
        epoch = waiting.record.group_epoch if waiting else 0
        if rest and rest[0].startswith("epoch="):
            epoch = int(rest.pop(0)[6:])
        self.send([InstallAssignment(group, computation, epoch, table(by_member(rest)))])

    def _do_deliver(self, words: list[str]) -> None:
        """An engine wrote the target of a computation to the table."""
        group, run, *rest = words
        found = self.state.groups[group]
        epoch = found.computation.record.group_epoch if found.computation else found.epoch
        rows = table(by_member(rest))
        topics = self.state.topics
        ids = pa.array([topics[name].key.topic_id for name in rows["topic"].to_pylist()])
        whole = WholeTarget.of(rows.append_column("topic_id", ids))
        stored = StoredTarget(group, epoch, run, 1, 0, len(found.members), len(whole))
        self.send(
            [
                TargetCandidate(
                    group, epoch, "external", stored=stored, whole=whole, computation_id=run
                )
            ]
        )

    def _do_lose_target(self, words: list[str]) -> None:
        """The rows of the group's whole target are gone from the table of targets."""
        self.send([TargetLost(words[0], "its rows are gone")])

    # Telling -------------------------------------------------------------------------------------

    def _happened(self, text: str, event: Event, answer: Answer) -> None:
        """Tell one event: records in their order, then the answer, then what follows from it."""
        invariants.check(self.state)
        lines, self._lines = self._lines, []
        topics = self.state.topics
        if isinstance(answer, GroupError):
            self._say("error", answer.code.name)
        else:
            for record in answer.records:
                self._say("record", record_text(record, topics))
            self._answer(event, answer)
            for task in answer.tasks:
                self._say("task", task_text(task))
        self._tell_timers(_ended(event))
        self._tell_states()
        own, self._own = self._own, False
        quiet = not own and isinstance(answer, Result) and not (answer.records or answer.tasks)
        if not quiet or _news(event, answer):
            at = f", at {duration(self.now - BEGIN_MS)}" if isinstance(event, TimerFired) else ""
            lines += [] if own else [f"> {text.removeprefix('# ')}{at}"]
            lines += self._lines
        self._lines = lines

    def _say(self, what: str, text: str) -> None:
        self._lines.append(f"{what:<9} {text}")

    def _answer(self, event: Event, answer: Result) -> None:
        found = answer.response
        if isinstance(found, HeartbeatResponse):
            self._say("answer", self._heartbeat_text(event, found))
        elif isinstance(event, DescribeGroup):
            assert isinstance(found, GroupDescription)
            for line in described(found.fields()):
                self._say("answer", line)
        elif isinstance(event, PrepareAssignment):
            for line in prepared(found):
                self._say("answer", line)
        elif isinstance(event, OffsetFetch):
            self._say("answer", offsets(found))
        elif isinstance(event, OffsetCommit | OffsetDelete):
            codes = [(t, p, c.name) for t, ps in found.items() for p, c in ps.items()]  # type: ignore[attr-defined]
            self._say("answer", ", ".join(f"{t} {p} {c}" for t, p, c in codes))
        elif isinstance(event, InstallAssignment):
            self._say("answer", f"target epoch {found['assignment_epoch']}, {found['moved']} moved")  # type: ignore[index]

    def _heartbeat_text(self, event: Event, response: HeartbeatResponse) -> str:
        assert isinstance(event, Heartbeat)
        text = f"epoch {response.member_epoch}"
        if event.member_epoch < 0:
            return text
        if response.assignment is None:
            text += ", assignment unchanged"
        else:
            text += f", assignment {spans_text(response.assignment, self.state.topics)}"
        known = self._client(event.group_id, event.member_id).interval_ms
        if response.heartbeat_interval_ms != known:
            text += f", heartbeat interval {duration(response.heartbeat_interval_ms)}"
        return text

    def _tell_timers(self, fired: Iterable[Any]) -> None:
        """Tell timers that began or ended; that each beat starts the session again goes unsaid."""
        now = {d.key: d.at_ms for d in self.processor.timers.all() if d.key[0] != EXPIRE}
        for key, at in now.items():
            if key not in self._timers or (key[0] == "rebalance" and self._timers[key] != at):
                self._say("timer", f"{timer_text(key[0], key[2])} in {duration(at - self.now)}")
        for key in self._timers.keys() - now.keys() - set(fired):
            self._say("timer", f"{timer_text(key[0], key[2])} cancelled")
        self._timers = now

    def _tell_states(self) -> None:
        now = self._all_states()
        for key in sorted(self._states.keys() | now.keys(), key=lambda key: (key[0], key)):
            old, new = self._states.get(key, "new"), now.get(key, "gone")
            if old != new:
                self._say("state", f"{key[-1]} {old} → {new}")
        self._states = now

    def _all_states(self) -> dict[tuple[str, ...], str]:
        found: dict[tuple[str, ...], str] = {}
        for group_id, group in self.state.groups.items():
            found["group", group_id] = group.state.value
            for member_id, member in group.members.items():
                away = member.epoch == LEAVE_FOR_A_WHILE
                state = "away" if away else member.current.state.name
                found["member", group_id, member_id] = state
        return found


def _ended(event: Event) -> list[tuple[str, str, str]]:
    """Return the timer that fired: that it runs no more is no news."""
    if isinstance(event, TimerFired):
        return [(event.kind, event.group_id, event.member_id)]
    return []


def _news(event: Event, answer: Answer) -> bool:
    """Whether an event that wrote nothing is worth telling among others."""
    if isinstance(event, ExpireOffsets | TopicsReported | TimerFired) or isinstance(
        answer, GroupError
    ):
        return isinstance(answer, GroupError)
    response = answer.response
    return isinstance(response, HeartbeatResponse) and response.assignment is not None
