"""Spans in columns: of one member that has very many, and of very many members that have a few.

A member that subscribes to all of 100,000 topics has as many spans. As tuples each of them is
looked at whenever the member is; as arrays they are compared, cut and joined at once. To a reader
they are the same sequence. What works on spans is in partition_spans.py, which takes either.

A member of a very large group has a range or two. As tuples of Python's numbers these take two
hundred bytes, as a row of a few arrays sixteen; a tuple is made when it is needed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from itertools import accumulate, repeat
from operator import attrgetter, eq
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from assignors.arrays import Bools, Ints, Longs, expand_runs
from coordinator.core.short_calls import apply, number

if TYPE_CHECKING:
    from coordinator.core.state.partition_spans import AnySpan, TopicKey

Rows: TypeAlias = slice | Bools | Longs
PARTITION_BITS = 32
PARTITION = (1 << PARTITION_BITS) - 1
PARTITION_MAX = 2**31 - 1


class TopicKeys:
    """Topics in their order, which columns count; never changed, and shared by many columns.

    What is made of all of them is made once.
    """

    def __init__(self, keys: list[TopicKey]) -> None:
        self.keys = keys

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def places(self) -> dict[TopicKey, int]:
        """Where each topic is."""
        return number(self.keys)

    @cached_property
    def places_by_name(self) -> dict[str, int]:
        """Where the topic of each name is, if no two have the same."""
        return number(self.names)

    @cached_property
    def names(self) -> list[str]:
        """The name of each topic."""
        return apply(attrgetter("name"), self.keys)

    @cached_property
    def arrow(self) -> tuple[pa.Array, pa.Array]:
        """The name and the id of each topic."""
        ids = apply(attrgetter("topic_id"), self.keys)
        return pa.array(self.names, pa.string()), pa.array(ids, pa.string())

    def find(self, keys: list[TopicKey]) -> Longs:
        """Return where each of some topics is; −1 where it is not among these."""
        if keys is self.keys or keys == self.keys:
            return np.arange(len(keys))
        return np.fromiter(map(self.places.get, keys, repeat(-1)), np.int64, len(keys))

    def find_names(self, names: Sequence[str]) -> Longs:
        """Return where the topics of some names are, without those that are not among these."""
        if len(names) == len(self) and all(map(eq, names, self.names)):
            return np.arange(len(self))
        found = [at for at in map(self.places_by_name.get, names) if at is not None]
        return np.array(found, np.int64)

    def equals(self, other: TopicKeys) -> bool:
        """Whether these are the same topics."""
        return self is other or self.keys == other.keys

    def has_all(self, other: TopicKeys) -> bool:
        """Whether all topics of another one are among these."""
        return len(self) >= len(other) and all(map(self.places.__contains__, other.keys))


class SpanColumns(Sequence[Any]):
    """Spans or a holding: sorted, and no two overlap; never changed.

    Attributes
    ----------
    topics
        What `topic` counts: it may have more.
    topic, first, end
        One entry a span.
    epoch
        The assignment epoch of each; None: spans have none.
    """

    __slots__ = ("end", "epoch", "first", "topic", "topics")

    def __init__(
        self, topics: TopicKeys, topic: Ints, first: Ints, end: Ints, epoch: Ints | None = None
    ) -> None:
        self.topics = topics
        self.topic = topic
        self.first = first
        self.end = end
        self.epoch = epoch

    @classmethod
    def of(cls, spans: Sequence[AnySpan]) -> SpanColumns | None:
        """Return spans in columns; None if a client's number cannot be that of a partition."""
        if isinstance(spans, SpanColumns):
            return spans
        keys, *numbers = zip(*spans, strict=True)
        if not 0 <= min(numbers[0]) <= max(numbers[1]) <= PARTITION_MAX:
            return None
        topics = TopicKeys(list(dict.fromkeys(keys)))
        topic = np.fromiter(map(topics.places.__getitem__, keys), np.int32, len(keys))
        return cls(topics, topic, *(np.array(column, np.int32) for column in numbers))

    def __len__(self) -> int:
        return len(self.topic)

    def __iter__(self) -> Iterator[Any]:
        columns = [column.tolist() for column in self.numbers()]
        return zip(self.keys(), *columns, strict=True)

    @overload
    def __getitem__(self, at: int) -> Any: ...  # noqa: ANN401 - of either kind
    @overload
    def __getitem__(self, at: slice) -> SpanColumns: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return self.at(at)
        span = (self.topics.keys[self.topic[at]], int(self.first[at]), int(self.end[at]))
        return span if self.epoch is None else (*span, int(self.epoch[at]))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, tuple):
            return len(self) == len(other) and tuple(self) == other
        if not isinstance(other, SpanColumns):
            return NotImplemented
        if len(self) != len(other) or (self.epoch is None) != (other.epoch is None):
            return False
        mine, theirs = (one.numbers() for one in (self, other))
        if not all(map(_equal, mine, theirs)):
            return False
        if self.topics.equals(other.topics):
            return _equal(self.topic, other.topic)
        return self.keys() == other.keys()

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def numbers(self) -> list[Ints]:
        """Return the columns but for the topics."""
        return [self.first, self.end] + ([] if self.epoch is None else [self.epoch])

    def at(self, rows: Rows) -> SpanColumns:
        """Return some of the spans, in order."""
        topic, first, end = self.topic[rows], self.first[rows], self.end[rows]
        epoch = None if self.epoch is None else self.epoch[rows]
        return SpanColumns(self.topics, topic, first, end, epoch)

    def where(self, kept: Bools) -> SpanColumns:
        """Return those for which it holds: the same object where it holds for all."""
        return self if kept.all() else self.at(kept)

    def keys(self) -> list[TopicKey]:
        """Return the topic of each span."""
        return list(map(self.topics.keys.__getitem__, self.topic.tolist()))

    def with_epoch(self, epoch: int) -> SpanColumns:
        """Return the spans as given at an assignment epoch."""
        given = np.full(len(self), epoch, np.int32)
        return SpanColumns(self.topics, self.topic, self.first, self.end, given)

    def without_epochs(self) -> SpanColumns:
        """Return a holding as spans, touching ones merged."""
        return _merge(SpanColumns(self.topics, self.topic, self.first, self.end))

    def partitions(self) -> int:
        """Return the number of partitions."""
        return int(self.end.sum(dtype=np.int64) - self.first.sum(dtype=np.int64))

    def has_topics_once(self) -> bool:
        """Whether each span is of a topic of its own."""
        return bool((self.topic[1:] != self.topic[:-1]).all())

    def find(self, key: TopicKey, partition: int) -> int | None:
        """Return which span a partition is in; None when it is in none."""
        topic = self.topics.places.get(key)
        if topic is None:
            return None
        start, stop = self.topic.searchsorted(np.array([topic, topic + 1], self.topic.dtype))
        row = int(start + self.first[start:stop].searchsorted(partition, "right")) - 1
        return row if row >= start and partition < self.end[row] else None

    def line(self) -> tuple[Longs, Longs]:
        """Return where each span begins and ends, on one line for all topics."""
        line = self.topic.astype(np.int64) << PARTITION_BITS
        return line + self.first, line + self.end

    def among(self, topics: TopicKeys) -> SpanColumns:
        """Return the same, counted by other topics, which has all of them."""
        if self.topics is topics:
            return self
        topic = self.topic
        if not self.topics.equals(topics):
            topic = topics.find(self.topics.keys).astype(np.int32)[topic]
        return SpanColumns(topics, topic, self.first, self.end, self.epoch)


def cut(spans: SpanColumns, by: SpanColumns) -> tuple[SpanColumns, SpanColumns]:
    """Return (spans ∩ by, spans − by), cut where those of `by` begin and end."""
    spans, by = _align(spans, by)
    edges, since, until = _find_edges(spans, by)
    if np.array_equal(since, until):
        inside = since % 2 == 1
        return spans.where(inside), spans.where(~inside)
    pieces = until - since + 1
    row = np.arange(len(spans)).repeat(pieces)
    number = np.arange(len(row)) - (pieces.cumsum() - pieces)[row]
    place = since[row] + number
    edges = np.append(edges, 0)  # where nothing is taken from
    low, high = spans.line()
    start = np.where(number == 0, low[row], edges[place - 1])
    stop = np.where(number == pieces[row] - 1, high[row], edges[place])
    cuts = spans.at(row)
    first, end = (start & PARTITION).astype(np.int32), (stop & PARTITION).astype(np.int32)
    cuts = SpanColumns(cuts.topics, cuts.topic, first, end, cuts.epoch)
    inside, there = place % 2 == 1, start < stop
    return cuts.at(inside & there), cuts.at(~inside & there)


def subtract(spans: SpanColumns, by: SpanColumns) -> SpanColumns:
    """Return the partitions of `spans`, which have no epochs, that are not in `by`."""
    return _merge(cut(spans, by)[1])


def have_common(left: SpanColumns, right: SpanColumns) -> bool:
    """Whether two sets of spans share a partition."""
    left, right = _align(left, right)
    _, since, until = _find_edges(left, right)
    return bool(((since % 2 == 1) | (since < until)).any())


def join(left: SpanColumns, right: SpanColumns) -> SpanColumns:
    """Return two holdings that do not overlap as one; spans merge where their epochs are equal."""
    left, right = _align(left, right)
    order = np.argsort(np.concatenate([left.line()[0], right.line()[0]]), kind="stable")
    mine, theirs = ([one.topic, *one.numbers()] for one in (left, right))
    columns = [np.concatenate(both)[order] for both in zip(mine, theirs, strict=True)]
    return _merge(SpanColumns(left.topics, *columns))


def _align(left: SpanColumns, right: SpanColumns) -> tuple[SpanColumns, SpanColumns]:
    """Return both, counted by the same topics."""
    topics = left.topics
    if not topics.equals(right.topics) and not topics.has_all(right.topics):
        topics = right.topics
        if not topics.has_all(left.topics):
            topics = TopicKeys(sorted({*left.topics.keys, *right.topics.keys}))
    return left.among(topics), right.among(topics)


def _find_edges(spans: SpanColumns, by: SpanColumns) -> tuple[Longs, Longs, Longs]:
    """Return where those of `by` begin and end, and which of these edges lie within each span.

    An even number of edges before a place: it is in none of them.
    """
    edges = np.stack(by.line(), axis=1).ravel()
    low, high = spans.line()
    return edges, edges.searchsorted(low, "right"), edges.searchsorted(high, "left")


def _merge(spans: SpanColumns) -> SpanColumns:
    """Return spans with touching ones merged, of a holding those with equal epochs."""
    topic, first, end, epoch = spans.topic, spans.first, spans.end, spans.epoch
    goes_on = (topic[1:] == topic[:-1]) & (first[1:] == end[:-1])
    if epoch is not None:
        goes_on &= epoch[1:] == epoch[:-1]
    if not goes_on.any():
        return spans
    begins = np.append(True, ~goes_on)
    merged = spans.at(begins)
    merged.end = end[np.append(~goes_on, True)]
    return merged


def _equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one is other or np.array_equal(one, other)


def to_array(column: Ints) -> array[int]:
    """Return numbers of 32 bits as an array from which one is had in a third of numpy's time.

    `np.asarray` makes numpy's array of it without a copy.
    """
    found = array("i")
    found.frombytes(np.ascontiguousarray(column, np.int32).view(np.uint8).data)
    return found


class SpanRows:
    """The spans of each row, in order; only added to, and not while anyone else keeps them.

    Parameters
    ----------
    keys
        The topics that `topic` counts.
    counts
        How many spans each row has.
    topic, numbers
        One entry per span: its topic; first and end, and the assignment epoch where it has one.
    """

    __slots__ = ("_places", "keys", "numbers", "offsets", "topic")

    def __init__(
        self, keys: list[TopicKey], counts: Ints, topic: Ints, numbers: Sequence[Ints]
    ) -> None:
        self.keys = keys
        self.offsets = to_array(np.concatenate([[0], np.cumsum(counts)]))
        self.topic = to_array(topic)
        self.numbers = [to_array(column) for column in numbers]
        self._places: tuple[list[TopicKey], dict[TopicKey, int]] = [], {}
        """The `keys` that `append` saw last, and the number of each; copies may add others."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.offsets) - 1

    def spans(self, row: int) -> tuple[Any, ...]:
        """Return the spans of a row."""
        start, stop = self.offsets[row], self.offsets[row + 1]
        if start == stop:
            return ()
        keys, topic, numbers = self.keys, self.topic, self.numbers
        return tuple(
            [(keys[topic[at]], *[column[at] for column in numbers]) for at in range(start, stop)]
        )

    def partitions(self) -> Longs:
        """Return how many partitions each row has; any thread may ask, while rows are added."""
        offsets = np.asarray(self.offsets[:])
        first, end = (np.asarray(column[: offsets[-1]]) for column in self.numbers[:2])
        sums = np.concatenate([[0], np.cumsum(end - first, dtype=np.int64)])
        partitions: Longs = np.diff(sums[offsets])
        return partitions

    def are_alike(self, rows: Longs, other: SpanRows, at: Longs) -> Bools:
        """Return which rows have the spans of another one's, one by one; epochs do not count.

        A row below 0 has no span.
        """
        counts = self.counts_of(rows)
        alike: Bools = counts == other.counts_of(at)
        mine, its = self.at(rows[alike]), other.at(at[alike])
        known = {key: number for number, key in enumerate(other.keys)}
        topic = np.array([known.get(key, -1) for key in self.keys], np.int64)
        (here, *bounds), (there, *its_bounds) = self.columns(), other.columns()
        same = topic[here[mine]] == there[its]
        for one, another in zip(bounds[:2], its_bounds[:2], strict=True):
            same &= one[mine] == another[its]
        if not same.all():
            row = np.flatnonzero(alike).repeat(counts[alike])
            alike[row[~same]] = False
        return alike

    def counts_of(self, rows: Longs) -> Longs:
        """Return how many spans some rows have; one below 0 has none."""
        offsets = np.asarray(self.offsets)
        there = np.maximum(rows, 0)
        if len(offsets) == 1:
            return np.zeros(len(rows), np.int64)
        counts: Longs = np.where(rows < 0, 0, offsets[there + 1] - offsets[there])
        return counts

    def columns(self) -> list[Longs]:
        """Return topic and numbers of all spans."""
        return [np.asarray(column) for column in (self.topic, *self.numbers)]

    def counts(self) -> Longs:
        """Return how many spans each row has."""
        return np.diff(np.asarray(self.offsets))

    def at(self, rows: Longs) -> Longs:
        """Return where the spans of some rows are; one below 0 has none."""
        starts = np.asarray(self.offsets)[np.maximum(rows, 0)].astype(np.int64)
        return expand_runs(starts, self.counts_of(rows))

    def extend(self, other: SpanRows) -> None:
        """Add the rows of another one, as long as no one else keeps these."""
        number = {key: at for at, key in enumerate(self.keys)}
        known = np.array([number.setdefault(key, len(number)) for key in other.keys], np.int32)
        self.keys = list(number)
        topic, *numbers = other.columns()
        self.topic.extend(to_array(known[topic] if len(known) else topic))
        for column, more in zip(self.numbers, numbers, strict=True):
            column.extend(to_array(more))
        self.offsets.extend(to_array(np.asarray(other.offsets)[1:] + self.offsets[-1]))

    def append(self, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows of spans that are tuples, as `extend` does.

        Raises
        ------
        OverflowError
            A number has more than 32 bits: nothing is done.
        """
        flat = [span for spans in rows for span in spans]
        numbers = [
            array("i", [span[at] for span in flat]) for at in range(1, len(self.numbers) + 1)
        ]
        ends = array("i", accumulate(map(len, rows), initial=self.offsets[-1]))[1:]
        keys, places = self._places
        if keys is not self.keys:
            places = number(self.keys)
        topic = array("i", [places.setdefault(span[0], len(places)) for span in flat])
        if len(places) > len(self.keys):
            self.keys = list(places)  # copies keep theirs
        self._places = self.keys, places
        self.topic.extend(topic)
        for column, more in zip(self.numbers, numbers, strict=True):
            column.extend(more)
        self.offsets.extend(ends)

    def take(self, rows: Longs) -> SpanRows:
        """Return some rows; one below 0 has no span."""
        at = self.at(rows)
        topic, *numbers = (column[at] for column in self.columns())
        return SpanRows(self.keys, self.counts_of(rows), topic, numbers)

    def copy(self) -> SpanRows:
        """Return the same, to be added to."""
        other, end = copy(self), self.offsets[-1]
        other.offsets, other.topic = self.offsets[:], self.topic[:end]
        other.numbers = [column[:end] for column in self.numbers]
        return other
