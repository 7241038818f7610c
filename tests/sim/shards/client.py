"""A member of a group in some shard, and a reader of its offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.core.events import Answer, OffsetCommit, OffsetFetch
from coordinator.errors import GroupError
from coordinator.member.events import Action, LosePartitions
from coordinator.member.states import ClientState
from tests.sim.client import Member, by_topic
from tests.sim.network import Request

if TYPE_CHECKING:
    from .world import ShardWorld


class ShardMember(Member):
    """As `Member`, in a world of shards."""

    world: ShardWorld  # type: ignore[assignment] # as much of one as a member needs

    def _perform(self, action: Action) -> None:
        if isinstance(action, LosePartitions) and self._membership.state is ClientState.FENCED:
            self.world.checker.loses(self)
        super()._perform(action)

    def _commit_offsets(self, *name: object) -> None:
        """Commit the offsets of what it uses, each one once, and note what is acknowledged."""
        world = self.world
        offsets = {
            topic: {partition: (world.actions.next_offset(), "") for partition in partitions}
            for topic, partitions in by_topic(self.owned).items()
        }
        event = OffsetCommit(self.group_id, self.member_id, self.epoch, offsets)

        def committed(answer: Answer, _node: object) -> None:
            if isinstance(answer, GroupError):
                return
            for record in answer.records:
                place = (record.group_id, record.topic, record.partition)  # type: ignore[attr-defined]
                world.actions.acknowledged(place, record.offset)  # type: ignore[attr-defined]

        request = Request((*name, "offsets"), event, committed)
        world.network.send(request, self._node)  # type: ignore[arg-type] # a Finder


def fetch(world: ShardWorld, group_id: str, *name: object) -> None:
    """Fetch the offsets of a group, as a worker does that starts."""
    floors = world.actions.floors(group_id)

    def fetched(answer: Answer, _node: object) -> None:
        if isinstance(answer, GroupError):
            return
        for place, floor in floors.items():
            found = answer.response.get(place[1], {}).get(place[2])
            world.checker.fetched(place, None if found is None else found.offset, floor)

    request = Request((*name, "fetch"), OffsetFetch(group_id), fetched)
    world.network.send(request, world.coordinator())
