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
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import compress, filterfalse
from operator import eq, itemgetter, not_
from typing import TypeAlias, TypeVar

import msgspec


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
Spans: TypeAlias = tuple[Span, ...]
HeldSpan: TypeAlias = tuple[TopicKey, int, int, int]
"""A span with the assignment epoch at which its partitions were given (G-122)."""
Holding: TypeAlias = tuple[HeldSpan, ...]
Cuts: TypeAlias = tuple[list[int], list[int]]
NO_CUTS: Cuts = ([], [])
MANY = 100
"""So many spans are worth a look at their topics first."""
AnySpan: TypeAlias = Span | HeldSpan
EitherSpan = TypeVar("EitherSpan", Span, HeldSpan)
topic_of: Callable[[AnySpan], TopicKey] = itemgetter(0)
first_of: Callable[[AnySpan], int] = itemgetter(1)
end_of: Callable[[AnySpan], int] = itemgetter(2)
_HEAD: Callable[[AnySpan], Span] = itemgetter(0, 1, 2)


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
    holding = tuple(holding)
    if has_topics_once(holding):
        return tuple(map(_HEAD, holding))
    merged: list[Span] = []
    for topic, first, end, _ in holding:
        if merged and merged[-1][0] == topic and merged[-1][2] == first:
            merged[-1] = (topic, merged[-1][1], end)
        else:
            merged.append((topic, first, end))
    return tuple(merged)


def has_partitions(holding: Holding, spans: Spans) -> bool:
    """Whether these are the partitions of a holding, whatever their epochs."""
    return count_partitions(spans) == count_partitions(holding) and spans == drop_epochs(holding)


def add_epoch(spans: Iterable[Span], assignment_epoch: int) -> Holding:
    """Return spans as given at this assignment epoch."""
    return tuple([(topic, first, end, assignment_epoch) for topic, first, end in spans])


def has_topics_once(spans: Sequence[AnySpan]) -> bool:
    """Whether each span is of a topic of its own, as where there are very many topics."""
    return len(set(map(topic_of, spans))) == len(spans)


def union(left: Holding, right: Holding) -> Holding:
    """Return two holdings that do not overlap as one; spans merge where their epochs are equal."""
    if not left or not right:
        return left or right
    both = left + right
    if has_topics_once(both):
        return tuple(sorted(both, key=topic_of))
    merged: list[HeldSpan] = []
    for span in sorted(both):
        if merged:
            topic, first, end, epoch = merged[-1]
            if topic == span[0] and end == span[1] and epoch == span[3]:
                merged[-1] = (topic, first, span[2], epoch)
                continue
        merged.append(span)
    return tuple(merged)


def split(holding: Holding, by: Iterable[AnySpan], many: int = MANY) -> tuple[Holding, Holding]:
    """Return (holding ∩ by, holding − by); `by` holds spans of either kind.

    Where there are very many topics, nearly all spans are in both or share nothing: these first.
    """
    by = tuple(by)
    if not holding or not by:
        return (), holding
    if len(holding) >= many and len(by) >= many:
        whole = _split_whole(holding, by)
        if whole is not None:
            return whole
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


def _split_whole(
    holding: tuple[EitherSpan, ...], by: Sequence[AnySpan]
) -> tuple[tuple[EitherSpan, ...], tuple[EitherSpan, ...]] | None:
    """Return the same by topics, which is quicker; None unless each of them has the same span.

    Of a topic there is one span at most on either side, or spans have to be cut.
    """
    keys, others = list(map(topic_of, holding)), dict(zip(map(topic_of, by), by, strict=True))
    if len(others) < len(by) or len(set(keys)) < len(keys):
        return None
    known = list(map(others.__contains__, keys))
    inside = tuple(compress(holding, known))
    theirs = list(map(others.__getitem__, compress(keys, known)))
    same = map(eq, map(first_of, inside), map(first_of, theirs))
    if not all(same) or not all(map(eq, map(end_of, inside), map(end_of, theirs))):
        return None
    return inside, tuple(compress(holding, map(not_, known)))


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


def subtract_spans(spans: Iterable[Span], by: Iterable[AnySpan], many: int = MANY) -> Spans:
    """Return the partitions of `spans` that are not in `by`."""
    spans, by = tuple(spans), tuple(by)
    if len(spans) >= many and len(by) >= many:
        whole = _split_whole(spans, by)
        if whole is not None:
            return whole[1]
    heads = set(map(_HEAD, by))
    rest = tuple(filterfalse(heads.__contains__, spans)) if heads else spans
    if not rest or not heads:
        return rest
    topics = set(map(topic_of, rest))
    if topics.isdisjoint(map(topic_of, heads)):
        return rest
    others = sorted(head for head in heads if head[0] in topics)
    return drop_epochs(split(add_epoch(rest, 0), others)[1])


def do_overlap(left: Iterable[AnySpan], right: Iterable[AnySpan]) -> bool:
    """Whether two sets of spans share a partition."""
    left = tuple(left)
    if not left:
        return False
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
    for key, first, end, epoch in holding:
        if key == topic and first <= partition < end:
            return epoch
    return None


def count_partitions(spans: Iterable[AnySpan]) -> int:
    """Return the number of partitions."""
    spans = tuple(spans)
    return sum(map(end_of, spans)) - sum(map(first_of, spans))


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
