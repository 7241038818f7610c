"""Owner of each partition of a group, in arrays; a second owner is refused (G-66)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, compress, filterfalse, repeat
from operator import getitem, not_, setitem
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from assignors.arrays import Longs
from coordinator.core.state.groups import FREE, Group, Member, exhaust
from coordinator.core.state.partition_spans import (
    AnySpan,
    Holding,
    Span,
    Spans,
    TopicKey,
    count_partitions,
    end_of,
    first_of,
    topic_of,
)
from coordinator.errors import IllegalStateError

Serials: TypeAlias = NDArray[np.int32]
"""Who holds each partition of a topic: a member's serial, or FREE."""
Addition: TypeAlias = tuple[Serials, Serials]
"""A part of a topic's serials, and what is to be added to it."""
_OWNER: Callable[[Serials, int], int] = getitem  # type: ignore[assignment]
_SET_OWNER: Callable[[Serials, int, int], None] = setitem  # type: ignore[assignment]
MANY = 100
"""So many spans of each topic are worth arrays of their own."""
SPREAD_MAX = 4
"""Spans are written as one array when no more than so many times as long as they are together."""


def release_partitions(group: Group, member: Member, holding: Holding) -> None:
    """Let a member give partitions up.

    Raises
    ------
    IllegalStateError
        It does not hold one of them.
    """
    if holding:
        group.revision += 1
    if _change_singles(group, holding, member.serial, FREE):
        return
    for key, first, end, _ in holding:
        owners = group.owners[key]
        if end - first == 1 and first < len(owners) and owners[first] == member.serial:
            owners[first] = FREE  # of most topics, where there are very many
            continue
        span = owners[first:end]
        if np.count_nonzero(span != member.serial):
            raise IllegalStateError(
                f"{member.member_id} releases {key.name}[{first}..{end - 1}] that it does not hold"
            )
        span[:] = FREE


def _change_singles(group: Group, holding: Holding, before: int, after: int) -> bool:
    """Give the partitions of many spans of one each to another owner; False: not done.

    They are not so, or not all of them are as before: whoever looks at each says which.
    """
    found = _find_singles(group, holding)
    if found is None or set(map(_OWNER, *found)) != {before}:
        return False
    exhaust(map(_SET_OWNER, *found, repeat(after)))
    return True


def _find_singles(
    group: Group, spans: Sequence[AnySpan]
) -> tuple[Sequence[Serials], Sequence[int]] | None:
    """Return each topic's owners, and the one partition; None unless many topics have one each."""
    if len(spans) < MANY or count_partitions(spans) != len(spans):
        return None
    keys, known = list(map(topic_of, spans)), group.owners
    there = set(keys)
    if len(there) < len(keys) or not there <= known.keys():
        return None
    owners, first = list(map(known.__getitem__, keys)), list(map(first_of, spans))
    return (owners, first) if max(first) < min(map(len, owners)) else None


def change_holding(group: Group, member: Member, old: Holding, new: Holding) -> None:
    """Let a member hold other partitions than it did; what is in both stays as it is.

    Raises
    ------
    IllegalStateError
        As `release_partitions` and `claim_partitions`.
    """
    if old and new:
        # Mostly what stays is the very same objects, of which nothing has to be looked at.
        mine, theirs = set(map(id, old)), set(map(id, new))
        if len(theirs) == len(new):  # else it would hold something twice: claiming it is refused
            old = tuple(compress(old, map(not_, map(theirs.__contains__, map(id, old)))))
            new = tuple(compress(new, map(not_, map(mine.__contains__, map(id, new)))))
    if old and new:
        had, has = set(old), set(new)
        if len(has) == len(new):
            old = tuple(filterfalse(has.__contains__, old))
            new = tuple(filterfalse(had.__contains__, new))
    release_partitions(group, member, old)
    claim_partitions(group, member, new)


def claim_partitions(group: Group, member: Member, holding: Holding) -> None:
    """Let a member hold partitions, assigned or pending.

    Raises
    ------
    IllegalStateError
        Somebody holds one of them already.
    """
    if len(holding) >= MANY:
        holding = _claim_new_topics(group, member, holding)
        if _change_singles(group, holding, FREE, member.serial):
            return
    for key, first, end, _ in holding:
        owners = _get_owners(group, key, end)
        if end - first == 1 and owners[first] == FREE:
            owners[first] = member.serial
            continue
        span = owners[first:end]
        if len(span.nonzero()[0]):  # not FREE; the quickest way to know
            raise IllegalStateError(
                f"{member.member_id} claims {key.name}[{first}..{end - 1}] that another one holds"
            )
        span.fill(member.serial)


def _claim_new_topics(group: Group, member: Member, holding: Holding) -> Holding:
    """Claim the spans of topics that nobody held anything of, in one array; return the others.

    Where there are very many topics, an array for each by itself takes most of the time.
    """
    known = group.owners
    keys = list(map(topic_of, holding))
    old, new = holding[:0], holding
    if not known.keys().isdisjoint(keys):
        taken = list(map(known.__contains__, keys))
        old = tuple(compress(holding, taken))
        new = tuple(compress(holding, map(not_, taken)))
        keys = list(map(topic_of, new))
    if len(set(keys)) < len(keys):
        return holding  # several spans of a topic: the array has to hold all of them
    first = np.fromiter(map(first_of, new), np.int64, len(new))
    end = np.fromiter(map(end_of, new), np.int64, len(new))
    if new and not first.any() and (end == end[0]).all():
        known.update(zip(keys, np.full((len(new), end[0]), member.serial, np.int32), strict=True))
        return old
    lengths = np.stack([first, end - first], axis=1).ravel()
    flat = np.tile(np.array([FREE, member.serial], np.int32), len(new)).repeat(lengths)
    stops = np.cumsum(end).tolist()
    for key, start, stop in zip(keys, [0, *stops], stops, strict=False):
        known[key] = flat[start:stop]
    return old


def claim_many(group: Group, claims: Sequence[tuple[Member, Holding]], many: int = MANY) -> None:
    """Let many members hold partitions: `claim_partitions` for each, in order.

    Parameters
    ----------
    many
        Spans a topic from which on they are written as arrays.

    Raises
    ------
    IllegalStateError
        As for `claim_partitions`.
    """
    found = _plan_additions(group, claims, many)
    if found is None:
        for member, holding in claims:
            claim_partitions(group, member, holding)
        return
    for window, added in found:
        np.add(window, added, out=window)


class _Columns(NamedTuple):
    """Spans, and the serial of each one's new holder."""

    first: Longs
    end: Longs
    serial: Serials

    def at(self, places: Longs) -> _Columns:
        """Return some of them."""
        return _Columns(self.first[places], self.end[places], self.serial[places])


def _plan_additions(
    group: Group, claims: Sequence[tuple[Member, Holding]], many: int
) -> list[Addition] | None:
    """Return what is to be added, by topic, and nothing yet added.

    None when that would not be quicker than one by one, or when a claim must be refused: one by
    one says which.
    """
    spans = list(chain.from_iterable(holding for _, holding in claims))
    if not spans:
        return None
    keys, first, end, _ = zip(*spans, strict=True)
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    if len(spans) < many * len(numbers):
        return None
    counts = [len(holding) for _, holding in claims]
    serials = np.array([member.serial for member, _ in claims], np.int32).repeat(counts)
    topics = np.array(list(map(numbers.__getitem__, keys)))
    columns = _Columns(np.array(first), np.array(end), serials)
    order = np.lexsort((columns.first, topics))
    cuts = np.flatnonzero(np.diff(topics[order])) + 1
    found = []
    for key, places in zip(numbers, np.split(order, cuts), strict=True):
        added = _plan_topic(group, key, columns.at(places))
        if added is None:
            return None
        found.append(added)
    return found


def _plan_topic(group: Group, key: TopicKey, spans: _Columns) -> Addition | None:
    """Return what is to be added to one topic; its spans are sorted. None as `_plan_additions`."""
    first, end, serial = spans
    start, stop = int(first[0]), int(end[-1])
    if stop - start > SPREAD_MAX * (end - first).sum() or np.any(first[1:] < end[:-1]):
        return None
    edges = np.stack([first, end], axis=1).ravel()
    values = np.stack([serial, np.full_like(serial, FREE)], axis=1).ravel()[:-1]
    added = values.repeat(np.diff(edges))
    window = _get_owners(group, key, stop)[start:stop]
    if np.any((window != FREE) & (added != FREE)):
        return None
    return window, added


def free_of(group: Group, spans: Spans, serial: int) -> Spans:
    """Return the parts of spans that nobody but this member holds."""
    unclaimed, mine = group.owners, (FREE, serial)
    if len(spans) >= MANY and unclaimed.keys().isdisjoint(map(topic_of, spans)):
        return spans  # nobody ever held a partition of these topics
    found_singles = _find_singles(group, spans)
    if found_singles is not None and set(map(_OWNER, *found_singles)) <= {FREE, serial}:
        return spans
    found: list[Span] = []
    for span in spans:
        owners = unclaimed.get(span[0])
        first, end = span[1], span[2]
        if owners is None or first >= len(owners):
            found.append(span)
        elif end - first == 1:  # of most topics, where there are very many
            if owners[first] in mine:
                found.append(span)
        else:
            key = span[0]
            found += ((key, low, high) for low, high in _free(owners, first, end, serial))
    return tuple(found)


def _free(owners: Serials, first: int, end: int, serial: int) -> Iterator[tuple[int, int]]:
    held = owners[first:end]
    taken = (held != FREE) & (held != serial)
    if not taken.any():
        yield first, end
        return
    edges = np.flatnonzero(np.diff(taken)) + 1
    starts = [0, *edges.tolist()]
    ends = [*edges.tolist(), len(taken)]
    for start, stop in zip(starts, ends, strict=True):
        if not taken[start]:
            last = stop == len(taken)
            yield first + start, end if last else first + stop
    if taken[-1] and first + len(taken) < end:
        yield first + len(taken), end


def _get_owners(group: Group, key: TopicKey, end: int) -> Serials:
    """Return the owners of a topic's partitions, with room up to one of them."""
    owners = group.owners.get(key)
    if owners is not None and len(owners) >= end:
        return owners
    if owners is None:
        grown = np.zeros(end, dtype=np.int32)
    else:
        grown = np.zeros(max(end, 2 * len(owners)), dtype=np.int32)
        grown[: len(owners)] = owners
    group.owners[key] = grown
    return grown
