"""Constraints by the thousand: time against the run without them, and peak memory.

Each case is a process of its own: `python -m benchmarks.weights.rules KIND COUNT` is one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from assignors import GroupSpec, get_assignor, quality
from benchmarks.large import WEIGHTED_TOPICS, load_tables, members_of
from benchmarks.measure import Bench, Figure, resident_mib
from benchmarks.report import Section, Table, number

TITLE = "Constraints by the thousand"
TEXT = """\
A weighted group (lognormal weights of sigma 1, capacities 1, 2 and 4) that owns what it was given
without rules, and then gets rules of one kind, each about a partition or member of its own. *Read*
is `GroupSpec.from_arrow`, rules included; *assign* and *report* follow. CPU ms of one process
each, and its peak memory. *By none* is all three against the same without rules.
"""
SIZES, SMOKE = (1_000_000, 10_000), (2_000, 100)
COUNTS, FEW = (1_000, 2_000, 4_000, 10_000), (10, 50)
GOAL_MS, GOAL_MIB = 5_000.0, 2_048.0
ROOT = Path(__file__).resolve().parents[2]

Rule = dict[str, object]
Write = Callable[[int, str, str, str], tuple[str, str | None]]
"""A rule's selector and value: of its number, a partition, that and the next, and a member."""

KINDS: dict[str, tuple[str, Write]] = {
    "pin": ("pin", lambda _at, one, _two, member: (one, member)),
    "pin ranges": ("pin", lambda _at, _one, two, member: (two, member)),
    "exclude": ("exclude", lambda _at, one, _two, member: (one, member)),
    "exclude topics": ("exclude", lambda at, _one, _two, member: (f"t{at % 4:03}", member)),
    "colocate": ("colocate", lambda at, _one, two, _member: (two, f"c{at}")),
    "colocate together": ("colocate", lambda at, one, _two, _member: (one, f"c{at // 100}")),
    "anti_affinity": ("anti_affinity", lambda at, _one, two, _member: (two, f"a{at}")),
    "anti_affinity of all": ("anti_affinity", lambda _at, one, _two, _member: (one, "a")),
    "max_partitions": ("max_partitions", lambda _at, _one, _two, member: (member, "130")),
    "drain": ("drain", lambda _at, _one, _two, member: (member, None)),
}
"""By name: the kind, and what its rules say."""


def run(bench: Bench) -> Section:
    """Start a process for each kind and count, hard and soft."""
    (partitions, members), counts = (SMOKE, FEW) if bench.smoke else (SIZES, COUNTS)
    figures, rows = [], []
    none: dict[str, float] = {}
    for name, count, soft in [("none", 0, ""), *_cases(counts)]:
        label = f"{count:,} x {name}{', soft' if soft else ''}"
        bench.say(f"rules: {label}")
        words = [sys.executable, "-m", "benchmarks.weights.rules", name, str(count)]
        words += [str(partitions), str(members), soft]
        done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True)  # noqa: S603
        found = json.loads(done.stdout)
        none, last = none or found, count == counts[-1]
        spent, goal = found["all"], GOAL_MS if last else None
        figures.append(Figure.of(f"{label}, all", [spent], goal=goal))
        figures.append(
            Figure.of(f"{label}, peak", [found["peak"]], "MiB", GOAL_MIB if last else None)
        )
        cells = [number(found[key]) for key in ("read", "assign", "report", "all")]
        rows.append([label, *cells, f"{spent / none['all']:.2f}", number(found["peak"])])
    head = ("rules", "read", "assign", "report", "all, ms", "by none", "peak, MiB")
    return Section(TITLE, TEXT, figures, [Table("", head, rows)])


def _cases(counts: tuple[int, ...]) -> Iterator[tuple[str, int, str]]:
    for name in KINDS:
        for soft in ("", "soft"):
            for count in counts:
                yield name, count, soft


def measure(name: str, count: int, partitions: int, members: int, soft: str) -> dict[str, float]:
    """Assign one group in this process."""
    draw = np.random.default_rng(5)
    weight = draw.lognormal(0, 1, partitions)
    tables = load_tables(members_of(members, draw), weight)
    rules = [_rule(name, at, count, partitions, members, not soft) for at in range(count)]
    assignor = get_assignor("weighted")
    past = assignor.assign(GroupSpec.from_arrow(**tables))
    tables["owned"] = past.to_arrow()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as reset:
        reset.write("5")  # the peak so far was making the group
    times = [time.process_time()]
    group = GroupSpec.from_arrow(**tables, constraints=rules)
    times.append(time.process_time())
    ranges = assignor.assign(group)
    times.append(time.process_time())
    report = quality.report(group, ranges)
    times.append(time.process_time())
    assert report.valid
    spent = [1000 * (after - before) for before, after in pairwise(times)]
    held = sum(rule["holds"] for rule in report.certificate.rules)
    named = ("read", "assign", "report")
    return dict(zip(named, spent, strict=True)) | {
        "all": sum(spent),
        "peak": resident_mib(),
        "held": held,
        "gap": report.certificate.gap,
        "moved": report.certificate.moved_weight / weight.sum(),
    }


def _rule(name: str, at: int, count: int, partitions: int, members: int, hard: bool) -> Rule:  # noqa: FBT001 - of this file
    """Write one rule; rules are spread over all partitions, and over half of the members."""
    each = partitions // WEIGHTED_TOPICS
    topic, first = divmod(at * (partitions // count), each)
    two = f"t{topic:03}/{first}-{first + 1}"
    size = members // 2 if name == "drain" else members
    member = f"m{at * 7919 % size:07}"
    kind, write = KINDS[name]
    selector, value = write(at, f"t{topic:03}/{first}", two, member)
    return {"kind": kind, "selector": selector, "value": value, "hard": hard}


if __name__ == "__main__":
    name, *numbers, soft = sys.argv[1:]
    print(json.dumps(measure(name, *map(int, numbers), soft)))
