"""Partitions of one member as sorted spans, and set algebra on them.

A span is (topic, first, end) or, where it is assigned, (topic, first, end, assignment epoch). Spans
are sorted and do not overlap. Whole groups are columnar (`assignors.PartitionRanges`); one member
has a handful of spans, where tuples beat arrays. A member of very many topics has columns of its
own (`SpanColumns`), which are the same sequence to a reader.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import compress, filterfalse
from operator import itemgetter, not_
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from coordinator.core.state import span_columns
from coordinator.core.state.span_columns import SpanColumns


class TopicKey(msgspec.Struct, frozen=True, order=True, gc=False, array_like=True, cache_hash=True):
    """A topic is its id: a re-created topic has another one.

    A struct that the garbage collector does not know, as records are: so it leaves alone all spans
    of it too, of which one member may have a hundred thousand.
    """

    name: str
    topic_id: str


Named = TypeVar("Named", bound=Hashable)
UUID_BYTES = 16
Span: TypeAlias = tuple[TopicKey, int, int]
HeldSpan: TypeAlias = tuple[TopicKey, int, int, int]
"""A span with the assignment epoch at which its partitions were given (G-122)."""
if TYPE_CHECKING:
    Spans: TypeAlias = Sequence[Span]
    Holding: TypeAlias = Sequence[HeldSpan]
else:  # tuples, or columns where there are many; what is read back from text are tuples
    Spans = tuple[Span, ...]
    Holding = tuple[HeldSpan, ...]
Cuts: TypeAlias = tuple[list[int], list[int]]
NO_CUTS: Cuts = ([], [])
MANY = 200
"""So many spans are worth columns."""
AnySpan: TypeAlias = Span | HeldSpan
topic_of: Callable[[AnySpan], TopicKey] = itemgetter(0)
_FIRST: Callable[[AnySpan], int] = itemgetter(1)
_END: Callable[[AnySpan], int] = itemgetter(2)
_HEAD: Callable[[AnySpan], Span] = itemgetter(0, 1, 2)


@lru_cache(maxsize=1_000_000)
def kafka_id(topic_id: str) -> str:
    """Return a topic id as Kafka has them: a UUID, in unpadded URL-safe base64.

    Sources may give their topics any text as id; a text that is not a UUID is turned into one.
    """
    try:
        raw = base64.b64decode(topic_id + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) == UUID_BYTES and _print_id(raw) == topic_id:
        return topic_id
    return make_id(topic_id)


def make_id(text: str) -> str:
    """Return an id made from a text, always the same."""
    raw = bytearray(hashlib.md5(text.encode(), usedforsecurity=False).digest())
    raw[6] = raw[6] & 0x0F | 0x30  # a UUID's version: 3, made from a text
    raw[8] = raw[8] & 0x3F | 0x80  # its variant
    return _print_id(bytes(raw))


def _print_id(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def spans_of(partitions: Iterable[tuple[TopicKey, int]]) -> Spans:
    """Return single partitions, in any order, as spans."""
    merged: list[Span] = []
    for topic, partition in sorted(set(partitions)):
        if merged and merged[-1][0] == topic and merged[-1][2] == partition:
            merged[-1] = (topic, merged[-1][1], partition + 1)
        else:
            merged.append((topic, partition, partition + 1))
    return tuple(merged)


def spans_of_topics(lists: Iterable[tuple[TopicKey, Sequence[int]]]) -> Spans:
    """Return the partitions of topics, each topic given once and in any order, as spans.

    Where there are very many topics, sorting them takes far less than sorting their partitions.
    """
    found: list[Span] = []
    for topic, partitions in sorted(lists, key=itemgetter(0)):
        if len(partitions) == 1:
            found.append((topic, partitions[0], partitions[0] + 1))
        else:
            found += spans_of((topic, partition) for partition in partitions)
    return tuple(found)


def partitions_by(of: Callable[[TopicKey], Named], spans: Iterable[Span]) -> dict[Named, list[int]]:
    """Return the partitions of spans, in their order, under what `of` makes of their topics."""
    found: dict[Named, list[int]] = {}
    for topic, first, end in spans:
        found.setdefault(of(topic), []).extend(range(first, end))
    return found


def drop_epochs(holding: Iterable[HeldSpan]) -> Spans:
    """Return a holding without its epochs, touching spans merged."""
    if isinstance(holding, SpanColumns):
        return shrink(holding.without_epochs())
    merged: list[Span] = []
    for topic, first, end, _ in holding:
        if merged and merged[-1][0] == topic and merged[-1][2] == first:
            merged[-1] = (topic, merged[-1][1], end)
        else:
            merged.append((topic, first, end))
    return tuple(merged)


def shrink(spans: SpanColumns) -> Sequence[Any]:
    """Return spans as a tuple where they are too few for columns."""
    return spans if len(spans) >= MANY else tuple(spans)


def _in_columns(
    left: Sequence[AnySpan], right: Sequence[AnySpan]
) -> tuple[SpanColumns, SpanColumns] | None:
    """Return both in columns, if one of them has these or both are many; None: as tuples."""
    known = isinstance(left, SpanColumns) or isinstance(right, SpanColumns)
    if not known and (len(left) < MANY or len(right) < MANY):
        return None
    one, other = SpanColumns.of(left), SpanColumns.of(right)
    return None if one is None or other is None else (one, other)


def has_partitions(holding: Holding, spans: Spans) -> bool:
    """Whether these are the partitions of a holding; epochs are ignored."""
    return count_partitions(spans) == count_partitions(holding) and spans == drop_epochs(holding)


def add_epoch(spans: Iterable[Span], assignment_epoch: int) -> Holding:
    """Return spans as given at this assignment epoch."""
    if isinstance(spans, SpanColumns):
        return spans.with_epoch(assignment_epoch)
    return tuple([(topic, first, end, assignment_epoch) for topic, first, end in spans])


def has_topics_once(spans: Sequence[AnySpan]) -> bool:
    """Whether each span is of a topic of its own, as where there are very many topics."""
    if isinstance(spans, SpanColumns):
        return spans.has_topics_once()
    return len(set(map(topic_of, spans))) == len(spans)


def union(left: Holding, right: Holding) -> Holding:
    """Return two holdings that do not overlap as one; spans merge where their epochs are equal."""
    if not left or not right:
        return left or right
    columns = _in_columns(left, right)
    if columns is not None:
        return shrink(span_columns.join(*columns))
    merged: list[HeldSpan] = []
    for span in sorted([*left, *right]):
        if merged:
            topic, first, end, epoch = merged[-1]
            if topic == span[0] and end == span[1] and epoch == span[3]:
                merged[-1] = (topic, first, span[2], epoch)
                continue
        merged.append(span)
    return tuple(merged)


def put_together(one: Holding, other: Holding) -> Holding:
    """Return two holdings that do not overlap as one, with their spans as they are.

    They are in order where one of both is empty, or many.
    """
    if not one or not other:
        return one or other
    columns = _in_columns(one, other)
    return (*one, *other) if columns is None else span_columns.join(*columns)


def split(holding: Holding, by: Iterable[AnySpan]) -> tuple[Holding, Holding]:
    """Return (holding ∩ by, holding − by); `by` holds spans of either kind."""
    by = by if isinstance(by, Sequence) else tuple(by)
    if not holding or not by:
        return (), holding
    columns = _in_columns(holding, by)
    if columns is not None:
        both = span_columns.cut(*columns)
        return shrink(both[0]), shrink(both[1])
    others = set(map(_HEAD, by))
    heads = list(map(_HEAD, holding))
    found = list(map(others.__contains__, heads))
    inside = list(compress(holding, found))
    outside = list(compress(holding, map(not_, found)))
    others.difference_update(compress(heads, found))
    if not outside or not others:
        return tuple(inside), tuple(outside)
    cuts = _by_topic(sorted(others))
    if cuts.keys().isdisjoint(map(topic_of, outside)):
        return tuple(inside), tuple(outside)
    return _cut(zip(holding, found, strict=True), cuts)


def _cut(
    holding: Iterable[tuple[HeldSpan, bool]], cuts: Mapping[TopicKey, Cuts]
) -> tuple[Holding, Holding]:
    """Return what is inside and what is outside, of spans of which some are known to be inside."""
    inside: list[HeldSpan] = []
    outside: list[HeldSpan] = []
    for span, whole in holding:
        if whole:
            inside.append(span)
            continue
        topic, first, end, epoch = span
        at = first
        lows, highs = cuts.get(topic, NO_CUTS)
        for place in range(bisect_right(highs, first), len(lows)):
            low, high = lows[place], highs[place]
            if low >= end:
                break
            if low > at:
                outside.append((topic, at, low, epoch))
            inside.append((topic, max(low, at), min(high, end), epoch))
            at = min(high, end)
        if at < end:
            outside.append((topic, at, end, epoch))
    return tuple(inside), tuple(outside)


def subtract_spans(spans: Iterable[Span], by: Iterable[AnySpan]) -> Spans:
    """Return the partitions of `spans` that are not in `by`."""
    spans = spans if isinstance(spans, Sequence) else tuple(spans)
    by = by if isinstance(by, Sequence) else tuple(by)
    if not spans or not by:
        return spans
    columns = _in_columns(spans, by)
    if columns is not None:
        return shrink(span_columns.subtract(*columns))
    heads = set(map(_HEAD, by))
    rest = tuple(filterfalse(heads.__contains__, spans))
    topics = set(map(topic_of, rest))
    if not rest or topics.isdisjoint(map(topic_of, heads)):
        return rest
    others = sorted(head for head in heads if head[0] in topics)
    return drop_epochs(split(add_epoch(rest, 0), others)[1])


def do_overlap(left: Iterable[AnySpan], right: Iterable[AnySpan]) -> bool:
    """Whether two sets of spans share a partition."""
    left = left if isinstance(left, Sequence) else tuple(left)
    right = right if isinstance(right, Sequence) else tuple(right)
    if not left or not right:
        return False
    columns = _in_columns(left, right)
    if columns is not None:
        return span_columns.have_common(*columns)
    heads = set(map(_HEAD, right))
    topics = set(map(topic_of, heads))
    near = [head for head in map(_HEAD, left) if head[0] in topics]
    if not heads.isdisjoint(near):
        return True
    cuts = _by_topic(sorted(heads)) if near else {}
    for span in near:
        lows, highs = cuts.get(span[0], NO_CUTS)
        place = bisect_right(highs, span[1])
        if place < len(lows) and lows[place] < span[2]:
            return True
    return False


def is_within(spans: Spans, holding: Holding) -> bool:
    """Whether every partition of `spans` is in `holding`."""
    return not subtract_spans(spans, holding)


def epoch_of(holding: Holding, topic: TopicKey, partition: int) -> int | None:
    """Return the assignment epoch of one partition, None when it is not there."""
    if isinstance(holding, SpanColumns):
        row = holding.find(topic, partition)
        return None if row is None else int(holding[row][3])
    for key, first, end, epoch in holding:
        if key == topic and first <= partition < end:
            return epoch
    return None


def count_partitions(spans: Iterable[AnySpan]) -> int:
    """Return the number of partitions."""
    if isinstance(spans, SpanColumns):
        return spans.partitions()
    spans = tuple(spans)
    return sum(map(_END, spans)) - sum(map(_FIRST, spans))


def _by_topic(spans: Iterable[Span]) -> dict[TopicKey, Cuts]:
    """Return where the spans of each topic begin and end, in order."""
    cuts: dict[TopicKey, Cuts] = {}
    for topic, first, end in spans:
        found = cuts.get(topic)
        if found is None:
            cuts[topic] = ([first], [end])
        else:
            found[0].append(first)
            found[1].append(end)
    return cuts
