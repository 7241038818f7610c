"""What happens to nodes, members and the store while faults last, each at its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.errors import GroupError
from coordinator.storage.shards import NODES
from tests.sim.happenings import Happenings

from .client import ShardMember, fetch
from .host import Host
from .network import Cut

if TYPE_CHECKING:
    from .world import ShardWorld

MEMBERS_MAX, NODES_MAX, NODES_LEAST = 12, 6, 2
JUMPS_MS = (2_000, 20_000, 3_600_000)


class Actions:
    """Lets things happen until faults stop."""

    def __init__(self, world: ShardWorld) -> None:
        self._world, self._chance = world, world.chance
        self._offset = 0
        self._acknowledged: dict[tuple[str, str, int], int] = {}
        """Where the newest commit of each partition is in its log, of those acknowledged."""
        breaks = [
            ("a node dies", 1.0, self.node_dies),
            ("a node is frozen", 1.0, self.node_freezes),
            ("a node is cut off", 0.7, self.node_is_cut),
            ("the store is slow", 0.7, self.store_is_slow),
            ("a clock jumps", 0.4, self.clock_jumps),
            ("a member dies", 0.5, self.member_dies),
            ("a member stops", 0.5, self.member_stops),
            ("two nodes die", 0.2, self.two_die),
        ]
        cuts = [("a link is cut", 1.0, self.link_is_cut)]
        plans = [
            ("a node joins", 0.5, self.node_joins),
            ("a node is stopped", 0.7, self.node_stops),
            ("a node is drained", 0.5, self.node_is_drained),
        ]
        if world.is_planned:
            cuts, breaks = [], []
        elif world.only_links:
            plans, breaks, cuts = [], [], [("a link is cut", 4.0, self.link_is_cut)]
        elif not world.chance.likely(0.3, "links are cut"):
            cuts = []
        kinds = [
            ("a member joins", 1.5, self.member_joins),
            ("a member leaves", 0.7, self.member_leaves),
            ("offsets are fetched", 2.0, self.fetches),
            *plans,
            *breaks,
            *cuts,
        ]
        self._happenings = Happenings(world.schedule, world.chance, (500, 2_000, 5_000), kinds)

    def next_offset(self) -> int:
        """Return an offset that no one has committed yet."""
        self._offset += 1
        return self._offset

    def acknowledged(self, place: tuple[str, str, int], offset: int) -> None:
        """Note that a commit was acknowledged to its member."""
        checker = self._world.checker_of_group(place[0])
        checker.follow()
        at = max((at for at, one in checker.offsets[place] if one == offset), default=0)
        if not at:
            checker.fail(f"the offset {offset} of {place} was acknowledged, and is in no log")
        self._acknowledged[place] = max(at, self._acknowledged.get(place, 0))

    def floors(self, group_id: str) -> dict[tuple[str, str, int], int]:
        """Return where the newest acknowledged commits of a group are."""
        return {place: at for place, at in self._acknowledged.items() if place[0] == group_id}

    def begin(self) -> None:
        """Start nodes and members, then let things happen."""
        for number, host in enumerate(self._world.hosts):
            self._world.schedule.after(number * self._chance.between(0, 500, "starts"), host.start)
        for number in range(self._chance.between(2, 8, "members")):
            wait = self._chance.between(0, 3_000, "joins", number)
            self._world.schedule.after(wait, self.member_joins, "first", number)
        self._happenings.begin()

    # Members -------------------------------------------------------------------------------------

    def member_joins(self, *key: object) -> None:
        """Let a member join a group of any shard."""
        world, chance = self._world, self._chance
        if sum(not one.gone for one in world.members) >= MEMBERS_MAX:
            return
        count = len(world.members)
        member = ShardMember(
            world,  # type: ignore[arg-type] # as much of one as it needs
            chance.pick(world.groups, "group", *key),
            f"m{count + 1}",
            names=tuple(chance.some(tuple(world.topics.topics()), "names", *key)),
            regex="",
            rebalance_timeout_ms=chance.pick((5_000, 15_000), "rebalance", *key),
            wish=None,
            first_number=1_000 * count,
        )
        world.members.append(member)
        world.tell(f"{member.group_id}/{member.member_id}: begins, {member.names}")
        member.begin()

    def member_leaves(self, *key: object) -> None:
        """Let a member leave."""
        for member in self._one(*key):
            member.leave(for_a_while=False)

    def member_dies(self, *key: object) -> None:
        """Let a member die."""
        for member in self._one(*key):
            member.die()

    def member_stops(self, *key: object) -> None:
        """Stop a member for a while."""
        for member in self._one(*key):
            member.pause()
            self._world.schedule.after(self._chance.a_while(*key), member.resume)

    def _one(self, *key: object) -> list[ShardMember]:
        live = [one for one in self._world.members if not one.gone and not one.paused]
        return [self._chance.pick(live, "who", *key)] if live else []

    def fetches(self, *key: object) -> None:
        """Fetch the offsets of a group."""
        fetch(self._world, self._chance.pick(self._world.groups, "group", *key), "reader", *key)

    # Nodes ---------------------------------------------------------------------------------------

    def _host(self, *key: object) -> Host:
        return self._chance.pick(self._world.hosts, "node", *key)

    def node_dies(self, *key: object) -> None:
        """Kill a node."""
        self._host(*key).die("killed")

    def two_die(self, *key: object) -> None:
        """Kill two nodes at once."""
        self._host("one", *key).die("killed")
        self._host("another", *key).die("killed")

    def node_freezes(self, *key: object) -> None:
        """Stop a node as by a signal, for as long as a lease or not."""
        host = self._host(*key)
        if host.runs:
            host.freeze()
            self._world.schedule.after(self._chance.a_while(*key), host.thaw)

    def node_is_cut(self, *key: object) -> None:
        """Cut a node off the store."""
        self._bad(self._world.way.cut, "is cut off the store", *key)

    def link_is_cut(self, *key: object) -> None:
        """Cut a node off all others, or off one; it has the store all the while.

        Each second time it is the one that has the root; where all else is well, one at a time.
        """
        world, host, wait = self._world, self._host(*key), self._chance.a_while(*key)
        if world.only_links and any(world.network.cut_of(one) for one in world.hosts):
            return
        if self._chance.likely(0.5, "of the root", *key):
            host = next(iter(self._roots()), host)
        other = self._chance.pick([*world.hosts, *[None] * len(world.hosts)], "from", *key)
        if other is host:
            return
        itself = other is None and self._chance.likely(0.5, "itself", *key)
        name = None if other is None else other.name
        whom = "all others" if name is None else name
        itself_too = " and itself" if itself else ""
        world.tell(f"{host.name}: is cut off {whom}{itself_too} for {wait} ms")
        world.network.cuts[host.name] = Cut(world.schedule.now + wait, name, itself)
        world.disturbed(host.name)
        world.schedule.after(wait, world.disturbed, host.name)

    def store_is_slow(self, *key: object) -> None:
        """Let the store be slow for a node."""
        self._bad(self._world.way.slow, "waits long for the store", *key)

    def _bad(self, until: dict[str, int], what: str, *key: object) -> None:
        world, host, wait = self._world, self._host(*key), self._chance.a_while(*key)
        world.tell(f"{host.name}: {what} for {wait} ms")
        until[host.name] = world.schedule.now + wait
        world.disturbed(host.name)
        world.schedule.after(wait, world.disturbed, host.name)

    def clock_jumps(self, *key: object) -> None:
        """Set a node's wall clock."""
        host = self._host(*key)
        if host.process is not None:
            most = self._chance.pick(JUMPS_MS, "how far", *key)
            ms = self._chance.between(-most, most, "jump", *key)
            host.process.offset += ms
            self._world.tell(f"{host.name}: clock jumps by {ms} ms")

    def node_stops(self, *key: object) -> None:
        """Stop a node in order; it comes back."""
        if sum(host.healthy for host in self._world.hosts) > NODES_LEAST:
            self._host(*key).stop()

    def node_joins(self, *_key: object) -> None:
        """Let a node join that was not there before."""
        if len(self._world.hosts) < NODES_MAX:
            self._world.add_host().start()

    def node_is_drained(self, *key: object) -> None:
        """Drain a node, and undo that later."""
        host, back = self._host(*key), self._chance.a_while(*key)
        self._plan(host, "drain")
        self._world.schedule.after(back, self._plan, host, "undrain")

    def _roots(self) -> list[Host]:
        """Return the nodes that coordinate the others."""
        hosts = self._world.hosts
        return [one for one in hosts if one.runs and one.node and one.node._holds.coordinator]

    def _plan(self, host: Host, how: str) -> None:
        """Apply a plan for the group of the nodes, as `muster drain` does."""
        world = self._world
        roots, node = self._roots(), host.node
        if not roots or node is None:
            return
        root, member_id = roots[0], node.here.owner

        def apply() -> None:
            assert root.node is not None
            coordinator = root.node._holds.coordinator
            if coordinator is None:
                return
            try:
                made = coordinator.plan(NODES, **{how: [member_id]}).plan  # type: ignore[arg-type]
                coordinator.apply_plan(made)
            except GroupError as error:
                world.tell(f"{host.name}: no {how}, {error.message}")
            else:
                world.tell(f"{host.name}: {how}")

        process = root.process
        assert process is not None
        world.machine.begin(process, apply, "plan")
