"""A pipeline's driver is killed while Spark computes a target for it."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from coordinator.config import EngineConfig, PlanConfig
from coordinator.config.kafka import kafka_config
from coordinator.core.events import Heartbeat
from coordinator.storage.target_table import list_files, targets_path
from tests.support.members import wait_for

from . import driver
from .crowd import Broken, assigned, by_topic, keys_of
from .node import LARGE
from .process import QUICK, Node
from .report import Outcome
from .shadow import Shadow

GROUP = "billing"
MEMBERS = 200
HOUR_MS = 3_600_000
CONFIG = replace(
    QUICK,
    plan=PlanConfig(long_ranges=0),
    engine=EngineConfig(engine="spark", driver_rows=0),
    kafka=kafka_config(
        {
            "group.consumer.max.session.timeout.ms": HOUR_MS,
            "group.consumer.session.timeout.ms": HOUR_MS,
        },
        QUICK.kafka,
    ),
)
"""Members wait for the next driver, however long its JVM takes to start."""
STAGE = re.compile(rf"^{GROUP}: (\w+)")


class Group:
    """The members of the one large group, who beat on request."""

    def __init__(self) -> None:
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, frozenset[Any]] = {}
        self.targets: dict[str, frozenset[Any]] = {}
        """The target that was installed last, as far as anybody saw."""
        self.seen = (0, 0)

    def join(self, node: Node, count: int) -> None:
        """Let new members join: the group's epoch moves, and its target is computed."""
        names = [f"m{len(self.epochs) + n:04}" for n in range(count)]
        self.epochs |= dict.fromkeys(names, 0)
        self.owned |= dict.fromkeys(names, frozenset())
        self.beat(node, names)

    def beat(self, node: Node, names: list[str]) -> None:
        """Beat with everything, as one batch."""
        beats = [
            Heartbeat(
                GROUP,
                name,
                self.epochs[name],
                rebalance_timeout_ms=HOUR_MS,
                subscribed_topic_names=sorted(LARGE),
                topic_partitions=by_topic(self.owned[name]),
            )
            for name in names
        ]
        answers = node.ask("consumer_group_heartbeats", requests=beats)
        for name, answer in zip(names, answers, strict=True):
            if answer.error_code:
                raise Broken(f"{name} is refused: {answer}")
            self.epochs[name] = answer.member_epoch
            self.owned[name] = keys_of(answer.assignment)

    def check(self, node: Node) -> bool:
        """The group is at the epoch that was seen last, or a newer one, and its target is whole.

        Returns whether a newer target is there.
        """
        (found,) = node.ask("consumer_group_describe", group_ids=GROUP)
        epochs = found["group_epoch"], found["assignment_epoch"]
        there = {member["member_id"]: member for member in found["members"]}
        targets = {name: _keys(member["target_assignment"]) for name, member in there.items()}
        held = [key for member in there.values() for key in assigned(member)]
        if there.keys() != self.epochs.keys() or len(held) != len(set(held)):
            raise Broken(f"members or partitions are lost or doubled: {found}")
        if epochs[0] < self.seen[0] or epochs[1] < self.seen[1]:
            raise Broken(f"epochs fall from {self.seen} to {epochs}")
        newer = epochs[1] > self.seen[1]
        if newer:
            _whole(targets)
            self.targets = targets
        elif {name: keys for name, keys in targets.items() if keys} != {
            name: keys for name, keys in self.targets.items() if keys
        }:
            raise Broken(f"another target for the same assignment epoch: {found}")
        self.seen = epochs
        return newer

    def installed(self, node: Node) -> None:
        """Wait until the target is that of the group epoch."""

        def there() -> bool:
            self.beat(node, [next(iter(self.epochs))])
            ((epoch, assignment_epoch),) = node.ask("group_epochs", group_ids=GROUP)
            return bool(epoch == assignment_epoch)

        wait_for(there)
        self.check(node)

    def settle(self, node: Node) -> None:
        """Let everybody beat until the group is stable, and all is owned once."""

        def stable() -> bool:
            self.beat(node, list(self.epochs))
            (found,) = node.ask("consumer_group_describe", group_ids=GROUP)
            return bool(found["group_state"] == "Stable")

        wait_for(stable)
        _whole(self.owned)


def _keys(assignment: dict[str, Any]) -> frozenset[Any]:
    return frozenset(
        (t["topic_name"], p) for t in assignment["topic_partitions"] for p in t["partitions"]
    )


def _whole(shares: dict[str, frozenset[Any]]) -> None:
    """Every partition is there once, and the shares are even."""
    keys = [key for share in shares.values() for key in share]
    sizes = {len(share) for share in shares.values()}
    if len(keys) != len(set(keys)) or len(keys) != sum(LARGE.values()):
        raise Broken(f"{len(keys)} partitions, {len(set(keys))} different ones")
    if max(sizes) - min(sizes) > 1:
        raise Broken(f"shares of {sizes} partitions")


def killed(store: Path, seed: int, times: int) -> Outcome:
    """Kill drivers at random moments of a run; the next one waits for the store, its JVM warm."""
    chance, shadow, group = random.Random(seed), Shadow(store), Group()
    node = Node(store, CONFIG, main=driver.serve)
    node.wait_serves()
    began = time.monotonic()
    group.join(node, MEMBERS)
    group.installed(node)
    length, stages, newer = time.monotonic() - began, Counter[str](), 0
    for _ in range(times):
        standby = Node(store, CONFIG, main=driver.serve)
        standby.wait(lambda standby=standby: standby.began_at)
        node.said.clear()
        group.join(node, 1)
        let_run(node, chance.uniform(0, 1.1 * length))
        chance.choice((node.kill, node.kill_all))()
        stages[_stage(node.said)] += 1
        standby.wait_serves()
        newer += group.check(standby)
        shadow.follow()
        node = standby
    group.installed(node)
    group.settle(node)
    node.close()
    shadow.follow()
    reached = ", ".join(f"{stage} {count}" for stage, count in stages.most_common())
    return Outcome(
        times,
        f"killed at: {reached}; {newer} times the next driver found the new target, else "
        f"the last one, whole; a run takes {length:.0f} s in a cold JVM",
    )


def let_run(node: Node, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        node.hear(left)
        time.sleep(0.005)


def _stage(said: list[str]) -> str:
    """Return what the engine said last that it is at."""
    found = [match[1] for text in said if (match := STAGE.match(text))]
    done = found and re.match(r"\d+$", found[-1])  # "billing: 201 ranges of …"
    return "done" if done else found[-1] if found else "beginning"


def between(store: Path, seed: int, times: int) -> Outcome:
    """Kill a driver when its job has committed, and nothing says so yet."""
    chance, shadow, group = random.Random(seed), Shadow(store), Group()
    local = replace(CONFIG, engine=EngineConfig(engine="local"))
    for number in range(times):
        plain = Node(store, local)
        plain.wait_serves()
        group.join(plain, MEMBERS if number == 0 else 1)
        group.installed(plain)
        plain.close()
        node = Node(store, CONFIG, main=driver.stop_before_record)
        node.wait_serves()
        group.join(node, 1)
        node.wait(lambda node=node: "committed, not installed" in node.said)
        chance.choice((node.kill, node.kill_all))()
        if not has_rows(store, group.seen[0] + 1):
            raise Broken("the job has written nothing")
        plain = Node(store, local)
        plain.wait_serves()
        if group.check(plain):
            raise Broken("a target is installed by no record")
        group.installed(plain)
        group.settle(plain)
        plain.close()
        shadow.follow()
    return Outcome(
        times, "the next coordinator has the last target; no record names the rows of the new one"
    )


def has_rows(store: Path, epoch: int) -> bool:
    """Whether the table has a target for this epoch."""
    path = targets_path(store)
    return bool(list_files(path, GROUP, epoch, DeltaTable(path).version()))


def session_stopped(store: Path, seed: int, times: int) -> Outcome:
    """Stop the Spark session in the middle of a run; the local engine helps out."""
    chance, shadow, group = random.Random(seed), Shadow(store), Group()
    for number in range(times):
        node = Node(store, CONFIG, main=driver.serve)
        node.wait_serves()
        group.join(node, 1 if number else MEMBERS)
        stage = chance.choice(("assigning", "sorting", "writing"))
        node.wait(lambda node=node, stage=stage: _stage(node.said) == stage)
        node.ask("stop_session")
        group.installed(node)
        failures = sum("target computation of group" in text for text in node.said)
        if not failures:
            raise Broken(f"nothing is said of a session that stopped: {node.said}")
        group.settle(node)
        node.close()
        shadow.follow()
    return Outcome(
        times, "each failure is said; after three in a row the local engine computes the target"
    )
