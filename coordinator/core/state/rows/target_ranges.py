"""Targets in columns: what a plan from nothing starts from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from assignors.arrays import Longs
from coordinator.core.state.partition_spans import Spans, TopicKey
from coordinator.core.state.row_dict import NO_ROW
from coordinator.core.state.span_columns import SpanColumns, TopicKeys


class Ranges(NamedTuple):
    """Targets in columns, one entry per range; `topic` is a place in `keys`; not all in use.

    `row` is the owner's in the index of members, NO_ROW where that is to be looked up.
    """

    owner: pa.StringArray
    keys: list[TopicKey]
    topic: Longs
    first: Longs
    end: Longs
    row: Longs | None = None


def to_columns(targets: dict[str, Spans]) -> Ranges:
    """Put targets, none of them empty, into columns."""
    shared = _list_shared(targets)
    if shared is not None:
        return shared
    few = {who: spans for who, spans in targets.items() if not isinstance(spans, SpanColumns)}
    flat = [span for spans in few.values() for span in spans]
    known: dict[TopicKey, int] = {}
    topic = [known.setdefault(span[0], len(known)) for span in flat]
    owner = [member_id for member_id, spans in few.items() for _ in spans]
    columns = [topic, [span[1] for span in flat], [span[2] for span in flat]]
    parts = [[np.array(column, dtype=np.int64)] for column in columns]
    owners = [pa.array(owner, pa.string())]
    numbers: dict[TopicKeys, Longs] = {}
    for member_id, spans in targets.items():
        if isinstance(spans, SpanColumns):
            if spans.topics not in numbers:
                places = [known.setdefault(key, len(known)) for key in spans.topics.keys]
                numbers[spans.topics] = np.array(places, dtype=np.int64)
            theirs = (numbers[spans.topics][spans.topic], *spans.numbers())
            for part, column in zip(parts, theirs, strict=True):
                part.append(column.astype(np.int64))
            owners.append(pa.repeat(pa.scalar(member_id, pa.string()), len(spans)))
    joined = map(np.concatenate, parts)
    return Ranges(pa.concat_arrays(owners), list(known), *joined)


def _list_shared(targets: dict[str, Spans]) -> Ranges | None:
    """Return the same of members that all have columns, of the same topics; None elsewhere."""
    found = [spans for spans in targets.values() if isinstance(spans, SpanColumns)]
    topics = found[0].topics if found else None
    if topics is None or len(found) < len(targets) or any(s.topics is not topics for s in found):
        return None
    counts = pa.array(np.arange(len(found)).repeat(list(map(len, found))))
    columns = ([spans.topic, *spans.numbers()] for spans in found)
    joined = (np.concatenate(parts).astype(np.int64) for parts in zip(*columns, strict=True))
    return Ranges(pa.array(list(targets), pa.string()).take(counts), topics.keys, *joined)


def join_ranges(one: Ranges, other: Ranges) -> Ranges:
    """Return the ranges of both; a topic of both is counted once."""
    number = {key: at for at, key in enumerate(other.keys)}
    known = np.array([number.setdefault(key, len(number)) for key in one.keys], dtype=np.int64)
    return Ranges(
        pa.concat_arrays([one.owner, other.owner]),
        list(number),
        np.concatenate([known[one.topic], other.topic]),
        np.concatenate([one.first, other.first]),
        np.concatenate([one.end, other.end]),
        np.concatenate([_rows_of(one), _rows_of(other)]),
    )


def _rows_of(ranges: Ranges) -> Longs:
    return np.full(len(ranges.topic), NO_ROW) if ranges.row is None else ranges.row
