"""What happens to the world while faults last, each at its time, as the seed says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .crowd import Crowd
from .external import Computer
from .happenings import Happenings, Kind
from .surroundings import Surroundings

if TYPE_CHECKING:
    from .world import World


class Actions:
    """Lets things happen until faults stop."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance
        self._around = Surroundings(world)
        self._troubles = world.troubles
        self._happenings = Happenings(
            world.schedule, world.chance, (300, 1_000, 3_000), self._list_kinds()
        )

    def _list_kinds(self) -> list[Kind]:
        """Return what may happen, and how often beside the others."""
        self._crowd = crowd = Crowd(self._world)
        around, troubles, computer = self._around, self._troubles, Computer(self._world)
        return [
            ("a member joins", 3.0, crowd.joins),
            ("a member leaves", 1.0, crowd.leaves),
            ("a static member leaves for a while", 1.0, crowd.leaves_for_a_while),
            ("a member comes back", 2.0, crowd.comes_back),
            ("a member dies", 0.7, crowd.dies),
            ("a member stops", 1.5, crowd.stops),
            ("a member wants something else", 1.5, crowd.resubscribes),
            ("another process takes an instance id", 0.7, crowd.takes_instance_id),
            ("a topic comes or grows", 1.5, around.topic_comes),
            ("a topic goes", 0.7, around.topic_goes),
            ("a topic comes again", 0.7, around.topic_comes_again),
            ("settings change", 0.8, around.settings_change),
            ("a group is deleted", 0.3, around.group_deleted),
            ("groups are described", 0.5, around.described),
            ("a computer computes", 1.0, computer.begins),
            ("a coordinator takes over", 1.0, troubles.takes_over),
            ("a coordinator dies", 0.7, troubles.dies),
            ("a coordinator stops", 1.0, troubles.stops),
            ("a clock jumps", 0.4, troubles.clock_jumps),
            ("a snapshot is written", 0.7, troubles.snapshot),
            ("a coordinator keeps house", 2.0, troubles.keeps_house),
            ("the power fails", 0.3, troubles.power_fails),
        ]

    def begin(self) -> None:
        """Make topics and members, then let things happen."""
        for number in range(self._chance.between(1, 5, "topics")):
            self._around.topic_comes("first", number)
        for number in range(self._chance.between(1, 4, "members")):
            self._crowd.joins("first", number)
        self._happenings.begin()
