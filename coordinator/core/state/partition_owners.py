"""Owner of each partition of a group, in arrays; a second owner is refused (G-66)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, filterfalse
from typing import TypeAlias

import numpy as np

from assignors.arrays import Ints, expand_runs
from coordinator.core.state.groups import Group, Member
from coordinator.core.state.owner_columns import FREE, LONG, Runs, Serials
from coordinator.core.state.partition_spans import (
    HeldSpan,
    Holding,
    Span,
    Spans,
    TopicKey,
    split,
    subtract_spans,
)
from coordinator.core.state.span_columns import SpanColumns
from coordinator.errors import IllegalStateError

Addition: TypeAlias = Callable[[], object]
"""Adds to who holds what of a topic."""
MANY = 100
"""So many spans of each topic are worth arrays of their own."""
SPREAD_MAX = 4
"""Spans that are longer than so many times what is in them are written partition by partition."""


def release_partitions(group: Group, member: Member, holding: Holding) -> None:
    """Let a member give partitions up.

    Raises
    ------
    IllegalStateError
        It does not hold one of them.
    """
    if not holding:
        return
    group.revision += 1
    if isinstance(holding, SpanColumns):
        wrong = group.owners.release(holding, member.serial)
        if wrong is not None:
            raise _not_held(member, holding[wrong])
        return
    for held in holding:
        key, first, end, _ = held
        if group.owners.release_run(key, first, end, member.serial):
            continue
        owners = group.owners[key]
        if end - first == 1 and first < len(owners) and owners[first] == member.serial:
            owners[first] = FREE
            continue
        span = owners[first:end]
        if np.count_nonzero(span != member.serial):
            raise _not_held(member, held)
        span[:] = FREE


def _not_held(member: Member, span: HeldSpan) -> IllegalStateError:
    key, first, end, _ = span
    return IllegalStateError(
        f"{member.member_id} releases {key.name}[{first}..{end - 1}] that it does not hold"
    )


def change_holding(group: Group, member: Member, old: Holding, new: Holding) -> None:
    """Let a member hold other partitions than it did; what is in both stays as it is.

    Raises
    ------
    IllegalStateError
        As `release_partitions` and `claim_partitions`.
    """
    if isinstance(old, SpanColumns) or isinstance(new, SpanColumns):
        old, new = split(old, new)[1], split(new, old)[1]
    elif old and new:
        had, has = set(old), set(new)
        if len(has) == len(new):  # else it would hold something twice: claiming it is refused
            old = tuple(filterfalse(has.__contains__, old))
            new = tuple(filterfalse(had.__contains__, new))
    release_partitions(group, member, old)
    claim_partitions(group, member, new)


def claim_partitions(group: Group, member: Member, holding: Holding) -> None:
    """Let a member hold partitions, assigned or pending.

    Raises
    ------
    IllegalStateError
        A member holds one of them already.
    """
    if isinstance(holding, SpanColumns):
        wrong = group.owners.claim(holding, member.serial)
        if wrong is not None:
            raise _held_already(member, holding[wrong])
        return
    for held in holding:
        key, first, end, _ = held
        owners = group.owners.reserve(key, end)
        if end - first == 1 and owners[first] == FREE:
            owners[first] = member.serial
            continue
        span = owners[first:end]
        if len(span.nonzero()[0]):  # not FREE; the quickest way to know
            raise _held_already(member, held)
        span.fill(member.serial)


def _held_already(member: Member, span: HeldSpan) -> IllegalStateError:
    key, first, end, _ = span
    return IllegalStateError(
        f"{member.member_id} claims {key.name}[{first}..{end - 1}] that another one holds"
    )


def claim_many(
    group: Group, claims: Sequence[tuple[Member, Holding]], many: int = MANY, long: int = LONG
) -> None:
    """Let many members hold partitions: `claim_partitions` for each, in order.

    Parameters
    ----------
    many
        Spans a topic from which on they are written as arrays.
    long
        Partitions a span from which on they stay as spans in these.

    Raises
    ------
    IllegalStateError
        As for `claim_partitions`.
    """
    topics = _by_topic(claims, many)
    if topics is None or not claim_runs(group, topics, long):
        for member, holding in claims:
            claim_partitions(group, member, holding)


def claim_runs(group: Group, topics: Sequence[tuple[TopicKey, Runs]], long: int = LONG) -> bool:
    """Let members hold the partitions of topics, each given once with its runs in order.

    False, and nothing is done, when a claim must be refused: one by one says which.
    """
    found = _plan_additions(group, topics, long)
    for add in found or ():
        add()
    return found is not None


def _plan_additions(
    group: Group, topics: Sequence[tuple[TopicKey, Runs]], long: int
) -> list[Addition] | None:
    """Return what adds to each topic, without doing it. None as `claim_runs` says False."""
    found: list[Addition] = []
    rest: list[tuple[TopicKey, Runs]] = []
    for key, runs in topics:
        joined = group.owners.join_runs(key, runs, long)
        if joined is None:
            rest.append((key, runs))
        else:
            found.append(partial(group.owners.set_runs, key, joined))
    ends = np.array([runs.end.max() for _, runs in rest], np.int64)
    group.owners.reserve_all([key for key, _ in rest], ends)
    for key, runs in rest:
        added = _plan_topic(group, key, runs)
        if added is None:
            return None
        found.append(added)
    return found


def _by_topic(
    claims: Sequence[tuple[Member, Holding]], many: int
) -> list[tuple[TopicKey, Runs]] | None:
    """Return the claims of each topic, sorted; None where they are columns, or few."""
    if sum(len(holding) for _, holding in claims) < many:
        return None
    if SpanColumns in {type(holding) for _, holding in claims}:
        return None
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
    return part_by_topic(list(numbers), topics, Runs(np.array(first), np.array(end), serials))


def part_by_topic(keys: list[TopicKey], topic: Ints, runs: Runs) -> list[tuple[TopicKey, Runs]]:
    """Return the runs of each topic that has any, in order; `topic` is a place in `keys`."""
    order = np.lexsort((runs.first, topic))
    cuts = np.flatnonzero(np.diff(topic[order])) + 1
    parts = np.split(order, cuts) if len(order) else []
    return [(keys[topic[at[0]]], runs.at(at)) for at in parts]


def _plan_topic(group: Group, key: TopicKey, runs: Runs) -> Addition | None:
    """Return what adds to one topic that has its place. None as `claim_runs` says False."""
    start, stop = int(runs.first[0]), int(runs.end[-1])
    if runs.overlap():
        return None
    if stop - start > SPREAD_MAX * (runs.end - runs.first).sum():
        return _plan_spread(group.owners[key], runs)
    added = runs.owners()
    window = group.owners[key][start:stop]
    if np.any((window != FREE) & (added != FREE)):
        return None
    return partial(np.add, window, added, out=window)


def _plan_spread(owners: Serials, runs: Runs) -> Addition | None:
    """Return what adds to a topic of which few partitions here and there are given."""
    counts = runs.end - runs.first
    at = expand_runs(runs.first, counts)
    if owners[at].any():  # one is not FREE
        return None
    return partial(owners.__setitem__, at, runs.serial.repeat(counts))


def free_of(group: Group, spans: Spans, serial: int) -> Spans:
    """Return the parts of spans that no other member holds."""
    if isinstance(spans, SpanColumns):
        held = group.owners.find_held(spans, serial)
        return subtract_spans(spans, held) if held else spans
    unclaimed, mine = group.owners, (FREE, serial)
    found: list[Span] = []
    for span in spans:
        owners = unclaimed.get(span[0])
        first, end = span[1], span[2]
        if owners is None or first >= len(owners):
            found.append(span)
        elif end - first == 1:
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
