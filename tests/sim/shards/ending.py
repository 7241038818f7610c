"""When faults stop, every shard has one owner, every group rests, and nothing is left over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from coordinator.errors.status import LOST
from coordinator.storage.shards import NODES, root_at
from tests.sim import ending
from tests.sim.checkers import held

from .checkers import View
from .host import Host

if TYPE_CHECKING:
    from .world import ShardWorld

STEP_MS, RESTS = 1_000, 3
REST_MS = 120_000
"""In this time all come to rest."""


class GroupsOfShard(View):
    """The world as far as the groups of one shard are concerned."""

    def __init__(self, world: ShardWorld, shard: int) -> None:
        path = world.path_of(shard)
        super().__init__(world, path)
        self.checker = world.checker_of(path)
        self.groups = [one for one in world.groups if world.shards.shard_of(one) == shard]


class Ending:
    """The time after the last fault."""

    def __init__(self, world: ShardWorld) -> None:
        self._world = world
        self._endings = [
            ending.Ending(GroupsOfShard(world, shard))  # type: ignore[arg-type]
            for shard in range(world.shards.count)
        ]

    def come_to_rest(self) -> None:
        """Let everybody go on until all shards and groups are at rest.

        Raises
        ------
        Violation
            They are not, although there was time enough.
        """
        world = self._world
        world.tell("faults stop")
        world.way.cut.clear()
        world.way.slow.clear()
        world.network.cuts.clear()
        for host in world.hosts:
            host.thaw()
            world.disturbed(host.name)
            if host.process is None:
                host.start()
        for member in world.members:
            member.resume()
        end, rests = world.schedule.now + REST_MS, 0
        while rests < RESTS:
            for member in world.members:
                if member.untold:
                    member.connect_again()
            world.schedule.run(world.schedule.now + STEP_MS)
            for checker in world.all_checkers():
                checker.follow()
            unrest = [*self._of_nodes(), *self._of_groups()]
            rests = 0 if unrest else rests + 1
            if world.schedule.now > end:
                world.checker_of(root_at(world.root)).fail(
                    f"no rest long after the last fault: {'; '.join(unrest)}"
                )

    def _of_groups(self) -> Iterator[str]:
        for one in self._endings:
            yield from one._unrest()

    def _of_nodes(self) -> Iterator[str]:
        world = self._world
        hosts = [host for host in world.hosts if host.front is not None]
        if len(hosts) < len(world.hosts):
            yield "a node does not serve"
        roots = [host for host in hosts if host.node and host.node._holds.coordinator]
        if len(roots) != 1:
            yield f"the root is at {[host.name for host in roots]}"
            return
        for shard in range(world.shards.count):
            yield from self._of_shard(hosts, shard)
        yield from self._as_assigned(hosts)

    def _of_shard(self, hosts: list[Host], shard: int) -> Iterator[str]:
        owners = [host for host in hosts if host.node and shard in host.node.owned]
        if len(owners) != 1:
            yield f"shard {shard} is at {[host.name for host in owners]}"
            return
        left = [
            host.name
            for host in hosts
            if shard in host.here() and (host not in owners or host.here()[shard].status in LOST)
        ]
        if left:
            yield f"shard {shard} is left over at {left}"
        group_id = next(
            (g for g in self._world.groups if self._world.shards.shard_of(g) == shard), None
        )
        if group_id is not None:
            yield from self._named(hosts, group_id, owners[0])

    def _named(self, hosts: list[Host], group_id: str, owner: Host) -> Iterator[str]:
        """All nodes name the one that has a group, as far as they have looked."""
        for host in hosts:
            assert host.node is not None
            found = host.node.coordinator_of(group_id)
            address = None if found is None else f"{found.host}:{found.port}"
            if address != owner.address:
                yield f"{host.name} says that {group_id} is at {address}, {owner.name} has it"

    def _as_assigned(self, hosts: list[Host]) -> Iterator[str]:
        """Each node has what the root gave it, and the root gave each its share."""
        world = self._world
        group = world.checker_of(root_at(world.root)).state.groups.get(NODES)
        if group is None:
            yield "there is no group of the nodes"
            return
        shares = {
            member_id: {partition for _, partition in held(member.current.assigned)}
            for member_id, member in group.members.items()
        }
        owners = {host.node.here.owner: host for host in hosts if host.node is not None}
        if shares.keys() != owners.keys():
            yield f"members of {NODES} are {sorted(shares)}, nodes {sorted(owners)}"
            return
        for member_id, host in owners.items():
            assert host.node is not None
            if set(host.node.owned) != shares[member_id]:
                yield f"{host.name} has {host.node.owned}, and was given {sorted(shares[member_id])}"
        counts = Counter({member_id: len(share) for member_id, share in shares.items()})
        noted = world.checker_of(root_at(world.root)).state.loads.get(NODES)
        drained = set() if noted is None else owners.keys() & set(noted.drained)
        most = -(-world.shards.count // max(1, len(hosts) - len(drained)))
        if max(counts.values()) > most + 1:
            yield f"shares are {sorted(counts.values())} of {world.shards.count}"
