"""Events, records and answers as one line of text each; tests/traces/README.md has the syntax.

An event's text is a command that `player` plays, so what is printed can be pasted. Partitions
are ranges (`clicks 0-3`), times carry their unit (`45s`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from coordinator.core.events import (
    HEARTBEAT,
    JOIN_PHASE,
    SESSION,
    SYNC_PHASE,
    AlterConfig,
    ComputeTarget,
    ConfigureGroup,
    DecidePlan,
    DeleteGroup,
    DescribeConfig,
    DescribeGroup,
    EndTransaction,
    Event,
    ExpireOffsets,
    Heartbeat,
    InstallAssignment,
    ListConfiguredGroups,
    ListGroupIds,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    PrepareAssignment,
    RecordAudit,
    RegexesResolved,
    ReportLoads,
    TargetFailed,
    TargetLost,
    Task,
    TimerFired,
    TopicsReported,
    TxnOffsetCommit,
)
from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import (
    Holding,
    Spans,
    TopicKey,
    kafka_id,
    make_id,
    spans_of,
)
from coordinator.core.state.records import (
    Audited,
    ClassicGroupWritten,
    ComputationPrepared,
    CurrentMember,
    GroupConfigured,
    GroupMetadata,
    GroupUnread,
    KafkaWatched,
    LoadsNoted,
    MemberMetadata,
    MembersAdvanced,
    OffsetCommitted,
    PartitionRead,
    PlanDecided,
    PlanMade,
    Record,
    RegexResolved,
    RequestAnswered,
    TargetMember,
    TargetMetadata,
    Tombstone,
    TopicChanged,
)
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.watched_events import KafkaWrote, KeepRecords
from tests.support.traces.classic_text import CLASSIC_EVENTS, classic_group_text

UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
NOTHING = "nothing"
DELETED = "(deleted)"
"""After the name of a topic that members still hold."""


def duration(ms: int) -> str:
    """Return a time with the largest unit in which it is whole; up to two minutes in seconds."""
    for unit in ("d", "h", "m"):
        if ms >= 2 * UNITS[unit] and ms % UNITS[unit] == 0:
            return f"{ms // UNITS[unit]}{unit}"
    return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"


def milliseconds(text: str) -> int:
    """Return the ms of a time with a unit, as `45s`."""
    found = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
    if found is None:
        raise ValueError(f"{text!r} is no time: give a number with one of {', '.join(UNITS)}")
    return int(found[1]) * UNITS[found[2]]


def ranges(partitions: Mapping[str, Iterable[int]]) -> str:
    """Return partitions by topic as ranges: `clicks 0-3 5, views 0`."""
    keys = ((TopicKey(name, name), p) for name, found in partitions.items() for p in found)
    return spans_text(spans_of(keys))


def spans_text(spans: Spans, topics: Mapping[str, Any] | None = None) -> str:
    """Return spans as ranges; of a topic that no longer exists, with a remark."""
    found: dict[str, list[str]] = {}
    for key, first, end in spans:
        found.setdefault(_topic(key, topics), []).append(_range(first, end))
    return ", ".join(f"{name} {' '.join(parts)}" for name, parts in found.items()) or NOTHING


def held_text(holding: Holding, epoch: int, topics: Mapping[str, Any] | None) -> str:
    """Return what a member holds; `@2` is the epoch since which, where it is not the member's."""
    found: dict[str, list[str]] = {}
    for key, first, end, since in holding:
        mark = "" if since == epoch else f"@{since}"
        found.setdefault(_topic(key, topics), []).append(_range(first, end) + mark)
    return ", ".join(f"{name} {' '.join(parts)}" for name, parts in found.items()) or NOTHING


def _topic(key: TopicKey, topics: Mapping[str, Any] | None) -> str:
    if topics is None or (key.name in topics and topics[key.name].key == key):
        return key.name
    return f"{key.name}{DELETED}"


def topic_names(state: State) -> dict[str, str]:
    """Return the names of topics by their id, those that are gone with a remark."""
    names = {}
    for group in state.groups.values():
        for key in group.owners:
            names[kafka_id(key.topic_id)] = _topic(key, state.topics)
    return names | {kafka_id(topic.key.topic_id): name for name, topic in state.topics.items()}


def _range(first: int, end: int) -> str:
    return str(first) if end == first + 1 else f"{first}-{end - 1}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or NOTHING


def _optional(**found: object) -> str:
    """Return `, name value` of each that there is."""
    shown = ((name.replace("_", " "), value) for name, value in found.items())
    return "".join(f", {name} {value}" for name, value in shown if value not in (None, ""))


# Events ------------------------------------------------------------------------------------------


def event_text(event: Event, state: State) -> str:
    """Return an event as a command; as `# …` where no command brings it about."""
    return EVENTS[type(event)](event, state)


def _heartbeat(event: Heartbeat, state: State) -> str:
    words = ["beat", event.group_id, event.member_id, f"epoch={event.member_epoch}"]
    fields = {
        "instance": event.instance_id,
        "rack": event.rack_id,
        "regex": event.subscribed_topic_regex,
        "assignor": event.server_assignor,
    }
    words += [f"{name}={value}" for name, value in fields.items() if value is not None]
    if event.rebalance_timeout_ms != -1:
        words.append(f"rebalance-timeout={duration(event.rebalance_timeout_ms)}")
    if event.subscribed_topic_names is not None:
        words.append(" ".join(["subscribes", *(event.subscribed_topic_names or [NOTHING])]))
    if event.topic_partitions is not None:
        names = topic_names(state)
        owned = {
            names.get(topic, topic) if event.by_topic_id else topic: partitions
            for topic, partitions in event.topic_partitions.items()
        }
        words.append(f"owns {ranges(owned)}")
    return " ".join(words)


def _offset_commit(event: OffsetCommit, _state: State) -> str:
    parts = [f"commit-offsets {event.group_id} {event.member_id or NOTHING}"]
    parts.append(f"epoch={event.member_epoch}")
    for topic, offsets in event.offsets.items():
        parts.append(topic)
        parts += [f"{partition}={offset}" for partition, (offset, _) in offsets.items()]
    return " ".join(parts)


def _settings(event: ConfigureGroup, _state: State) -> str:
    found = [f"{name}={value}" for name, value in sorted(event.settings.items())]
    return " ".join(["group-config", event.group_id, *found])


def _alter(event: AlterConfig, _state: State) -> str:
    return f"# settings of {event.group_id} are altered: {dict(event.changes)}"


def _topics_seen(event: TopicsReported, state: State) -> str:
    """Return `topics`, `delete-topics`, or both, one command a line."""
    gone = sorted(state.topics.keys() - event.topics.keys())
    changed = {}
    for name, found in sorted(event.topics.items()):
        old = state.topics.get(name)
        if old is None or (old.key.topic_id, old.partitions) != (found.topic_id, found.partitions):
            other_id = (
                f":{found.topic_id.replace(' ', '-')}" if found.topic_id != make_id(name) else ""
            )
            changed[name] = f"{found.partitions}{other_id}"
    lines = [" ".join(["delete-topics", *gone])] if gone else []
    if changed:
        lines.append(" ".join(["topics", *(f"{n}={count}" for n, count in changed.items())]))
    return "\n".join(lines) or "# topics are as before"


def _install(event: InstallAssignment, _state: State) -> str:
    words = [f"install {event.group_id} {event.computation_id} epoch={event.group_epoch}"]
    members: dict[str, dict[str, list[int]]] = {}
    for row in event.ranges.to_pylist():
        topics = members.setdefault(row["member_id"], {})
        first = row["first_partition"]
        topics.setdefault(row["topic"], []).extend(range(first, first + row["partition_count"]))
    words += [f"{member}: {ranges(topics)}" for member, topics in members.items()]
    return " ".join(words)


def _timer_fired(event: TimerFired, _state: State) -> str:
    return f"# the {event.kind} timeout of {event.member_id} in {event.group_id} has passed"


EVENTS: dict[type, Callable[[Any, State], str]] = {
    **CLASSIC_EVENTS,
    Heartbeat: _heartbeat,
    OffsetCommit: _offset_commit,
    OffsetFetch: lambda event, _: f"fetch-offsets {event.group_id}",
    TxnOffsetCommit: lambda event, _: f"# {event.producer} commits to {event.group_id}",
    EndTransaction: lambda event, _: f"# the transaction of {event.producer} ends",
    OffsetDelete: lambda event, _: f"delete-offsets {event.group_id} {ranges(event.topics)}",
    DescribeGroup: lambda event, _: f"describe {event.group_id}",
    DeleteGroup: lambda event, _: f"delete-group {event.group_id}",
    ConfigureGroup: _settings,
    AlterConfig: _alter,
    PrepareAssignment: lambda event, _: f"prepare {event.group_id} {event.computation_id}",
    InstallAssignment: _install,
    DecidePlan: lambda event, _: f"# {event.action} plan {event.plan_id} of {event.group_id}",
    ReportLoads: lambda event, _: f"# the weights of {event.loads.group_id} are reported",
    TopicsReported: _topics_seen,
    RegexesResolved: lambda event, _: f"# the regexes of {event.group_id} are resolved",
    TargetCandidate: lambda event, _: f"# {event.computation_id} is done, for {event.group_id}",
    TargetFailed: lambda event, _: f"# {event.computation_id} failed, for {event.group_id}",
    TargetLost: lambda event, _: f"lose-target {event.group_id}",
    TimerFired: _timer_fired,
    ExpireOffsets: lambda _, __: "expire-offsets",
    DescribeConfig: lambda event, _: f"# settings of {event.group_id} are described",
    ListConfiguredGroups: lambda _, __: "# groups with settings are listed",
    ListGroups: lambda _, __: "# groups are listed",
    ListGroupIds: lambda _, __: "# the ids of groups are listed",
    RecordAudit: lambda event, _: f"# {len(event.records)} audit records are written",
    KeepRecords: lambda event, _: f"# a node keeps {len(event.records)} records",
    KafkaWrote: lambda event, _: f"# a Kafka cluster wrote {len(event.records)} records",
}
"""By the kind of event: all of them."""


# Records -----------------------------------------------------------------------------------------


def record_text(record: Record, topics: Mapping[str, Any] | None = None) -> str:
    """Return one record with the fields that matter; `topics` are those that exist now."""
    return RECORDS[type(record)](record, topics)


def _group(record: GroupMetadata, _topics: object) -> str:
    by = f" ({record.member_id})" if record.member_id else ""
    reason = f", {record.reason}{by}" if record.reason else ""
    return f"group {record.group_id} at epoch {record.epoch}{reason}"


def _member(record: MemberMetadata, _topics: object) -> str:
    return (
        f"member {record.member_id} subscribes {_names(record.subscribed_topic_names)}"
        + _optional(
            regex=record.subscribed_topic_regex,
            instance=record.instance_id,
            rack=record.rack_id,
            assignor=record.server_assignor,
            rebalance_timeout=duration(record.rebalance_timeout_ms),
        )
    )


def _target(record: TargetMetadata, _topics: object) -> str:
    by = f" by {record.assignor}" if record.assignor else ""
    moved = f", {record.moved} moved" if record.moved else ""
    partial = ", unfinished" if record.partial else ""
    whole = ""
    if record.computation_id is not None:
        whole = f", {record.ranges} ranges of {record.computation_id} in the table of targets"
    at_once = "" if record.assignment_timestamp else ", the next is due at once"
    return f"target at epoch {record.assignment_epoch}{by}{moved}{partial}{whole}{at_once}"


def _current(record: CurrentMember, topics: Mapping[str, Any] | None) -> str:
    epoch = record.member_epoch
    held = f"assigned {held_text(record.assigned, epoch, topics)}"
    if record.pending:
        held += f", to revoke {held_text(record.pending, epoch, topics)}"
    before = record.previous_member_epoch
    was = f" (before {before})" if before != epoch else ""
    return f"current {record.member_id} at epoch {epoch}{was}, {record.state.name}, {held}"


def _computation(record: ComputationPrepared, _topics: object) -> str:
    return f"computation {record.computation_id} for group epoch {record.group_epoch}"


def _offset(record: OffsetCommitted, _topics: object) -> str:
    return f"offset {record.topic} {record.partition}={record.offset}"


def _configured(record: GroupConfigured, _topics: object) -> str:
    found = [f"{name}={value}" for name, value in sorted(record.settings.items())]
    return f"settings of {record.group_id}: {_names(found)}"


def _audited(record: Audited, _topics: object) -> str:
    return f"audit {record.reason} {record.group_id} by {record.owner}".rstrip()


def _tombstone(record: Tombstone, _topics: object) -> str:
    words = ["end of", _SHORT.get(record.of, record.of)]
    words += [str(x) for x in (record.member_id, record.name, record.partition) if x is not None]
    if len(words) == 2:
        words.append(f"of {record.group_id}")
    return " ".join(words)


_SHORT = {
    "group_metadata": "group",
    "member_metadata": "member",
    "target_assignment_metadata": "target",
    "target_assignment_member": "target",
    "current_member_assignment": "current",
    "regular_expression": "regex",
    "offset_commit": "offset",
    "group_config": "settings",
    "classic_group": "classic group",
}

RECORDS: dict[type, Callable[[Any, Any], str]] = {
    GroupMetadata: _group,
    MemberMetadata: _member,
    TargetMetadata: _target,
    TargetMember: lambda r, topics: f"target {r.member_id}: {spans_text(r.spans, topics)}",
    CurrentMember: _current,
    MembersAdvanced: lambda r, _: f"current {_names(r.member_ids)} at epoch {r.member_epoch}",
    RegexResolved: lambda r, _: f"regex {r.regex} stands for {_names(r.topics)}",
    OffsetCommitted: _offset,
    GroupConfigured: _configured,
    TopicChanged: lambda r, _: f"topic {r.topic} with {r.partitions} partitions",
    ComputationPrepared: _computation,
    RequestAnswered: lambda r, _: f"proposal {r.computation_id}: {r.reason.split(':')[0]}",
    KafkaWatched: lambda r, _: f"the Kafka cluster {r.cluster_id} is watched by {r.observed}",
    PartitionRead: lambda r, _: f"{r.topic}-{r.partition} is read up to {r.offset}",
    GroupUnread: lambda r, _: f"group {r.group_id} cannot be read: {r.reason}",
    Audited: _audited,
    LoadsNoted: lambda r, _: f"loads of {len(r.weights)} topics, {len(r.constraints)} rules",
    PlanMade: lambda r, _: f"plan {r.plan_id} moves {r.summary.moved}",
    PlanDecided: lambda r, _: f"plan {r.plan_id} is {r.decision}",
    ClassicGroupWritten: lambda r, _: classic_group_text(r),
    Tombstone: _tombstone,
}
"""By the kind of record: all of them."""


def task_text(task: Task) -> str:
    """Return what is to be done off the heartbeat path."""
    if isinstance(task, ComputeTarget):
        epoch, assignor = task.group_epoch, task.assignor
        return f"compute a target for group epoch {epoch} by {assignor} ({task.computation_id})"
    return f"resolve regex {_names(task.regexes)}"


def timer_text(kind: str, member_id: str) -> str:
    """Return the name of a timer; those of a classic group's phases have no member."""
    of = f" of {member_id}" if member_id else ""
    return f"{_TIMERS.get(kind, kind)} timeout{of}"


_TIMERS = {SESSION: "session", HEARTBEAT: "session", JOIN_PHASE: "join", SYNC_PHASE: "sync"}
