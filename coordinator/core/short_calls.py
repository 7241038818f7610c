"""Work on very many values in short calls.

While a call such as `list(map(…))` runs, no other thread of Python does: a heartbeat would wait for
all 100,000 topics of another group. Between short calls it need not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")
AT_ONCE = 8_192
"""So many take about a millisecond."""


def number(keys: Sequence[Key], first: int = 0) -> dict[Key, int]:
    """Return the place of each key, counted from `first`."""
    places: dict[Key, int] = {}
    for begin in range(0, len(keys), AT_ONCE):
        piece = keys[begin : begin + AT_ONCE]
        places.update(zip(piece, range(first + begin, first + begin + len(piece)), strict=True))
    return places


def apply(function: Callable[..., Found], *columns: Sequence[Any]) -> list[Found]:
    """Return what a function makes of each row of columns of one length."""
    found: list[Found] = []
    for begin in range(0, len(columns[0]), AT_ONCE):
        found += map(function, *(column[begin : begin + AT_ONCE] for column in columns))
    return found
