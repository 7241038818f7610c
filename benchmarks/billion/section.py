"""10,000,000 members and 1,000,000,000 partitions: `python -m benchmarks.billion.section CASE`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path

import numpy as np
import pyarrow as pa

from assignors import Assignor, GroupSpec, PartitionRanges, get_assignor, quality
from assignors.incremental.changes import GroupChanges, SubscribedMembers
from assignors.incremental.planned_group import PlannedGroup
from benchmarks import groups
from benchmarks.groups import Members, Past, Topics
from benchmarks.measure import Bench, Figure, Out, cpu_ms, ranges_a_member, resident_mib
from benchmarks.report import Section, Table, number

TITLE = "10,000,000 members, 1,000,000,000 partitions"
TEXT = """\
CPU ms of plans in the library, each once, and the memory at the peak of each. A case has a process
of its own, whose memory includes the interpreter, its libraries, the group, and the plan before
it. *Churn*: 0.1 % of the members have left and as many new ones joined. *Equal*: all subscribe
alike, to 1,000 topics. *Classes*: 1,000 different subscriptions over 5,000 topics, about 25 topics
each, overlapping at random. A *kept plan* is continued by `PlannedGroup.after`, which looks at what
moves. Each plan from nothing or from tables is judged by `quality.report`, which is what *judged*
takes: it is valid, loads differ by at most 1 (`sticky`: by its bound), and as few partitions have
moved as must.

`weighted` is not among them: it has some 50 bytes for each partition, 50 GB here. Nor are members
with many ranges each: 50,000,000 ranges take 5.8 GiB to be assigned, and 9.3 GiB to be
judged.
"""
GOAL_MIB = 8_192.0
IMBALANCE = "5%"
ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large."""

    members: int
    partitions: int
    topics: int
    classes: int
    class_topics: int
    pieces: int


FULL = Sizes(10_000_000, 1_000_000_000, 1_000, 1_000, 5_000, 3)
SMOKE = Sizes(10_000, 1_000_000, 10, 10, 50, 3)


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of a case took."""

    name: str
    ms: float
    mib: float


def run(bench: Bench) -> Section:
    """Measure each case in a process of its own."""
    figures: list[Figure] = []
    rows: list[list[str]] = []
    for case in CASES:
        words = [sys.executable, "-m", "benchmarks.billion.section", case]
        words += ["smoke"] if bench.smoke else []
        done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True)  # noqa: S603
        steps = [Step(*found) for found in json.loads(done.stdout)]
        for step in steps:
            bench.say(f"billion: {step.name}: {step.ms:.0f} ms, {step.mib:.0f} MiB")
            figures.append(Figure.of(step.name, [step.ms]))
            sorts = step.ms / bench.sort.unit_ms
            rows.append([step.name, *map(number, (step.ms, sorts, step.mib))])
        most = max(step.mib for step in steps)
        figures.append(Figure.of(f"1,000,000,000, {case}: memory", [most], "MiB", GOAL_MIB))
    head = ("step", "CPU ms", "sorts", "memory at its peak, MiB")
    return Section(TITLE, TEXT, figures, [Table("", head, rows)])


def _step(steps: list[Step], name: str, work: Callable[[], Out]) -> Out:
    """Do something once, and note what it took; the memory is the peak meanwhile."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as reset:
        reset.write("5")
    out, (ms,) = cpu_ms(work, least=1, most=1)
    steps.append(Step(name, ms, resident_mib()))
    return out


def _judge(group: GroupSpec, ranges: PartitionRanges, spread: int) -> None:
    """Refuse a plan that is not as its assignor promises."""
    found = quality.report(group, ranges)
    assert found.valid, found.problems
    assert found.spread <= spread, found.spread
    assert found.exact
    assert found.moved == found.moved_lower_bound, (found.moved, found.moved_lower_bound)
    assert int(ranges.loads().sum()) == int(group.partitions[group.subscribed_topics()].sum())


def _plan(
    steps: list[Step], label: str, group: GroupSpec, assignor: Assignor, spread: int = 1
) -> PartitionRanges:
    ranges = _step(steps, label, partial(assignor.assign, group))
    _step(steps, f"{label}, judged", partial(_judge, group, ranges, spread))
    return ranges


def _churns(topics: Topics, members: Members, label: str, pieces: int = 1) -> list[Step]:
    """Plan a group from nothing, and after some churn."""
    steps: list[Step] = []
    group = _step(steps, f"{label}, built", partial(groups.group_of, topics, members))
    target = _plan(steps, f"{label}, from nothing: uniform", group, get_assignor("uniform"))
    if pieces > 1:
        target = groups.scattered(group, target, pieces)
    del group
    churn = len(members) // 1_000
    now = members.churned(churn, churn, np.random.default_rng(churn))
    each = f"{label}, {ranges_a_member(pieces)}, churn"
    past = Past(members, target)
    del target
    after = _step(steps, f"{each}, built", partial(groups.group_of, topics, now, past))
    del past
    wide = int(topics.partitions.sum()) * float(IMBALANCE[:-1]) / 100 / len(members)
    plans: dict[str, tuple[Assignor, int]] = {
        "uniform": (get_assignor("uniform"), 1),
        f"sticky {IMBALANCE}": (get_assignor("sticky", imbalance=IMBALANCE), 1 + 2 * ceil(wide)),
    }
    for name, (assignor, spread) in plans.items():
        _plan(steps, f"{each}: {name}", after, assignor, spread)
    return steps


def _equal(sizes: Sizes) -> list[Step]:
    topics = groups.equal(sizes.partitions, sizes.topics)
    return _churns(topics, groups.spread_over(sizes.members, 1), "equal")


def _scattered(sizes: Sizes) -> list[Step]:
    topics = groups.equal(sizes.partitions, sizes.topics)
    steps = _churns(topics, groups.spread_over(sizes.members, 1), "equal", sizes.pieces)
    return [step for step in steps if "churn" in step.name]


def _classes(sizes: Sizes) -> list[Step]:
    topics = groups.classes(sizes.partitions, sizes.class_topics, sizes.classes, more=20)
    return _churns(topics, groups.spread_over(sizes.members, sizes.classes), "classes")


def _continued(sizes: Sizes) -> list[Step]:
    """Continue a plan: one joins, and there is churn; the loads after it are looked at."""
    steps: list[Step] = []
    topics = groups.equal(sizes.partitions, sizes.topics)
    group = groups.group_of(topics, groups.spread_over(sizes.members, 1))
    names, subscribed = group.member_ids, group.topics.to_pylist()
    assignor = get_assignor("uniform", long_ranges=0)
    planned = _step(steps, "kept plan, from nothing", partial(PlannedGroup.plan, group, assignor))
    del group
    churn = sizes.members // 1_000
    places = np.random.default_rng(churn).choice(len(names), 2 * churn, replace=False)
    gone, like = (names.take(pa.array(some)).to_pylist() for some in np.split(places, 2))
    joined = pa.array([f"{name}x" for name in like])
    changes = {
        "one joins": GroupChanges(joined=[SubscribedMembers(joined[:1], subscribed)]),
        "churn": GroupChanges(left=gone, joined=[SubscribedMembers(joined, subscribed)]),
    }
    for name, change in changes.items():
        done = _step(steps, f"kept plan, {name}", partial(planned.after, change))
        assert done.planned.full is None, done.planned.full
    loads = done.planned.assignment().loads()
    assert int(loads.max() - loads.min()) <= 1
    assert int(loads.sum()) == int(topics.partitions.sum())
    return steps


CASES: dict[str, Callable[[Sizes], list[Step]]] = {
    "equal": _equal,
    "scattered": _scattered,
    "classes": _classes,
    "continued": _continued,
}


def measure(case: str, *, smoke: bool) -> list[tuple[str, float, float]]:
    """Measure one case in this process."""
    return [(step.name, step.ms, step.mib) for step in CASES[case](SMOKE if smoke else FULL)]


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], smoke="smoke" in sys.argv[2:])))
