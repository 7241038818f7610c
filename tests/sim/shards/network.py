"""The network between clients and nodes: clients find the coordinator of a group, and ask it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from coordinator.core.events import Answer
from coordinator.errors import ErrorCode, GroupError
from tests.sim.network import Request

if TYPE_CHECKING:
    from .host import Host
    from .world import ShardWorld

LATENCY_MS, LATE_MS = (1, 4), (20, 3_000)
BROKEN_MS = 5
"""So soon a client hears that there is no one."""
GONE = GroupError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no connection (simulated)")


class Cut(NamedTuple):
    """What a node does not reach, and is not reached by, until a moment.

    Attributes
    ----------
    other
        The one node that it is cut off; None: all nodes and clients.
    itself
        Whether it does not reach its own address either.
    """

    until: int
    other: str | None
    itself: bool


class Network:
    """Carries requests to nodes, and answers back.

    Attributes
    ----------
    cuts
        By the names of nodes.
    """

    def __init__(self, world: ShardWorld) -> None:
        self._world = world
        self.cuts: dict[str, Cut] = {}

    def is_cut(self, host: Host, other: Host | None = None) -> bool:
        """Whether nothing comes from a node to another, or to clients, nor back."""
        if other is host:
            return (cut := self.cut_of(host)) is not None and cut.itself
        both = [(host, other), *([] if other is None else [(other, host)])]
        return any(
            cut.other is None or (to is not None and cut.other == to.name)
            for one, to in both
            if (cut := self.cut_of(one)) is not None
        )

    def cut_of(self, host: Host) -> Cut | None:
        """Return what a node is cut off, None while it is not."""
        cut = self.cuts.get(host.name)
        return cut if cut is not None and cut.until > self._world.schedule.now else None

    def send(self, request: Request, finder: Finder) -> None:
        """Carry a client's request to the node that it takes for the coordinator."""
        finder.send(request)

    def carry(self, name: tuple[object, ...], what: Callable[..., object], *args: object) -> None:
        """Let something arrive, unless it is lost."""
        chance = self._world.chance
        lost, late = chance.happens("request lost", *name), chance.happens("request late", *name)
        if (lost or late) and "node" in name:
            self._world.disturbed("the network")
        if lost:
            return
        low, high = LATE_MS if late else LATENCY_MS
        latency = chance.between(low, high, "latency", *name)
        self._world.schedule.after(latency, what, *args)


class Finder:
    """A client's connections: it finds the coordinator of a group, and asks it until it errs.

    Attributes
    ----------
    home
        Whom it asks first; None: any node.
    """

    def __init__(self, world: ShardWorld, home: Host | None = None) -> None:
        self._world, self._home = world, home
        self._found: str | None = None

    def send(self, request: Request) -> None:
        """Ask, or find the coordinator first."""
        world, name = self._world, request.name
        if world.chance.happens("asks the wrong coordinator", *name):
            self._ask(request, world.any_host("wrong", *name))
        elif self._found is not None:
            self._ask(request, world.hosts_by_address.get(self._found))
        else:
            self._find(request)

    def _find(self, request: Request) -> None:
        world, name = self._world, ("find", *request.name)
        host = self._home or world.any_host(*name)
        group_id = request.event.group_id  # type: ignore[union-attr] # clients ask about groups
        if host.front is None:
            world.schedule.after(BROKEN_MS, self._broken, request, host)
            return

        def reply(address: str | None) -> None:
            world.network.carry(("found", *request.name), self._located, request, address, host)

        world.network.carry(
            name, self._deliver, host, host.life, lambda front: front.find(group_id, reply)
        )

    def _located(self, request: Request, address: str | None, host: Host) -> None:
        """Go on with what was found."""
        if self._world.network.is_cut(host, self._home):
            return
        self._found = address
        if address is None:
            self._broken(request, host)
        else:
            self._ask(request, self._world.hosts_by_address.get(address))

    def _ask(self, request: Request, host: Host | None) -> None:
        world = self._world
        if host is None or host.front is None:
            self._found = None
            world.schedule.after(BROKEN_MS, self._broken, request, host)
            return

        def reply(answer: Answer) -> None:
            name = ("answer", host.name, *request.name)
            world.network.carry(name, self._answered, request, answer, host)

        world.requests[id(request.event)] = request
        world.network.carry(
            request.name,
            self._deliver,
            host,
            host.life,
            lambda front: front.ask(request.event, reply),
        )

    def _deliver(self, host: Host, life: int, ask: Callable[[Any], object]) -> None:
        """Bring a request to a process, which may be stopped; to one that is gone, in vain."""
        process = host.process
        if self._world.network.is_cut(host, self._home):
            return
        if host.life == life and process is not None:
            self._world.machine.within(process, lambda: host.front and ask(host.front))

    def _answered(self, request: Request, answer: Answer, host: Host) -> None:
        self._world.requests.pop(id(request.event), None)
        if self._world.network.is_cut(host, self._home):
            return
        if isinstance(answer, GroupError):
            self._found = None
        if request.reply is not None and not request.decided:
            request.decided = True
            request.reply(answer, host)  # type: ignore[arg-type] # it has a name

    def _broken(self, request: Request, host: Host | None) -> None:
        if request.reply is not None and not request.decided:
            request.decided = True
            request.reply(GONE, host or self._world.hosts[0])  # type: ignore[arg-type]
