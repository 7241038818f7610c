"""A driver that assigns a group itself, and writes its target, is killed or suspended at each stage.

Without Spark, which is not asked for a group that fits the driver's memory: so no JVM is started.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path

from deltalake import DeltaTable

from coordinator.config import EngineConfig
from coordinator.storage.target_table import targets_path
from tests.support.table_engine import installed_runs

from . import driver, drivers
from .crowd import Broken
from .drivers import GROUP, MEMBERS, Group
from .process import Gone, Node
from .report import Outcome
from .shadow import Shadow

CONFIG = replace(drivers.CONFIG, engine=EngineConfig(engine="spark"))
ANY_S = 0.3
"""By then a target of these members is installed, most often."""


def _open(store: Path, stage: str = "") -> Node:
    node = Node(store, CONFIG, main=partial(driver.serve_here, stage))
    node.wait_serves()
    return node


def _begin(store: Path) -> tuple[Shadow, Group]:
    """Let a group have its first target."""
    shadow, group = Shadow(store), Group()
    node = _open(store)
    group.join(node, MEMBERS)
    group.installed(node)
    node.close()
    shadow.follow()
    return shadow, group


def killed(store: Path, seed: int, times: int) -> Outcome:
    """Kill a driver before it writes, before its commit, before its record, and at any moment."""
    chance, (shadow, group), newer = random.Random(seed), _begin(store), 0
    for number in range(times):
        stage = [*driver.STAGES, ""][number % (len(driver.STAGES) + 1)]
        node = _open(store, stage)
        group.join(node, 1)
        if stage:
            _wait(node, stage)
        else:
            drivers.let_run(node, chance.uniform(0, ANY_S))
        node.kill()
        _see(store, group, stage)
        node = _open(store)
        newer += _goes_on(node, group, stage)
        node.close()
        shadow.follow()
    return Outcome(
        times,
        f"before it wrote, before its commit, before its record, and at any moment, when {newer} "
        "times the next driver found the new target; else the last one, whole",
    )


def suspended(store: Path, seed: int, times: int) -> Outcome:
    """Suspend a driver at a stage; its successor writes targets; wake it, and let it go on."""
    shadow, group = _begin(store)
    for number in range(times):
        stage = list(driver.STAGES)[(seed + number) % len(driver.STAGES)]
        old = _open(store, stage)
        group.join(old, 1)
        _wait(old, stage)
        old.stop()
        new = _open(store)
        _goes_on(new, group, stage)
        named = installed_runs(store)
        old.wake()
        old.send("go_on")
        _ends(old)
        if installed_runs(store) != named:
            raise Broken(f"a driver that was fenced installed a target: {named}")
        group.join(new, 1)
        group.installed(new)
        group.settle(new)
        new.close()
        shadow.follow()
    return Outcome(
        times,
        "the successor wrote the group's targets meanwhile; of what the first one wrote after it "
        "was woken, no record names a row",
    )


def _wait(node: Node, stage: str) -> None:
    node.wait(lambda: f"stands still: {stage}" in node.said)


def _see(store: Path, group: Group, stage: str) -> None:
    """Look at what a killed driver left in the table."""
    epoch = group.seen[0] + 1
    files = list((Path(targets_path(store))).glob("run-*/*.parquet"))
    named = {Path(uri).name for uri in DeltaTable(targets_path(store)).file_uris()}
    rows = drivers.has_rows(store, epoch)
    abandoned = len(files) > len(DeltaTable(targets_path(store)).file_uris())
    if stage == "writing" and rows:
        raise Broken("rows are there before they are written")
    if stage == "written" and (rows or not abandoned):
        raise Broken(f"the files are not there, or are named: {files}, {named}")
    if stage == "committed" and not rows:
        raise Broken("the driver has committed nothing")


def _goes_on(node: Node, group: Group, stage: str) -> bool:
    """See what the next driver finds, and let it give the group its target."""
    newer = group.check(node)
    if newer and stage:
        raise Broken(f"a target is installed by no record, killed at {stage}")
    group.installed(node)
    group.settle(node)
    return newer


def _ends(node: Node) -> None:
    """Wait until a driver that was fenced has done what it was at, and close it."""
    try:
        node.wait(lambda: any(text.startswith("done: ") for text in node.said))
        node.ask("group_epochs", group_ids=GROUP)
    except Gone:
        pass
    node.close()
