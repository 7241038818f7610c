"""Kill -9 around the approval of a plan: it is applied whole and once, or it still waits."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path

from coordinator.config import EngineConfig
from coordinator.config.kafka import kafka_config
from coordinator.core.events import DecidePlan
from coordinator.core.state.records import PlanMade
from coordinator.history import frame
from coordinator.storage.inbox import Inbox
from tests.support.members import wait_for

from .process import QUICK, Node
from .report import Outcome

CONFIG = replace(
    QUICK,
    engine=EngineConfig(proposals_ms=5),  # how often it looks for requests
    kafka=kafka_config(
        {"group.consumer.assignment.interval.ms": 0, "group.consumer.assignors": ["weighted"]}
    ),
)
ALL = 12
HALVES, DRAINED = {"m1": ALL // 2, "m2": ALL // 2}, {"m2": ALL}
DIES_S = 0.06
"""At most, from the request to being killed; a commit takes a few milliseconds."""
MANY = 10
"""Of so many kills some come before the commit, and some after it."""


def killed(store: Path, seed: int, times: int) -> Outcome:
    """Approve a plan and kill the coordinator at once, so many times."""
    chance = random.Random(seed)
    node, applied_before, epochs = Node(store, CONFIG), 0, set()
    node.wait_serves()
    for member in ("m1", "m2"):
        _join(node, member)
    for at in range(times):
        drains = at % 2 == 0
        plan = _propose(node, drains=drains)
        before, after = (HALVES, DRAINED) if drains else (DRAINED, HALVES)
        assert _look(store, plan.plan_id) == ("waiting", before)
        Inbox(store).put(
            DecidePlan("approve", "g", plan.plan_id, by="User:ann", request_id=f"r{at}")
        )
        time.sleep(chance.uniform(0, DIES_S))
        node.kill()
        found = _look(store, plan.plan_id)
        assert found in (("waiting", before), ("applied", after)), "half of a plan was applied"
        applied_before += found[0] == "applied"
        node = Node(store, CONFIG)
        node.wait_serves()
        wait_for(lambda: not Inbox(store).waiting())
        assert _look(store, plan.plan_id) == ("applied", after)
        epochs |= _epochs_of(store, plan.plan_id)
        assert len(epochs) == at + 1, "a plan was applied twice"
    node.close()
    assert times < MANY or 0 < applied_before < times, (
        f"{applied_before} of {times} were applied before the kill: it does not meet the approval"
    )
    return Outcome(
        times,
        f"{applied_before} were applied when the coordinator died, the others by the next one",
    )


def _join(node: Node, member: str) -> None:
    node.ask(
        "consumer_group_heartbeat", group_id="g", member_id=member, member_epoch=0,
        rebalance_timeout_ms=60_000, subscribed_topic_names=["clicks"], topic_partitions={},
    )  # fmt: skip


def _propose(node: Node, *, drains: bool) -> PlanMade:
    shown = node.ask("plan", group_id="g", **{"drain" if drains else "undrain": ["m1"]})
    answer = node.ask("propose_plan", plan=shown.plan)
    assert answer["decision"] == "waiting", answer
    made: PlanMade = shown.plan
    return made


def _look(store: Path, plan_id: str) -> tuple[str, dict[str, int]]:
    """Return what became of a plan, and how many partitions each member is to own."""
    counts: dict[str, int] = {}
    for row in frame(store, "target_assignments").to_pylist():
        counts[row["member_id"]] = counts.get(row["member_id"], 0) + row["partition_count"]
    (status,) = (
        row["status"] for row in frame(store, "plans").to_pylist() if row["plan_id"] == plan_id
    )
    return status, {member: count for member, count in counts.items() if count}


def _epochs_of(store: Path, plan_id: str) -> set[int]:
    """Return the epochs that the log says a plan began."""
    rows = frame(store, "log").to_pylist()
    return {row["group_epoch"] for row in rows if row["kind"] == "plan_decision"
            and row["plan_id"] == plan_id and row["decision"] == "applied"}  # fmt: skip
