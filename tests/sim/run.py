"""One seed, from its beginning to its violation or its end."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from tests.support.invariants import as_large_groups

from .chance import Chance, Key
from .checkers import Violation
from .delta import DeltaStore
from .logs import MemoryStore
from .world import World

DELTA_EVERY = 10
"""One seed of so many runs over a log in a folder; they take longer."""
LARGE_EVERY = 3
"""One seed of so many loads its groups as very large ones; that takes longer, too."""


@dataclass(frozen=True)
class Outcome:
    """How a simulation ended.

    Attributes
    ----------
    violation
        What was broken; None when all held.
    faults
        The keys of everything that happened to the world, in order.
    events
        What happened, a line each, for people.
    commands
        What came to the coordinators last, in the syntax of tests/traces.
    kind
        The kind of the world.
    """

    seed: int
    violation: str | None
    faults: tuple[Key, ...]
    events: tuple[str, ...]
    excused: int
    trace: tuple[str, ...]
    untold: frozenset[str]
    commands: str
    kind: type[World]


def simulate(
    seed: int, dropped: frozenset[Key] = frozenset(), kind: type[World] = World
) -> Outcome:
    """Run one seed in a world of some kind; without the faults that are dropped."""
    chance = Chance(seed, dropped)
    if kind.store_kind is not None:
        world = kind(chance, kind.store_kind(chance))
    else:
        world = kind(chance, MemoryStore() if seed % DELTA_EVERY else DeltaStore(chance))
    violation = None
    try:
        with nullcontext() if seed % LARGE_EVERY else as_large_groups():
            world.run()
    except Violation as found:
        violation = str(found)
    finally:
        world.store.close()
    return Outcome(
        seed,
        violation,
        tuple(world.chance.happened),
        tuple(world.events),
        world.checker.excused,
        tuple(world.story.lines()),
        frozenset(world.story.untold),
        world.history.text() if violation else "",
        kind,
    )
