"""The members of a group that was loaded, in columns: who they are, and what they have."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from assignors.arrays import Bools, Ints, Longs
from coordinator.core.state.groups import Member, NameList
from coordinator.core.state.member_rows import (
    META_FIELDS,
    STABLE,
    HeldRows,
    MemberRows,
    count_owned,
)
from coordinator.core.state.records import MemberMetadata
from coordinator.core.state.row_dict import MemberIndex, RowDict, RowValues
from coordinator.core.state.shared_dict import Shareable
from coordinator.core.state.span_columns import to_array

NAMES = META_FIELDS.index("subscribed_topic_names")


class Coded:
    """A column whose values are few: each is here once, and a row has its number.

    Attributes
    ----------
    values
        No two are equal.
    codes
        The number of each row's value; None where all rows have the same.
    """

    __slots__ = ("codes", "size", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.codes: array[int] | None = None
        self.size = 0

    def add(self, values: Sequence[Any], codes: Ints) -> None:
        """Add rows, whose values are numbered by themselves."""
        known = {value: at for at, value in enumerate(self.values)}
        numbers = np.array([known.setdefault(value, len(known)) for value in values], np.int32)
        self.values = list(known)
        if self.codes is None and len(known) > 1:
            self.codes = to_array(np.zeros(self.size, np.int32))
        if self.codes is not None:
            self.codes.extend(to_array(numbers[codes]))
        self.size += len(codes)

    def numbers(self) -> Ints:
        """Return the number of each row's value."""
        return np.zeros(self.size, np.int32) if self.codes is None else np.asarray(self.codes)

    def list(self, rows: Longs) -> list[Any]:
        """Return the value of some rows."""
        if self.codes is None:
            return self.values * len(rows)
        return list(map(self.values.__getitem__, self.numbers()[rows].tolist()))


class MetaValues(RowValues[MemberMetadata]):
    """The metadata of members.

    Parameters
    ----------
    group_id
        Of all of them.
    """

    def __init__(self, group_id: str, index: MemberIndex) -> None:
        super().__init__(index)
        self.group_id = group_id
        self.names = META_FIELDS
        self.columns = [Coded() for _ in META_FIELDS]
        self._alike: list[Any] = []
        self._others: list[tuple[int, list[Any], array[int]]] = []

    def add(self, rows: MemberRows) -> None:
        """Add members, to whom the index has given their rows."""
        for column, (values, codes) in zip(self.columns, rows.columns, strict=True):
            column.add(values, codes)
        self.share_lists([column.values for column in self.columns][NAMES])

    def share_lists(self, lists: list[Any]) -> None:
        """Have these very lists of names for those that are equal."""
        self.columns[NAMES].values = lists
        self._alike = [column.values[0] for column in self.columns]
        self._others = [
            (at, column.values, column.codes)
            for at, column in enumerate(self.columns)
            if column.codes is not None
        ]

    def value(self, key: str, row: int) -> MemberMetadata:
        """Return the metadata of a row."""
        values = self._alike.copy()
        for at, some, codes in self._others:
            values[at] = some[codes[row]]
        return MemberMetadata(self.group_id, key, *values)

    def column(self, name: str) -> Coded:
        """Return a field of all members but their id."""
        return self.columns[META_FIELDS.index(name)]

    def are(self, name: str, value: object, rows: Longs) -> Bools:
        """Return which rows have a value."""
        column = self.column(name)
        alike = np.array([one == value for one in column.values], np.bool_)
        return alike[column.numbers()[rows]] if column.codes else alike.repeat(len(rows))


def code_fields(
    metas: Mapping[str, MemberMetadata], names: Iterable[str]
) -> Iterator[tuple[list[Any], Longs]]:
    """Yield some values of each field, and the number of each member's among them, in order.

    Of rows no member becomes an object. Equal lists of names are one object, as the members'.
    """
    if not isinstance(metas, RowDict):
        for name in names:
            yield [getattr(meta, name) for meta in metas.values()], np.arange(len(metas))
        return
    table = metas.rows
    assert isinstance(table, MetaValues)
    rows, own = metas.list_in_order()
    places = np.fromiter(own, np.int64, len(own))
    for name in names:
        column = table.column(name)
        codes = column.numbers()[rows].astype(np.int64)
        codes[places] = len(column.values) + np.arange(len(own))
        yield [*column.values, *(getattr(one, name) for one in own.values())], codes


def list_field(metas: Mapping[str, MemberMetadata], name: str) -> list[Any]:
    """Return a field of each member, in order."""
    ((values, codes),) = code_fields(metas, [name])
    return list(map(values.__getitem__, codes.tolist())) if isinstance(metas, RowDict) else values


def list_texts(metas: Mapping[str, MemberMetadata], name: str) -> pa.StringArray:
    """Return a field of each member, in order, that is a text or None."""
    ((values, codes),) = code_fields(metas, [name])
    texts = pa.array(values, pa.string())
    return texts.take(pa.array(codes)) if isinstance(metas, RowDict) else texts


def list_ids(metas: Mapping[str, MemberMetadata]) -> pa.StringArray:
    """Return the members' ids, in order."""
    return metas.list_keys() if isinstance(metas, RowDict) else pa.array(list(metas), pa.string())


class MemberValues(RowValues[Member]):
    """Members: each is made of its rows when it is asked for, and kept once it changes.

    Attributes
    ----------
    serials
        The serial of each row, rising.
    listed
        The shared list of each distinct list of names.
    """

    def __init__(self, metas: MetaValues, held: HeldRows, listed: list[NameList]) -> None:
        super().__init__(metas.index)
        self.metas = metas
        self.held = held
        self.listed = listed
        self.serials = array("i")
        self._codes: array[int] | None = None

    def share_lists(self, listed: list[NameList]) -> None:
        """Have these lists, one for each of the names' values."""
        self.listed = listed
        self.metas.share_lists([one.names for one in listed])
        self._codes = self.metas.columns[NAMES].codes

    def list_of(self, row: int) -> NameList:
        """Return the list of names of a row."""
        return self.listed[0 if self._codes is None else self._codes[row]]

    def rests(self, row: int, epoch: int, metas: Iterable[tuple[int, object]]) -> bool:
        """Whether a member is STABLE at an epoch, and some of its fields are these.

        Parameters
        ----------
        metas
            The place of a field in `META_FIELDS`, and its value.
        """
        now, _, state = self.held.numbers
        if now[row] != epoch or state[row] != STABLE:
            return False
        columns = self.metas.columns
        for at, value in metas:
            column = columns[at]
            if column.values[0 if column.codes is None else column.codes[row]] != value:
                return False
        return True

    def value(self, key: str, row: int) -> Member:
        """Return the member of a row."""
        member = Member(self.metas.value(key, row), self.list_of(row), self.serials[row])
        member.held = self.held
        return member

    def copy(self) -> MemberValues:
        """Return the same, to be read while members advance."""
        other = MemberValues(self.metas, self.held.copy(), self.listed)
        other.serials, other._codes = self.serials, self._codes
        return other


def copy_member(member: Member) -> Member:
    """Return a member, which is no row, that no later change reaches."""
    copy = Member(member.meta, member.listed, member.serial)
    copy.held = member.held
    return copy


def copy_members(members: Mapping[str, Member]) -> Mapping[str, Member]:
    """Return members that no later change reaches, without the record of each."""
    if isinstance(members, MemberDict):
        return members.snapshot()
    return {member_id: copy_member(member) for member_id, member in members.items()}


def count_all_owned(members: Shareable[str, Member]) -> list[int]:
    """Return how many partitions each member is assigned; any thread may ask."""
    if not isinstance(members, MemberDict):
        return list(map(count_owned, list(members.values())))
    while True:  # not of a copy: that would have others of the members' own dicts, as they change
        try:
            rows, own = members.list_rows(), list(members.own.values())
        except RuntimeError:  # one came or went meanwhile
            continue
        return [*members.rows.held.partitions(rows).tolist(), *map(count_owned, own)]


def list_unstable(members: Shareable[str, Member]) -> list[Member]:
    """Return the members that are not STABLE, in order."""
    if not isinstance(members, MemberDict):
        return [one for one in members.values() if not one.stable]
    rows, own = members.list_in_order()
    maybe = np.asarray(members.rows.held.numbers[-1])[rows] != STABLE
    maybe[list(own)] = True
    ids = members.rows.index.ids
    found = (
        own[at] if at in own else members[ids[int(rows[at])].as_py()]
        for at in np.flatnonzero(maybe).tolist()
    )
    return [one for one in found if not one.stable]


class MemberDict(RowDict[Member]):
    """Members by id: each is a row, or an object that has its own record."""

    __slots__ = ()
    rows: MemberValues

    def __setitem__(self, key: str, value: Member) -> None:
        if isinstance(value.held, HeldRows):
            value.held = value.held.current(value)  # its row no longer counts
        super().__setitem__(key, value)

    def snapshot(self) -> MemberDict:
        """Return members that no later change reaches."""
        copy = self.based_on(self.rows.copy())
        copy.own.update((key, copy_member(one)) for key, one in copy.own.items())
        return copy
