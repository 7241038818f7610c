"""Partitions of one member as small sorted tuples, and set algebra on them.

A span is (topic, first, end) or, where it is assigned, (topic, first, end, assignment epoch). A
tuple of spans is sorted and its spans do not overlap. Whole groups are columnar
(`assignors.PartitionRanges`); one member has a handful of spans, where tuples beat arrays.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import TypeAlias, TypeVar

import msgspec


class TopicKey(msgspec.Struct, frozen=True, order=True, gc=False, array_like=True):
    """A topic is its id: a re-created topic has another one.

    A struct that the garbage collector does not know, as records are: so it leaves alone all spans
    of it too, of which one member may have a hundred thousand.
    """

    name: str
    topic_id: str


Named = TypeVar("Named", bound=Hashable)
UUID_BYTES = 16
Span: TypeAlias = tuple[TopicKey, int, int]
Spans: TypeAlias = tuple[Span, ...]
HeldSpan: TypeAlias = tuple[TopicKey, int, int, int]
"""A span with the assignment epoch at which its partitions were given (G-122)."""
Holding: TypeAlias = tuple[HeldSpan, ...]
Cuts: TypeAlias = tuple[list[int], list[int]]
NO_CUTS: Cuts = ([], [])
_TOPIC = itemgetter(0)


@lru_cache(maxsize=1_000_000)
def kafka_id(topic_id: str) -> str:
    """Return a topic id as Kafka has them: a UUID, in unpadded URL-safe base64.

    Sources may give their topics any text as id; from one that is no UUID a UUID is made.
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
    for topic, partitions in sorted(lists, key=_TOPIC):
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
    holding = tuple(holding)
    if len(set(map(_TOPIC, holding))) == len(holding):
        return tuple([span[:3] for span in holding])
    merged: list[Span] = []
    for topic, first, end, _ in holding:
        if merged and merged[-1][0] == topic and merged[-1][2] == first:
            merged[-1] = (topic, merged[-1][1], end)
        else:
            merged.append((topic, first, end))
    return tuple(merged)


def add_epoch(spans: Iterable[Span], assignment_epoch: int) -> Holding:
    """Return spans as given at this assignment epoch."""
    return tuple([(topic, first, end, assignment_epoch) for topic, first, end in spans])


def union(left: Holding, right: Holding) -> Holding:
    """Return two holdings that do not overlap as one; spans merge where their epochs are equal."""
    if not left or not right:
        return left or right
    merged: list[HeldSpan] = []
    for span in sorted(left + right):
        if merged:
            topic, first, end, epoch = merged[-1]
            if topic == span[0] and end == span[1] and epoch == span[3]:
                merged[-1] = (topic, first, span[2], epoch)
                continue
        merged.append(span)
    return tuple(merged)


def split(holding: Holding, by: Iterable[tuple[object, ...]]) -> tuple[Holding, Holding]:
    """Return (holding ∩ by, holding − by); `by` holds spans of either kind.

    Where there are very many topics, nearly all spans are in both or share nothing: these first.
    """
    by = tuple(by)
    if not holding or not by:
        return (), holding
    inside: list[HeldSpan] = []
    outside: list[HeldSpan] = []
    heads = [span[:3] for span in holding]
    both = set(_heads(by)).intersection(heads)
    cuts = _by_topic(span for span in by if span[:3] not in both)
    for head, span in zip(heads, holding, strict=True):
        if head in both:
            inside.append(span)
            continue
        if head[0] not in cuts:
            outside.append(span)
            continue
        topic, first, end, epoch = span
        at = first
        lows, highs = cuts[topic]
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


def subtract_spans(spans: Iterable[Span], by: Iterable[tuple[object, ...]]) -> Spans:
    """Return the partitions of `spans` that are not in `by`."""
    spans = tuple(spans)
    heads = set(_heads(by))
    rest = tuple([span for span in spans if span not in heads]) if heads else spans
    if not rest or not heads:
        return rest
    topics = {span[0] for span in rest}
    others = sorted(head for head in heads if head[0] in topics)
    return drop_epochs(split(add_epoch(rest, 0), others)[1])


def do_overlap(left: Iterable[tuple[object, ...]], right: Iterable[tuple[object, ...]]) -> bool:
    """Whether two sets of spans share a partition."""
    heads = set(_heads(right))
    topics = {head[0] for head in heads}
    near = [head for head in _heads(left) if head[0] in topics]
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
    for key, first, end, epoch in holding:
        if key == topic and first <= partition < end:
            return epoch
    return None


def count_partitions(spans: Iterable[tuple[object, ...]]) -> int:
    """Return the number of partitions."""
    return sum(end - first for _, first, end in _heads(spans))


def _by_topic(spans: Iterable[tuple[object, ...]]) -> dict[object, Cuts]:
    """Return where the spans of each topic begin and end, in order."""
    cuts: dict[object, Cuts] = {}
    for topic, first, end in _heads(spans):
        found = cuts.get(topic)
        if found is None:
            cuts[topic] = ([first], [end])
        else:
            found[0].append(first)
            found[1].append(end)
    return cuts


def _heads(spans: Iterable[tuple[object, ...]]) -> Iterator[tuple[object, int, int]]:
    for span in spans:
        yield span[:3]  # type: ignore[misc]
