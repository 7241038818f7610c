"""A dict with pending changes, which are kept apart until they are applied.

So the cost of a step depends on its changes and not on the size of its group, and the state does
not change while the step decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, ValuesView
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class DraftDict(MutableMapping[K, V]):
    """A dict with pending changes, in the order that a dict with these changes would have.

    Parameters
    ----------
    base
        Only `apply` writes it. Nothing else may write it until then.
    """

    __slots__ = ("_base", "_first", "_gone", "_new", "_order", "_size")

    def __init__(self, base: dict[K, V]) -> None:
        self._base = base
        self._new: dict[K, V] = {}
        self._gone: set[K] = set()
        """Keys of the base that were removed. A key that is set again is new, and the last."""
        self._size = len(base)
        self._order: Iterator[K] | None = None
        self._first: K | None = None
        """The first key of the base that was not gone when `first` looked; None if all were."""

    def __getitem__(self, key: K) -> V:
        if key in self._new:
            return self._new[key]
        if key in self._gone:
            raise KeyError(key)
        return self._base[key]

    def get(self, key: K, default: T | None = None) -> V | T | None:  # type: ignore[override]
        """Return the value of a key, or the default: without an error on the way, as inherited."""
        if key in self._new:
            return self._new[key]
        return default if key in self._gone else self._base.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._new or (key in self._base and key not in self._gone)

    def __setitem__(self, key: K, value: V) -> None:
        self._size += key not in self
        self._new[key] = value

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._size -= 1
        self._new.pop(key, None)
        if key in self._base:
            self._gone.add(key)

    def __iter__(self) -> Iterator[K]:
        base, gone = self._base, self._gone
        yield from (key for key in base if key not in gone) if gone else base
        yield from (key for key in self._new if key not in base or key in gone)

    def values(self) -> ValuesView[V]:
        """Return the values: at once, not by looking each key up, as inherited."""
        return self._merge().values()

    def _merge(self) -> dict[K, V]:
        """Return the base with the changes: the base itself if there are none."""
        if not self._gone and not self._new:
            return self._base
        found = self._base.copy()
        for key in self._gone:
            del found[key]
        found.update(self._new)
        return found

    def __len__(self) -> int:
        return self._size

    def first(self) -> K | None:
        """Return the first key; what was removed before it is skipped once, not each time."""
        if self._order is None:
            self._order = iter(self._base)
            self._first = next(self._order, None)
        while self._first is not None and self._first in self._gone:
            self._first = next(self._order, None)
        if self._first is not None:
            return self._first
        return next(iter(self._new), None)  # all of the base is gone: these are new

    def update(self, values: Mapping[K, V]) -> None:  # type: ignore[override]
        """Set many keys: at once, not one by one, as inherited."""
        base, gone, new = self._base, self._gone, self._new
        self._size += sum([key not in new and (key not in base or key in gone) for key in values])
        new.update(values)

    def clear(self) -> None:
        """Remove all: at once, not by looking for the first again and again, as inherited."""
        self._new = {}
        self._gone = set(self._base)
        self._size = 0

    def apply(self) -> dict[K, V]:
        """Apply the changes to the base, and return it. The draft must not be used afterwards."""
        for key in self._gone:
            del self._base[key]
        self._base.update(self._new)
        return self._base


def first_of(found: MutableMapping[K, V]) -> K | None:
    """Return the first key of a dict, or of its draft; None if it is empty."""
    return found.first() if isinstance(found, DraftDict) else next(iter(found), None)
