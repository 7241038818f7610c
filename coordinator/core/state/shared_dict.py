"""A large dict whose copies cost what changed, not what is in it."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TypeAlias, TypeVar

from coordinator.core.state.draft_dict import DraftDict

K = TypeVar("K")
V = TypeVar("V")
SHARED_LEAST = 10_000
"""A smaller dict is copied as it is: that takes a few microseconds, and its look-ups less."""
_CHANGES_SHARE = 32
"""More changes than this part of all keys are put into a base of its own."""


class SharedDict(DraftDict[K, V]):
    """A dict that shares what did not change with its copies.

    Nothing writes a base that a copy has too, so copies may be read in other threads. Changes since
    are kept apart, and become one with a base of its own once they are many: a key is copied about
    once for each 32nd that changes.

    Parameters
    ----------
    most
        So many changes are kept apart however small the dict is.
    """

    __slots__ = ("_most", "_shared")

    def __init__(self, base: dict[K, V], most: int = 1_000) -> None:
        super().__init__(base)
        self._most = most
        self._shared = False

    def copy(self) -> SharedDict[K, V]:
        """Return a copy that no later change reaches."""
        if not self._shared:
            self._shared, self._size = True, len(self._base)
        other = SharedDict(self._base, self._most)
        other._shared, other._size = True, self._size
        other._new, other._gone = self._new.copy(), self._gone.copy()
        return other

    def __len__(self) -> int:
        return self._size if self._shared else len(self._base)

    def __setitem__(self, key: K, value: V) -> None:
        if self._shared:
            super().__setitem__(key, value)
            self._settle()
        else:
            self._base[key] = value

    def __delitem__(self, key: K) -> None:
        if self._shared:
            super().__delitem__(key)
            self._settle()
        else:
            del self._base[key]

    def update(self, values: Mapping[K, V] | Iterable[tuple[K, V]]) -> None:  # type: ignore[override]
        """Set many keys."""
        if self._shared:
            super().update(dict(values))
            self._settle()
        else:
            self._base.update(values)

    def clear(self) -> None:
        """Remove all."""
        self._become({})

    def items(self) -> ItemsView[K, V]:
        """Return keys and values: at once, not by looking each key up, as inherited."""
        return self._merge().items()

    def _settle(self) -> None:
        """Put changes into a base of its own once they are many."""
        changes = len(self._new) + len(self._gone)
        if changes > max(self._most, len(self._base) // _CHANGES_SHARE):
            self._become(self._merge())

    def _become(self, base: dict[K, V]) -> None:
        self._base, self._new, self._gone, self._shared = base, {}, set(), False


class GrowingSet(AbstractSet[K]):
    """A set that is only added to, and whose copies cost what came lately."""

    __slots__ = ("_base", "_new")

    def __init__(self, base: Iterable[K]) -> None:
        self._base = frozenset(base)
        self._new: set[K] = set()

    def __contains__(self, key: object) -> bool:
        return key in self._new or key in self._base

    def __iter__(self) -> Iterator[K]:
        yield from self._base
        yield from self._new

    def __len__(self) -> int:
        return len(self._base) + len(self._new)

    def add(self, key: K) -> None:
        """Add a key; it may be there."""
        if key not in self._base:
            self._new.add(key)

    def copy(self) -> GrowingSet[K]:
        """Return a copy that no later key reaches."""
        if len(self._new) > max(1_000, len(self._base) // _CHANGES_SHARE):
            self._base, self._new = self._base | self._new, set()
        other: GrowingSet[K] = GrowingSet(self._base)
        other._new = self._new.copy()
        return other


Shareable: TypeAlias = "dict[K, V] | SharedDict[K, V]"


def share(found: Shareable[K, V]) -> Shareable[K, V]:
    """Return a dict whose copies cost little: the same if it is one, or small; else made of it."""
    if isinstance(found, SharedDict) or len(found) < SHARED_LEAST:
        return found
    return SharedDict(found)
