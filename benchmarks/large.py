"""Large groups: a million members, a hundred million partitions, 100,000 tastes; and weights."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from assignors import Assignor, GroupSpec, PartitionRanges, get_assignor, quality
from assignors.groups.assign_groups import GroupsAssignment, assign_groups
from assignors.groups.group_set import GroupSet
from benchmarks import groups
from benchmarks.groups import Members, Past, Topics
from benchmarks.measure import Bench, Figure, assign_ms, cpu_ms, ranges_a_member
from benchmarks.report import Section

TITLE = "1,000,000 members, 100,000,000 partitions"
TEXT = """\
CPU ms. *Churn*: 1 % of the members have left and as many new ones joined. *Churn and growth*: 0.1 %
more joined, so that every member's share changes. With 10 and 50 ranges a member, each member's
partitions are scattered, as after many epochs. *Classes*: 1,000 different subscriptions over 5,000
topics, about 25 topics each, overlapping at random. *Distinct*: 100,000 members, each with its own
subscription to 10 of 1,000 topics; 1,000,000 partitions.
"""
GROWTH_PIECES_MAX = 10
GOALS = {
    ("equal", "churn", 1): 300.0,
    ("classes", "from nothing", 0): 1500.0,
    ("classes", "churn", 1): 1500.0,
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large, and how long ranges of the previous assignment."""

    members: int
    each: int  # partitions a member
    topics: int
    classes: int
    class_topics: int
    distinct: int
    pieces: tuple[int, ...]
    budget_s: float


FULL = Sizes(1_000_000, 100, 1_000, 1_000, 5_000, 100_000, (1, 10, 50), 1.0)
SMOKE = Sizes(1_000, 100, 10, 10, 50, 100, (1, 10), 0.0)


def run(bench: Bench) -> Section:
    """Measure large groups."""
    sizes = SMOKE if bench.smoke else FULL
    figures: list[Figure] = []
    for figure in _all(sizes):
        bench.say(f"large: {figure.name}: {figure.median:.0f} ms")
        figures.append(figure)
    return Section(TITLE, TEXT, figures)


def shapes(sizes: Sizes) -> dict[str, Topics]:
    """Return topics and subscriptions of the two large groups."""
    total = sizes.members * sizes.each
    return {
        "equal": groups.equal(total, sizes.topics),
        "classes": groups.classes(total, sizes.class_topics, sizes.classes, more=20),
    }


def aged(topics: Topics, members: Members, pieces: int) -> Past:
    """Return a balanced target in which each member has about so many ranges."""
    group = groups.group_of(topics, members)
    target = get_assignor("uniform").assign(group)
    return Past(members, groups.scattered(group, target, pieces) if pieces > 1 else target)


def _all(sizes: Sizes) -> Iterator[Figure]:
    for name, topics in shapes(sizes).items():
        members = groups.spread_over(sizes.members, len(topics.subscriptions))
        yield _fresh(name, topics, members, sizes.budget_s)
        for pieces in sizes.pieces:
            yield from _churns(name, topics, members, pieces, sizes.budget_s)
    count, kinds = sizes.distinct, min(10, sizes.topics)
    topics = _distinct(count, sizes.topics, kinds)
    members = groups.spread_over(count, count)
    yield _fresh("distinct", topics, members, sizes.budget_s)
    yield from _churns("distinct", topics, members, 1, sizes.budget_s)


def _fresh(name: str, topics: Topics, members: Members, budget_s: float) -> Figure:
    _, samples = assign_ms(get_assignor("uniform"), groups.group_of(topics, members), budget_s)
    goal = GOALS.get((name, "from nothing", 0))
    return Figure.of(f"uniform, {name}, from nothing", samples, goal=goal)


def _churns(
    name: str, topics: Topics, members: Members, pieces: int, budget_s: float
) -> Iterator[Figure]:
    """Measure the next group epoch, with as many members and, unless it is slow, with more."""
    past = aged(topics, members, pieces)
    leave, more = len(members) // 100, len(members) // 1000
    events = {"churn": leave, "churn and growth": leave + more}
    if pieces > GROWTH_PIECES_MAX:
        del events["churn and growth"]
    for event, join in events.items():
        now = members.churned(leave, join, np.random.default_rng(leave))
        group = groups.group_of(topics, now, past)
        goal = GOALS.get((name, event, pieces))
        label = f"{name}, {ranges_a_member(pieces)}, {event}"
        _, samples = assign_ms(get_assignor("uniform"), group, budget_s)
        yield Figure.of(f"uniform, {label}", samples, goal=goal)
        if pieces == 1 and event != "churn":
            _, samples = assign_ms(get_assignor("sticky", imbalance="5%"), group, budget_s)
            yield Figure.of(f"sticky 5%, {label}", samples)


def _distinct(members: int, topics: int, each: int) -> Topics:
    """Give every member a subscription of its own, all topics equally wanted."""
    rng = np.random.default_rng(members)
    lists = [np.sort(rng.choice(topics, each, replace=False)) for _ in range(members)]
    return Topics(groups.equal(members * 10, topics).partitions, lists)


WEIGHTED_TITLE = "Weights and capacities"
WEIGHTED_TEXT = """\
CPU ms of `weighted`, in process; lognormal weights, members of capacity 1, 2 and 4. *Redrawn*:
a tenth of the partitions has a new weight and 1 % of the members has left; *noise*: every weight is
multiplied by lognormal noise of sigma 0.1, and as many have left. *Gap*: makespan above its lower
bound; the default tolerance leaves 1 % after a change. In the last group, assigned within 0.4 %, no
partition weighs 1 % of a member's fair load. *Moved*: weight moved by the lower bound for the
makespan reached; in the last group members exceed theirs by less than a partition weighs.
"""
RACKS_TITLE = "Weights, capacities and racks"
RACKS_TEXT = """\
CPU ms of `weighted`, in process, as above; three racks, each partition's replica in one of them.
*Local* is the share of weight whose member is in that rack; *gap* is as above.
"""
WEIGHTED_TOPICS = 100


@dataclass(frozen=True, slots=True)
class WeightedSizes:
    partitions: int
    members: tuple[int, ...]


WEIGHTED_FULL = WeightedSizes(1_000_000, (10_000, 1_000))
WEIGHTED_SMOKE = WeightedSizes(10_000, (100,))
RACKS_FULL, RACKS_SMOKE = (10_000_000, 100_000), (10_000, 100)


def run_weighted(bench: Bench) -> Section:
    """Measure weighted groups."""
    figures: list[Figure] = []
    for figure in _all_weighted(WEIGHTED_SMOKE if bench.smoke else WEIGHTED_FULL):
        bench.say(f"weighted: {figure.name}: {figure.median:.4g} {figure.unit}")
        figures.append(figure)
    return Section(WEIGHTED_TITLE, WEIGHTED_TEXT, figures)


def run_racks(bench: Bench) -> Section:
    """Measure one large weighted group with racks."""
    figures: list[Figure] = []
    for figure in _racked(*(RACKS_SMOKE if bench.smoke else RACKS_FULL)):
        bench.say(f"racks: {figure.name}: {figure.median:.4g} {figure.unit}")
        figures.append(figure)
    return Section(RACKS_TITLE, RACKS_TEXT, figures)


def members_of(count: int, draw: np.random.Generator, racks: int = 0) -> pa.Table:
    names = pa.array([[f"t{n:03}" for n in range(WEIGHTED_TOPICS)]])
    columns = {
        "member_id": [f"m{n:07}" for n in range(count)],
        "subscribed": names.take(pa.array(np.zeros(count, dtype=np.int64))),
        "capacity": draw.choice([1.0, 2.0, 4.0], count),
    }
    if racks:
        columns["rack"] = [f"r{n % racks}" for n in range(count)]
    return pa.table(columns)


def load_tables(members: pa.Table, weight: np.ndarray, racks: int = 0) -> dict[str, pa.Table]:
    each = len(weight) // WEIGHTED_TOPICS
    names = pa.array([f"t{n:03}" for n in range(WEIGHTED_TOPICS)])
    partitions = {
        "topic": names.take(pa.array(np.repeat(np.arange(WEIGHTED_TOPICS), each))),
        "partition": np.tile(np.arange(each), WEIGHTED_TOPICS),
        "weight": weight,
    }
    if racks:
        lists = pa.array([[f"r{n}"] for n in range(racks)])
        partitions["racks"] = lists.take(pa.array(np.arange(len(weight)) * 7919 % racks))
    topics = pa.table({"topic": names, "partitions": [each] * WEIGHTED_TOPICS})
    return {"members": members, "topics": topics, "partitions": pa.table(partitions)}


def group_of(
    members: pa.Table, weight: np.ndarray, owned: PartitionRanges | None, racks: int = 0
) -> GroupSpec:
    past = None if owned is None else owned.to_arrow()
    return GroupSpec.from_arrow(**load_tables(members, weight, racks), owned=past)


def _all_weighted(sizes: WeightedSizes) -> Iterator[Figure]:
    for count in sizes.members:
        for sigma in (1, 2):
            yield from _changes(sizes.partitions, count, sigma)
    yield from _changes(sizes.partitions, sizes.members[-1], 0.2, "0.4%")


def _racked(partitions: int, members: int) -> Iterator[Figure]:
    draw = np.random.default_rng(3)
    weight = draw.lognormal(0, 1, partitions)
    group = group_of(members_of(members, draw, 3), weight, None, 3)
    ranges, samples = assign_ms(get_assignor("weighted"), group, least=1)
    label = f"{len(weight):,} x {members:,}, 3 racks"
    yield Figure.of(f"{label}, fresh", samples, goal=10_000)
    proof = quality.report(group, ranges).certificate
    local = 100 * (1 - proof.distant_after / weight.sum())
    yield Figure.of(f"{label}, local", [local], unit="%")
    yield Figure.of(f"{label}, gap", [100 * proof.gap], unit="%")


def _changes(
    count: int, members: int, sigma: float, tolerance: str | None = None
) -> Iterator[Figure]:
    draw = np.random.default_rng(int(sigma))
    assignor = get_assignor("weighted", **({"tolerance": tolerance} if tolerance else {}))
    weight = draw.lognormal(0, sigma, count)
    table = members_of(members, draw)
    label = f"{count:,} x {members:,}, sigma {sigma}"
    bound, moved_goal = (0.5, None) if tolerance else (3, 1.1)
    if tolerance:
        label += f", tolerance {tolerance}"
    first = group_of(table, weight, None)
    ranges, samples = assign_ms(assignor, first)
    yield Figure.of(f"{label}, fresh", samples, goal=600)
    yield Figure.of(f"{label}, fresh, gap", [100 * _gap(first, ranges)], unit="%", goal=0.5)
    table = table.filter(pa.array(draw.random(members) >= 0.01))
    drawn = np.where(draw.random(count) < 0.1, draw.lognormal(0, sigma, count), weight)
    changes = {"redrawn": drawn, "noise": weight * draw.lognormal(0, 0.1, count)}
    for name, now in changes.items():
        group = group_of(table, now, ranges)
        after, samples = assign_ms(assignor, group)
        proof = quality.report(group, after).certificate
        yield Figure.of(f"{label}, {name}", samples, goal=250)
        yield Figure.of(f"{label}, {name}, gap", [100 * proof.gap], unit="%", goal=bound)
        if proof.moved_weight_bound:
            moved = proof.moved_weight / proof.moved_weight_bound
            yield Figure.of(f"{label}, {name}, moved", [moved], unit="x", goal=moved_goal)


def _gap(group: GroupSpec, ranges: PartitionRanges) -> float:
    proof = quality.report(group, ranges).certificate
    return proof.gap


GROUPS_TITLE = "Many groups of one table"
GROUPS_TEXT = """\
Groups of 100 members and 1,000 partitions of two topics, in tables with `group_id`. CPU ms of
reading the Arrow tables, assigning, and summing up each group. *Next night*: 3 % of the members
have left. `weighted` has lognormal weights and capacities 1, 2 and 4.
"""
GROUPS_SPARK_TITLE = "Many groups of one table, on Spark"
GROUPS_SPARK_TEXT = """\
The same groups: elapsed ms of the second job in a `local[2]` session, from Parquet to Parquet.
"""
GROUP_MEMBERS, GROUP_PARTITIONS = 100, 1_000


def run_groups(bench: Bench) -> Section:
    """Measure tables of many groups."""
    figures: list[Figure] = []
    for figure in _all_groups(20 if bench.smoke else 5_000):
        bench.say(f"groups: {figure.name}: {figure.median:.0f} {figure.unit}")
        figures.append(figure)
    return Section(GROUPS_TITLE, GROUPS_TEXT, figures)


def run_groups_on_spark(bench: Bench) -> Section:
    """Measure tables of many groups in one Spark job."""
    many = 20 if bench.smoke else 5_000
    members, topics, partitions = tables_of_groups(many)
    figures = []
    for name, tables in (
        ("uniform", {"members": members.drop_columns(["capacity"]), "topics": topics}),
        ("weighted", {"members": members, "topics": topics, "partitions": partitions}),
    ):
        bench.say(f"groups on Spark: {name}")
        label = f"{name}, {many:,} groups, Spark"
        figures.append(Figure.of(label, [_on_spark(name, tables)], goal=20_000))
    return Section(GROUPS_SPARK_TITLE, GROUPS_SPARK_TEXT, figures)


def _all_groups(many: int) -> Iterator[Figure]:
    members, topics, partitions = tables_of_groups(many)
    stay = pa.array(np.random.default_rng(1).random(len(members)) >= 0.03)
    for name in ("range", "uniform", "sticky"):
        assignor = get_assignor(name)
        first, samples = _measure_tables(assignor, members, topics)
        yield Figure.of(f"{name}, {many:,} groups, fresh", samples, goal=2_000)
        _, samples = _measure_tables(assignor, members.filter(stay), topics, first.rows)
        yield Figure.of(f"{name}, {many:,} groups, next night", samples, goal=2_000)
    weighted = get_assignor("weighted")
    first, samples = _measure_tables(weighted, members, topics, None, partitions)
    yield Figure.of(f"weighted, {many:,} groups, fresh", samples, goal=2_000)
    _, samples = _measure_tables(weighted, members.filter(stay), topics, first.rows, partitions)
    yield Figure.of(f"weighted, {many:,} groups, next night", samples, goal=2_000)


def tables_of_groups(count: int) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return members, topics and partitions of groups that are all alike but for weights."""
    draw, names = np.random.default_rng(count), pa.array([f"g{n:05}" for n in range(count)])
    each = GROUP_PARTITIONS // 2

    def name(rows: int) -> pa.Array:
        return names.take(pa.array(np.repeat(np.arange(count), rows)))

    lists = pa.array([["a", "b"]]).take(pa.array(np.zeros(count * GROUP_MEMBERS, dtype=np.int64)))
    members = {
        "group_id": name(GROUP_MEMBERS),
        "member_id": [f"m{n:03}" for n in range(GROUP_MEMBERS)] * count,
        "subscribed": lists,
        "capacity": draw.choice([1.0, 2.0, 4.0], count * GROUP_MEMBERS),
    }
    topics = {"group_id": name(2), "topic": ["a", "b"] * count, "partitions": [each] * 2 * count}
    partitions = {
        "group_id": name(2 * each),
        "topic": pa.array(["a", "b"]).take(pa.array(np.tile(np.repeat([0, 1], each), count))),
        "partition": np.tile(np.arange(each), 2 * count),
        "weight": draw.lognormal(0, 1, count * 2 * each),
    }
    return pa.table(members), pa.table(topics), pa.table(partitions)


def _assign_tables(
    assignor: Assignor,
    members: pa.Table,
    topics: pa.Table,
    owned: pa.Table | None = None,
    partitions: pa.Table | None = None,
) -> GroupsAssignment:
    if partitions is None:
        members = members.drop_columns(["capacity"])
    return assign_groups(
        GroupSet.from_arrow(members, topics, owned, partitions=partitions), assignor
    )


def _measure_tables(
    assignor: Assignor, *tables: pa.Table | None
) -> tuple[GroupsAssignment, list[float]]:
    return cpu_ms(lambda: _assign_tables(assignor, *tables))


def _on_spark(assignor: str, given: dict[str, pa.Table]) -> float:
    from spark_jobs.assignors import groups as many  # noqa: PLC0415 - others start no Spark
    from spark_jobs.session.session import scratch_warehouse, spark_session  # noqa: PLC0415

    spark = spark_session(master="local[2]", conf=scratch_warehouse())
    with tempfile.TemporaryDirectory() as folder:
        for name, table in given.items():
            pq.write_table(table, f"{folder}/{name}.parquet")
        for _ in range(2):
            start = time.perf_counter()
            tables = {name: spark.read.parquet(f"{folder}/{name}.parquet") for name in given}
            done = many.assign_groups(spark, assignor, tables, {})
            done.rows.write.mode("overwrite").parquet(f"{folder}/out")
            elapsed = time.perf_counter() - start
    spark.stop()
    return 1000 * elapsed
