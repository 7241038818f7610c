"""Two coordinators wait for one store; its holder dies; exactly one of them takes over."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path

from coordinator.config import LeaseConfig

from .crowd import Broken
from .process import PATIENCE_S, QUICK, Node
from .report import Outcome
from .shadow import Shadow

LEASE = LeaseConfig(ttl_ms=1_000, renew_ms=100, check_ms=100)
"""A holder that gets no time on a busy machine is not taken for a dead one."""
CONFIG = replace(QUICK, lease=LEASE)


def two_wait(store: Path, seed: int, times: int) -> Outcome:
    """Kill the holder, then the one that followed it, so many times."""
    chance, shadow, took = random.Random(seed), Shadow(store), []
    holder = Node(store, CONFIG)
    holder.wait_serves()
    for _ in range(times):
        waiting = [Node(store, CONFIG), Node(store, CONFIG)]
        for node in waiting:
            node.wait(lambda node=node: node.began_at)
        time.sleep(chance.uniform(0, 0.5))
        while waiting:
            shadow.follow()
            claims, killed_at = len(shadow.claims), time.monotonic()
            holder.kill()
            holder = _only_one(waiting)
            took.append(holder.served_at - killed_at)
            shadow.follow()
            if len(shadow.claims) != claims + 1:
                raise Broken(f"{len(shadow.claims) - claims} claims when one coordinator died")
    holder.close()
    return Outcome(
        2 * times,
        f"one of them took over each time, {min(took):.1f} to {max(took):.1f} s after the kill "
        f"(the lease lives {LEASE.ttl_ms / 1000} s), the other one went on waiting",
    )


def _only_one(waiting: list[Node]) -> Node:
    """Return who serves now, taken out of those that wait; no other serves, even later."""
    end = time.monotonic() + PATIENCE_S
    while not any(node.serves for node in waiting):
        if time.monotonic() > end:
            raise Broken("no stand-by takes over")
        for node in waiting:
            node.hear(0.01)
    time.sleep(2 * LEASE.ttl_ms / 1000)
    for node in waiting:
        node.hear()
        if node.ended or node.failed:
            raise Broken(f"a stand-by ended: {node.failed}")
    serving = [node for node in waiting if node.serves]
    if len(serving) != 1:
        raise Broken("both stand-bys serve")
    waiting.remove(serving[0])
    return serving[0]
