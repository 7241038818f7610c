"""A dict with pending changes, which are kept apart until they are applied.

So the cost of a step depends on its changes and not on the size of its group, and the state does
not change while the step decides.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
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

    __slots__ = ("_base", "_gone", "_new", "_size")

    def __init__(self, base: dict[K, V]) -> None:
        self._base = base
        self._new: dict[K, V] = {}
        self._gone: set[K] = set()
        """Keys of the base that were removed. A key that is set again is new, and the last."""
        self._size = len(base)

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

    def __len__(self) -> int:
        return self._size

    def apply(self) -> dict[K, V]:
        """Apply the changes to the base, and return it. The draft must not be used afterwards."""
        for key in self._gone:
            del self._base[key]
        self._base.update(self._new)
        return self._base
