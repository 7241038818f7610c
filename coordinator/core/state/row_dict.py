"""A dict most of whose values are rows of columns: a value is made when it is asked for.

Of a group of a million members that was loaded hardly any is looked at. Their ids are kept once, in
an index, for all that is known of them: metadata, target, what they have, their session.
"""

from __future__ import annotations

from abc import abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from itertools import compress, repeat
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Ints, Longs
from coordinator.core.short_calls import AT_ONCE, number
from coordinator.core.state.shared_dict import SHARED_LEAST, GrowingSet, SharedDict, share
from coordinator.core.state.span_columns import to_array

if TYPE_CHECKING:
    from coordinator.core.state.partition_spans import Spans

V = TypeVar("V")
T = TypeVar("T")
NO_ROW = -1
BLOCK = 512
"""Sorted ids that become texts together, once one of them is looked for."""


class MemberIndex:
    """Which row each member has; only added to, and not even that once others keep it.

    Attributes
    ----------
    places
        The row of each id, in the order of the rows.
    frozen
        Whether a copy is based on it, to which no member may come.
    """

    __slots__ = ("_ids", "frozen", "places")

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.frozen = False
        self._ids: list[pa.StringArray] = []

    def __len__(self) -> int:
        return len(self.places)

    @property
    def ids(self) -> pa.StringArray:
        """The id of each row."""
        if len(self._ids) != 1:
            self._ids = [pa.concat_arrays([pa.array([], pa.string()), *self._ids])]
        return self._ids[0]

    def add(self, ids: pa.StringArray) -> bool:
        """Give members rows behind the others; False, and nothing is done, if one has a row."""
        if self.frozen:
            return False
        start, end = len(self), len(self) + len(ids)
        texts = to_texts(ids)
        for at in range(0, len(texts), AT_ONCE):
            piece = texts[at : at + AT_ONCE]
            self.places.update(zip(piece, range(start + at, end), strict=False))
        if len(self.places) < end:  # one of them was there, and has another row now
            self.places = number(to_texts(self.ids))
            return False
        self._ids.append(ids)
        return True

    def look_up(self, ids: Sequence[str]) -> Longs:
        """Return the row of each id, NO_ROW where it has none."""
        return np.fromiter(map(self.places.get, ids, repeat(NO_ROW)), np.int64, len(ids))

    def find(self, ids: pa.StringArray) -> Longs | None:
        """Return the row of each id; None where one has none, or is named twice.

        A snapshot names all members in one order: then they are next to each other here, and no id
        is looked up.
        """
        first = self.places.get(ids[0].as_py()) if len(ids) else None
        if first is not None and self.ids.slice(first, len(ids)).equals(ids):
            return np.arange(first, first + len(ids))
        rows = self.look_up(to_texts(ids))
        return None if (rows == NO_ROW).any() or len(np.unique(rows)) < len(rows) else rows

    def list_by_id(self) -> Longs:
        """Return the rows by their ids."""
        ids = self.ids
        count = len(ids)
        if count <= 1 or pc.all(pc.less(ids.slice(0, count - 1), ids.slice(1))).as_py():
            return np.arange(count)
        rows: Longs = pc.array_sort_indices(ids).to_numpy().astype(np.int64)
        return rows


class SortedIds:
    """The place of each id in a sorted column of very many, of which hardly any is asked for.

    A dict of a million ids takes a quarter of a second to make and 100 MiB, and no other thread
    runs while it grows. Of this, only what is looked for is made.

    Parameters
    ----------
    ids
        Sorted by code points; each is there once.
    """

    __slots__ = ("_blocks", "_firsts", "_ids")

    def __init__(self, ids: pa.StringArray) -> None:
        self._ids = ids
        self._firsts: list[str] = ids[::BLOCK].to_pylist()
        self._blocks: list[list[str] | None] = [None] * len(self._firsts)

    def find(self, one: str) -> int | None:
        """Return the place of an id; None if it is not there."""
        start, ids = self._find_block(one)
        at = bisect_left(ids, one)
        return start + at if at < len(ids) and ids[at] == one else None

    def place(self, one: str) -> int:
        """Return how many ids are before one, which need not be there."""
        start, ids = self._find_block(one)
        return start + bisect_left(ids, one)

    def _find_block(self, one: str) -> tuple[int, list[str]]:
        """Return the ids among which one would be, and the place of the first of them."""
        number = bisect_right(self._firsts, one) - 1
        if number < 0:
            return 0, []
        start = number * BLOCK
        ids = self._blocks[number]
        if ids is None:
            ids = self._blocks[number] = to_texts(self._ids.slice(start, BLOCK))
        return start, ids


def to_texts(column: pa.StringArray) -> list[str]:
    """Return strings as Python's, in a third of the time of `to_pylist`."""
    texts: list[str] = column.to_numpy(zero_copy_only=False).tolist()
    return texts


class RowValues(Mapping[str, V]):
    """A value for each row of an index."""

    def __init__(self, index: MemberIndex) -> None:
        self.index = index

    @abstractmethod
    def value(self, key: str, row: int) -> V:
        """Return the value of a row, whose key it is."""

    def get(self, key: str, default: T | None = None) -> V | T | None:  # type: ignore[override]
        """Return the value of a key, or the default."""
        row = self.index.places.get(key)
        return default if row is None else self.value(key, row)

    def __getitem__(self, key: str) -> V:
        return self.value(key, self.index.places[key])

    def __contains__(self, key: object) -> bool:
        return key in self.index.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.index.places)

    def __len__(self) -> int:
        return len(self.index)


class TargetNumbers(RowValues["Spans | int | None"]):
    """The numbers of targets in columns; 0 is no target."""

    def __init__(self, index: MemberIndex) -> None:
        super().__init__(index)
        self.numbers = array("i")
        self._given = 0

    def give(self, places: Longs, number: int) -> bool:
        """Number the targets of members; False where one has a target."""
        more = len(self.index) - len(self.numbers)
        self.numbers.extend(to_array(np.zeros(more, np.int32)))
        column = np.asarray(self.numbers)
        if column[places].any():
            return False
        column[places] = number + np.arange(len(places))
        self._given += len(places)
        return True

    def copy(self) -> TargetNumbers:
        """Return a copy that no later change reaches."""
        other = TargetNumbers(self.index)
        other.numbers, other._given = self.numbers[:], self._given
        return other

    def move(self, index: MemberIndex, rows: Longs, some: Longs) -> tuple[TargetNumbers, Bools]:
        """Return the numbers of some rows by another index, and which of them have a row there.

        Parameters
        ----------
        rows
            Of each row there, the one here; NO_ROW: it had none.
        """
        other, had = TargetNumbers(index), np.flatnonzero(rows != NO_ROW)
        places = np.full(len(self.index), NO_ROW)
        places[rows[had]] = had
        there = places[some] != NO_ROW
        other.set(places[some[there]], self.at(some[there]))
        return other, there

    def set(self, rows: Sequence[int] | Longs, numbers: Longs) -> None:
        """Have numbers for the targets of some rows, each once, other ones or the first."""
        self.numbers.extend(to_array(np.zeros(len(self.index) - len(self.numbers), np.int32)))
        column, places = np.asarray(self.numbers), np.asarray(rows)
        self._given += int(np.count_nonzero(column[places] == 0))
        column[places] = numbers

    def list_given(self) -> Longs:
        """Return the rows that have a target."""
        return np.flatnonzero(np.asarray(self.numbers))

    def at(self, rows: Longs) -> Longs:
        """Return the numbers of some rows' targets."""
        if not len(self.numbers):
            return np.zeros(len(rows), np.int64)
        known = rows < len(self.numbers)
        return np.where(known, np.asarray(self.numbers)[np.where(known, rows, 0)], 0)

    def value(self, key: str, row: int) -> Spans | int | None:  # noqa: ARG002 - others need it
        """Return the number of a row's target; None: it has none."""
        return (self.numbers[row] or None) if row < len(self.numbers) else None

    def __contains__(self, key: object) -> bool:
        row = self.index.places.get(key)  # type: ignore[call-overload]
        return row is not None and row < len(self.numbers) and self.numbers[row] != 0

    def __iter__(self) -> Iterator[str]:
        return compress(self.index.places, self.numbers)

    def __len__(self) -> int:
        return self._given


class RowDict(SharedDict[str, V], Generic[V]):
    """Rows, and the values that came, went or are others since: like a dict, in its order.

    Its copies share the rows. What changed stays apart until `fold` has it among the rows.
    """

    __slots__ = ("rows",)

    def __init__(self, rows: RowValues[V], changed: RowDict[V] | None = None) -> None:
        super().__init__(cast("dict[str, V]", rows))
        self.rows = rows
        self._shared, self._size = True, len(rows)
        if changed is not None:
            self._new, self._gone, self._size = (
                changed.own.copy(),
                changed.gone.copy(),
                len(changed),
            )

    @classmethod
    def beside(cls, rows: RowValues[V], own: dict[str, V], gone: set[str], size: int) -> Self:
        """Return rows and what is beside them: the values that are no rows, and who is gone.

        Parameters
        ----------
        size
            How many values these are.
        """
        found = cls(rows)
        found._new, found._gone, found._size = own, gone, size
        return found

    def copy(self) -> Self:
        """Return a copy that no later change reaches."""
        return self.based_on(self.rows)

    def based_on(self, rows: RowValues[V]) -> Self:
        """Return a copy whose rows are others of the same index."""
        self.rows.index.frozen = True
        self._new = cast("dict[str, V]", share(self._new))
        if isinstance(self._gone, set) and len(self._gone) >= SHARED_LEAST:
            self._gone = cast("set[str]", GrowingSet(self._gone))
        return type(self)(rows, self)

    @property
    def own(self) -> dict[str, V]:
        """The values that are no rows."""
        return self._new

    @property
    def gone(self) -> set[str]:
        """The keys of rows that were removed."""
        return self._gone

    @property
    def is_plain(self) -> bool:
        """Whether all values are rows, and all rows are there."""
        return not self._new and not self._gone

    def fold(self, keys: Iterable[str]) -> None:
        """Let values be rows again that are what their rows say: no reader sees it."""
        if type(self._new) is not dict:  # shared: it would be copied for each 32nd that goes
            self.tidy()
        for key in keys:
            del self._new[key]

    def tidy(self) -> None:
        """Let go of the room that values had which are rows again."""
        self._new = self._new.items().mapping.copy()

    def look_up(self, keys: Sequence[str]) -> Longs:
        """Return the row of each key whose value is one, NO_ROW for the others."""
        rows = self.rows.index.look_up(keys)
        new, gone = self._new, self._gone
        if len(new) + len(gone) < len(keys):
            rows[self.have_changed(rows)] = NO_ROW
        elif new or gone:
            rows[[key in new or key in gone for key in keys]] = NO_ROW
        return rows

    def have_changed(self, rows: Longs) -> Bools:
        """Return which rows of the index are no longer values."""
        if self.is_plain:
            return np.zeros(len(rows), np.bool_)
        return np.isin(rows, self.rows.index.look_up([*self._new, *self._gone]))

    def find_row(self, key: str) -> int | None:
        """Return the row of a key whose value is one."""
        own = key in self._new or key in self._gone
        return None if own else self.rows.index.places.get(key)

    def list_rows(self) -> Longs:
        """Return the rows that are values, in order."""
        stays = np.ones(len(self.rows.index), np.bool_)
        there = self.rows.index.look_up([*self._new, *self._gone])
        stays[there[there != NO_ROW]] = False
        return np.flatnonzero(stays)

    def list_in_order(self) -> tuple[Longs, dict[int, V]]:
        """Return the rows in the order of the keys, and the values at the places of no row."""
        rows = self._list_staying()
        end = len(rows)
        places = self._find_places(rows)
        own: dict[int, V] = {}
        for key, value in self._new.items():
            row = self.rows.index.places.get(key)
            if row is None or key in self._gone:
                own[end] = value
                end += 1
            else:
                own[int(places[row])] = value
        return np.append(rows, np.zeros(end - len(rows), np.int64)), own

    def _list_staying(self) -> Longs:
        """Return the rows whose keys were not removed, or not before their value changed."""
        stays = np.ones(len(self.rows.index), np.bool_)
        stays[self.rows.index.look_up(list(self._gone))] = False
        return np.flatnonzero(stays)

    def _find_places(self, rows: Longs) -> Longs:
        """Return where each row is among some, NO_ROW where it is not, and of NO_ROW."""
        places = np.full(len(self.rows.index) + 1, NO_ROW)
        places[rows] = np.arange(len(rows))
        return places

    def _list_come(self) -> list[str]:
        """Return the keys that are behind all rows, in order."""
        known, gone = self.rows.index.places, self._gone
        return [key for key in self._new if key not in known or key in gone]

    def list_keys(self) -> pa.StringArray:
        """Return the keys, in order."""
        ids, come = self.rows.index.ids, self._list_come()
        if self._gone:
            ids = ids.take(pa.array(self._list_staying()))
        return pa.concat_arrays([ids, pa.array(come, pa.string())]) if come else ids

    def find_keys(self, keys: pa.StringArray, rows: Ints) -> Longs:
        """Return where in order keys are, below 0 where they are not.

        Parameters
        ----------
        rows
            Of the keys; NO_ROW where it is not known: that key is looked up.
        """
        staying = self._list_staying()
        places = self._find_places(staying)
        found: Longs = places[rows]
        others = np.flatnonzero(found < 0)
        if len(others):
            names = keys.take(pa.array(others)).to_pylist()
            come = {key: len(staying) + at for at, key in enumerate(self._list_come())}
            known = places[self.rows.index.look_up(names)].tolist()
            found[others] = [come.get(*pair) for pair in zip(names, known, strict=True)]
        return found

    def came(self, count: int) -> None:
        """Note that so many rows were added."""
        self._size += count

    def values(self) -> ValuesView[V]:
        """Return the values, each made when it comes."""
        return ValuesView(self)

    def items(self) -> ItemsView[str, V]:
        """Return keys and values, each made when it comes."""
        return ItemsView(self)

    def clear(self) -> None:
        """Remove all."""
        self._new, self._gone, self._size = {}, set(self.rows), 0

    def list_differing(self, other: Mapping[str, V]) -> set[str] | None:
        """Return the keys whose value may be another, or missing, in one of two; None: any may."""
        if not isinstance(other, RowDict) or other.rows is not self.rows:
            return None
        return {*self._new, *self._gone, *other.own, *other.gone}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        found = self.list_differing(other)
        if found is None:
            return dict(self.items()) == dict(other.items())
        return len(self) == len(other) and all(self.get(key) == other.get(key) for key in found)

    __hash__ = None  # type: ignore[assignment]

    def _settle(self) -> None:
        """Leave changes apart: as a base of its own, each row would be an object."""


def list_keys_of_one(one: Mapping[str, Any], other: Mapping[str, Any]) -> AbstractSet[str]:
    """Return the keys that one of two has, and the other has not."""
    if isinstance(one, RowDict) and isinstance(other, RowDict):
        index = one.rows.index
        if index is other.rows.index:
            changed = {*one.own, *one.gone, *other.own, *other.gone}
            return {key for key in changed if (key in one) != (key in other)}
    return one.keys() ^ other.keys()
