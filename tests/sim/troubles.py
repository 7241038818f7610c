"""Coordinators that die, stop and are replaced, clocks that jump, snapshots come late."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from coordinator.core.state.state_records import records_of
from coordinator.storage.record_log import LogError
from coordinator.storage.state_loader import write_snapshot

from .logs import Crash
from .node import Node

if TYPE_CHECKING:
    from .world import World

JUMPS_MS = (2_000, 20_000, 3_600_000, 86_400_000)


class Troubles:
    """All that befalls coordinators as processes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance

    def takes_over(self, *_key: object) -> None:
        """Let some coordinator claim the log, by force; the one before may live on."""
        self._world.take_over()

    def dies(self, *key: object) -> None:
        """Kill a coordinator."""
        node = self._node(*key)
        if node.processor is not None:
            node.die("killed")

    def stops(self, *key: object) -> None:
        """Stop a coordinator for a while, as by a signal; mostly a stand-by takes over."""
        node = self._node(*key)
        if node.processor is None or node.paused:
            return
        node.pause()
        self._world.story.cannot_tell("a coordinator stops")
        self._world.schedule.after(self._chance.a_while(*key), node.resume)
        if self._chance.likely(0.6, "a stand-by", *key):
            wait = self._chance.between(0, 5_000, "a stand-by", *key)
            self._world.schedule.after(wait, self._stands_in)

    def _stands_in(self) -> None:
        if self._world.leader() is None and not self._chance.calm:
            self._world.take_over()

    def clock_jumps(self, *key: object) -> None:
        """Set a coordinator's wall clock forward or back, a little or very much."""
        most = self._chance.pick(JUMPS_MS, "how far", *key)
        ms = self._chance.between(1, most, "jump", *key)
        self._node(*key).jump(ms if self._chance.likely(0.5, "forward", *key) else -ms)

    def snapshot(self, *key: object) -> None:
        """Write a snapshot as the background thread does; or let it land late, when others have gone on."""
        node = self._node(*key)
        if node.processor is None or node.paused or node.busy:
            return
        log, now = node.processor.log, node.clock()
        if self._chance.likely(0.5, "at once", *key):
            self._beside(node, node.life, write_snapshot, log, now)
        elif node is self._world.leader():
            shadow = self._world.checker
            records, position = list(records_of(shadow.state)), shadow.position
            wait = self._chance.a_while("snapshot", *key)
            late = (node, node.life, log.snapshot, records, position, now)
            self._world.schedule.after(wait, self._beside, *late)

    def keeps_house(self, *key: object) -> None:
        """Let a coordinator checkpoint, clean up and pack, as the background thread does."""
        self.maintains(self._node(*key))

    def maintains(self, node: Node) -> None:
        """Let this coordinator do it."""
        if (
            node.processor is None
            or node.paused
            or node.busy
            or not node.processor.log.is_maintenance_due()
        ):
            return
        self._beside(node, node.life, node.processor.log.maintain)

    def _beside(self, node: Node, life: int, care: Callable[..., object], *args: object) -> None:
        """Do what the background thread does in a thread of its own; it dies with its coordinator."""
        if node.life != life:
            return
        self._world.checker.follow()
        try:
            care(*args)
        except (LogError, OSError) as error:
            self._world.tell(f"{node.name}: log maintenance failed: {error}")
        except Crash as crash:
            node.die(str(crash))

    def power_fails(self, *_key: object) -> None:
        """End all coordinators at once."""
        self._world.power_fails()

    def _node(self, *key: object) -> Node:
        return self._chance.pick(self._world.nodes, "node", *key)
