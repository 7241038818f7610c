"""Report on an assignment: is it valid, how fair, what moved, and why.

Works on any group and any ranges; nothing here decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import (
    PIECE,
    Longs,
    count_by,
    expand_runs,
    offsets_of,
    pieces,
    sum_by,
)
from assignors.certificate import Certificate, certify, find_broken_rules
from assignors.group_spec import GroupSpec
from assignors.partition_ranges import PartitionRanges, cut_at
from assignors.prior_ownership import CAUSES, SubscribedPairs

OVER_SHARE = "owner above its share"
EXCHANGED = "exchanged for another topic"
UNOWNED = "nobody owned it"
SWAPPED = "swapped for longer ranges"
REASONS = (OVER_SHARE, EXCHANGED, UNOWNED, *CAUSES, SWAPPED)
"""Why a partition changed hands, or got an owner."""
_DENSE = 8
"""How many places a run there may be at most for counting them to be quicker than sorting runs."""

CHANGES_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("first_partition", pa.int32()),
        ("partition_count", pa.int32()),
        ("from_member_id", pa.string()),
        ("to_member_id", pa.string()),
        ("reason", pa.string()),
    ]
)
MEMBERS_SCHEMA = pa.schema(
    [
        ("member_id", pa.string()),
        ("owned", pa.int64()),
        ("load", pa.int64()),
        ("kept", pa.int64()),
        ("gained", pa.int64()),
        ("lost", pa.int64()),
        ("ranges", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Report:
    """What an assignment is worth.

    Attributes
    ----------
    problems
        Why it is not valid, in words; empty when it is.
    load_min, load_max, load_mean
        Partitions a member. `spread` is max − min.
    moved
        Owned partitions that changed hands.
    moved_lower_bound
        No assignment with the same loads moves fewer: Σ max(0, owned − load); or, where the
        assignor proved more, its minimum.
    moved_minimum, exact, partial
        What the assignor proved (`Verdict`).
    orphans
        Partitions of subscribed topics that had no owner.
    contested
        Partitions claimed by a second member, which loses them.
    ranges, ranges_max
        Ranges in all, and of the member with the most.
    certificate
        Makespan, weight moved and constraints, with bounds; None for a group without weights.
    members, changes
        One row per member (`MEMBERS_SCHEMA`); one row per range that changed hands or got an owner
        (`CHANGES_SCHEMA`), by (topic, first).
    """

    problems: tuple[str, ...]
    load_min: int
    load_max: int
    load_mean: float
    moved: int
    moved_lower_bound: int
    moved_minimum: int | None
    exact: bool
    partial: bool
    orphans: int
    contested: int
    ranges: int
    ranges_max: int
    members: pa.Table
    changes: pa.Table
    certificate: Certificate | None = None

    @property
    def valid(self) -> bool:
        """Whether each partition of a subscribed topic is owned once, as constraints have it."""
        return not self.problems

    @property
    def spread(self) -> int:
        """Greatest load less the smallest."""
        return self.load_max - self.load_min

    def summary(self) -> dict[str, Any]:
        """Return the `quality` object of docs/reference/formats.md#assignment-spec."""
        return {
            "loads": {"min": self.load_min, "max": self.load_max},
            "moved": self.moved,
            "moved_lower_bound": self.moved_lower_bound,
            "orphans": self.orphans,
        }

    def totals(self) -> dict[str, Any]:
        """Return everything but the tables, ready for JSON."""
        return {
            "valid": self.valid,
            "problems": list(self.problems),
            "members": len(self.members),
            "partitions": int(pc.sum(self.members["load"]).as_py() or 0),
            "loads": {
                "min": self.load_min,
                "max": self.load_max,
                "mean": self.load_mean,
                "spread": self.spread,
            },
            "moved": self.moved,
            "moved_lower_bound": self.moved_lower_bound,
            "moved_minimum": self.moved_minimum,
            "exact": self.exact,
            "partial": self.partial,
            "orphans": self.orphans,
            "contested": self.contested,
            "ranges": self.ranges,
            "ranges_max": self.ranges_max,
            "reasons": self.reasons(),
        } | ({} if self.certificate is None else {"weights": self.certificate.to_dict()})

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON: the totals, one row per member, one per change."""
        return self.totals() | {
            "per_member": self.members.to_pylist(),
            "changes": self.changes.to_pylist(),
        }

    def reasons(self) -> dict[str, int]:
        """Return partitions that changed hands or got an owner, by reason."""
        at = np.array(
            [REASONS.index(r) for r in self.changes["reason"].to_pylist()], dtype=np.int64
        )
        sums = sum_by(at, self.changes["partition_count"].to_numpy(), len(REASONS))
        return {reason: int(n) for reason, n in zip(REASONS, sums, strict=True) if n}


def report(group: GroupSpec, ranges: PartitionRanges) -> Report:
    """Judge an assignment of a group.

    Parameters
    ----------
    group
        What it was made from.
    ranges
        The assignment, over the same names.
    """
    loads = ranges.loads()
    owned = sum_by(group.member, group.count, group.member_count)
    changed = _Changes.of(group, ranges)
    taken = changed.owner >= 0
    gained = sum_by(changed.taker, changed.count, group.member_count)
    lost = sum_by(changed.owner[taken], changed.count[taken], group.member_count)
    held = count_by(ranges.member, group.member_count)
    verdict = ranges.verdict
    bound = int(np.maximum(owned - loads, 0).sum())
    if verdict.moved_minimum is not None and not verdict.partial:
        bound = max(bound, verdict.moved_minimum)
    columns = [group.member_ids, owned, loads, loads - gained, gained, lost, held]
    return Report(
        problems=(*find_problems(group, ranges), *find_broken_rules(group, ranges)),
        load_min=int(loads.min(initial=np.iinfo(np.int64).max)) if len(loads) else 0,
        load_max=int(loads.max(initial=0)),
        load_mean=float(loads.mean()) if len(loads) else 0.0,
        moved=int(changed.count[taken].sum()),
        moved_lower_bound=bound,
        moved_minimum=verdict.moved_minimum,
        exact=verdict.exact,
        partial=verdict.partial,
        orphans=group.orphan_count(),
        contested=group.released.contested,
        ranges=len(ranges),
        ranges_max=int(held.max(initial=0)),
        members=pa.table(columns, schema=MEMBERS_SCHEMA),
        changes=changed.table(group, owned, loads, swapped=verdict.swapped),
        certificate=certify(group, ranges),
    )


@dataclass(frozen=True, slots=True)
class _Changes:
    """Ranges whose owner is not who it was: pieces of the line of all topics by name."""

    start: Longs
    count: Longs
    owner: Longs
    taker: Longs
    topic_start: Longs

    @classmethod
    def of(cls, group: GroupSpec, ranges: PartitionRanges) -> _Changes:
        """Lay the previous owners beside the new ones."""
        topic_start = offsets_of(group.partitions)
        new_start = topic_start[ranges.topic] + ranges.first
        order = np.argsort(new_start, kind="stable")
        new_start, taker = new_start[order], ranges.member[order].astype(np.int64)
        was = topic_start[group.topic] + group.first
        by_line = group.line_order
        was, until, owner = was[by_line], (was + group.count)[by_line], group.member[by_line]
        free = topic_start[group.released.topic] + group.released.first
        edges = np.concatenate([was, until, free, free + group.released.count])
        start, count = cut_at(new_start, ranges.count[order].astype(np.int64), edges)
        taker = taker[np.searchsorted(new_start, start, side="right") - 1]
        at = np.searchsorted(was, start, side="right") - 1
        held = np.append(until, -1)[at] > start
        previous = np.where(held, np.append(owner, -1)[at], -1).astype(np.int64)
        changed = previous != taker
        return cls(start[changed], count[changed], previous[changed], taker[changed], topic_start)

    def table(self, group: GroupSpec, owned: Longs, loads: Longs, *, swapped: bool) -> pa.Table:
        """Name members, topics and reasons."""
        topic = np.searchsorted(self.topic_start, self.start, side="right") - 1
        released = group.released
        free = self.topic_start[released.topic] + released.first
        order = np.argsort(free, kind="stable")
        at = np.searchsorted(free[order], self.start, side="right") - 1
        ends = np.append(free[order] + released.count[order], -1)
        let_go = (self.owner < 0) & (ends[at] > self.start)
        row = np.append(order, -1)[at]
        cause = np.append(released.cause, 0)[row]
        over = np.append(owned - loads, 0)[self.owner] > 0
        reason = np.where(self.owner < 0, 2, np.where(over, 0, 1))
        reason = np.where(let_go, 3 + cause, reason)
        if swapped:  # only swaps take from a member for one of its class what it need not give
            class_ = np.append(group.member_class, -1)
            alike = (reason == 1) & (class_[self.owner] == class_[self.taker])
            reason = np.where(alike, REASONS.index(SWAPPED), reason)
        before = group.member_ids.take(pa.array(self.owner, mask=self.owner < 0))
        former = released.owner.take(pa.array(np.where(let_go, row, 0), mask=~let_go))
        return pa.table(
            [
                group.topics.take(pa.array(topic)),
                pa.array(self.start - self.topic_start[topic], pa.int32()),
                pa.array(self.count, pa.int32()),
                pc.coalesce(before, former),
                group.member_ids.take(pa.array(self.taker)),
                pa.array(REASONS).take(pa.array(reason)),
            ],
            schema=CHANGES_SCHEMA,
        )


def count_moved(group: GroupSpec, ranges: PartitionRanges, piece: int = PIECE) -> Longs:
    """Count for each member the owned partitions that another has now, (members,).

    Parameters
    ----------
    piece
        About so many ranges are looked at together.
    """
    owned = sum_by(group.member, group.count, group.member_count)
    wanted = int(group.partitions[group.subscribed_topics()].sum())
    if int(ranges.count.sum(dtype=np.int64)) == wanted:  # what it no longer has, another one has
        return owned - _count_kept(group, ranges, piece)
    changed = _Changes.of(group, ranges)
    taken = changed.owner >= 0
    return sum_by(changed.owner[taken], changed.count[taken], group.member_count)


def _count_kept(group: GroupSpec, ranges: PartitionRanges, piece: int) -> Longs:
    """Count for each member the partitions that it had and has, some members after the others."""
    had, has = group.member_ranges, offsets_of(count_by(ranges.member, group.member_count))
    both, kept = had + has, np.zeros(group.member_count, dtype=np.int64)
    topic_start, start = offsets_of(group.partitions), 0
    while start < group.member_count:
        stop = max(int(np.searchsorted(both, both[start] + piece, "right")) - 1, start + 1)
        before, now = slice(had[start], had[stop]), slice(has[start], has[stop])
        low, length = _line_up(group, before, start, topic_start)
        new_low, new_length = _line_up(ranges, now, start, topic_start)
        totals = offsets_of(new_length)
        edges = np.stack([low, low + length])
        at = np.searchsorted(new_low, edges, side="right") - 1
        inside = np.minimum(edges - new_low[at], new_length[at]) if len(new_low) else edges
        below = np.where(at >= 0, totals[at] + inside, 0)  # partitions that one has up to there
        kept[start:stop] = sum_by(group.member[before] - start, below[1] - below[0], stop - start)
        start = stop
    return kept


def _line_up(
    one: GroupSpec | PartitionRanges, some: slice, base: int, topic_start: Longs
) -> tuple[Longs, Longs]:
    """Return where some ranges begin on a line of all topics of each member; and their lengths."""
    member = one.member[some].astype(np.int64) - base
    at = topic_start[one.topic[some]] + one.first[some]
    return member * topic_start[-1] + at, one.count[some].astype(np.int64)


def _sort_runs(start: Longs, count: Longs) -> tuple[Longs, Longs]:
    """Sort runs by their start: with their counts as one number, if that fits."""
    bits = int(count.max(initial=0)).bit_length()
    if bits + int(start.max(initial=0)).bit_length() > 63:  # noqa: PLR2004 - of an int64
        order = np.argsort(start, kind="stable")
        return start[order], count[order]
    key = (start << bits) | count
    key.sort()
    return key >> bits, key & ((1 << bits) - 1)


def find_problems(group: GroupSpec, ranges: PartitionRanges) -> list[str]:
    """Say what makes an assignment invalid, one line per kind."""
    out = []
    row = _find_unsubscribed(group, ranges)
    if row is not None:
        out.append(
            f"member {group.member_ids[int(ranges.member[row])].as_py()!r} owns partitions of "
            f"{group.topics[int(ranges.topic[row])].as_py()!r}, to which it does not subscribe"
        )
    if _are_outside(group, ranges):
        return [*out, "a range lies outside its topic"]
    topic_start = offsets_of(group.partitions)
    twice = _find_first_twice(ranges, topic_start)
    if twice is not None:
        topic = int(np.searchsorted(topic_start, twice, side="right")) - 1
        name = group.topics[topic].as_py()
        out.append(f"partition {twice - int(topic_start[topic])} of {name!r} has two owners")
    wanted = int(group.partitions[group.subscribed_topics()].sum())
    missing = wanted - int(ranges.count.sum(dtype=np.int64))
    if missing > 0:
        out.append(f"{missing} partitions have no owner")
    return out


def _find_unsubscribed(group: GroupSpec, ranges: PartitionRanges) -> int | None:
    """Return the first range of a topic to which its member does not subscribe."""
    eligible = SubscribedPairs.of(group.class_offsets, group.class_topics, len(group.topics))
    for some in pieces(len(ranges)):
        member, topic = ranges.member[some], ranges.topic[some]
        new = np.append(True, (member[1:] != member[:-1]) | (topic[1:] != topic[:-1]))
        pairs = np.flatnonzero(new)
        subscribed = eligible.holds(group.member_class[member[pairs]], topic[pairs])
        if not subscribed.all():
            return int(some.start + pairs[subscribed.argmin()])
    return None


def _are_outside(group: GroupSpec, ranges: PartitionRanges) -> bool:
    """Whether a range is not within its topic."""
    for some in pieces(len(ranges)):
        first, count = ranges.first[some], ranges.count[some]
        end = first.astype(np.int64) + count
        outside = (first < 0) | (count < 0) | (end > group.partitions[ranges.topic[some]])
        if outside.any():
            return True
    return False


def _find_first_twice(ranges: PartitionRanges, topic_start: Longs) -> int | None:
    """Return the first place of the line of all topics that two ranges cover, None without one."""
    places = int(topic_start[-1])
    dense = len(ranges) * _DENSE > places  # ranges are short
    if dense:
        covered = np.zeros(places, dtype=np.bool_)
        for some in pieces(len(ranges)):
            start, count = topic_start[ranges.topic[some]] + ranges.first[some], ranges.count[some]
            longer = count > 1
            covered[start] = True
            covered[expand_runs(start[longer] + 1, count[longer] - 1)] = True
        if np.count_nonzero(covered) == int(ranges.count.sum(dtype=np.int64)):
            return None
    start, count = topic_start[ranges.topic] + ranges.first, ranges.count
    if dense:
        change = np.bincount(start, minlength=places + 1)
        change -= np.bincount(start + count, minlength=places + 1)
        twice = np.flatnonzero(np.cumsum(change) > 1)
        return int(twice[0]) if len(twice) else None
    start, length = _sort_runs(start, count.astype(np.int64))
    twice = np.flatnonzero(start[1:] < (start + length)[:-1])
    return int(start[twice[0] + 1]) if len(twice) else None
