"""When groups settled in their targets, and who was waited for longest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Longs
from coordinator.core.state.records import TargetMetadata
from coordinator.history import reached
from coordinator.history.findings.times import to_ms
from coordinator.history.keyed_rows import (
    Timeline,
    combine_chunks,
    encode_keys,
    find_changes,
    find_last,
    find_places,
    is_kind,
    pick,
    to_mask,
    to_numbers,
)
from coordinator.history.log_rows import LogRows


@dataclass(frozen=True, slots=True)
class Settled:
    """Targets in which a group settled.

    Attributes
    ----------
    positions, ended_at, at_ms, waited_for
        The positions of the targets, sorted; at which position and when the group settled, and the
        member that others waited for longest, null if none was.
    ends, group_ids
        The last position at which a group ended, and the group.
    """

    positions: Longs
    ended_at: Longs
    at_ms: Longs
    waited_for: pa.Array
    ends: Longs
    group_ids: pa.Array

    @classmethod
    def read(cls, log: LogRows) -> Settled:
        """Find them in a log."""
        kinds = [one.kind for one in reached.KINDS]
        rows = log.past(kinds, [*reached.COLUMNS, "pending"])
        group = encode_keys(combine_chunks(rows["group_id"]))
        life, by_member = reached.find_lives(rows, group), reached.MemberSteps.of(rows, group)
        members = by_member.count_members(group)
        empty = _find_empty(rows, group, by_member, members)
        rests = np.union1d(reached.find_settled(rows, group, life, by_member), empty)
        target, at_ms = reached.find_targets(rows), to_ms(rows["at"])
        steps = Timeline(group, np.unique(by_member.row))
        newest, later = steps.newest(target), steps.next(group[target], target)
        # A target for no member: the group has been at rest since its last one went, unless one
        # came at the same time.
        idle = np.isin(newest, empty) & (np.append(at_ms, -1)[later] != at_ms[target])
        found = np.where(idle, newest, Timeline(life, rests).next(life[target], target))
        there = found >= 0
        waits = Waits.of(rows, group, by_member)
        who = pick(
            by_member.member_ids, waits.find_longest(Timeline(life, rests), life, found[there])
        )
        position = to_numbers(rows["position"])
        ended = reached.find_ends(rows)
        return cls(
            position[target[there]], position[found[there]], at_ms[found[there]],
            who, position[ended], pick(rows["group_id"], ended),
        )  # fmt: skip

    def place_of(self, positions: Longs) -> Longs:
        """Return which targets those at some positions are; -1 where the group did not settle."""
        return find_places(self.positions, positions)

    def find_end(self, group_ids: pa.ChunkedArray) -> Longs:
        """Return the last position at which each group ended; -1 if it never did."""
        named = combine_chunks(self.group_ids).cast(pa.string())
        keys = encode_keys(pa.concat_arrays([named, combine_chunks(group_ids).cast(pa.string())]))
        last = np.full(int(keys.max(initial=-1)) + 1, -1)
        last[keys[: len(named)]] = self.ends
        return last[keys[len(named) :]]


def _find_empty(
    rows: pa.Table, group: Longs, by_member: reached.MemberSteps, members: Longs
) -> Longs:
    """Return the rows of members after which their group has none, at the end of a moment."""
    at = to_numbers(pc.cast(rows["at"], pa.int64()))[by_member.row]
    order = np.argsort(group[by_member.row], kind="stable")
    last = np.append(find_changes(group[by_member.row][order], at[order])[1:], True)[: len(order)]
    return np.unique(by_member.row[order[last & (members[order] == 0)]])


@dataclass(frozen=True, slots=True)
class Waits:
    """Members that others waited for: until they had what the target gives them, or were gone.

    A member is waited for while it is behind the target, or has to give up.

    Attributes
    ----------
    place, row, waited_ms
        Where the wait ended: the place of the member's step and its row; and how long it was.
    begun, gives_up, arrived
        The row at which it began; whether the member had to give up, else it was only behind; and
        whether it had everything in the end, else it was gone.
    target
        The epoch of the target in force at the end.
    open, open_begun, open_gives_up, open_target
        The same of members that are waited for still; `open` is the place of their last step.
    """

    place: Longs
    row: Longs
    waited_ms: Longs
    begun: Longs
    gives_up: Bools
    arrived: Bools
    target: Longs
    open: Longs
    open_begun: Longs
    open_gives_up: Bools
    open_target: Longs

    @classmethod
    def of(cls, rows: pa.Table, group: Longs, by_member: reached.MemberSteps) -> Waits:
        """Find them in rows of `reached.COLUMNS` and `pending`."""
        at_ms, place = to_ms(rows["at"]), np.arange(len(by_member.row))
        target = reached.find_target_epochs(rows, group, by_member.row)
        epoch = to_numbers(rows["member_epoch"])[by_member.row]
        pending = (to_numbers(pc.list_value_length(rows["pending"]), 0) > 0)[by_member.row]
        # What a member owns ends before the member does.
        alive = (
            by_member.alive
            & ~np.append(to_mask(rows["tombstone"])[by_member.row], False)[by_member.current]
        )
        epoch, pending = (
            np.append(epoch, -1)[by_member.current],
            np.append(pending, False)[by_member.current],
        )
        order = np.argsort(by_member.member, kind="stable")
        first = find_changes(by_member.member[order])
        before = np.full(len(order), -1)
        before[order[~first]] = order[np.flatnonzero(~first) - 1]
        behind = (np.append(epoch, -1)[before] < target) | np.append(pending, False)[before]
        was = np.append(alive, False)[before] & behind
        done = np.flatnonzero(was & ~(alive & ((epoch < target) | pending)))
        final = order[np.append(first[1:], True)[: len(order)]]
        ends = np.flatnonzero(is_kind(rows, TargetMetadata.kind))
        newest = find_last(group, ends, int(group.max(initial=-1)) + 1)
        now = np.append(to_numbers(rows["assignment_epoch"]), -1)[newest]
        now = now[group[by_member.row[final]]]
        waits = alive[final] & ((epoch[final] < now) | pending[final])
        final, now = final[waits], now[waits]
        # Since it has had to give up, or since the first target that it was behind.
        begins = first | find_changes(pending[order])
        since = np.empty(len(order), np.int64)
        since[order] = order[np.maximum.accumulate(np.where(begins, place, 0))]
        last = np.concatenate([before[done], final])
        gives_up, late = pending[last], epoch[last] < target[last]
        newer = Timeline(group, reached.find_targets(rows)).next(
            group[by_member.row[last]], by_member.row[last]
        )
        begun = np.where(
            gives_up, by_member.row[since[last]], np.where(late, by_member.row[last], newer)
        )
        size, row = len(done), by_member.row[done]
        return cls(
            done, row, at_ms[row] - np.append(at_ms, 0)[begun[:size]],
            begun[:size], gives_up[:size], alive[done], target[done],
            final, begun[size:], gives_up[size:], now,
        )  # fmt: skip

    def find_longest(self, rests: Timeline, life: Longs, wanted: Longs) -> Longs:
        """Return the place of the member waited for longest before a rest of its group; -1: none.

        Parameters
        ----------
        rests, life
            The rows at which lives of groups were at rest.
        wanted
            Some of these rows.
        """
        rest = rests.next(life[self.row], self.row - 1)
        order = np.lexsort((-self.place, self.waited_ms, rest))
        longest = np.full(len(life) + 1, -1)  # the last one is of those before no rest
        longest[rest[order]] = self.place[order]
        return longest[wanted]
