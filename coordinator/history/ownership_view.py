"""Who owned which partitions, from when until when, and why they moved.

A member owns what is assigned to it, and what it still has to give up (pending). It owns a range
from the first of its records that has the range to the first that does not. The assignment epoch in
force at the start gave it the range. The range was taken by one of these:

- the end of the member: the group epoch that began when it left or timed out, or the return of the
  static member under another member id;
- the member itself, if the newest group epoch is its own change of subscription;
- otherwise, the assignment epoch in force when the range became pending, or when it was taken
  without being pending first.

The rows are computed with column operations, in four steps:

1. A spell is a range that is unchanged in successive records of its member.
2. Spells are cut into pieces at all bounds of the member's ranges of a topic, so that any two
   pieces are equal or disjoint.
3. Consecutive spells of one piece are joined into a tenure.
4. Adjacent tenures with equal times and causes are joined into one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Longs
from coordinator.core.events import JOIN
from coordinator.core.reasons import Reason
from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    TargetMetadata,
)
from coordinator.history import epoch_views
from coordinator.history.classic_views import read_classic_holdings
from coordinator.history.epoch_views import CLIENT, RESUBSCRIBED, TargetCauses
from coordinator.history.incarnations import Incarnations
from coordinator.history.keyed_rows import (
    Timeline,
    combine_chunks,
    encode_keys,
    find_changes,
    flatten,
    is_kind,
    join_keys,
    number_runs,
    pick,
    pick_lists,
    to_mask,
    to_numbers,
)
from coordinator.history.log_rows import LogRows
from coordinator.history.reason_codes import encode_reasons, list_codes
from coordinator.history.view_schemas import VIEW_SCHEMAS
from coordinator.storage.record_log import CorruptLog
from coordinator.storage.tables.recovery import RESTORE

SCHEMA = VIEW_SCHEMAS["assignment_history"]
STATIC_RETURN = Reason.STATIC_MEMBER_RETURNED.value
KINDS = (*epoch_views.KINDS, CurrentMember)
COLUMNS = (*epoch_views.COLUMNS, "member_epoch", "assigned", "pending")
PIECE_RECORDS = 50_000
"""How many records a piece of the view is made of, which takes longer than to hand it over."""


def read_assignment_history(log: LogRows) -> pa.Table:
    """Return who owned what, from when until when, and why: one row per range.

    Raises
    ------
    CorruptLog
        A record has a range that ends before it begins, or a file cannot be read.
    """
    return pa.concat_tables(list(read_history_pieces(log, most=None)))


def read_history_pieces(log: LogRows, most: int | None = PIECE_RECORDS) -> Iterator[pa.Table]:
    """Yield the same member by member, so that rows are passed on while others are computed.

    Parameters
    ----------
    most
        About how many records a piece is made of; None: one piece.

    Raises
    ------
    CorruptLog
        As there.
    """
    rows = log.past([one.kind for one in KINDS], COLUMNS)
    _refuse_backward(log, rows, "assigned", "pending")
    held = _OwnershipRecords.of(rows)
    causes, lines = epoch_views.find_causes(epoch_views.derive_epochs(rows)), _Lines.of(rows, held)
    incarnations = Incarnations(log)
    for some in held.cut(most):
        why = _OwnershipCauses.of(rows, some, causes, lines)
        yield _number(_trace_ownership(rows, some, why, lines.metadata.newest), incarnations)
    yield _number(_read_classic_history(log), incarnations)


def _number(found: pa.Table, incarnations: Incarnations) -> pa.Table:
    """Return rows of the view with the incarnations of their groups."""
    incarnation = incarnations.at(found["group_id"], to_numbers(found["since_position"]))
    return found.append_column("incarnation", incarnation).select(SCHEMA.names).cast(SCHEMA)


def _read_classic_history(log: LogRows) -> pa.Table:
    """Return the same of the members of classic groups."""
    found = read_classic_holdings(log)
    rows = found.rows
    _refuse_backward(log, rows, "assigned")
    rows = rows.append_column("pending", pa.array([[]] * len(rows), rows["assigned"].type))
    held = _OwnershipRecords(np.arange(len(rows)), found.member, found.member)
    why = _build_cause(rows["epoch"], combine_chunks(rows["reason"]), combine_chunks(rows["cause"]))
    takes = encode_keys(*(combine_chunks(why[name]) for name in why.column_names))
    return _trace_ownership(rows, held, _OwnershipCauses(why, why, takes), lambda them: them)


def _refuse_backward(log: LogRows, rows: pa.Table, *names: str) -> None:
    """Refuse ranges that end before they begin: they have no owner, and cannot be cut."""
    for name in names:
        row, ranges = flatten(combine_chunks(rows[name]))
        wrong = np.flatnonzero(to_numbers(ranges.field("partition_count"), 0) < 0)
        if len(wrong):
            position = rows["position"][int(row[wrong[0]])].as_py()
            raise CorruptLog(
                f"the log of {log.store} is damaged: a range in {name!r} ends before it begins, at "
                f"position {position}; {RESTORE}"
            )


def _trace_ownership(
    rows: pa.Table,
    held: _OwnershipRecords,
    why: _OwnershipCauses,
    find_metadata: Callable[[Longs], Longs],
) -> pa.Table:
    """Return rows of the view for records of what members own.

    Parameters
    ----------
    find_metadata
        Returns the rows that say who the members of some rows are.
    """
    pieces = _cut_pieces(_find_spells(rows, held))
    tenures = _join_tenures(pieces, to_mask(rows["tombstone"])[held.row])
    spans = _build_ranges(tenures, why.takes)
    who = find_metadata(held.row[spans.since])
    return _build_table(rows, held, why, spans, who)


@dataclass(frozen=True, slots=True)
class _OwnershipRecords:
    """The records of what members own, sorted by member and then by position.

    Attributes
    ----------
    row
        The index of each record in the table of rows.
    group, member
        Codes of every row of the table, not only of these records.
    """

    row: Longs
    group: Longs
    member: Longs

    @classmethod
    def of(cls, rows: pa.Table) -> _OwnershipRecords:
        group = encode_keys(combine_chunks(rows["group_id"]))
        member = join_keys(group, encode_keys(combine_chunks(rows["member_id"])))
        held = np.flatnonzero(is_kind(rows, CurrentMember.kind))
        return cls(held[np.argsort(member[held], kind="stable")], group, member)

    def cut(self, most: int | None) -> Iterator[_OwnershipRecords]:
        """Yield records of about so many rows, all of a member together."""
        begins = np.flatnonzero(find_changes(self.member[self.row]))
        wanted = np.arange(0, len(self.row), most or max(len(self.row), 1))
        edges = begins[np.unique(np.searchsorted(begins, wanted).clip(max=len(begins) - 1))]
        for start, stop in pairwise([*edges.tolist(), len(self.row)]):
            yield replace(self, row=self.row[start:stop])


@dataclass(frozen=True, slots=True)
class _Lines:
    """The rows of a log that say why: targets and epochs by group, ends and metadata by member."""

    targets: Timeline
    epochs: Timeline
    ends: Timeline
    metadata: Timeline

    @classmethod
    def of(cls, rows: pa.Table, held: _OwnershipRecords) -> _Lines:
        alive = ~to_mask(rows["tombstone"])
        targets, epochs = (is_kind(rows, one.kind) for one in (TargetMetadata, GroupMetadata))
        known = is_kind(rows, MemberMetadata.kind) & alive
        ends = (known | is_kind(rows, CurrentMember.kind) | epochs) & alive
        return cls(
            Timeline(held.group, np.flatnonzero(targets)),
            Timeline(held.group, np.flatnonzero(epochs)),
            Timeline(held.member, np.flatnonzero(ends)),
            Timeline(held.member, np.flatnonzero(known)),
        )


# Ranges in time ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _OwnershipSpans:
    """Ranges low … high − 1 of topics, owned from one record until another.

    Attributes
    ----------
    owner
        Code of (member, topic, topic id).
    sample
        The index of a range in the log that has this topic.
    since, until
        Indices into `_OwnershipRecords.row`; until is -1 while the range is owned.
    """

    owner: Longs
    sample: Longs
    low: Longs
    high: Longs
    since: Longs
    until: Longs
    pending: Bools
    """Of a tenure: whether it was pending when it ended."""
    pended: Longs
    """Of a tenure that was pending when it ended: the record that made it pending; else -1."""
    topics: pa.Array
    """The ranges in the log."""

    def take(self, some: Longs | Bools, **changed: object) -> _OwnershipSpans:
        """Return some of the spans, with changed values in some fields."""
        names = ("owner", "sample", "low", "high", "since", "until", "pending", "pended")
        fields = {name: getattr(self, name)[some] for name in names}
        return _OwnershipSpans(**(fields | changed), topics=self.topics)


def _find_spells(rows: pa.Table, held: _OwnershipRecords) -> _OwnershipSpans:
    """Return the spells: ranges that are unchanged in successive records of their member."""
    lists = [pick_lists(rows[name], held.row) for name in ("assigned", "pending")]
    (one, assigned), (two, pending) = (flatten(ranges) for ranges in lists)
    ranges = pa.concat_arrays([assigned, pending])
    record = np.concatenate([one, two])
    is_pending = np.arange(len(record)) >= len(one)
    member = held.member[held.row]
    owner = join_keys(member[record], encode_keys(ranges.field("topic"), ranges.field("topic_id")))
    low = to_numbers(ranges.field("first_partition"))
    high = low + to_numbers(ranges.field("partition_count"))
    order = np.lexsort((record, is_pending, high, low, owner))
    owner, low, high, record = (column[order] for column in (owner, low, high, record))
    is_pending = is_pending[order]
    begins = find_changes(owner, low, high, is_pending, record - np.arange(len(record)))
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(record))[: len(first)] - 1
    after = record[last] + 1
    goes_on = np.append(member, -1)[after] == member[record[last]]
    return _OwnershipSpans(
        owner[first], order[first], low[first], high[first], record[first],
        np.where(goes_on, after, -1), is_pending[first], np.full(len(first), -1), ranges,
    )  # fmt: skip


def _cut_pieces(spells: _OwnershipSpans) -> _OwnershipSpans:
    """Cut spells at all bounds of their owner's ranges."""
    span = int(spells.high.max(initial=0)) + 1
    lines = [spells.owner * span + edge for edge in (spells.low, spells.high)]
    edges = np.unique(np.concatenate(lines))
    first, end = (np.searchsorted(edges, line) for line in lines)
    spell, piece = number_runs(first, end - first)
    low, high = edges[piece] % span, edges[piece + 1] % span
    return spells.take(spell, low=low, high=high)


def _join_tenures(pieces: _OwnershipSpans, ended: Bools) -> _OwnershipSpans:
    """Join consecutive spells of a piece, and keep what made it pending."""
    order = np.lexsort((pieces.since, pieces.low, pieces.owner))
    pieces = pieces.take(order)
    same = ~find_changes(pieces.owner, pieces.low)
    follows = same & (np.append(-2, pieces.until[:-1]) == pieces.since)
    # A piece that was pending before became pending in an earlier spell.
    became = pieces.pending & ~(follows & np.append(False, pieces.pending[:-1]))
    number = np.arange(len(pieces.owner))
    turned = np.maximum.accumulate(np.where(became, number, -1))
    first = np.flatnonzero(~follows)
    last = np.append(first[1:], len(number))[: len(first)] - 1
    until, pending = pieces.until[last], pieces.pending[last]
    given_up = pending & (until >= 0) & ~np.append(ended, False)[until]
    pended = np.where(given_up, pieces.since[turned[last]], -1)
    return pieces.take(first, until=until, pending=pending, pended=pended)


def _build_ranges(tenures: _OwnershipSpans, takes: Longs) -> _OwnershipSpans:
    """Join adjacent tenures that are equal in all but what made them pending."""
    taken = np.where(tenures.pended >= 0, tenures.pended, tenures.until)
    cause = np.append(takes, -1)[taken]
    order = np.lexsort((tenures.low, cause, tenures.until, tenures.since, tenures.owner))
    tenures, cause, taken = tenures.take(order), cause[order], taken[order]
    touches = np.append(-1, tenures.high[:-1]) == tenures.low
    first = np.flatnonzero(
        find_changes(tenures.owner, tenures.since, tenures.until, cause) | ~touches
    )
    last = np.append(first[1:], len(order))[: len(first)] - 1
    return tenures.take(first, high=tenures.high[last], pended=taken[first])


# Why ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _OwnershipCauses:
    """Why each record of `_OwnershipRecords` gives and takes partitions: epoch, reason and member.

    Attributes
    ----------
    takes
        A code of the cause that takes: equal if epoch, reason and member are equal.
    """

    give: pa.Table
    take: pa.Table
    takes: Longs

    @classmethod
    def of(
        cls, rows: pa.Table, held: _OwnershipRecords, causes: TargetCauses, lines: _Lines
    ) -> _OwnershipCauses:
        target = _find_target_causes(rows, lines.targets.newest(held.row), causes)
        returned = to_numbers(rows["member_epoch"])[held.row] == JOIN
        member_id = pick(rows["member_id"], held.row)
        static = pa.scalar(STATIC_RETURN, pa.string())
        # Only a returning static member owns partitions before its first answer.
        give = _choose_rows(returned, _build_cause(target["epoch"], static, member_id), target)
        take = _find_ends(rows, held, _find_own_changes(rows, held, target, lines), lines)
        takes = encode_keys(
            *(combine_chunks(take[name]) for name in ("epoch", "reason", "member_id"))
        )
        return cls(give, take, takes)


def _find_target_causes(rows: pa.Table, target: Longs, causes: TargetCauses) -> pa.Table:
    """Return the cause of the target in force at each record."""
    place = causes.place(to_numbers(pick(rows["position"], target)))
    epoch = pick(rows["assignment_epoch"], target)
    reason, member_id = pick(causes.reasons, place), pick(causes.members, place)
    return _build_cause(epoch, reason, member_id, pick(causes.codes, place))


def _find_own_changes(
    rows: pa.Table, held: _OwnershipRecords, target: pa.Table, lines: _Lines
) -> pa.Table:
    """Return the cause for members that stay: the target, or their own change of subscription."""
    newest = lines.epochs.newest(held.row)
    own = (newest >= 0) & (held.member[newest] == held.member[held.row])
    own &= to_mask(pc.equal(pick(rows["reason"], newest), RESUBSCRIBED))
    return _choose_rows(own, _find_epoch_causes(rows, newest), target)


def _find_ends(rows: pa.Table, held: _OwnershipRecords, takes: pa.Table, lines: _Lines) -> pa.Table:
    """Return the cause where a member ended: the epoch that its end began, or its static return."""
    ends = to_mask(rows["tombstone"])[held.row]
    after = lines.ends.next(held.member[held.row], held.row)
    left = (after >= 0) & is_kind(rows, GroupMetadata.kind)[after]
    instance_id = pick(rows["instance_id"], lines.metadata.newest(held.row))
    nothing = pa.nulls(len(held.row), pa.string())
    reason = pc.if_else(pc.is_valid(instance_id), STATIC_RETURN, nothing)
    returned = _build_cause(pa.nulls(len(held.row), pa.int32()), reason, nothing)
    gone = _choose_rows(left, _find_epoch_causes(rows, after), returned)
    return _choose_rows(ends, gone, takes)


def _find_epoch_causes(rows: pa.Table, epochs: Longs) -> pa.Table:
    return _build_cause(*(pick(rows[name], epochs) for name in ("epoch", "reason", "member_id")))


def _build_cause(
    epoch: pa.Array, reason: pa.Array, member_id: pa.Array, codes: pa.Array | None = None
) -> pa.Table:
    """Return causes; the codes of reasons that no topics were added to follow from them."""
    if isinstance(reason, pa.Scalar):
        reason = pa.array([reason.as_py()], pa.string()).take(pa.array(np.zeros(len(epoch), int)))
    codes = encode_reasons(reason) if codes is None else codes
    columns = {"epoch": combine_chunks(epoch), "reason": reason, "member_id": member_id}
    return pa.table(columns | {"codes": codes})


def _choose_rows(where: Bools, one: pa.Table, other: pa.Table) -> pa.Table:
    return pa.table(
        {
            name: pc.if_else(
                pa.array(where), combine_chunks(one[name]), combine_chunks(other[name])
            )
            for name in one.column_names
        }
    )


# Rows of the view --------------------------------------------------------------------------------


def _build_table(
    rows: pa.Table,
    held: _OwnershipRecords,
    why: _OwnershipCauses,
    spans: _OwnershipSpans,
    who: Longs,
) -> pa.Table:
    since, until = held.row[spans.since], np.append(held.row, -1)[spans.until]
    topics = spans.topics.take(pa.array(spans.sample))
    taken = np.where(spans.until >= 0, spans.pended, -1)
    columns = {
        "group_id": pick(rows["group_id"], since),
        "topic": topics.field("topic"),
        "topic_id": topics.field("topic_id"),
        "first_partition": pa.array(spans.low, pa.int32()),
        "last_partition": pa.array(spans.high - 1, pa.int32()),
        "partition_count": pa.array(spans.high - spans.low, pa.int32()),
        "member_id": pick(rows["member_id"], since),
        **{name: pick(rows[name], who) for name in CLIENT},
        "since": pick(rows["at"], since),
        "since_position": pick(rows["position"], since),
        "assignment_epoch": pick(why.give["epoch"], spans.since),
        "reason": pick(why.give["reason"], spans.since),
        "reason_codes": list_codes(pick(why.give["codes"], spans.since)),
        "reason_member_id": pick(why.give["member_id"], spans.since),
        "until": pick(rows["at"], until),
        "until_position": pick(rows["position"], until),
        "until_epoch": pick(why.take["epoch"], taken),
        "until_reason": pick(why.take["reason"], taken),
        "until_reason_codes": list_codes(pick(why.take["codes"], taken)),
        "until_member_id": pick(why.take["member_id"], taken),
        "revoked": pc.invert(pick(rows["tombstone"], until)),
    }
    return pa.table(columns)
