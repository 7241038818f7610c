"""Kill -9 at any moment under load; the next coordinator has everything acknowledged."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .crowd import Crowd
from .process import Node
from .report import Outcome
from .shadow import Shadow

GROUPS = {"billing": 6, "search": 4, "audit": 2}
LIFE_S = 0.8
"""At most, from serving to being killed."""
YOUNG = 0.2
"""How often it is killed while it still opens the store."""


def killed(store: Path, seed: int, times: int, start: Callable[[Any], Node] = Node) -> Outcome:
    """Kill a coordinator so many times, at random moments, under load."""
    chance = random.Random(seed)
    crowd, shadow, took = Crowd(GROUPS, chance), Shadow(store), []
    young = 0
    for _ in range(times):
        node = start(store)
        if chance.random() < YOUNG:
            young += 1
            _kill_young(node, chance)
            continue
        began = time.monotonic()
        node.wait_serves()
        took.append(time.monotonic() - began)
        crowd.check(node)
        crowd.live(node, chance.uniform(0, LIFE_S))
        node.kill()
        crowd.take(node)
        crowd.lose()
        shadow.follow()
    _end(store, crowd, shadow)
    return Outcome(
        times,
        f"{crowd.acknowledged:,} answers acknowledged, none lost; {young} killed while they opened "
        f"the store; {shadow.claims[-1]} claims; from start to service {statistics.median(took):.1f}"
        f" s, at most {max(took):.1f} s",
    )


def _kill_young(node: Node, chance: random.Random) -> None:
    node.wait(lambda: node.began_at)
    time.sleep(chance.uniform(0, 0.7))
    node.kill()


def _end(store: Path, crowd: Crowd, shadow: Shadow) -> None:
    """The last one is not killed: everything comes to rest."""
    node = Node(store)
    node.wait_serves()
    crowd.check(node)
    crowd.live(node, LIFE_S)
    node.close()
    crowd.take(node)
    crowd.lose()
    shadow.follow()
    again = Node(store)
    again.wait_serves()
    crowd.check(again)
    again.close()
