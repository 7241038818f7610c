"""The targets of members in columns, an entry a range."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from assignors.arrays import Ints
from coordinator.core.state.partition_spans import Spans, TopicKey
from coordinator.core.state.row_dict import NO_ROW
from coordinator.core.state.span_columns import SpanColumns, TopicKeys


class Ranges(NamedTuple):
    """Targets in columns of int32, an entry a range; fifty million of them take 800 MB.

    Attributes
    ----------
    ids
        The members that `owner` counts: not all in use, and some maybe twice.
    keys
        The topics that `topic` counts, not all in use.
    row
        The row of each of `ids` in the index of the targets; NO_ROW: it is to be looked up.
    """

    ids: pa.StringArray
    keys: list[TopicKey]
    owner: Ints
    topic: Ints
    first: Ints
    end: Ints
    row: Ints | None = None

    @property
    def owners(self) -> pa.DictionaryArray:
        """The owner of each range."""
        return pa.DictionaryArray.from_arrays(pa.array(self.owner), self.ids, safe=False)


def to_columns(targets: dict[str, Spans]) -> Ranges:
    """Put targets, none of them empty, into columns."""
    shared = _list_shared(targets)
    if shared is not None:
        return shared
    few = {who: spans for who, spans in targets.items() if not isinstance(spans, SpanColumns)}
    flat = [span for spans in few.values() for span in spans]
    known: dict[TopicKey, int] = {}
    topic = [known.setdefault(span[0], len(known)) for span in flat]
    owner = [at for at, spans in enumerate(few.values()) for _ in spans]
    columns = [owner, topic, [span[1] for span in flat], [span[2] for span in flat]]
    parts = [[np.array(column, dtype=np.int32)] for column in columns]
    ids = list(few)
    numbers: dict[TopicKeys, Ints] = {}
    for member_id, spans in targets.items():
        if isinstance(spans, SpanColumns):
            if spans.topics not in numbers:
                places = [known.setdefault(key, len(known)) for key in spans.topics.keys]
                numbers[spans.topics] = np.array(places, dtype=np.int32)
            mine = np.full(len(spans), len(ids), np.int32)
            theirs = (mine, numbers[spans.topics][spans.topic], *spans.numbers())
            for part, column in zip(parts, theirs, strict=True):
                part.append(column.astype(np.int32, copy=False))
            ids.append(member_id)
    joined = map(np.concatenate, parts)
    return Ranges(pa.array(ids, pa.string()), list(known), *joined)


def _list_shared(targets: dict[str, Spans]) -> Ranges | None:
    """Return the same of members that all have columns, of the same topics; None elsewhere."""
    found = [spans for spans in targets.values() if isinstance(spans, SpanColumns)]
    topics = found[0].topics if found else None
    if topics is None or len(found) < len(targets) or any(s.topics is not topics for s in found):
        return None
    owner = np.arange(len(found), dtype=np.int32).repeat(list(map(len, found)))
    columns = ([spans.topic, *spans.numbers()] for spans in found)
    joined = (
        np.concatenate(parts).astype(np.int32, copy=False) for parts in zip(*columns, strict=True)
    )
    return Ranges(pa.array(list(targets), pa.string()), topics.keys, owner, *joined)


def join_ranges(one: Ranges, other: Ranges) -> Ranges:
    """Return the ranges of both; a topic of both is counted once."""
    if not len(one.owner):
        return other
    number = {key: at for at, key in enumerate(other.keys)}
    known = np.array([number.setdefault(key, len(number)) for key in one.keys], dtype=np.int32)
    rows = [np.full(len(r.ids), NO_ROW) if r.row is None else r.row for r in (one, other)]
    columns = (
        (one.owner, other.owner + np.int32(len(one.ids))),
        (known[one.topic], other.topic),
        (one.first, other.first),
        (one.end, other.end),
    )
    owner, topic, first, end = map(np.concatenate, columns)
    ids = pa.concat_arrays([one.ids, other.ids])
    return Ranges(ids, list(number), owner, topic, first, end, np.concatenate(rows))
