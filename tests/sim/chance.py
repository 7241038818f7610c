"""Every decision of a simulation, from its seed and the decision's own name.

No decision is "the next number" of a common stream: when one fault is left out all the others stay
as they are. That is what lets a failing run be shrunk, fault by fault.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Key: TypeAlias = tuple[object, ...]

FAULTS = {
    # The network between members and coordinators, each request or answer.
    "request lost": 0.3,
    "request late": 0.15,
    "request doubled": 0.3,
    "answer lost": 0.3,
    "answer late": 0.2,
    "asks the wrong coordinator": 0.4,
    "asked together": 0.6,
    # The log, each commit, look or replay.
    "commit fails before": 0.2,
    "commit fails after": 0.2,
    "crash before a commit": 0.05,
    "crash after a commit": 0.05,
    "take-over within a commit": 0.05,
    "commit within a claim": 0.3,
    "maintenance within a commit": 0.1,
    "maintenance after a commit": 0.3,
    "a claim sleeps": 0.3,
    "a commit sleeps": 0.5,
    "look fails": 0.1,
    "replay fails": 0.2,
    # The disk below a log in a folder, each call.
    "disk cannot be read": 0.02,
    "disk full": 0.1,
    "disk cannot sync": 0.02,
    "crash at the disk": 0.02,
    "power fails": 0.03,
    # The object store below a log that is in one, each request.
    "put is refused": 0.1,
    "put is not answered": 0.1,
    "put lands late": 0.1,
    "put conflicts with itself": 0.1,
    "removals are partial": 0.5,
    "store is copied": 0.3,
    "list is old": 0.3,
    "what was seen is old": 0.5,
    # The store that nodes share, each request.
    "store is slow": 0.02,
    # The coordinator's surroundings.
    "timer late": 0.4,
    "topics cannot be read": 0.5,
    "regexes late": 0.5,
    "regexes fail": 0.3,
    "computation late": 0.6,
    "computation fails": 0.3,
    "computed at once": 0.9,
    "computation lost": 0.2,
    "installed twice": 0.4,
    "installed late": 0.5,
    "installed wrong": 0.4,
    # The members.
    "revokes slowly": 0.4,
    "never revokes": 0.1,
    "commits offsets": 0.5,
    # Coordinators of classic groups, on each occasion.
    "dies in a phase": 0.05,
    "slow around a request": 0.05,
    # What happens to the world, each time something happens.
    "happens": 1.0,
}
"""What may go wrong, with its chance on each occasion where a seed has it at its wildest."""


class Chance:
    """The decisions of one seed.

    Parameters
    ----------
    dropped
        Faults that are left out, by their keys: what shrinking tries.
    """

    def __init__(self, seed: int, dropped: frozenset[Key] = frozenset()) -> None:
        self.seed = seed
        self.calm = False
        """Whether faults have stopped."""
        self.happened: list[Key] = []
        self._dropped = dropped
        self._weights: dict[str, float] = {}

    def draw(self, *key: object) -> float:
        """Return a number from 0 to below 1."""
        text = f"{self.seed} {key!r}".encode()
        return int.from_bytes(blake2b(text, digest_size=6).digest()) / 2**48

    def between(self, low: int, high: int, *key: object) -> int:
        """Return a whole number from `low` to `high`."""
        return low + int(self.draw(*key) * (high - low + 1))

    def pick(self, options: Sequence[T], *key: object) -> T:
        """Return one of some options."""
        return options[int(self.draw(*key) * len(options))]

    def some(self, options: Sequence[T], *key: object) -> list[T]:
        """Return each option or not; at least one."""
        found = [one for at, one in enumerate(options) if self.draw(*key, at) < 0.6]
        return found or [self.pick(options, *key)]

    def likely(self, share: float, *key: object) -> bool:
        """Whether an event that is no fault occurs, with this probability."""
        return self.draw(*key) < share

    def a_while(self, *key: object) -> int:
        """Return some time in ms, mostly short."""
        return int(self.draw("while", *key) ** 2 * 25_000) + 10

    def happens(self, fault: str, *key: object) -> bool:
        """Whether a fault occurs here."""
        if self.calm or self.draw(fault, *key) >= self._weight(fault):
            return False
        if (fault, *key) in self._dropped:
            return False
        self.happened.append((fault, *key))
        return True

    def only(self, faults: Collection[str]) -> None:
        """Let no other faults occur than these, where the seed has them at all."""
        self._weights |= dict.fromkeys(FAULTS.keys() - set(faults), 0.0)

    def _weight(self, fault: str) -> float:
        """Return how likely this seed makes a fault: never, rarely, or wildly (a swarm of mixes)."""
        if fault not in self._weights:
            mood = self.draw("weight", fault)
            wildest = FAULTS[fault]
            self._weights[fault] = 0.0 if mood < 0.4 else wildest / 8 if mood < 0.8 else wildest
            if fault == "happens":
                self._weights[fault] = wildest
        return self._weights[fault]
