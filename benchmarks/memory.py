"""Peak memory, each case in a process of its own: `python -m benchmarks.memory CASE` is one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from assignors import get_assignor
from benchmarks import groups
from benchmarks.large import FULL, SMOKE, aged, shapes
from benchmarks.measure import Bench, Figure, ranges_a_member, resident_mib
from benchmarks.report import Section, Table, number

TITLE = "Peak memory"
TEXT = """\
Resident memory of a process that builds a group (1,000,000 members, 100,000,000 partitions, after
1 % churn) and assigns it with uniform: with the group only, and at its peak while it assigns. Both
include the interpreter and its libraries, whose size is in the column *libraries*.
"""
CASES = (
    (("equal", 1), 1024.0),
    (("equal", 10), None),
    (("equal", 50), None),
    (("classes", 1), None),
)
"""Subscriptions and ranges a member, and the goal in MiB."""

ROOT = Path(__file__).resolve().parent.parent


def run(bench: Bench) -> Section:
    """Start a process a case."""
    figures, rows = [], []
    for (name, pieces), goal in CASES[:1] if bench.smoke else CASES:
        label = f"{name}, {ranges_a_member(pieces)}"
        bench.say(f"memory: {label}")
        words = [sys.executable, "-m", "benchmarks.memory", name, str(pieces)]
        words += ["smoke"] if bench.smoke else []
        done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True)  # noqa: S603
        found = json.loads(done.stdout)
        figures.append(Figure.of(f"peak memory, {label}", [found["peak"]], "MiB", goal))
        figures.append(Figure.of(f"group alone, {label}", [found["group"]], "MiB"))
        rows.append([label, *[number(found[key]) for key in ("libraries", "group", "peak")]])
    head = ("group", "libraries, MiB", "with the group, MiB", "peak while assigning, MiB")
    return Section(TITLE, TEXT, figures, [Table("", head, rows)])


def measure(name: str, pieces: int, *, smoke: bool) -> dict[str, float]:
    """Build one group in this process and assign it once."""
    out = {"libraries": resident_mib("VmRSS")}
    sizes = SMOKE if smoke else FULL
    topics = shapes(sizes)[name]
    past = aged(topics, groups.spread_over(sizes.members, len(topics.subscriptions)), pieces)
    churn = sizes.members // 100
    now = past.members.churned(churn, churn, np.random.default_rng(churn))
    group = groups.group_of(topics, now, past)
    del past
    out["group"] = resident_mib("VmRSS")
    with open("/proc/self/clear_refs", "w", encoding="ascii") as reset:
        reset.write("5")  # the peak so far was building the group
    ranges = get_assignor("uniform").assign(group)
    out["peak"] = resident_mib("VmHWM")
    assert int(ranges.count.sum(dtype=np.int64)) == int(group.partitions.sum())
    return out


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), smoke="smoke" in sys.argv[3:])))
