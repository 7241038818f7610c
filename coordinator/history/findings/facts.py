"""What findings are made from: views of a log, each read once."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Longs
from coordinator.core.classic_events import CONSUMER
from coordinator.core.state.groups import GroupState
from coordinator.core.state.records import ClassicGroupWritten
from coordinator.history import classic_views
from coordinator.history.classic_views import CLIENT
from coordinator.history.current_views import (
    NAMES,
    count_ranges,
    read_group_states,
    read_member_rows,
    take_last,
)
from coordinator.history.epoch_views import read_begun_epochs
from coordinator.history.findings.limits import Limits
from coordinator.history.findings.lives import Lives
from coordinator.history.findings.settled import Settled
from coordinator.history.keyed_rows import combine_chunks, encode_keys, pick, to_mask, to_numbers
from coordinator.history.log_rows import LogRows
from coordinator.history.owners_view import read_partition_owners
from coordinator.history.ownership_view import read_assignment_history

NAMED = 10
"""Of many members, how many are named."""
WANTS = "wants"
"""What a member subscribes to, as one text."""


class Facts:
    """A log as of a time.

    Attributes
    ----------
    log, now_ms, limits
        The log, the time, and from when on something is a finding.
    """

    def __init__(self, log: LogRows, now_ms: int, limits: Limits) -> None:
        self.log, self.now_ms, self.limits = log, now_ms, limits

    @property
    def begin_ms(self) -> int:
        """When the window begins."""
        return self.now_ms - self.limits.window_ms

    @cached_property
    def groups(self) -> pa.Table:
        """The view `groups`, without incarnations."""
        return read_group_states(self.log).sort_by("group_id").combine_chunks()

    @cached_property
    def stable(self) -> Bools:
        """Which groups are Stable."""
        return to_mask(pc.equal(self.groups["state"], GroupState.STABLE.value))

    @cached_property
    def classic(self) -> pa.Table:
        """The classic groups: group_id, protocol_type, state_timestamp."""
        names = ["group_id", "protocol_type", "state_timestamp"]
        rows = self.log.present([ClassicGroupWritten.kind], ["tombstone", *names])
        return take_last(rows, encode_keys(combine_chunks(rows["group_id"]))).select(names)

    @cached_property
    def of_consumers(self) -> Bools:
        """Which groups are of consumers: members of others own nothing that is known."""
        theirs = self.classic.filter(pc.equal(self.classic["protocol_type"], CONSUMER))["group_id"]
        known = pc.is_in(self.groups["group_id"], value_set=combine_chunks(theirs))
        return to_mask(pc.or_(pc.equal(self.groups["group_type"], "consumer"), known))

    @cached_property
    def members(self) -> pa.Table:
        """The members: who they are, what they own, and what they subscribe to."""
        found = read_member_rows(self.log, *CLIENT, NAMES, "subscribed_topic_regex")
        columns = {name: found.ids[name] for name in found.ids.column_names}
        columns |= {name: pick(found.rows[name], found.metadata) for name in CLIENT}
        columns |= {"member_epoch": found.member_epoch}
        columns |= {"assigned": found.assigned, "pending": found.pending}
        texts = [
            pick(found.rows[name], found.metadata).cast(pa.string())
            for name in (NAMES, "subscribed_topic_regex")
        ]
        filled = [pc.fill_null(one, "") for one in texts]
        columns[WANTS] = pc.binary_join_element_wise(*filled, "\n")
        classic = classic_views.read_present(self.log)
        theirs = classic_views.read_classic_members(classic)
        theirs = theirs.append_column(WANTS, pc.binary_join(theirs[NAMES], "\n"))
        ours = pa.table(columns)
        both = [ours, theirs.select(ours.column_names).cast(ours.schema)]
        return pa.concat_tables(both).sort_by(
            [("group_id", "ascending"), ("member_id", "ascending")]
        )

    @cached_property
    def place(self) -> Longs:
        """Of each member, the row of its group."""
        return self.place_of(self.members["group_id"])

    @cached_property
    def owned(self) -> Longs:
        """How many partitions each member owns, or must still give up."""
        return count_ranges(self.members["assigned"]) + count_ranges(self.members["pending"])

    @cached_property
    def lives(self) -> Lives:
        """When members came and went."""
        return Lives.read(self.log)

    @cached_property
    def history(self) -> pa.Table:
        """The view `assignment_history`, of groups that there are."""
        found = read_assignment_history(self.log)
        there = pa.array(self.place_of(found["group_id"]) >= 0)
        return found.filter(there).combine_chunks()

    @cached_property
    def epochs(self) -> pa.Table:
        """The view `epochs`, without when they were reached."""
        return read_begun_epochs(self.log).sort_by("position").combine_chunks()

    @cached_property
    def settled(self) -> Settled:
        """When groups settled."""
        return Settled.read(self.log)

    @cached_property
    def owners(self) -> pa.Table:
        """The view `partition_owners`."""
        return read_partition_owners(self.log)

    def place_of(self, group_ids: pa.Array | pa.ChunkedArray) -> Longs:
        """Return the rows of groups; -1 of one that is gone."""
        return to_numbers(pc.index_in(group_ids, value_set=combine_chunks(self.groups["group_id"])))

    def state_of(self, group_ids: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return the states of groups; null of one that is gone."""
        return pick(self.groups["state"], self.place_of(group_ids))


def name_first(lines: Longs, names: pa.Array, size: int) -> pa.ListArray:
    """Return, for each line 0 … size - 1, the first few of its names, which are sorted by line."""
    count = np.bincount(lines, minlength=size)
    start = np.cumsum(count) - count
    few = np.arange(len(lines)) - start[lines] < NAMED
    ends = np.append(0, np.cumsum(np.minimum(count, NAMED)))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), names.filter(pa.array(few)))
