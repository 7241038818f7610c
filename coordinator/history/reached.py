"""When the members of a group had all reached a target.

A group has reached its target when it has members, and each of them is STABLE at the target's
epoch; this is the state that the view `groups` calls Stable. A target that was replaced before is
reached when the next one is. Records of one time are one moment: what is between them never was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Longs
from coordinator.core.state.records import (
    CurrentMember,
    MemberMetadata,
    MembersAdvanced,
    MemberState,
    TargetMetadata,
)
from coordinator.history.keyed_rows import (
    Timeline,
    combine_chunks,
    count_runs,
    encode_keys,
    find_changes,
    find_places,
    flatten,
    is_kind,
    join_keys,
    pick,
    to_mask,
    to_numbers,
)
from coordinator.history.log_rows import LogRows

KINDS = (MemberMetadata, CurrentMember, MembersAdvanced, TargetMetadata)
COLUMNS = (
    *("position", "at", "kind", "tombstone", "group_id", "member_id", "member_ids"),
    *("member_epoch", "state", "assignment_epoch"),
)
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class ReachedTargets:
    """Targets that were reached, by their positions, which are sorted, and when they were."""

    positions: Longs
    at: pa.Array

    @classmethod
    def read(cls, log: LogRows) -> ReachedTargets:
        """Find them in a log."""
        rows = log.past([one.kind for one in KINDS], COLUMNS)
        group = encode_keys(combine_chunks(rows["group_id"]))
        life, by_member = find_lives(rows, group), MemberSteps.of(rows, group)
        stable = find_settled(rows, group, life, by_member)
        target = find_targets(rows)
        reached = Timeline(life, stable).next(life[target], target)
        found = reached >= 0
        return cls(to_numbers(rows["position"])[target[found]], pick(rows["at"], reached[found]))

    def when(self, positions: Longs) -> pa.Array:
        """Return when the targets at some positions were reached; null while they are not."""
        return pick(self.at, find_places(self.positions, positions))


def find_lives(rows: pa.Table, group: Longs) -> Longs:
    """Return a code of the life of its group that each row belongs to."""
    return join_keys(group, Timeline(group, find_ends(rows)).newest(np.arange(len(rows))) + 1)


def find_ends(rows: pa.Table) -> Longs:
    """Return the rows at which groups ended: these have a tombstone of their target."""
    return np.flatnonzero(is_kind(rows, TargetMetadata.kind) & to_mask(rows["tombstone"]))


def find_targets(rows: pa.Table) -> Longs:
    """Return the rows that are of targets."""
    return np.flatnonzero(is_kind(rows, TargetMetadata.kind) & ~to_mask(rows["tombstone"]))


def find_target_epochs(rows: pa.Table, group: Longs, at: Longs) -> Longs:
    """Return the epoch of the target that is in force at some rows; -1 without one."""
    epoch = to_numbers(rows["assignment_epoch"], NO_EPOCH)
    marks = np.flatnonzero(is_kind(rows, TargetMetadata.kind))
    return np.append(epoch, NO_EPOCH)[Timeline(group, marks).newest(at)]


def find_settled(rows: pa.Table, group: Longs, life: Longs, by_member: MemberSteps) -> Longs:
    """Return the rows after which all members of their group have reached its target, sorted."""
    target = find_target_epochs(rows, group, by_member.row)
    arrived = by_member.alive & (by_member.epoch == target) & (target >= 0)
    # No member has reached a new target at first.
    line = join_keys(life[by_member.row], target + 1)
    members = by_member.count_members(group)
    reached = _count(arrived, join_keys(line, by_member.member), line)
    last = np.zeros(len(rows), np.bool_)
    last[by_member.row] = (members == reached) & (
        members > 0
    )  # the last of a row with many members
    order = np.argsort(group, kind="stable")
    at = to_numbers(pc.cast(rows["at"], pa.int64()))[order]
    goes_on = np.append(~find_changes(group[order], at)[1:], False)
    last[order[goes_on[: len(order)]]] = False
    return np.flatnonzero(last)


def _count(mask: Bools, keys: Longs, lines: Longs) -> Longs:
    """Return, at each place, of how many keys of its line the last place up to there is set."""
    order = np.argsort(keys, kind="stable")
    now = mask[order].astype(np.int64)
    before = np.where(find_changes(keys[order]), 0, np.append(0, now[:-1])[: len(now)])
    change = np.empty(len(order), np.int64)
    change[order] = now - before
    return count_runs(lines, change)


@dataclass(frozen=True, slots=True)
class MemberSteps:
    """What rows say of members, one place a row and member, in the order of rows.

    Attributes
    ----------
    row, member
        The row, and a code of the member.
    alive, epoch
        Whether the member is in the group after it, and the epoch at which it is STABLE, or -1.
    current
        The place that says what the member owns then, or -1.
    member_ids
        The member's id.
    """

    row: Longs
    member: Longs
    alive: Bools
    epoch: Longs
    current: Longs
    member_ids: pa.Array

    @classmethod
    def of(cls, rows: pa.Table, group: Longs) -> MemberSteps:
        """Take rows of `KINDS`, with a code of the group of each."""
        many, member_ids = flatten(combine_chunks(rows["member_ids"]))
        one = np.flatnonzero(is_kind(rows, MemberMetadata.kind, CurrentMember.kind))
        ids = pa.concat_arrays([pick(rows["member_id"], one), member_ids.cast(pa.string())])
        row = np.concatenate([one, many])
        member = join_keys(group[row], encode_keys(ids))
        order = np.argsort(row, kind="stable")
        row, member = row[order], member[order]
        who, ended = is_kind(rows, MemberMetadata.kind)[row], to_mask(rows["tombstone"])[row]
        place = np.arange(len(row))
        metadata = Timeline(member, np.flatnonzero(who)).newest(place)
        current = Timeline(member, np.flatnonzero(~who)).newest(place)
        stays = ~is_kind(rows, CurrentMember.kind) | to_mask(
            pc.equal(rows["state"], MemberState.STABLE.name)
        )
        epoch = np.where(stays[row] & ~ended, to_numbers(rows["member_epoch"])[row], NO_EPOCH)
        alive = (metadata >= 0) & ~np.append(ended, True)[metadata]
        epoch = np.append(epoch, NO_EPOCH)[current]
        return cls(row, member, alive, epoch, current, ids.take(pa.array(order)))

    def count_members(self, group: Longs) -> Longs:
        """Return how many members the group of each place has after it."""
        return _count(self.alive, join_keys(group[self.row], self.member), group[self.row])
