"""Which life of its group a row of the log belongs to: a group that is recreated has another one.

Epochs of a group that was deleted begin again, and one that goes on under the other protocol has
its last epoch twice: only with its incarnation is an epoch one of a kind. Incarnations are counted
in the log, from 1: no record has them, so groups of old stores have them too.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from assignors.arrays import Longs
from coordinator.core.state.records import ClassicGroupWritten, GroupMetadata
from coordinator.history.keyed_rows import (
    combine_chunks,
    encode_keys,
    find_changes,
    to_mask,
    to_numbers,
)
from coordinator.history.log_rows import LogRows

KINDS = (GroupMetadata.kind, ClassicGroupWritten.kind)
COLUMNS = ("position", "at", "tombstone", "group_id")


class Incarnations:
    """The ends of all groups up to the position of a log.

    Attributes
    ----------
    positions
        Where they ended, in the order of the log.
    """

    def __init__(self, log: LogRows) -> None:
        rows = log.past(KINDS, COLUMNS)
        group = encode_keys(combine_chunks(rows["group_id"]))
        order = np.argsort(group, kind="stable")
        ended = to_mask(rows["tombstone"])[order]
        first = find_changes(group[order])
        # An id that is deleted again has not ended again.
        alive_before = np.append(False, ~ended[:-1])[: len(order)] & ~first
        end = np.sort(order[ended & alive_before])
        self._groups = combine_chunks(rows["group_id"]).cast(pa.string()).take(pa.array(end))
        self.positions = to_numbers(rows["position"])[end]
        self._at = combine_chunks(rows["at"]).take(pa.array(end))

    def to_table(self) -> pa.Table:
        """Return the ends: position, recorded_at, group_id."""
        columns = {"position": self.positions, "recorded_at": self._at, "group_id": self._groups}
        return pa.table(columns)

    def latest(self, group_ids: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return the newest incarnation of groups."""
        return self.at(group_ids, np.full(len(group_ids), self.positions.max(initial=0) + 1))

    def at(self, group_ids: pa.Array | pa.ChunkedArray, positions: Longs) -> pa.Array:
        """Return the incarnation of groups at positions: how often each had ended, and one."""
        asked = combine_chunks(group_ids).cast(pa.string())
        codes = encode_keys(pa.concat_arrays([self._groups, asked]))
        of_end, of_asked = codes[: len(self._groups)], codes[len(self._groups) :]
        span = int(max(self.positions.max(initial=0), positions.max(initial=0))) + 1
        line = np.sort(of_end * span + self.positions)
        before = np.searchsorted(line, of_asked * span)
        count = np.searchsorted(line, of_asked * span + positions) - before
        return pa.array(count + 1, pa.int32())
