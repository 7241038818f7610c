"""How very many members come to have what rows of the log say, without an object for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from coordinator.core.state.groups import Group, Member, State
from coordinator.core.state.member_counts import count_stable
from coordinator.core.state.member_rows import STABLE, CurrentRows, HeldRows, TargetRows
from coordinator.core.state.owner_columns import Runs, Serials
from coordinator.core.state.partition_owners import claim_runs, part_by_topic

SPARSE = 4
"""Members whose serials lie further apart are not worth a list of their rows."""


def give_rows(rows: TargetRows, state: State) -> bool:
    """Give members targets that stay in columns; False, and nothing is done, where that cannot be.

    One of them is not there, or the group lists whose targets change.
    """
    group = state.groups.get(rows.group_id)
    members = None if group is None else _find_members(group, rows.member_ids.to_pylist())
    if group is None or members is None or group.changes is not None:
        return False
    serials = [member.serial for member in members]
    group.targets.add_rows([member.member_id for member in members], serials, rows.spans)
    group.revision += len(rows)
    return True


def hold_rows(rows: CurrentRows, state: State) -> bool:
    """Let members have what rows say; False, and nothing is done, where one had something."""
    group = state.groups.get(rows.group_id)
    members = None if group is None else _find_members(group, rows.member_ids.to_pylist())
    if group is None or members is None or any(one.held is not None for one in members):
        return False
    serials = np.fromiter((member.serial for member in members), np.int32, len(members))
    if np.ptp(serials) > SPARSE * len(serials) or not _claim(group, rows, serials):
        return False
    held = HeldRows(rows, serials)
    for member in members:
        member.held = held
    count_stable(group, 0, -len(members))
    epoch, _, state_of = rows.numbers
    epochs, counts = np.unique(epoch[state_of == STABLE], return_counts=True)
    for stable_at, count in zip(epochs.tolist(), counts.tolist(), strict=True):
        count_stable(group, stable_at, count)
    return True


def advance_rows(group: Group, members: Iterable[Member], epoch: int) -> list[Member]:
    """Let members be STABLE at an epoch that changes nothing for them; return those of no rows."""
    others: list[Member] = []
    moved: Counter[int] = Counter()
    for member in members:
        if isinstance(member.held, HeldRows):
            before, was_stable = member.held.advance(member, epoch)
            moved[before] -= was_stable
            moved[epoch] += 1
        else:
            others.append(member)
    for stable_at, more in moved.items():
        count_stable(group, stable_at, more)
    return others


def copy_members(members: Iterable[Member]) -> list[Member]:
    """Return members that no later change reaches, without the record of each."""
    rows: dict[int, HeldRows] = {}
    copies = []
    for member in members:
        copy = Member(member.meta, member.listed, member.serial)
        held = member.held
        if isinstance(held, HeldRows):
            if id(held) not in rows:
                rows[id(held)] = held.copy()
            held = rows[id(held)]
        copy.held = held
        copies.append(copy)
    return copies


def _find_members(group: Group, member_ids: list[str]) -> list[Member] | None:
    """Return members in this order; None where one is not there, or is named twice.

    A snapshot names all members in one order, in which they came here too: then each is next to
    the one before it, and to compare names is quicker than to look them up.
    """
    first = group.members.get(member_ids[0])
    if first is not None:
        place = first.serial - 1
        some = place, place + len(member_ids)
        if list(islice(group.members, *some)) == member_ids:
            return list(islice(group.members.values(), *some))
    if len(set(member_ids)) < len(member_ids):
        return None
    members = [found for found in map(group.members.get, member_ids) if found is not None]
    return members if len(members) == len(member_ids) else None


def _claim(group: Group, rows: CurrentRows, serials: Serials) -> bool:
    spans = rows.assigned
    if len(rows.pending.topic):
        spans, serials = spans.join(rows.pending), np.concatenate([serials, serials])
    topic, first, end, _ = spans.columns()
    runs = Runs(first, end, serials.repeat(spans.counts()))
    return claim_runs(group, part_by_topic(spans.keys, topic, runs))


RULES_FOR_ROWS: Mapping[type, Callable[[Any, State], bool]] = {
    CurrentRows: hold_rows,
    TargetRows: give_rows,
}
"""How the state takes rows as they are; what that cannot do, `replay_all` does record by record."""
