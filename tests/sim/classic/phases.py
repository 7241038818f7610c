"""One rebalance in a world where nothing breaks but one thing: a coordinator, or a member's pace.

Three members are at rest; then there is a cause for a rebalance, and in one phase of it the
coordinator dies, or one member stops around one of its requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.events import CatalogTopic, Event
from tests.sim.chance import Chance
from tests.sim.logs import MemoryStore

from .member import ClassicMember
from .world import ClassicWorld

TOPIC = "a1"
MEMBERS = 3
RESTED_MS = 15_000
CAUSES = ("a newcomer", "a member dies", "a topic grows")


@dataclass(frozen=True)
class Trouble:
    """What goes wrong: a coordinator dies in a phase, or a member stops around a request."""

    phase: str = ""
    when: str = ""
    request: str = ""
    stops_ms: int = 0


class OneRebalance(ClassicWorld):
    """A world with one rebalance and one trouble.

    Attributes
    ----------
    happened
        Whether the trouble came about.
    """

    def __init__(self, seed: int, trouble: Trouble) -> None:
        chance = Chance(seed)
        chance.calm = True
        super().__init__(chance, MemoryStore())
        self.groups = ["g1"]
        self.happened = False
        self._armed = False
        self._trouble = trouble

    def dies_in(self, phase: str, *_name: object) -> bool:
        """Whether a coordinator dies at this point: once, in one phase."""
        return self._comes(phase == self._trouble.phase)

    def pause_ms(self, _member: ClassicMember, when: str, event: Event, _number: int) -> int:
        """Return for how long a member stops: one does, once."""
        wanted = (self._trouble.when, self._trouble.request)
        return self._trouble.stops_ms if self._comes((when, type(event).__name__) == wanted) else 0

    def _comes(self, now: bool) -> bool:  # noqa: FBT001 - whether this is where it comes
        comes = now and self._armed and not self.happened
        self.happened |= comes
        return comes

    def play(self, cause: str) -> None:
        """Let the members rest, and then the cause and the trouble come.

        Raises
        ------
        Violation
            Something that must never be.
        """
        self.topics.set(TOPIC, CatalogTopic("id", 6, ()))
        self.nodes[0].start()
        for number in range(MEMBERS):
            self._join(f"m{number + 1}")
        self.schedule.run(RESTED_MS)
        self._armed = True
        if cause == "a newcomer":
            self._join("m9")
        elif cause == "a member dies":
            self.members[1].die()
        else:
            self.topics.set(TOPIC, CatalogTopic("id", 7, ()))
        self.schedule.run(self.schedule.now + RESTED_MS)
        self.come_to_rest()

    def _join(self, name: str) -> None:
        member = ClassicMember(
            self, "g1", name, None, version=3, topics=(TOPIC,), session_ms=6_000, rebalance_ms=8_000
        )
        self.members.append(member)
        member.join()
