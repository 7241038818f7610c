"""When each group changed: followed along the log, so that the list of groups reads no history.

Only rows that are new since the last look are read. Commits of offsets, most of the rows of many
logs, change nothing but where an id has nothing else: such a group is in the list, too.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Longs
from coordinator.core.audit import REFUSALS
from coordinator.core.state.records import (
    Audited,
    ClassicGroupWritten,
    CurrentMember,
    GroupMetadata,
    KafkaWatched,
    LoadsNoted,
    MemberMetadata,
    MembersAdvanced,
    OffsetCommitted,
    PlanDecided,
    PlanMade,
    RegexResolved,
    TargetMember,
    TargetMetadata,
    TopicChanged,
)
from coordinator.history.keyed_rows import combine_chunks, is_kind, to_mask, to_numbers
from coordinator.history.log_rows import LogRows
from coordinator.history.watched import COLUMNS as WATCHED
from coordinator.history.watched import find_watched

MOVING = (GroupMetadata, TargetMetadata, TargetMember, CurrentMember, MembersAdvanced)
"""What a group writes until it has settled."""
KINDS = (
    *(*MOVING, ClassicGroupWritten, MemberMetadata, RegexResolved, TopicChanged),
    *(PlanMade, PlanDecided, LoadsNoted),
)
COLUMNS = (
    "position", "at", "kind", "tombstone", "group_id", "epoch", "generation", "plan_id",
)  # fmt: skip
REFUSED_MAX = 50_000
"""Newest rows of refusals that are kept: a coordinator writes twenty in ten seconds at most."""
NEVER = -1


@dataclass(frozen=True, slots=True)
class Epochs:
    """When group epochs began, sorted by group and then as in the log."""

    group: Longs
    epoch: Longs
    at_ms: Longs

    def begun_since(self, at_ms: int, groups: int) -> Longs:
        """Return how many epochs of each group began at a time or later."""
        return np.bincount(self.group[self.at_ms >= at_ms], minlength=groups)

    def first_after(self, group: Longs, epoch: Longs) -> Longs:
        """Return when the first epoch above each of some epochs began, in the group's last life."""
        span = 1 << 32
        begin = np.searchsorted(self.group, group)
        end = np.searchsorted(self.group, group, side="right")
        # A group that was created again counts from 1 on: only its last life rises to the end.
        falls = np.append(False, (np.diff(self.epoch) < 0) & (np.diff(self.group) == 0))
        life = np.maximum.accumulate(np.where(falls, np.arange(len(falls)), 0))
        begin = np.maximum(begin, np.append(life, 0)[np.maximum(end - 1, 0)])
        line = self.group * span + self.epoch
        found = np.searchsorted(line, group * span + epoch, side="right")
        if falls.any():  # the line does not rise everywhere: look at each group alone
            found = np.array(
                [
                    b + np.searchsorted(self.epoch[b:e], wanted, side="right")
                    for b, e, wanted in zip(begin, end, epoch, strict=True)
                ],
                dtype=np.int64,
            )
        there = (found >= begin) & (found < end)
        return np.where(there, np.append(self.at_ms, NEVER)[np.where(there, found, -1)], NEVER)


class Activity:
    """Follows a log: when groups changed last, and when their epochs began.

    Attributes
    ----------
    position
        As far as the log was read.
    topics_position
        Where topics changed last: a change that may concern any group.
    changes
        A position that is another one once the list of groups is: claims and commits of offsets
        leave it as it was.
    watched
        The Kafka cluster that coordinates the groups; None where Muster does.
    """

    def __init__(self) -> None:
        self.position = 0
        self.topics_position = self.changes = 0
        self.watched: KafkaWatched | None = None
        self._codes: dict[str, int] = {}
        self._last = np.zeros(0, np.int64)
        self._moved_ms = np.zeros(0, np.int64)
        self._epochs = Epochs(*(np.zeros(0, np.int64) for _ in range(3)))
        self._generations = np.zeros(0, np.int64)
        self._ended = np.zeros(0, np.bool_)
        self._offsets_only: set[str] = set()
        """Ids that are known to have offsets, and no group."""
        self._plans: dict[int, set[str]] = {}
        self._refused = np.zeros((3, 0), np.int64)
        self._lock = threading.RLock()

    def advance(self, log: LogRows, position: int) -> None:
        """Read what is new up to a position."""
        if position <= self.position:
            return
        kinds = [one.kind for one in KINDS]
        rows = log.past(kinds, COLUMNS, self.position)
        topics = rows.filter(pc.equal(rows["kind"], TopicChanged.kind))["position"]
        refused = log.past([Audited.kind], ("at", "reason", "settings"), self.position)
        watched = find_watched(log.past([KafkaWatched.kind], WATCHED, self.position))
        commits = None  # the first look sees all of them
        if self.position:
            columns = ("group_id", "tombstone")
            commits = log.past([OffsetCommitted.kind], columns, self.position)
        with self._lock:
            self.watched = watched or self.watched
            self._note_refusals(refused)
            self.topics_position = max(self.topics_position, pc.max(topics).as_py() or 0)
            self._note(rows.filter(pc.is_valid(rows["group_id"])))
            has_new_ids = commits is None or self._note_commits(commits)
            if len(rows) or has_new_ids or self.watched is not None:
                self.changes = position
            self.position = position

    def version(self, group_id: str) -> int:
        """Return a number that changes whenever something that a group's page shows does."""
        with self._lock:
            code = self._codes.get(group_id)
            return max(self.topics_position, 0 if code is None else int(self._last[code]))

    def moved_ms(self, group_ids: pa.Array) -> Longs:
        """Return when each group wrote last what has to do with its assignment; -1 if never."""
        with self._lock:
            return np.append(self._moved_ms, NEVER)[self._find(group_ids)]

    def rebalances(self, group_ids: pa.Array, since_ms: int) -> Longs:
        """Return how many epochs of each group began since a time."""
        with self._lock:
            counts = self._epochs.begun_since(since_ms, len(self._codes))
            return np.append(counts, 0)[self._find(group_ids)]

    def unsettled_ms(self, group_ids: pa.Array, reached: Longs) -> Longs:
        """Return when the first epoch began that not all members of a group have reached.

        Parameters
        ----------
        reached
            The least epoch that a member of each group has reached.
        """
        with self._lock:
            return self._epochs.first_after(self._find(group_ids), reached)

    def waiting_plans(self, group_ids: pa.Array) -> Longs:
        """Return how many plans of each group wait for approval."""
        with self._lock:
            counts = [len(self._plans.get(code, ())) for code in self._find(group_ids).tolist()]
        return np.array(counts, dtype=np.int64)

    def refusals(self, since_ms: int) -> dict[str, int]:
        """Return how many logins failed, and requests were denied or throttled, since a time."""
        with self._lock:
            at_ms, action, count = self._refused
        sums = np.bincount(action[at_ms >= since_ms], count[at_ms >= since_ms], len(REFUSALS))
        return {name: int(number) for name, number in zip(REFUSALS, sums, strict=True) if number}

    def _note_commits(self, rows: pa.Table) -> bool:
        """Note ids that have offsets only; return whether there may be another one, or one less."""
        gone = to_mask(rows["tombstone"])
        ends = set(pc.unique(rows["group_id"].filter(pa.array(gone))).to_pylist())
        changed = False
        for group_id in pc.unique(rows["group_id"]).to_pylist():
            code = self._codes.get(group_id)
            if code is not None and not self._ended[code]:
                continue
            changed |= group_id in ends or group_id not in self._offsets_only
            self._offsets_only.add(group_id)
        self._offsets_only -= ends
        return changed

    def _note_refusals(self, rows: pa.Table) -> None:
        action = to_numbers(pc.index_in(rows["reason"], value_set=pa.array(REFUSALS)))
        counts = pc.map_lookup(combine_chunks(rows["settings"]), "count", "first")
        count = to_numbers(counts.cast(pa.int64()), 1)
        at_ms = to_numbers(combine_chunks(rows["at"]).cast(pa.timestamp("ms", tz="UTC")))
        new = np.stack([at_ms, action, count])[:, action >= 0]
        self._refused = np.concatenate([self._refused, new], axis=1)[:, -REFUSED_MAX:]

    def _find(self, group_ids: pa.Array) -> Longs:
        found = [self._codes.get(one, -1) for one in group_ids.to_pylist()]
        return np.array(found, dtype=np.int64)

    def _note(self, rows: pa.Table) -> None:
        if not len(rows):
            return
        coded = combine_chunks(rows["group_id"]).dictionary_encode()
        names = coded.dictionary.to_pylist()
        numbers = np.array([self._codes.setdefault(name, len(self._codes)) for name in names])
        group = numbers[coded.indices.to_numpy()]
        grown = len(self._codes) - len(self._last)
        self._last = np.append(self._last, np.zeros(grown, np.int64))
        self._moved_ms = np.append(self._moved_ms, np.full(grown, NEVER))
        self._generations = np.append(self._generations, np.full(grown, NEVER))
        self._ended = np.append(self._ended, np.ones(grown, np.bool_))
        lives = is_kind(rows, GroupMetadata.kind, ClassicGroupWritten.kind)
        self._ended[group[lives]] = to_mask(rows["tombstone"])[lives]  # the last one counts
        self._offsets_only.difference_update(names)
        at_ms = to_numbers(combine_chunks(rows["at"]).cast(pa.timestamp("ms", tz="UTC")))
        np.maximum.at(self._last, group, to_numbers(rows["position"]))
        moving = is_kind(rows, *(one.kind for one in MOVING), ClassicGroupWritten.kind)
        np.maximum.at(self._moved_ms, group[moving], at_ms[moving])
        self._note_epochs(rows, group, at_ms)
        self._note_plans(rows, group)

    def _note_plans(self, rows: pa.Table, group: Longs) -> None:
        """Follow which plans wait: there are few, so one row after the other."""
        gone = is_kind(rows, GroupMetadata.kind) & to_mask(rows["tombstone"])
        wanted = gone | is_kind(rows, PlanMade.kind, PlanDecided.kind)
        found = rows.filter(pa.array(wanted)).select(["kind", "tombstone", "plan_id"]).to_pylist()
        for code, row in zip(group[wanted].tolist(), found, strict=True):
            waiting = self._plans.setdefault(code, set())
            if row["kind"] == GroupMetadata.kind:
                waiting.clear()
            elif row["kind"] == PlanMade.kind and not row["tombstone"]:
                waiting.add(row["plan_id"])
            else:
                waiting.discard(row["plan_id"])

    def _note_epochs(self, rows: pa.Table, group: Longs, at_ms: Longs) -> None:
        kept = ~to_mask(rows["tombstone"])
        consumer = kept & is_kind(rows, GroupMetadata.kind)
        begins = consumer | self._find_generations(rows, group, kept)
        epoch = np.where(consumer, to_numbers(rows["epoch"]), to_numbers(rows["generation"]))
        old, new = self._epochs, (group[begins], epoch[begins], at_ms[begins])
        both = [
            np.concatenate([before, more])
            for before, more in zip((old.group, old.epoch, old.at_ms), new, strict=True)
        ]
        order = np.argsort(both[0], kind="stable")
        self._epochs = Epochs(*(column[order] for column in both))

    def _find_generations(self, rows: pa.Table, group: Longs, kept: Bools) -> Bools:
        """Return which records of classic groups begin a generation."""
        classic = np.flatnonzero(kept & is_kind(rows, ClassicGroupWritten.kind))
        generation = to_numbers(rows["generation"])
        begins = np.zeros(len(rows), np.bool_)
        for row in classic.tolist():
            begins[row] = generation[row] != self._generations[group[row]]
            self._generations[group[row]] = generation[row]
        return begins
