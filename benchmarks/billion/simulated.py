"""A coordinator of 10,000,000 members, from a sample: `python -m benchmarks.billion.simulated`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.measure import Bench, Figure, resident_mib
from benchmarks.report import Section, Table, number
from benchmarks.shape import EPOCH, GROUP, Shape
from benchmarks.sizing import Costs
from benchmarks.store import temporary_store, write_group
from coordinator import Coordinator
from coordinator.config import parse
from spark_jobs.demo.crowd import Crowd

TITLE = "A coordinator of 10,000,000 members, simulated"
TEXT = """\
Computed, not measured: from a sample of a group and from a tenth of it, what each member more takes
of CPU and memory, for as many as the group has. The sample has 100 partitions a member, and is
loaded from a snapshot. Its members send their heartbeats within the coordinator's process, and
their own CPU is in the figures; what the wire costs is computed from what it takes elsewhere.
*Churn*: 0.1 % leave and as many join, until the target is durable; the plan of the whole group is
measured above. *To the next epoch*: every member sends heartbeats until the group is stable.
Memory is what the process has more than before it loaded the group.
"""
TOTAL, PARTITIONS = 10_000_000, 1_000_000_000
HEARTBEATS_S = (5, 60)
SAMPLE = Shape(300_000, 100)
SMOKE = Shape(1_000, 100)
SETTINGS = {"consumer.session.timeout.ms": "3600000", "consumer.assignor.engine": "local"}
CONFIG = """
[kafka]
"group.consumer.max.session.timeout.ms" = 3600000
"group.consumer.assignment.interval.ms" = 0
"""
OWNER_BYTES = 4
"""Of a partition of a topic whose owners were looked up (`core/state/owner_columns.py`)."""
ROOT = Path(__file__).resolve().parent.parent.parent


def run(bench: Bench) -> Section:
    """Measure the sample and a tenth of it, each in a process of its own; compute the rest."""
    shape = SMOKE if bench.smoke else SAMPLE
    small = replace(shape, members=shape.members // 10)
    few, many = (_measure_apart(each) for each in (small, shape))
    bench.say(f"simulated: {few}, {many}")
    figures = [
        Figure.of(f"{each.members:,} of them, {name}", [value], _unit(name))
        for each, found in ((small, few), (shape, many))
        for name, value in found.items()
    ]
    head = ("what", *(f"{count:,} members" for count in (small.members, shape.members, TOTAL)))
    return Section(TITLE, TEXT, figures, [Table("", head, list_rows(few, many, shape))])


def _measure_apart(shape: Shape) -> dict[str, float]:
    with temporary_store() as store:
        write_group(store, shape, SETTINGS, snapshot=True)
        words = [sys.executable, "-m", "benchmarks.billion.simulated", str(store)]
        words += [json.dumps(asdict(shape))]
        done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True)  # noqa: S603
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _unit(name: str) -> str:
    return "MiB" if name.startswith("memory") else "ms"


def list_rows(few: dict[str, float], many: dict[str, float], shape: Shape) -> list[list[str]]:
    """Return the table: of the tenth, of the sample, and of the group."""
    more = (TOTAL - shape.members) / (shape.members - shape.members // 10)
    all_ = {name: many[name] + more * max(many[name] - few[name], 0) for name in many}
    rows = []
    for name in many:
        mib = _unit(name) == "MiB"
        values = (each[name] / (1024 if mib else 1000) for each in (few, many, all_))
        rows.append([f"{name}, {'GiB' if mib else 's of CPU'}", *map(number, values)])
    owners = (PARTITIONS * OWNER_BYTES / 2**30 * each / TOTAL for each in _counts(shape))
    rows.append(["owners of looked-up partitions, at most, GiB", *map(number, owners)])
    here, wire = all_["heartbeats of all"] / TOTAL, Costs.read().heartbeat_ms
    for every_s in HEARTBEATS_S:
        for where, each_ms in (("here", here), ("on the wire", wire)):
            cores = (count / every_s * each_ms / 1000 for count in _counts(shape))
            rows.append([f"a heartbeat every {every_s} s, {where}, cores", *map(number, cores)])
    return rows


def _counts(shape: Shape) -> tuple[int, int, int]:
    return shape.members // 10, shape.members, TOTAL


def measure(store: str, shape: Shape) -> dict[str, float]:
    """Load the sample and let its members be there, in this process."""
    ids, config = shape.ids(), parse(CONFIG, "benchmark")
    epochs = dict.fromkeys(ids, EPOCH)
    base, found = resident_mib("VmRSS"), {}

    def took(name: str, work: Callable[[], object]) -> None:
        began = time.process_time()
        work()
        found[name] = (time.process_time() - began) * 1000

    began = time.process_time()
    coordinator = Coordinator.open(store, config=config, topics=shape.topics(), takeover="force")
    found["load"] = (time.process_time() - began) * 1000
    found["memory, loaded"] = resident_mib("VmRSS") - base
    crowd = Crowd(coordinator, GROUP, shape.names(0))
    crowd.epochs = epochs
    crowd.beat()
    took("heartbeats of all", crowd.beat)
    few = max(shape.members // 1_000, 1)
    names = [f"{name}x" for name in ids[-few:]]
    took("churn", lambda: _churn(crowd, ids[:: shape.members // few][:few], names))
    took("to the next epoch", lambda: crowd.settle(lambda _: None))
    found["memory, at the peak"] = resident_mib() - base
    coordinator.close()
    return found


def _churn(crowd: Crowd, gone: list[str], names: list[str]) -> None:
    crowd.leave(gone)
    crowd.join(names, lambda _: None)
    group_epoch, assignment_epoch = crowd.one_beats()
    while group_epoch != assignment_epoch:
        time.sleep(0.01)
        group_epoch, assignment_epoch = crowd.one_beats()


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Shape(**json.loads(sys.argv[2])))), flush=True)
    os._exit(0)
