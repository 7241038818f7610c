"""A process of a node, in each of its lives: it starts, serves, stalls, is stopped or dies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.runtime.coordinator import Coordinator
from coordinator.shards.node import Node

from .machine import Process
from .server import Front

if TYPE_CHECKING:
    from .world import ShardWorld


class Host:
    """A place where a node runs.

    Attributes
    ----------
    node_id
        That it wants.
    front
        Where requests come in; None while it does not serve.
    life
        A request sent to an earlier one is lost with it.
    wanted
        Whether it is started again when it ends.
    """

    def __init__(self, world: ShardWorld, number: int) -> None:
        self.world, self.node_id = world, number
        self.address = f"10.0.0.{number}:9092"
        self.life = 0
        self.process: Process | None = None
        self.node: Node | None = None
        self.front: Front | None = None
        self.leaving = False

    @property
    def name(self) -> str:
        """What it is called."""
        return f"n{self.node_id}"

    @property
    def runs(self) -> bool:
        """Whether its process is there, and not stopped."""
        process = self.process
        return process is not None and process.alive and not process.frozen

    @property
    def healthy(self) -> bool:
        """Whether it can be expected to coordinate."""
        if not self.runs or self.leaving or self.front is None or self.world.network.is_cut(self):
            return False
        until = self.world.way.cut.get(self.name, 0), self.world.way.slow.get(self.name, 0)
        return max(until) <= self.world.schedule.now

    def here(self) -> dict[int, Coordinator]:
        """Return the coordinators of its shards, by their numbers."""
        return {} if self.node is None else dict(self.node.here._here)

    def start(self) -> None:
        """Begin a new life."""
        world = self.world
        self.life += 1
        self.leaving = False
        self.process = process = Process(self.name)
        self.node = self.front = None
        world.tell(f"{self.name}: starts at {self.address}")
        world.disturbed(self.name)

        def main() -> None:
            self.node = Node(world.root, world.shards, world.config, topics=world.topics)
            self.node.serve()
            world.disturbed(self.name)

        world.machine.begin(process, main, "main")

    def die(self, why: str) -> None:
        """End this life at once."""
        process = self.process
        if process is None:
            return
        self.world.tell(f"{self.name}: dies, {why}")
        self.world.disturbed(self.name)
        self.world.machine.kill(process)
        self.gone()

    def gone(self) -> None:
        """The process has ended."""
        self.process = self.node = self.front = None
        self.life += 1
        self.world.ended(self)

    def stop(self) -> None:
        """End this life in order, as by SIGTERM."""
        process, node = self.process, self.node
        if process is None or node is None or not self.runs or self.leaving:
            return
        self.leaving = True
        self.world.tell(f"{self.name}: is asked to end")
        self.world.disturbed(self.name)

        def close() -> None:
            node.close()
            self.world.schedule.after(0, self._ended, process)

        self.world.machine.begin(process, close, "close")

    def _ended(self, process: Process) -> None:
        if process is self.process:
            self.world.tell(f"{self.name}: has ended")
            claims = self.world.claims.items()
            self.world.left_behind |= {path for path, (_, host) in claims if host is self}
            self.world.disturbed(self.name)
            self.world.machine.kill(process)
            self.gone()

    def freeze(self) -> None:
        """Stop as by a signal."""
        if self.process is not None and self.runs:
            self.world.tell(f"{self.name}: is frozen")
            self.world.disturbed(self.name)
            self.world.machine.freeze(self.process)

    def thaw(self) -> None:
        """Go on where it was frozen."""
        if self.process is not None and self.process.frozen:
            self.world.tell(f"{self.name}: goes on")
            self.world.disturbed(self.name)
            self.world.machine.thaw(self.process)
