"""Clients write and read offsets and epochs of a pair of coordinators that die, freeze and wake.

What they ask and are answered is a history for each offset and each group's epoch; `linear`
says whether it could have come from one object that never failed.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from coordinator.config import Config, LeaseConfig
from coordinator.errors import ErrorCode

from . import node as main
from .crowd import TRY_AGAIN, Broken
from .linear import NEVER, Operation, certain, epoch, linearize, register
from .node import SMALL, code_of
from .process import QUICK, Node
from .report import Outcome

CONFIG = replace(QUICK, lease=LeaseConfig(ttl_ms=500, renew_ms=100, check_ms=100))
OFFSETS, EPOCHS = "ledger", "readers"
"""A group of offsets alone, and one with members."""
TOPIC, PARTITIONS = "clicks", 4
CLIENTS = 6
SHARE = {"write": 0.4, "read": 0.8, "join": 0.9}
"""Up to which chance a client does what; it describes the group else."""
PAUSE_S = 0.01

Object: TypeAlias = tuple[str, int]
"""A group, and a partition of the topic, or -1 for the group's epoch."""


@dataclass
class Request:
    """What a client waits for; `value` is what it writes."""

    client: int
    node: Node
    number: int
    kind: str
    value: int
    partitions: tuple[int, ...]
    asked_at: float


class Clients:
    """Clients that have one request under way each, and the histories of what they asked."""

    def __init__(self, chance: random.Random) -> None:
        self.histories: dict[Object, list[Operation]] = defaultdict(list)
        self._chance = chance
        self._waiting: list[Request] = []
        self._value = 0
        self._joined = 0

    def live(self, nodes: list[Node], seconds: float) -> None:
        """Ask any of some coordinators for a while."""
        end, due = time.monotonic() + seconds, dict.fromkeys(range(CLIENTS), 0.0)
        while (now := time.monotonic()) < end:
            waiting = {request.client for request in self._waiting}
            for client in due.keys() - waiting:
                if due[client] <= now:
                    due[client] = now + self._chance.uniform(0, PAUSE_S)
                    self._ask(client, self._chance.choice(nodes))
            for one in nodes:
                one.hear(0.001)
            self.take()

    def read_all(self, node: Node) -> None:
        """Read everything once, after all others."""
        self.lose(None)
        for kind in ("read", "describe"):
            self._send(0, node, kind, 0, ())
        node.wait(lambda: all(one.number in node.answers for one in self._waiting))
        self.take()

    def take(self) -> None:
        """Take all answers that are there."""
        for request in list(self._waiting):
            if request.number in request.node.answers:
                self._waiting.remove(request)
                self._answered(request, request.node.answers.pop(request.number))

    def lose(self, node: Node | None) -> None:
        """Give up what is under way at a coordinator, or at all: it may happen, or not."""
        self.take()
        for request in list(self._waiting):
            if node is None or request.node is node:
                self._waiting.remove(request)
                self._note(request, NEVER)

    def _ask(self, client: int, node: Node) -> None:
        chance = self._chance.random()
        kind = next((kind for kind, up_to in SHARE.items() if chance < up_to), "describe")
        partitions: tuple[int, ...] = ()
        if kind == "write":
            self._value += 1
            count = self._chance.randint(1, PARTITIONS)
            partitions = tuple(sorted(self._chance.sample(range(PARTITIONS), count)))
        self._send(client, node, kind, self._value, partitions)

    def _send(
        self, client: int, node: Node, kind: str, value: int, partitions: tuple[int, ...]
    ) -> None:
        asked_at = time.monotonic()
        if kind == "write":
            topics = {TOPIC: dict.fromkeys(partitions, value)}
            number = node.send("offset_commit", group_id=OFFSETS, topics=topics)
        elif kind == "read":
            number = node.send("offset_fetch", group_id=OFFSETS)
        elif kind == "describe":
            number = node.send("consumer_group_describe", group_ids=[EPOCHS])
        else:
            number = self._join(node)
        request = Request(client, node, number, kind, value, partitions, asked_at)
        self._waiting.append(request)

    def _join(self, node: Node) -> int:
        self._joined += 1
        return node.send(
            "consumer_group_heartbeat",
            group_id=EPOCHS,
            member_id=f"m{self._joined}",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=sorted(SMALL),
            topic_partitions={},
        )

    def _answered(self, request: Request, answer: Any) -> None:
        code = code_of(answer)
        if request.kind == "describe" and code is ErrorCode.NONE:
            code = ErrorCode(answer[0]["error_code"])
        if code in {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND}:
            self._note(request, time.monotonic(), answer)
        elif code in TRY_AGAIN:
            self._note(request, NEVER)  # it may have been written all the same
        else:
            raise Broken(f"a {request.kind} is refused: {answer}")

    def _note(self, request: Request, answered_at: float, answer: Any = None) -> None:
        for key, kind, value in _meaning(request, answer):
            self.histories[key].append(
                Operation(request.client, kind, value, request.asked_at, answered_at)
            )


def _meaning(request: Request, answer: Any) -> list[tuple[Object, str, int]]:
    """Return what a request says of each object: what was asked of it, and the value."""
    if request.kind == "write":
        return [((OFFSETS, one), "write", request.value) for one in request.partitions]
    if answer is None:
        return []
    if request.kind == "read":
        there = answer.get("topics", {}).get(TOPIC, {})
        return [
            ((OFFSETS, one), "read", there[one]["committed_offset"] if one in there else -1)
            for one in range(PARTITIONS)
        ]
    if request.kind == "describe":
        (group,) = answer
        return [((EPOCHS, -1), "read", group.get("group_epoch", 0))]
    return [((EPOCHS, -1), "learn", answer.member_epoch)]


def judge(histories: dict[Object, list[Operation]]) -> int:
    """Raise Broken if a history is not linearizable; returns the number of operations."""
    for (group_id, partition), operations in sorted(histories.items()):
        model, first = (epoch, 0) if partition < 0 else (register, -1)
        verdict = linearize(certain(operations), model, first)
        if not verdict:
            name = "epoch" if partition < 0 else f"offset of {TOPIC}-{partition}"
            raise Broken(f"the {name} in {group_id} is not linearizable: {verdict}")
    return sum(map(len, histories.values()))


def checked(
    store: Path,
    seed: int,
    times: int,
    config: Config = CONFIG,
    serve: Callable[..., None] = main.serve,
    faults: tuple[str, ...] = ("kill", "freeze", "force", "close"),
) -> Outcome:
    """Have coordinators lose their store in some way, and check all histories."""
    chance = random.Random(seed)
    clients, made = Clients(chance), dict.fromkeys(faults, 0)
    holder = Node(store, config, main=serve)
    holder.wait_serves()
    for _ in range(times):
        clients.live([holder], chance.uniform(0.2, 0.6))
        fault = chance.choice(faults)
        made[fault] += 1
        heir = Node(store, config, "force" if fault == "force" else "wait", serve)
        _end(fault, holder, heir, clients, chance)
        holder = heir
    clients.live([holder], 0.2)
    clients.read_all(holder)
    holder.close()
    count = judge(clients.histories)
    words = ", ".join(f"{times} x {fault}" for fault, times in made.items())
    return Outcome(times, f"{words}; {count:,} operations on {len(clients.histories)} objects")


def _end(fault: str, holder: Node, heir: Node, clients: Clients, chance: random.Random) -> None:
    """Let a coordinator lose its store in some way; another one has it then."""
    if fault == "freeze":
        holder.stop()
        heir.wait_serves()
        clients.live([heir], chance.uniform(0, 0.3))
        holder.wake()
    if fault == "force":
        while not heir.serves:
            clients.live([holder], 0.01)
            heir.hear()
    if fault in {"freeze", "force"}:
        clients.live([holder, heir], 0.3)
    if fault == "kill":
        holder.kill()
    else:
        holder.close()
    clients.lose(holder)
    heir.wait_serves()
