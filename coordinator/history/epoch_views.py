"""Views of group epochs, and why each target moved partitions.

A target covers all group epochs since the target before it, so it has the reasons of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Longs, offsets_of
from coordinator.core.reasons import SEPARATOR, Reason
from coordinator.core.state.records import (
    GroupMetadata,
    MemberMetadata,
    RegexResolved,
    TargetMetadata,
    TopicChanged,
)
from coordinator.history.classic_views import read_classic_epochs
from coordinator.history.incarnations import Incarnations
from coordinator.history.keyed_rows import (
    Timeline,
    combine_chunks,
    encode_keys,
    find_changes,
    find_places,
    flatten,
    is_kind,
    join_keys,
    number_runs,
    pick,
    to_mask,
    to_numbers,
)
from coordinator.history.log_rows import LogRows
from coordinator.history.reached import ReachedTargets
from coordinator.history.reason_codes import encode_reasons, list_codes
from coordinator.history.view_schemas import VIEW_SCHEMAS

RESUBSCRIBED = Reason.SUBSCRIPTION_CHANGED.value
"""The reason caused by the epoch's member itself: it explains what that member gives up then."""
TOPICS_CHANGED = Reason.TOPICS_CHANGED.value
NOTICED = {TOPICS_CHANGED, Reason.FINISHING_MOVES.value}
"""Reasons caused by no member: the epoch's member only sent the first heartbeat afterwards."""
TOPICS_NAMED = 3
"""How many topics a reason names at most; the column `topics_changed` has all."""

NAMES = "subscribed_topic_names"
REACHED = "reached_at"
CLIENT = ("instance_id", "client_id", "client_host")
KINDS = (GroupMetadata, TargetMetadata, MemberMetadata, RegexResolved, TopicChanged)
COLUMNS = (
    *("position", "at", "kind", "tombstone", "group_id", "member_id", "epoch", "reason"),
    *("assignment_epoch", "assignor", "moved", "partial", NAMES, "topics"),
    *("topic", "topic_id", "partitions", *CLIENT),
)


def read_epochs(log: LogRows) -> pa.Table:
    """Return the epochs of all groups, including deleted ones: one row per group epoch."""
    found = read_begun_epochs(log)
    reached = ReachedTargets.read(log).when(to_numbers(found["target_position"]))
    # The record of a generation has its assignment.
    classic = pc.equal(found["position"], found["target_position"])
    reached = pc.if_else(pc.fill_null(classic, fill_value=False), found["recorded_at"], reached)
    return found.append_column(REACHED, reached).cast(VIEW_SCHEMAS["epochs"])


def read_begun_epochs(log: LogRows) -> pa.Table:
    """Return the same without when they were reached, which takes all records of members."""
    ours = derive_epochs(log.past([one.kind for one in KINDS], COLUMNS))
    schema = pa.schema(
        [field for field in VIEW_SCHEMAS["epochs"] if field.name in ours.schema.names]
    )
    found = pa.concat_tables(
        [one.select(schema.names).cast(schema) for one in (ours, read_classic_epochs(log))]
    )
    incarnation = Incarnations(log).at(found["group_id"], to_numbers(found["position"]))
    found = found.append_column("incarnation", incarnation)
    found = found.append_column("reason_codes", list_codes(encode_reasons(found["reason"])))
    return found.select([name for name in VIEW_SCHEMAS["epochs"].names if name != REACHED])


def derive_epochs(rows: pa.Table) -> pa.Table:
    """Return the group epochs in rows of the log."""
    groups, ended = encode_keys(combine_chunks(rows["group_id"])), to_mask(rows["tombstone"])
    marks, number = is_kind(rows, GroupMetadata.kind), np.arange(len(rows))
    begun = np.flatnonzero(marks & ~ended)
    target = _find_targets(rows, groups, begun)
    member = join_keys(groups, encode_keys(combine_chunks(rows["member_id"])))
    behind = is_kind(rows, MemberMetadata.kind) & ~ended & to_mask(pc.is_valid(rows["member_id"]))
    who = Timeline(member, number[behind]).newest(begun)
    who = np.where(to_mask(pc.is_valid(rows["member_id"]))[begun], who, -1)
    epoch = to_numbers(rows["epoch"])[begun]
    of_target = np.append(to_numbers(rows["assignment_epoch"]), -1)[target]
    exact = np.where(epoch == of_target, target, -1)
    assignor = pick(rows["assignor"], exact)
    columns = {"group_id": pick(rows["group_id"], begun), "group_epoch": pick(rows["epoch"], begun)}
    columns |= {"position": pick(rows["position"], begun), "recorded_at": pick(rows["at"], begun)}
    columns |= {name: pick(rows[name], begun) for name in ("reason", "member_id")}
    columns |= {name: pick(rows[name], who) for name in CLIENT}
    columns |= {
        "topics_changed": _describe_topic_changes(rows, groups, begun),
        "assignment_epoch": pick(rows["assignment_epoch"], target),
        "target_position": pick(rows["position"], target),
        # If a target covers several epochs, these columns are set only in the row of the epoch it
        # was computed for.
        "computed_at": pick(rows["at"], exact),
        "assignor": pc.if_else(pc.equal(assignor, ""), pa.scalar(None, pa.string()), assignor),
    }
    return pa.table(columns | {name: pick(rows[name], exact) for name in ("moved", "partial")})


def _find_targets(rows: pa.Table, groups: Longs, begun: Longs) -> Longs:
    """Return for each epoch the row of the target that covers it, or -1 if it has none yet.

    It is the first target computed for this epoch or a later one, before the group was deleted.
    """
    ended = to_mask(rows["tombstone"])
    deleted = np.flatnonzero(is_kind(rows, GroupMetadata.kind) & ended)
    life = join_keys(groups, Timeline(groups, deleted).newest(np.arange(len(rows))) + 1)
    target = np.flatnonzero(is_kind(rows, TargetMetadata.kind) & ~ended)
    span = 1 << 32
    line = life[target] * span + to_numbers(rows["assignment_epoch"])[target]
    order = np.argsort(line, kind="stable")
    found = np.searchsorted(line[order], life[begun] * span + to_numbers(rows["epoch"])[begun])
    found = np.append(target[order], -1)[found]
    same = (found >= 0) & (life[found] == life[begun]) if len(life) else found >= 0
    return np.where(same, found, -1)


# What happened to topics -------------------------------------------------------------------------


def _describe_topic_changes(rows: pa.Table, groups: Longs, begun: Longs) -> pa.Array:
    """Return what happened to a group's topics since the epoch before, where that is the reason."""
    asked = to_mask(pc.equal(pick(rows["reason"], begun), TOPICS_CHANGED))
    epoch, change = _match_changes(rows, groups, begun[asked]) if asked.any() else _NONE
    place = np.searchsorted(begun, epoch)  # stays in the log's order within an epoch
    texts = _describe_changes(rows, change)
    ends = offsets_of(np.bincount(place, minlength=len(begun)))
    return pa.ListArray.from_arrays(
        pa.array(ends, pa.int32(), mask=np.append(~asked, False)), texts
    )


_NONE = (np.array([], np.int64), np.array([], np.int64))


def _match_changes(rows: pa.Table, groups: Longs, asked: Longs) -> tuple[Longs, Longs]:
    """Return pairs of rows: an epoch, and a topic change that led to it."""
    group, topic, since = _find_subscriptions(rows, groups, np.unique(groups[asked]))
    steps = np.flatnonzero(is_kind(rows, TopicChanged.kind))
    step_topics = pick(rows["topic"], steps)
    names = pa.concat_arrays([step_topics, topic])
    coded = encode_keys(names)
    of_step, of_subscription = coded[: len(steps)], coded[len(steps) :]
    order = np.argsort(of_step, kind="stable")
    first = np.searchsorted(of_step[order], of_subscription, side="left")
    count = np.searchsorted(of_step[order], of_subscription, side="right") - first
    pair, place = number_runs(first, count)
    step = steps[order][place]
    # A change belongs to the group's first epoch after it.
    marks = np.flatnonzero(is_kind(rows, GroupMetadata.kind))
    epoch = Timeline(groups, marks).next(group[pair], step)
    about = (epoch > since[pair]) & np.isin(epoch, asked)
    epoch, step = epoch[about], step[about]
    order = np.lexsort((step, epoch))
    return epoch[order], step[order]


def _find_subscriptions(
    rows: pa.Table, groups: Longs, wanted: Longs
) -> tuple[Longs, pa.Array, Longs]:
    """Return groups, topics, and the first row by which the group subscribes to the topic.

    The names of equal subscriptions are parsed once.
    """
    says = is_kind(rows, MemberMetadata.kind, RegexResolved.kind) & ~to_mask(rows["tombstone"])
    says &= np.isin(groups, wanted)
    named = np.flatnonzero(says & to_mask(pc.is_valid(rows[NAMES])))
    texts = combine_chunks(rows[NAMES])
    alike = join_keys(groups[named], texts.indices.take(pa.array(named)).to_numpy())
    named = named[np.unique(alike, return_index=True)[1]]
    words = pick(texts, named).cast(pa.string()).to_pylist()
    lists = pa.array([msgspec.json.decode(t, type=list[str]) for t in words], _TEXTS)
    found = np.flatnonzero(says & to_mask(pc.is_valid(rows["topics"])))
    lists = pa.concat_arrays([lists, pick(rows["topics"], found)])
    at, topic = flatten(lists)
    row = np.concatenate([named, found])[at]
    order = np.argsort(row, kind="stable")
    row, topic = row[order], topic.take(pa.array(order))
    first = np.unique(join_keys(groups[row], encode_keys(topic)), return_index=True)[1]
    return groups[row][first], topic.take(pa.array(first)), row[first]


_TEXTS = pa.list_(pa.string())


def _describe_changes(rows: pa.Table, change: Longs) -> pa.Array:
    """Describe what happened to a topic at each of some rows."""
    steps = np.flatnonzero(is_kind(rows, TopicChanged.kind))
    topics = encode_keys(combine_chunks(rows["topic"]))
    order = steps[np.argsort(topics[steps], kind="stable")]
    before = np.full(len(rows), -1, dtype=np.int64)
    same = ~find_changes(topics[order])
    before[order[same]] = order[np.flatnonzero(same) - 1]
    old, deleted = before[change], to_mask(rows["tombstone"])
    ids, partitions = encode_keys(combine_chunks(rows["topic_id"])), to_numbers(rows["partitions"])
    was, now = partitions[old], partitions[change]
    counts = [pa.array(one).cast(pa.string()) for one in (was, now)]
    grew = pc.binary_join_element_wise(
        " grew from ", counts[0], " to ", counts[1], " partitions", ""
    )
    shrank = pc.binary_join_element_wise(
        " shrank from ", counts[0], " to ", counts[1], " partitions", ""
    )
    cases = [
        (deleted[change], " was deleted"),
        ((old < 0) | deleted[old], " was created"),
        (ids[old] != ids[change], " was re-created"),
        (was < now, grew),
        (was > now, shrank),
    ]
    texts = pa.array([" has other racks"] * len(change), pa.string())
    for here, words in reversed(cases):
        texts = pc.if_else(pa.array(here), words, texts)
    return pc.binary_join_element_wise(pick(rows["topic"], change), texts, "")


# Why a target moves partitions -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TargetCauses:
    """Why each target moves partitions.

    Attributes
    ----------
    positions
        Of the targets in the log, sorted.
    reasons, codes, members
        The reasons of all epochs that a target covers, their codes (reason_codes.py), and their
        member if it is only one.
    """

    positions: Longs
    reasons: pa.Array
    codes: pa.Array
    members: pa.Array

    def place(self, positions: Longs) -> Longs:
        """Return the index of the target at each of some positions, or -1."""
        return find_places(self.positions, positions)


def find_causes(epochs: pa.Table) -> TargetCauses:
    """Return why targets move partitions, from the epochs that they cover."""
    taken = epochs.filter(pc.is_valid(epochs["target_position"])).sort_by("position")
    target = to_numbers(taken["target_position"])
    positions, place = np.unique(target, return_inverse=True)
    noticed = pc.is_in(taken["reason"], value_set=pa.array(sorted(NOTICED), pa.string()))
    no_member = pa.scalar(None, pa.string())
    member = combine_chunks(pc.if_else(noticed, no_member, taken["member_id"]))
    number = encode_keys(member)
    distinct = np.unique(join_keys(place, number), return_index=True)[1]
    alone = np.bincount(place[distinct], minlength=len(positions)) == 1
    one = np.full(len(positions), -1, dtype=np.int64)
    one[place[distinct]] = distinct
    reasons = _join_distinct(place, len(positions), _add_topic_changes(taken), SEPARATOR)
    codes = _join_distinct(place, len(positions), encode_reasons(taken["reason"]), ",")
    codes = pc.if_else(pc.equal(codes, ""), no_member, codes)
    return TargetCauses(positions, reasons, codes, pick(member, np.where(alone, one, -1)))


def _join_distinct(place: Longs, count: int, texts: pa.Array, between: str) -> pa.Array:
    """Join the distinct texts of each place, in the order of their first rows."""
    first = np.sort(np.unique(join_keys(place, encode_keys(texts)), return_index=True)[1])
    first = first[to_mask(pc.is_valid(texts))[first]]
    order = first[np.argsort(place[first], kind="stable")]
    ends = offsets_of(np.bincount(place[order], minlength=count))
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), texts.take(pa.array(order)))
    return pc.binary_join(lists, between)


def _add_topic_changes(epochs: pa.Table) -> pa.Array:
    """Return the reason of each epoch, and the first changes of topics behind it."""
    lists, reason = combine_chunks(epochs["topics_changed"]), combine_chunks(epochs["reason"])
    count = to_numbers(pc.list_value_length(lists), 0)
    some = pc.binary_join(pc.list_slice(lists, 0, TOPICS_NAMED), "; ")
    more = pa.array(count - TOPICS_NAMED).cast(pa.string())
    more = pc.binary_join_element_wise(" and ", more, " more)", "")
    tail = pc.if_else(pa.array(count > TOPICS_NAMED), more, ")")
    detailed = pc.binary_join_element_wise(reason, " (", some, tail, "")
    return pc.if_else(pa.array(count > 0), detailed, reason)
