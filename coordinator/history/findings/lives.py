"""When members came and went, and for how long groups had any."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from assignors.arrays import Bools, Longs
from coordinator.core.state.records import MemberMetadata
from coordinator.history.classic_views import CLIENT, read_classic_holdings
from coordinator.history.findings.times import to_ms
from coordinator.history.keyed_rows import (
    combine_chunks,
    count_runs,
    encode_keys,
    find_changes,
    pick,
    to_mask,
)
from coordinator.history.log_rows import LogRows

NAMES = ("position", "at", "group_id", "member_id", "tombstone", *CLIENT)


@dataclass(frozen=True, slots=True)
class Lives:
    """Members that came and went, in the order of the log.

    Attributes
    ----------
    rows
        group_id, member_id, and who the member is.
    at_ms, came
        When, and whether it came; else it went.
    """

    rows: pa.Table
    at_ms: Longs
    came: Bools

    @classmethod
    def read(cls, log: LogRows) -> Lives:
        """Read them from a log."""
        consumers = log.past([MemberMetadata.kind], NAMES)
        keys = encode_keys(*(combine_chunks(consumers[name]) for name in ("group_id", "member_id")))
        order = np.argsort(keys, kind="stable")
        ours = _find_turns(consumers.take(pa.array(order)), keys[order])
        holdings = read_classic_holdings(log)
        theirs = _find_turns(holdings.rows, holdings.member)
        both = pa.concat_tables([ours, theirs.cast(ours.schema)])
        # In a generation that a member is in under another id, it went before it came back.
        rows = both.sort_by([("position", "ascending"), ("tombstone", "descending")])
        rows = rows.combine_chunks()
        return cls(rows, to_ms(rows["at"]), ~to_mask(rows["tombstone"]))

    def sum_occupied(self, group_ids: pa.Array | pa.ChunkedArray, at_ms: Longs) -> Longs:
        """Return for how long groups had had any member by some times, in milliseconds."""
        ids = [combine_chunks(one).cast(pa.string()) for one in (self.rows["group_id"], group_ids)]
        keys = encode_keys(pa.concat_arrays(ids))
        group, asked = keys[: len(self.at_ms)], keys[len(self.at_ms) :]
        order = np.argsort(group, kind="stable")
        group, at = group[order], self.at_ms[order]
        occupied = count_runs(group, np.where(self.came, 1, -1)[order]) > 0
        first = find_changes(group)
        since = np.where(first, at, np.append(0, at[:-1])[: len(at)])
        passed = np.where(np.append(False, occupied[:-1])[: len(at)], at - since, 0)
        total = count_runs(group, passed)
        begin = int(min(at.min(initial=0), at_ms.min(initial=0)))
        span = int(max(at.max(initial=0), at_ms.max(initial=0))) - begin + 1
        line = group * span + at - begin  # sorted: times of the log do not fall
        place = np.searchsorted(line, asked * span + at_ms - begin, side="right") - 1
        here = (place >= 0) & (np.append(group, -1)[place] == asked)
        goes_on = np.append(occupied, False)[place]
        more = np.where(goes_on, at_ms - np.append(at, 0)[place], 0)
        return np.where(here, np.append(total, 0)[place] + more, 0)


def _find_turns(rows: pa.Table, member: Longs) -> pa.Table:
    """Return the rows at which members came or went, of rows sorted by member and then by time.

    One that went is shown as it was before.
    """
    gone = to_mask(rows["tombstone"])
    first = find_changes(member)
    before = first | np.append(True, gone[:-1])[: len(gone)]
    turns = np.flatnonzero(gone != before)
    shown = np.where(gone, np.arange(len(gone)) - 1, np.arange(len(gone)))[turns]
    names = ("group_id", "member_id", *CLIENT)
    columns = {name: pick(rows[name], turns) for name in ("position", "at", "tombstone")}
    columns |= {name: pick(rows[name], shown) for name in names}
    return pa.table(columns)
