"""A node's side of the network: what it serves, and how it tells the other nodes that it is there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coordinator.core.events import Answer, Event
from coordinator.core.state.groups import TopicView
from coordinator.errors.trouble import Trouble
from coordinator.wire import listener
from coordinator.wire.call import Cluster
from coordinator.wire.codec import Api

if TYPE_CHECKING:
    from coordinator.shards.node import Node

    from .world import ShardWorld


class Front(listener.RunningServer):
    """As `RunningServer`, whose sockets are those of the simulated network."""

    def __init__(self, world: ShardWorld, backend: Node, _listen: str | None) -> None:
        self._world, self._backend = world, backend
        self._host = world.host_of(world.machine.check())
        self.address = self._host.address
        self._nodes, self._stays = backend.nodes, False
        self._trouble = Trouble(listener.logger.warning, "cannot refresh the other servers: %s")
        self._closed = listener.threading.Event()
        self._wanted_id = self._host.node_id
        host, port = self.address.split(":")
        nothing = Cluster(self._wanted_id, host, int(port), "", TopicView, lambda: True)
        self._show = lambda _: None
        self._cluster = replace(nothing, node_id=self._register())
        self._telling = (
            None
            if self._nodes is None
            else self._repeat(self._renew, self._nodes.every_s, "muster-nodes", self._leave)
        )
        self._host.front = self

    def close(self, *, stays: bool = False) -> None:
        """Serve no longer."""
        self._stays = stays
        self._host.front = None
        self._closed.set()
        if self._telling is not None:
            self._telling.join(listener.LEAVE_S)

    def ask(self, event: Event, reply: Callable[[Answer], None]) -> None:
        """Take a request in; the reply leaves as soon as there is one."""

        def answered(found: Future[Any]) -> None:
            if not found.cancelled() and found.exception() is None:
                reply(found.result()[0])

        self._backend.submit([event]).add_done_callback(answered)

    def find(self, group_id: str, reply: Callable[[str | None], None]) -> None:
        """Say who coordinates a group, in a thread: it may have to read what other nodes say."""

        def find() -> None:
            self._backend.looks[Api.FIND_COORDINATOR]()
            found = self._backend.coordinator_of(group_id)
            address = None if found is None else f"{found.host}:{found.port}"
            self._world.checker.named(self._host, group_id, address)
            reply(address)

        machine = self._world.machine
        machine.begin(machine.check(), find, "find")
