"""Lets things happen at random times, each kind as often beside the others as it weighs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import log
from typing import TypeAlias

from .chance import Chance
from .clock import Schedule

Kind: TypeAlias = tuple[str, float, Callable[..., None]]
"""Its name, its weight, and what does it."""
NEVER_SHARE = 0.3
"""In how many seeds each kind never happens."""


class Happenings:
    """Lets things happen until faults stop.

    Parameters
    ----------
    gaps_ms
        Mean times between two of them; the seed picks one.
    """

    def __init__(
        self, schedule: Schedule, chance: Chance, gaps_ms: Sequence[int], kinds: Iterable[Kind]
    ) -> None:
        self._schedule, self._chance = schedule, chance
        self._count = 0
        self._gap_ms = chance.pick(gaps_ms, "gap")
        self._kinds = [
            (weight, do)
            for name, weight, do in kinds
            if not chance.likely(NEVER_SHARE, "never", name)
        ]

    def begin(self) -> None:
        """Let the first one happen in a while, and then one after the other."""
        self._count += 1
        wait = -self._gap_ms * log(1 - self._chance.draw("gap", self._count))
        self._schedule.after(int(wait), self._happen, self._count)

    def _happen(self, number: int) -> None:
        if self._chance.calm or not self._kinds:
            return
        self.begin()
        at = self._chance.draw("kind", number) * sum(weight for weight, _ in self._kinds)
        for weight, do in self._kinds:
            at -= weight
            if at < 0:
                if self._chance.happens("happens", do.__qualname__, number):
                    do(number)
                return
