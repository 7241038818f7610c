"""A coordinator is stopped, another takes over, and the first one is woken."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from coordinator.config import LeaseConfig
from coordinator.config.kafka import kafka_config
from coordinator.errors import ErrorCode

from .crowd import Broken, Key, by_topic, keys_of
from .node import SMALL, code_of
from .process import QUICK, Node
from .report import Outcome
from .shadow import Shadow

SESSION_MS = 1_000
CONFIG = replace(
    QUICK, kafka=kafka_config({"group.consumer.session.timeout.ms": SESSION_MS}, QUICK.kafka)
)
SLOW_LOOK = replace(CONFIG, lease=LeaseConfig(ttl_ms=400, renew_ms=100, check_ms=800))
"""A zombie looks less often than a successor needs to load: it confirms heartbeats meanwhile."""
IN_FLIGHT = 5
ALL = frozenset((topic, p) for topic, count in SMALL.items() for p in range(count))


class Two:
    """Two members that share all partitions of a group."""

    def __init__(self, node: Node, group_id: str) -> None:
        self.group_id = group_id
        self.epochs = {"m1": 0, "m2": 0}
        self.owned: dict[str, frozenset[Key]] = {"m1": frozenset(), "m2": frozenset()}
        while not self._at_rest():
            for name in ("m1", "m2"):
                self.beat(node, name)

    def _at_rest(self) -> bool:
        one, two = self.owned.values()
        return len(one) == len(two) == len(ALL) / 2 and len(set(self.epochs.values())) == 1

    def beat(self, node: Node, name: str) -> int:
        """Beat with everything, or join; returns the error code."""
        fields: dict[str, Any] = {"topic_partitions": by_topic(self.owned[name])}
        if self.epochs[name] == 0:
            fields |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": sorted(SMALL)}
        answer = node.ask("consumer_group_heartbeat", **self.steady(name), **fields)
        if code_of(answer) is ErrorCode.NONE:
            self.epochs[name] = answer.member_epoch
            if answer.assignment is not None:
                self.owned[name] = keys_of(answer.assignment)
        elif code_of(answer) is ErrorCode.UNKNOWN_MEMBER_ID:  # too slow for its session
            self.epochs[name], self.owned[name] = 0, frozenset()
        return int(code_of(answer))

    def hand_over(self, node: Node, every_s: float) -> None:
        """Let m2 beat until it has everything: m1 is not heard of again."""
        while self.owned["m2"] != ALL:
            self.beat(node, "m2")
            time.sleep(every_s)

    def steady(self, name: str) -> dict[str, Any]:
        """Return the fields of a heartbeat that says nothing new."""
        return {
            "group_id": self.group_id, "member_id": name, "member_epoch": self.epochs[name],
        }  # fmt: skip


def woken(store: Path, seed: int, times: int) -> Outcome:
    """Stop, let another one take over and reassign, wake, and send nothing but steady heartbeats."""
    chance, shadow = random.Random(seed), Shadow(store)
    zombie, late = Node(store, CONFIG), 0
    zombie.wait_serves()
    for number in range(times):
        two = Two(zombie, f"g{number}")
        waiting = _stopped_under_load(zombie, two, chance)
        successor = Node(store, CONFIG)
        successor.wait_serves()
        two.hand_over(successor, 0.05)
        zombie.wake()
        _refuses(zombie, two)
        late += sum(code_of(zombie.answers[n]) is ErrorCode.NONE for n in waiting)
        zombie.close()
        if two.beat(successor, "m1") != ErrorCode.UNKNOWN_MEMBER_ID:
            raise Broken("m1 was given up, and is known")
        shadow.follow()
        zombie = successor
    zombie.close()
    shadow.follow()
    return Outcome(
        times,
        f"the first answer of each zombie was NOT_COORDINATOR; {late} answers that it had decided "
        "before it was stopped left after it was woken",
    )


def _stopped_under_load(zombie: Node, two: Two, chance: random.Random) -> list[int]:
    """Stop a coordinator at a random moment; returns what it still has to answer."""
    end = time.monotonic() + chance.uniform(0, 0.3)
    while time.monotonic() < end:
        zombie.ask("consumer_group_heartbeat", **two.steady("m1"))
    asked = [zombie.send("consumer_group_heartbeat", **two.steady("m1")) for _ in range(IN_FLIGHT)]
    time.sleep(chance.uniform(0, 0.003))
    zombie.stop()
    return [number for number in asked if number not in zombie.answers]


def _refuses(zombie: Node, two: Two) -> None:
    for _ in range(3):
        answer = zombie.ask("consumer_group_heartbeat", **two.steady("m1"))
        if code_of(answer) is not ErrorCode.NOT_COORDINATOR:
            raise Broken(f"a woken zombie answers {answer}")


def confirms(store: Path, seed: int, times: int) -> Outcome:
    """Take over by force while a member beats at the old coordinator only, stopped or not.

    Whatever the old one still confirms, no other member gets its partitions before its
    session, counted from its last confirmed heartbeat, is over.
    """
    chance = random.Random(seed)
    old, after_ms, spare_ms = Node(store, SLOW_LOOK), [0.0], []
    old.wait_serves()
    for number in range(times):
        two = Two(old, f"g{number}")
        new = Node(store, SLOW_LOOK, takeover="force")
        pause_at = time.monotonic() + chance.uniform(0, 1.0)
        pause_s = chance.choice((0.0, chance.uniform(0, 0.4), chance.uniform(0.7, 0.9)))
        last = _last_confirmed(old, two, _pause(old, pause_at, pause_s))
        new.wait_serves()
        two.hand_over(new, 0.005)
        spare = (time.monotonic() - last) * 1000 - SESSION_MS
        if spare < 0:
            raise Broken(f"m2 got partitions {-spare:.0f} ms before m1's session was over")
        spare_ms.append(spare)
        after_ms.append((last - new.served_at) * 1000)
        old.close()
        old = new
    old.close()
    return Outcome(
        times,
        f"confirmed until {max(after_ms):.0f} ms after the successor served; its members got the "
        f"partitions {min(spare_ms):.0f} ms or more after the session was over",
    )


def _pause(node: Node, at: float, seconds: float) -> Callable[[], None]:
    """Return what stops a process at a time, and wakes it again."""
    plan = [(at, node.stop), (at + seconds, node.wake)] if seconds else []

    def look() -> None:
        while plan and time.monotonic() >= plan[0][0]:
            plan.pop(0)[1]()

    return look


def _last_confirmed(old: Node, two: Two, look: Callable[[], None]) -> float:
    """Beat at the old coordinator until it refuses; returns when the last confirmed beat was sent."""
    last, sent, number = 0.0, 0.0, None
    while True:
        look()
        if number is None:
            sent = time.monotonic()
            number = old.send("consumer_group_heartbeat", **two.steady("m1"))
        old.hear(0.002)
        if number in old.answers:
            answer, number = old.answers.pop(number), None
            if code_of(answer) is ErrorCode.NOT_COORDINATOR:
                return last
            if code_of(answer) is ErrorCode.NONE:
                last = sent
