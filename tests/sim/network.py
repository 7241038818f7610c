"""Requests and answers between members and coordinators, lost, late, doubled, reordered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator.core.events import Answer, Event

if TYPE_CHECKING:
    from .client import Member
    from .node import Node
    from .world import World

SLOWEST_MS = 8
"""Of requests that are not late."""


@dataclass(eq=False)
class Request:
    """One request as it travels.

    Attributes
    ----------
    name
        Who sent it, and which of its requests it is.
    reply
        Called with the answer and the node that gave it, if the answer arrives.
    member
        Who sends this heartbeat; None for other requests.
    decided
        Whether a coordinator has decided it; where it is doubled, no client waits for another answer.
    local
        Whether it comes from the coordinator's own process, and no network carries it.
    """

    name: tuple[object, ...]
    event: Event
    reply: Callable[[Answer, Node], None] | None
    member: Member | None = None
    number: int = 0
    decided: bool = False
    local: bool = False


class Network:
    """Carries requests to coordinators and answers back."""

    def __init__(self, world: World) -> None:
        self._world = world

    def send(self, request: Request, node: Node) -> None:
        """Carry a request; whether and when it arrives is chance."""
        chance, name = self._world.chance, request.name
        if chance.happens("request doubled", *name):
            self._carry(request, node, self._latency("request late", (*name, "doubled")))
        if not chance.happens("request lost", *name):
            self._carry(request, node, self._latency("request late", name))

    def answer(self, request: Request, answer: Answer, node: Node) -> None:
        """Carry an answer back."""
        if self._world.chance.happens("answer lost", *request.name):
            return
        latency = self._latency("answer late", request.name)
        assert request.reply is not None
        self._world.schedule.after(latency, request.reply, answer, node)

    def _carry(self, request: Request, node: Node, latency: int) -> None:
        self._world.schedule.after(latency, node.receive, request, node.life)

    def _latency(self, fault: str, name: tuple[object, ...]) -> int:
        chance = self._world.chance
        if chance.happens(fault, *name):
            slow = chance.draw("how late", fault, *name) ** 3
            return int(slow * 20_000) + 20
        return chance.between(1, SLOWEST_MS, "latency", fault, *name)
