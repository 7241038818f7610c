"""What a plan is computed from: a digest and a description of each input, and what drifted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from assignors.partition_ranges import find_names
from coordinator.config import Config
from coordinator.config.kafka import CLASSIC_ASSIGNOR, OFF
from coordinator.core.consumer.heartbeat import preferred_assignor
from coordinator.core.plans.input_digest import Column, hash_columns
from coordinator.core.state.classic_group import ClassicGroup
from coordinator.core.state.embedded import MalformedError, read_subscription, topics_of
from coordinator.core.state.groups import BY_NODE, Group, State
from coordinator.core.state.records import LoadsNoted, MemberMetadata
from coordinator.core.state.target_assignment import Targets
from coordinator.core.targets.basis import AssignorInput, Basis, MemberChange, build_input
from coordinator.errors import ErrorCode, GroupError

MEMBERS, TOPICS, TARGET = "members", "topics", "target"
WEIGHTS, CONSTRAINTS, SETTINGS = "weights", "constraints", "settings"
NAMES_SHOWN = 50
NO_TARGET = "none"


def find_group(state: State, group_id: str) -> Group:
    """Return a consumer group.

    Raises
    ------
    GroupError
        GROUP_ID_NOT_FOUND; INVALID_REQUEST for a classic group, whose leader assigns.
    """
    group = state.groups.get(group_id)
    if group is not None:
        return group
    if group_id in state.classic:
        raise GroupError(
            ErrorCode.INVALID_REQUEST,
            f"Group {group_id} is a classic group, which has no target: plans are for groups of "
            "the consumer protocol.",
        )
    raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")


def take_basis(state: State, config: Config, group_id: str, now_ms: int) -> Basis:
    """Return a group as it is now; no later change reaches it.

    Raises
    ------
    GroupError
        As `find_group`; of a group that Kafka coordinates a classic one is taken for what it would
        be with the consumer protocol, if its members are consumers.
    """
    classic = state.classic.get(group_id)
    if state.watched is not None and classic is not None:
        return _take_watched_classic(state, config, classic, now_ms)
    group = find_group(state, group_id)
    assignor = preferred_assignor(config, group.wishes)
    return Basis.of(
        (group_id, group.epoch),
        assignor,
        state.settings.get(group_id, {}),
        build_input(state, group, MemberChange(), now_ms),
        config,
        assignment_epoch=group.assignment_epoch,
        assigned_ms=group.assignment_timestamp,
        supposes=_suppose_muster(state),
    )


def _suppose_muster(state: State) -> str:
    """Return what a plan supposes of who coordinates a group; a node may lead it, and says so."""
    if state.watched is None or state.watched.cluster.observed == BY_NODE:
        return ""
    return f"that Muster coordinates, not the Kafka cluster {state.watched.cluster.cluster_id}"


def _take_watched_classic(state: State, config: Config, group: ClassicGroup, now_ms: int) -> Basis:
    """Return a classic group as one of the consumer protocol: its leader's assignment, the target.

    Raises
    ------
    GroupError
        INVALID_REQUEST: its members do not say which topics they subscribe to.
    """
    metas: dict[str, MemberMetadata] = {}
    targets = Targets()
    lists: dict[tuple[str, ...], tuple[str, ...]] = {}
    for member in group.members.values():
        try:
            subscription = read_subscription(member.metadata(group.protocol))
        except MalformedError as error:
            raise GroupError(
                ErrorCode.INVALID_REQUEST,
                f"Member {member.member_id} of group {group.group_id} does not say which topics it "
                f"subscribes to ({error}): plans are for groups of consumers.",
            ) from None
        names = tuple(sorted(set(subscription.topics)))
        metas[member.member_id] = MemberMetadata(
            group.group_id,
            member.member_id,
            member.instance_id,
            subscription.rack,
            member.client_id,
            member.client_host,
            lists.setdefault(names, names),
        )
        targets[member.member_id] = member.assigned
    known = {name for names in lists for name in names}
    topics = [state.topics[name] for name in sorted(known) if name in state.topics]
    return Basis.of(
        (group.group_id, group.generation),
        preferred_assignor(config, Counter()),
        {},
        AssignorInput(
            metas, targets, topics, loads=state.loads.get(group.group_id), as_of_ms=now_ms
        ),
        config,
        assignment_epoch=group.generation,
        supposes=f"of the consumer protocol {_suppose_muster(state)}".strip(),
    )


def take_classic_basis(state: State, config: Config, group: ClassicGroup) -> Basis:
    """Return what weights of a classic group are about: its topics, and what was noted of it."""
    settings = state.settings.get(group.group_id, {})
    raw = (one.metadata for member in group.members.values() for one in member.protocols)
    names = sorted(topics_of(raw) or ())
    topics = [state.topics[name] for name in names if name in state.topics]
    return Basis.of(
        (group.group_id, group.generation),
        settings.get(CLASSIC_ASSIGNOR, OFF),
        settings,
        AssignorInput({}, Targets(), topics, loads=state.loads.get(group.group_id)),
        config,
    )


def describe_inputs(basis: Basis) -> dict[str, str]:
    """Return each input of a plan as "digest description"."""
    found = basis.input
    counts = [f"{topic.key.name}={topic.partitions}" for topic in found.topics]
    topics = [f"{topic.key}{topic.partitions}{topic.hash}" for topic in found.topics]
    loads = found.loads or LoadsNoted(basis.group_id)
    rules = [repr((rule, _is_over(rule.until_ms, found.as_of_ms))) for rule in loads.constraints]
    rules += loads.drained
    settings = sorted(basis.settings.items())
    columns_of: dict[str, tuple[list[Column], str]] = {
        MEMBERS: (_list_members(found), _list_names(sorted(found.metas), "members")),
        TOPICS: ([topics], _list_names(counts, "topics")),
        TARGET: _describe_target(basis),
        WEIGHTS: (_list_weights(loads), _describe_weights(found.loads)),
        CONSTRAINTS: ([rules], f"{len(rules)}" if rules else "none"),
        SETTINGS: (
            [[repr(settings)]],
            _list_names([f"{k}={v}" for k, v in settings], "settings"),
        ),
    }
    return {name: f"{hash_columns(columns)} {text}" for name, (columns, text) in columns_of.items()}


def _list_members(found: AssignorInput) -> list[Column]:
    """Return what a plan depends on of each member, by id."""
    metas = [found.metas[member_id] for member_id in sorted(found.metas)]
    names = [meta.subscribed_topic_names for meta in metas]
    texts = {id(one): repr(one) for one in names}  # members that subscribe alike share a list
    columns: list[list[str | None]] = [
        [meta.member_id for meta in metas],
        [meta.instance_id for meta in metas],
        [meta.rack_id for meta in metas],
        [meta.client_id for meta in metas],
        [texts[id(one)] for one in names],
        [meta.subscribed_topic_regex for meta in metas],
    ]
    regexes = [f"{regex}{found.regexes[regex]!r}" for regex in sorted(found.regexes)]
    return [*columns, regexes]


def _list_weights(loads: LoadsNoted) -> list[Column]:
    """Return weights by topic, and capacities."""
    weights: list[Column] = [np.array(one.weights, dtype=np.float64) for one in loads.weights]
    return [[one.topic for one in loads.weights], *weights, [repr(loads.capacities)]]


def find_drift(planned: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Say which inputs are not what a plan was made from, a line each."""
    drifted = []
    for name in now:
        before, after = planned.get(name, " not known"), now[name]
        if before.split(" ", 1)[0] != after.split(" ", 1)[0]:
            drifted.append(f"{name}: {_compare(before, after)}")
    return drifted


def _compare(before: str, after: str) -> str:
    old, new = (text.partition(" ")[2] for text in (before, after))
    if old == new:
        return f"changed, still {new}" if new else "changed"
    was, has = (set(text.split(", ")) for text in (old, new))
    if NAMES_SHOWN >= len(was | has) > 1 and was & has:
        gone, come = sorted(was - has), sorted(has - was)
        parts = [f"no longer {', '.join(gone)}"] * bool(gone) + [f"now {', '.join(come)}"] * bool(
            come
        )
        return "; ".join(parts)
    return f"was {old}, is {new}"


def _list_names(names: list[str], what: str) -> str:
    if not names:
        return "none"
    return ", ".join(names) if len(names) <= NAMES_SHOWN else f"{len(names)} {what}"


def _describe_target(basis: Basis) -> tuple[list[Column], str]:
    """Return the target in columns, by member, topic and partition, or a text for no target."""
    targets = basis.input.targets
    members = sorted(targets)
    if not members:
        return [[NO_TARGET]], NO_TARGET
    rows = targets.ranges()
    used = np.unique(rows.topic).tolist()
    keys = sorted(used, key=rows.keys.__getitem__)
    rank = np.empty(len(rows.keys), dtype=np.int64)
    rank[keys] = np.arange(len(keys))
    names = pa.array(members, pa.string())
    owner = find_names(rows.ids, names)[rows.owner].astype(np.int64)
    topic = rank[rows.topic]
    order = np.lexsort((rows.first, topic, owner))
    epoch = np.array([basis.assignment_epoch, basis.assigned_ms], dtype=np.int64)
    topics = [f"{rows.keys[at]}" for at in keys]
    columns = (column.astype(np.int64)[order] for column in (owner, topic, rows.first, rows.end))
    return [epoch, names, topics, *columns], f"epoch {basis.assignment_epoch}"


def _describe_weights(loads: LoadsNoted | None) -> str:
    if loads is None or not (loads.weights or loads.capacities):
        return "none"
    known = sum(len(one.weights) for one in loads.weights)
    return f"{known} weights, {len(loads.capacities)} capacities"


def _is_over(until_ms: int | None, now_ms: int | None) -> bool:
    return until_ms is not None and now_ms is not None and until_ms <= now_ms
