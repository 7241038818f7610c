"""Spark: sticky on DataFrames, beside a plain sort-and-write of the same rows in the same session.

The group is made by Spark, too: a hundred million ranges do not pass through the driver. Member m
of N owns pieces from all over the topics, one from each block of N pieces, so that a piece's
neighbours belong to others.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Bench, Figure, resident_mib
from benchmarks.report import Section, Table, number
from coordinator.config import EngineConfig

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TITLE = "Spark: sticky, 1,000,000 members, 100,000,000 partitions"
HEAP = "2g"
PARTITIONS_A_MEMBER = 100
RUNS_MAX_ROWS, RUNS, RUNS_OF_SOME = 10_000_000, 3, 5
"""Up to so many rows everything is measured three times, above once; `SOME_MEMBERS` five times."""

FIXED_MEMBERS, SOME_MEMBERS = 10_000, 300_000
GOAL_FIXED_MS, GOAL_RATIO, GOAL_GROWTH = 3_000.0, {1: 4.0, 10: 3.0}, 1.3
GOAL_SOME, GOAL_SOME_ON_EXECUTORS = 2.0, 4.0
"""Of `SOME_MEMBERS`, by sort and write."""

TEXT = f"""\
`local[2]`, driver heap {HEAP}, warm (a hundredth of the group was assigned first, with equal
subscriptions and with shared topics); equal subscriptions to 10 topics, but for the line with
shared topics, where each half of the members subscribes to 7 of them; 1 % churn. All jobs read and
write Parquet. `sticky` assigns, and writes rows sorted by member within each file. *Sort and write*
sorts the previous rows by (member, topic, first partition) and writes them. The JVM compiles for as
long as it runs, so that what is measured later takes less: pieces of work that are compared run in
turn, and so do both groups of {SOME_MEMBERS:,} ({RUNS_OF_SOME} times each); figures are medians.
Times are elapsed seconds; CPU is that of the JVM, of its Python tasks and of the driver's Python,
which depends less on other load of the machine; ratios are of CPU.

The driver assigns groups of up to `engine.driver_rows` rows: those of all lines but the last.
*On executors* is the same with that setting at 0.
"""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one piece of work took, in seconds."""

    elapsed: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Case:
    """One size: the times of both pieces of work, run by run."""

    members: int
    ranges: int  # a member
    shared: bool  # whether two classes share topics
    sticky: list[Taken]
    executors: list[Taken]
    sorting: list[Taken]

    @classmethod
    def of(cls, members: int, ranges: int, *, shared: bool = False) -> Case:
        """Return a case of which nothing is measured yet."""
        return cls(members, ranges, shared, [], [], [])

    @property
    def rows(self) -> int:
        """Rows of the previous assignment."""
        return self.members * self.ranges

    @property
    def name(self) -> str:
        """The folder of its tables."""
        return f"{self.members}-{self.ranges}{'-shared' if self.shared else ''}"


def run(bench: Bench) -> Section:
    """Measure every size in one session."""
    from spark_jobs.session.session import spark_session  # noqa: PLC0415 - only this section needs Spark

    members = 10_000 if bench.smoke else 1_000_000
    folder = Path(tempfile.mkdtemp(prefix="muster-bench-"))
    conf = {"spark.driver.memory": HEAP, "spark.local.dir": str(folder / "local")}
    spark = spark_session("muster-benchmarks", "local[2]", conf)
    try:
        bench.say("spark: warming up")
        few = max(members // 100, 100)
        _measure(spark, folder, [Case.of(few, 1), Case.of(few, 1, shared=True)], 1)
        cases: list[Case] = []
        if not bench.smoke:
            cases += _measure(spark, folder, [Case.of(FIXED_MEMBERS, 1)], RUNS)
            some = [Case.of(SOME_MEMBERS, 1), Case.of(SOME_MEMBERS, 1, shared=True)]
            cases += _measure(spark, folder, some, RUNS_OF_SOME)
        for ranges in bench.spark_ranges[:1] if bench.smoke else bench.spark_ranges:
            bench.say(f"spark: {members * ranges:,} rows")
            case = Case.of(members, ranges)
            cases += _measure(spark, folder, [case], RUNS if case.rows <= RUNS_MAX_ROWS else 1)
        peak = resident_mib("VmHWM", _jvm(spark))
    finally:
        spark.stop()
        shutil.rmtree(folder)
    figures = list(_figures(cases, peak))
    tables = [Table("", HEAD, [_row(case, bench) for case in cases])]
    return Section(TITLE, TEXT, figures, tables)


def write_group(
    spark: SparkSession, folder: Path, members: int, ranges: int, *, shared: bool = False
) -> None:
    """Write members, topics and previous as Parquet, 1 % of the members new.

    Parameters
    ----------
    shared
        Whether members subscribe to the first or the last 7 of 10 topics, in turn, not to all.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    topics = 10
    size = members * PARTITIONS_A_MEMBER // topics
    piece = PARTITIONS_A_MEMBER // ranges
    spark.range(topics).select(
        _name("t", F.col("id")).alias("topic"), F.lit(size).alias("partitions")
    ).write.parquet(str(folder / "topics"))
    joined = members + members // 100
    first, last = F.lit(0), F.lit(topics - 1)
    if shared:
        first = F.expr("int(id % 2 * 3)")
        last = first + 6
    lists = F.transform(F.sequence(first, last), lambda at: _name("t", at))
    spark.range(joined).where(f"id >= {members} or id % 100 != 7").select(
        _name("m", F.col("id")).alias("member_id"), lists.alias("subscribed")
    ).write.parquet(str(folder / "members"))
    block, place = F.expr(f"id div {members}"), F.expr(f"id % {members}")
    spark.range(members * ranges).select(
        _name("m", (place * 7_919 + block * 104_729) % members).alias("member_id"),
        _name("t", F.expr(f"id * {piece} div {size}")).alias("topic"),
        F.expr(f"int(id * {piece} % {size})").alias("first_partition"),
        F.lit(piece).alias("partition_count"),
    ).write.parquet(str(folder / "previous"))


HEAD = (
    "rows (ranges a member)",
    "sticky, s",
    "CPU s",
    "on executors, s",
    "CPU s",
    "sort and write, s",
    "CPU s",
    "sticky by that",
    "executors by that",
    "sticky, µs a row",
    "sticky in sorts",
)


def _measure(spark: SparkSession, folder: Path, cases: list[Case], runs: int) -> list[Case]:
    """Measure cases of one size run by run, all pieces of work of all cases in turn."""
    most = EngineConfig().driver_rows
    for case in cases:
        at = folder / case.name
        write_group(spark, at, case.members, case.ranges, shared=case.shared)
    for _ in range(runs):
        for case in cases:
            _take_turn(spark, folder / case.name, case, most)
    for case in cases:
        at = folder / case.name
        case.sticky.extend([] if case.sticky else case.executors)
        written = spark.read.parquet(str(at / "target")).selectExpr("sum(partition_count)")
        assert written.collect()[0][0] == case.members * PARTITIONS_A_MEMBER, "not all assigned"
        shutil.rmtree(at)
    return cases


def _take_turn(spark: SparkSession, at: Path, case: Case, most: int) -> None:
    case.sorting.append(_taken(spark, lambda: _sort_and_write(spark, at)))
    case.executors.append(_taken(spark, lambda: _assign_and_write(spark, at, 0)))
    if case.rows <= most:
        case.sticky.append(_taken(spark, lambda: _assign_and_write(spark, at, most)))


def _assign_and_write(spark: SparkSession, at: Path, driver_rows: int) -> None:
    from spark_jobs.assignors.sticky import TWIN  # noqa: PLC0415

    members, topics, previous = (
        spark.read.parquet(str(at / name)) for name in ("members", "topics", "previous")
    )
    rows = TWIN.assign(spark, members, topics, previous, driver_rows=driver_rows).rows
    _write(rows.sortWithinPartitions("member_id", "topic", "first_partition"), at / "target")


def _sort_and_write(spark: SparkSession, at: Path) -> None:
    rows = spark.read.parquet(str(at / "previous"))
    _write(rows.orderBy("member_id", "topic", "first_partition"), at / "sorted")


def _write(rows: DataFrame, path: Path) -> None:
    rows.write.mode("overwrite").parquet(str(path))


def _taken(spark: SparkSession, work: Callable[[], None]) -> Taken:
    cpu, start = cpu_s(spark), time.perf_counter()
    work()
    return Taken(time.perf_counter() - start, cpu_s(spark) - cpu)


def _jvm(spark: SparkSession) -> int:
    """Return the process of the JVM, which is driver and executor in one."""
    return int(spark._jvm.java.lang.ProcessHandle.current().pid())  # noqa: SLF001 - no public way


def cpu_s(spark: SparkSession) -> float:
    """Return the CPU time of this process, of the JVM and of the workers below it."""
    below: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path("/proc", name, "stat").read_text(encoding="ascii", errors="replace")
        except OSError:  # it has ended
            continue
        fields = line.rsplit(")", 1)[1].split()  # the name before may hold spaces
        below.setdefault(int(fields[1]), []).append(int(name))
        spent[int(name)] = sum(map(int, fields[11:15]))  # its own, and of children that ended
    found, total = [_jvm(spark)], 0
    while found:
        one = found.pop()
        total += spent.get(one, 0)
        found += below.get(one, [])
    return total / os.sysconf("SC_CLK_TCK") + time.process_time()


def _figures(cases: list[Case], peak_mib: float) -> Iterator[Figure]:
    """Name what was measured, with the goals."""
    for case in cases:
        ranges = case.ranges
        label = f"{case.rows:,} rows{', shared topics' if case.shared else ''}"
        elapsed = [taken.elapsed * 1000 for taken in case.sticky]
        small = case.rows == FIXED_MEMBERS
        goal = GOAL_FIXED_MS if small else None
        yield Figure.of(f"sticky, {label}, elapsed", elapsed, goal=goal)
        yield Figure.of(f"sticky, {label}, CPU", [taken.cpu * 1000 for taken in case.sticky])
        on_executors = [taken.elapsed * 1000 for taken in case.executors]
        yield Figure.of(f"on executors, {label}, elapsed", on_executors)
        cpu = [taken.cpu * 1000 for taken in case.executors]
        yield Figure.of(f"on executors, {label}, CPU", cpu)
        sorting = [taken.elapsed * 1000 for taken in case.sorting]
        yield Figure.of(f"sort and write, {label}, elapsed", sorting)
        sorting_cpu = [taken.cpu * 1000 for taken in case.sorting]
        yield Figure.of(f"sort and write, {label}, CPU", sorting_cpu)
        some = case.rows == SOME_MEMBERS
        ratio = [_by_sorting(case.sticky, case)]
        goal = GOAL_SOME if some else None if small else GOAL_RATIO.get(ranges)
        yield Figure.of(f"sticky by sort and write, {label}", ratio, "x", goal)
        ratio = [_by_sorting(case.executors, case)]
        goal = GOAL_SOME_ON_EXECUTORS if some else None
        yield Figure.of(f"on executors by sort and write, {label}", ratio, "x", goal)
    by_ranges = {case.ranges: case for case in cases}  # the largest of each
    if 10 in by_ranges and 100 in by_ranges:
        growth = _a_row(by_ranges[100]) / _a_row(by_ranges[10])
        yield Figure.of("cost a row, 100 by 10 ranges a member", [growth], "x", GOAL_GROWTH)
    yield Figure.of("peak memory of the JVM, heap and all", [peak_mib], "MiB")


def _row(case: Case, bench: Bench) -> list[str]:
    sticky, executors = _median(case.sticky), _median(case.executors)
    sorting = _median(case.sorting)
    return [
        f"{case.rows:,} ({case.ranges}{', shared topics' if case.shared else ''})",
        number(sticky),
        number(_median(case.sticky, "cpu")),
        number(executors),
        number(_median(case.executors, "cpu")),
        number(sorting),
        number(_median(case.sorting, "cpu")),
        number(_by_sorting(case.sticky, case)),
        number(_by_sorting(case.executors, case)),
        number(_a_row(case) * 1e6),
        number(sticky * 1000 / bench.sort.unit_ms),
    ]


def _by_sorting(taken: list[Taken], case: Case) -> float:
    """Return what work takes by what sorting does, in CPU."""
    return _median(taken, "cpu") / _median(case.sorting, "cpu")


def _a_row(case: Case) -> float:
    return _median(case.sticky) / case.rows


def _median(taken: list[Taken], what: str = "elapsed") -> float:
    return statistics.median(getattr(one, what) for one in taken)


def _name(letter: str, number_: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.format_string(letter + "%09d", number_)
