"""Who holds each partition of a group: the topics of a group one after the other in one array.

A topic of a group that was loaded is a few runs instead, until it is looked up: a member of a very
large group has a range of a hundred partitions, and while nothing moves no look-up comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, repeat
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from assignors.arrays import Ints, Longs, expand_runs
from coordinator.core.short_calls import number
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.span_columns import SpanColumns, TopicKeys

Serials: TypeAlias = NDArray[np.int32]
"""Who holds each partition of a topic: a member's serial, or FREE."""
FREE = 0
"""No member's serial: they count from 1."""
UNKNOWN = -1
_NO_SERIALS: Serials = np.zeros(0, np.int32)
_NO_LONGS: Longs = np.zeros(0, np.int64)
"""What groups begin with, each of a million."""
LONG = 6
"""Runs of so many partitions on average take up half of what the partitions do, or less."""


class Runs(NamedTuple):
    """Partitions of a topic as ranges, and the serial of each one's holder; FREE once it left."""

    first: Ints
    end: Ints
    serial: Serials

    def at(self, places: Longs) -> Runs:
        """Return some of them."""
        return Runs(self.first[places], self.end[places], self.serial[places])

    def find(self, first: int, end: int, serial: int) -> int:
        """Return which of them is just these partitions of a holder, UNKNOWN if none is."""
        place = int(self.first.searchsorted(np.int32(first)))  # another type would copy them
        if place == len(self.first) or self.first[place] != first or self.end[place] != end:
            return UNKNOWN
        return place if self.serial[place] == serial else UNKNOWN

    def overlap(self) -> bool:
        """Whether two of them share a partition; they are sorted."""
        return bool(np.any(self.first[1:] < self.end[:-1]))

    def owners(self) -> Serials:
        """Return the owner of each partition from the first one's on; they are sorted."""
        edges = np.stack([self.first, self.end], axis=1).ravel()
        values = np.stack([self.serial, np.full_like(self.serial, FREE)], axis=1).ravel()[:-1]
        return values.repeat(np.diff(edges))


class PartitionOwners(Mapping[TopicKey, Serials]):
    """The owners of a group's partitions; of each topic there is room for some of them.

    Partitions without room are free. What a look-up returns may be written to until the
    next call of `reserve`.
    """

    __slots__ = ("_places", "_rooms", "_runs", "_seen", "_serials", "_starts", "_used")

    def __init__(self) -> None:
        self._serials = _NO_SERIALS
        self._used = 0
        self._places: dict[TopicKey, int] = {}
        """Of each topic in the two arrays below."""
        self._starts = self._rooms = _NO_LONGS
        self._seen: tuple[TopicKeys, int, Longs] | None = None
        """Topics that were looked for, how many were known then, and where they are."""
        self._runs: dict[TopicKey, Runs] = {}
        """Topics that have no place yet, as sorted runs."""

    def __getitem__(self, key: TopicKey) -> Serials:
        if key in self._runs:
            self._place_runs([key])
        place = self._places[key]
        start = self._starts[place]
        return self._serials[start : start + self._rooms[place]]

    def __contains__(self, key: object) -> bool:
        return key in self._places or key in self._runs

    def __iter__(self) -> Iterator[TopicKey]:
        return iter([*self._places, *self._runs])  # to look at one gives it its place

    def __len__(self) -> int:
        return len(self._places) + len(self._runs)

    def join_runs(self, key: TopicKey, more: Runs, long: int = LONG) -> Runs | None:
        """Return the runs of a topic with more of them, which are sorted.

        None where the topic has its place, where they overlap, or are too short on average.
        """
        if key in self._places:
            return None
        had = self._runs.get(key)
        if had is not None:
            had = had.at(np.flatnonzero(had.serial != FREE))
            more = Runs(*(np.concatenate(pair) for pair in zip(had, more, strict=True)))
            more = more.at(np.argsort(more.first, kind="stable"))
        if more.overlap() or more.end[-1] < long * len(more.end):
            return None
        return Runs(*(column.astype(np.int32) for column in more))

    def set_runs(self, key: TopicKey, runs: Runs) -> None:
        """Set who owns what of a topic, to runs that were joined."""
        self._runs[key] = runs

    def reserve(self, key: TopicKey, end: int) -> Serials:
        """Return the owners of a topic's partitions, with room up to one of them."""
        self._place_runs([key])
        place = self._places.get(key)
        if place is None:
            self._add_topics([key], np.array([end], np.int64))
        elif self._rooms[place] < end:
            self._move(place, max(end, 2 * int(self._rooms[place])))
        return self[key]

    def reserve_all(self, keys: Sequence[TopicKey], ends: Longs) -> None:
        """Have room in each topic up to a partition: `reserve` for many, which grows once."""
        self._place_runs(keys)
        places = self._look_up(keys)
        new = places == UNKNOWN
        if new.any():
            self._add_topics(list(compress(keys, new.tolist())), ends[new])
        self._widen(places[~new], ends[~new])

    def claim(self, spans: SpanColumns, serial: int) -> int | None:
        """Give partitions to a member; None: done, else the first span that is not free."""
        low, high = spans.line()
        if (low[1:] < high[:-1]).any():
            return int(np.argmax(low[1:] < high[:-1])) + 1
        self._reserve(spans)
        at, counts = self._find(spans)
        held = self._serials[at] != FREE
        if held.any():
            return int(np.arange(len(spans)).repeat(counts)[np.argmax(held)])
        self._serials[at] = serial
        return None

    def release(self, spans: SpanColumns, serial: int) -> int | None:
        """Let a member give partitions up; None: done, else the first span that is not its."""
        at, counts = self._find(spans)
        short = counts != spans.end - spans.first
        if short.any():
            return int(np.argmax(short))
        other = self._serials[at] != serial
        if other.any():
            return int(np.arange(len(spans)).repeat(counts)[np.argmax(other)])
        self._serials[at] = FREE
        return None

    def release_run(self, key: TopicKey, first: int, end: int, serial: int) -> bool:
        """Let a member give a range up; False, and nothing is done, where it is no run of its.

        The topic stays runs: of a very large group few topics ever have an owner a partition.
        """
        runs = self._runs.get(key)
        place = UNKNOWN if runs is None else runs.find(first, end, serial)
        if runs is None or place == UNKNOWN:
            return False
        runs.serial[place] = FREE
        return True

    def find_held(self, spans: SpanColumns, serial: int) -> SpanColumns:
        """Return the partitions that another member holds, one by one."""
        at, counts = self._find(spans)
        owners = self._serials[at]
        places = np.flatnonzero((owners != FREE) & (owners != serial))
        row = np.arange(len(spans)).repeat(counts)[places]
        first = (places - (counts.cumsum() - counts)[row] + spans.first[row]).astype(np.int32)
        return SpanColumns(spans.topics, spans.topic[row], first, first + np.int32(1))

    def _find(self, spans: SpanColumns) -> tuple[Longs, Longs]:
        """Return where the partitions are for which there is room, and how many of each span."""
        place = self._find_topics(spans.topics)[spans.topic]
        known = place != UNKNOWN
        if not len(self._starts):
            return np.zeros(0, np.int64), np.zeros(len(spans), np.int64)
        room = np.where(known, self._rooms[place], 0)
        counts = np.maximum(np.minimum(spans.end, room) - spans.first, 0)
        return expand_runs(self._starts[place] + spans.first, counts), counts

    def _find_topics(self, topics: TopicKeys) -> Longs:
        """Return the place of each topic, UNKNOWN where it has none; mostly the same are asked."""
        self._place_runs(topics.keys)
        known = len(self._places)
        if self._seen is None or self._seen[0] is not topics or self._seen[1] != known:
            self._seen = topics, known, self._look_up(topics.keys)
        return self._seen[2]

    def _place_runs(self, keys: Sequence[TopicKey]) -> None:
        """Give those topics their place that are runs."""
        found = [key for key in keys if key in self._runs] if self._runs else []
        if not found:
            return
        runs = [self._runs.pop(key) for key in found]
        self._add_topics(found, np.array([some.end[-1] for some in runs], np.int64))
        for key, some in zip(found, runs, strict=True):
            self[key][some.first[0] :] = some.owners()

    def _look_up(self, keys: Sequence[TopicKey]) -> Longs:
        """Return the place of each topic, UNKNOWN where it has none."""
        if not self._places:
            return np.full(len(keys), UNKNOWN)
        return np.fromiter(map(self._places.get, keys, repeat(UNKNOWN)), np.int64, len(keys))

    def _reserve(self, spans: SpanColumns) -> None:
        """Have room for spans."""
        last = np.append(spans.topic[1:] != spans.topic[:-1], True)
        topic, end = spans.topic[last], spans.end[last].astype(np.int64)
        places = self._find_topics(spans.topics)
        new = places[topic] == UNKNOWN
        if new.any():
            known, added = len(self._places), topic[new]
            keys = spans.topics.keys
            if len(added) < len(keys):
                keys = list(map(keys.__getitem__, added.tolist()))
            self._add_topics(keys, end[new])
            places[added] = np.arange(known, len(self._places))
            self._seen = spans.topics, len(self._places), places
        self._widen(places[topic], end)

    def _widen(self, places: Longs, ends: Longs) -> None:
        """Have room in topics that are known."""
        for at in np.flatnonzero(self._rooms[places] < ends).tolist():
            self._move(int(places[at]), max(int(ends[at]), 2 * int(self._rooms[places[at]])))

    def _add_topics(self, keys: list[TopicKey], rooms: Longs) -> None:
        """Add topics whose partitions are all free."""
        if not self._places and len(keys) == 1:  # of most groups it is the only one
            self._starts, self._rooms = np.zeros(1, np.int64), rooms
            self._grow(int(rooms[0]))
            self._places[keys[0]] = 0
            return
        count, stops = len(self._places), rooms.cumsum()
        self._starts = _put(self._starts, count, self._used + stops - rooms)
        self._rooms = _put(self._rooms, count, rooms)
        self._grow(int(stops[-1]))
        self._places.update(number(keys, count))

    def _move(self, place: int, room: int) -> None:
        """Give a topic more room."""
        start, had, used = int(self._starts[place]), int(self._rooms[place]), self._used
        self._grow(room)
        self._serials[used : used + had] = self._serials[start : start + had]
        self._starts[place], self._rooms[place] = used, room

    def _grow(self, more: int) -> None:
        used = self._used + more
        if used > len(self._serials):
            grown = np.zeros(used if not self._used else 2 * used, np.int32)
            grown[: self._used] = self._serials[: self._used]
            self._serials = grown
        self._used = used


def _put(column: Longs, count: int, values: Longs) -> Longs:
    """Return a column with values behind its first ones, and room for more."""
    needed = count + len(values)
    if needed > len(column):
        column = np.concatenate(
            [column[:count], np.zeros(max(needed, 2 * count) - count, np.int64)]
        )
    column[count:needed] = values
    return column
