"""`muster demo`: a tour of Muster, sized for two cores; it ends with a summary.

A Spark driver embeds a coordinator. A `Member` and a Kafka client share a small group, and the
target of a very large group is computed on Spark. Both groups change; then the store is queried
with SQL, and the moves are plotted. At the end, groups that Kafka coordinates are watched. Each act
is a function that prints what it did and returns its line of the summary; `ACTS` has them in order.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

from coordinator.cli.main import FAILURE
from coordinator.cli.report import plot
from coordinator.config import ConfigError, parse
from coordinator.display import progress
from coordinator.extras import EXTRAS, require
from spark_jobs.demo import kafka, watched
from spark_jobs.demo.crowd import Crowd
from spark_jobs.session.package_files import demo_cases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from coordinator import Coordinator
    from coordinator.runtime.topic_catalog import DictCatalog

SMALL, LARGE = "billing", "archive"
CLICKS = "clicks"
LARGE_TOPICS = 100
GONE_SHARE = 200
"""One of this many members of the large group leaves."""
PATIENCE_S = 60.0
INTERVAL, ENGINE = "consumer.assignment.interval.ms", "consumer.assignor.engine"
SETTINGS = {"consumer.session.timeout.ms": 3_600_000}
"""Of the large group, whose members only send heartbeats in some acts."""
CONFIG = """
[topics]
poll_ms = 300
[kafka]
"group.consumer.heartbeat.interval.ms" = 2000
"group.consumer.min.heartbeat.interval.ms" = 2000
"group.consumer.max.session.timeout.ms" = 3600000
"""


@dataclass(slots=True)
class Stage:
    """The state that acts share."""

    console: Console
    folder: Path
    store: str
    cases: list[dict[str, Any]]
    members: int
    partitions: int
    spark: SparkSession
    coordinator: Coordinator
    catalog: DictCatalog
    address: str
    leave: dict[str, Callable[[], object]] = field(default_factory=dict)
    """How each member of the small group leaves it."""
    crowd: Crowd | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether an act succeeded, and its line of the summary."""

    good: bool
    line: str


def demo(
    output: Annotated[Path, typer.Option(help="Folder for the store and the plot.")] = Path(
        "demo-output"
    ),
    store: Annotated[
        str, typer.Option(help="Another store, new or empty, such as s3://BUCKET/FOLDER.")
    ] = "",
    cases: Annotated[
        Path | None,
        typer.Option(
            help="Groups with Kafka's answers, as JSON lines.", show_default="golden cases"
        ),
    ] = None,
    members: Annotated[
        int, typer.Option(min=200, help="Members of the very large group.")
    ] = 100_000,
    partitions: Annotated[
        int, typer.Option(min=200, help="Partitions of the very large group.")
    ] = 10_000_000,
    watch: Annotated[
        str,
        typer.Option(
            "--kafka",
            metavar="HOST:PORT",
            help="Only this: watch a cluster that runs, Kafka 4 or later. A topic and a group of "
            "the demo's come and go in it.",
        ),
    ] = "",
) -> None:
    """Run a tour: a coordinator in a Spark driver, with a small and a very large group.

    Example: `muster demo --output demo-output`
    """
    if watch:
        _watch_cluster(watch, output)
        return
    require("muster demo", "spark", "plot")
    started = time.perf_counter()
    groups = kafka.read_cases(cases or demo_cases())
    console = Console(highlight=False)
    output.mkdir(parents=True, exist_ok=True)
    store = _empty_store(output, store)
    with _stage(console, output, store, groups, members, partitions) as stage:
        outcomes = [act(stage) for act in ACTS]
    console.rule("summary", align="left")
    for outcome in outcomes:
        mark = "[green]✓[/]" if outcome.good else "[red]✗[/]"
        console.print(f"{mark} {outcome.line}", soft_wrap=True)
    if all(find_spec(name) for name in EXTRAS["web"]):
        again = f"muster web --store {store}"
        console.print(f"See both groups in a browser: {again}", soft_wrap=True)
    console.print(f"{time.perf_counter() - started:.0f} s in all")
    if not all(outcome.good for outcome in outcomes):
        raise typer.Exit(FAILURE)


def _watch_cluster(address: str, output: Path) -> None:
    """Show a group of a Kafka cluster that comes and goes, by what the cluster writes of it."""
    require("muster demo --kafka", "kafka")
    from coordinator.history.watched import tell_watched  # noqa: PLC0415 - the command's help needs none
    from coordinator.watcher.watch import watch  # noqa: PLC0415 - the same
    from spark_jobs.demo.watched_cluster import Cluster, play_group, read_reasons  # noqa: PLC0415 - the same

    console, cluster, store = Console(highlight=False), Cluster(address), output / "kafka"
    shutil.rmtree(store, ignore_errors=True)
    with watch(cluster.url, store) as watching, cluster.entered():
        who = tell_watched(watching.store.watched.cluster)
        with progress.show("a group comes and goes"):
            good = play_group(cluster, watching)
        groups = len(watching.coordinator.list_groups()["groups"])
    table = Table("epoch", "began", title=cluster.name, title_justify="left")
    for epoch, reason in read_reasons(store, cluster.name):
        table.add_row(str(epoch), reason)
    console.print(table)
    console.print(who, soft_wrap=True)
    mark = "[green]✓[/]" if good else "[red]✗[/]"
    line = f"{groups} groups of the cluster: muster history {cluster.name} --store {store}"
    console.print(f"{mark} {line}", soft_wrap=True)
    if not good:
        raise typer.Exit(FAILURE)


def _empty_store(output: Path, named: str) -> str:
    """Return the store to use: the demo's own is recreated, another one must be empty."""
    if not named:
        shutil.rmtree(output / "store", ignore_errors=True)
        return str(output / "store")
    from coordinator.storage.tables.store_files import files_at, root_of  # noqa: PLC0415 - the command's help needs none

    root = root_of(named)
    if files_at(root).is_folder(root):
        raise ConfigError(f"the store {root} already exists: name a new one for the demo")
    return root


@contextmanager
def _stage(
    console: Console,
    folder: Path,
    store: str,
    cases: list[dict[str, Any]],
    members: int,
    partitions: int,
) -> Iterator[Stage]:
    """Start Spark, and a coordinator in this driver that also serves Kafka clients."""
    from coordinator.runtime.topic_catalog import DictCatalog  # noqa: PLC0415 - the command's help needs none
    from spark_jobs import embed  # noqa: PLC0415 - the same
    from spark_jobs.session.object_store import reach_store  # noqa: PLC0415 - the same
    from spark_jobs.session.session import SHORT_LIVED, log_option, spark_session  # noqa: PLC0415 - the same

    catalog = DictCatalog({CLICKS: 6})
    options = f"{log_option()} {SHORT_LIVED}"
    with progress.show("starting Spark"):
        spark = spark_session("muster-demo", conf={"spark.driver.extraJavaOptions": options})
    settings = parse(CONFIG, "demo")
    try:
        # Spark computes the large group's targets: refuse before anything is in the store.
        reach_store(spark, store)
        with (
            embed(spark, store, settings, topics=catalog) as coordinator,
            coordinator.serve("127.0.0.1:0") as serving,
            _pages(coordinator) as url,
        ):
            if url:
                console.print(f"See both groups live in a browser: {url}", soft_wrap=True)
            stage = Stage(
                console, folder, store, cases, members, partitions, spark, coordinator, catalog,
                serving.address,
            )  # fmt: skip
            try:
                yield stage
            finally:
                for leave in stage.leave.values():
                    leave()
    finally:
        spark.stop()


def _pages(coordinator: Coordinator) -> AbstractContextManager[str]:
    """Show the groups to browsers, and return where; "" if the extra `web` is not installed."""
    if any(find_spec(name) is None for name in EXTRAS["web"]):
        return nullcontext("")
    pages = coordinator.serve_web("127.0.0.1:0")

    @contextmanager
    def serve() -> Iterator[str]:
        with pages:
            yield pages.url

    return serve()


# Acts --------------------------------------------------------------------------------------------


def show_kafka_comparison(stage: Stage) -> Outcome:
    """Assign every golden group in this process, and compare with what Kafka answered."""
    title = "1. Recorded groups: Muster's assignments compared with Kafka's"
    table = _act(stage, title, "assignor", *kafka.VERDICTS)
    worse, started = 0, time.perf_counter()
    for name in kafka.COMPARED:
        found = kafka.compare_with_kafka(name, stage.cases)
        worse += found["worse"]
        table.add_row(name, *[str(found[verdict]) for verdict in kafka.VERDICTS])
    seconds = time.perf_counter() - started
    stage.console.print(table)
    assignors = len(kafka.COMPARED)
    what = f"{len(stage.cases)} groups, {assignors} assignors, in process in {seconds:.1f} s"
    return Outcome(worse == 0, f"{what}: {worse or 'none'} worse than Kafka's")


def show_small_group(stage: Stage) -> Outcome:
    """Let a member of this process and an unchanged Kafka client share a topic."""
    title = f"2. {SMALL}: a Member in this driver, a Kafka client in its own process"
    table = _act(stage, title, "member", "owns")
    with progress.show("two members join"):
        _join(stage, "ann", stage.coordinator)
        if find_spec("confluent_kafka") is None:
            _join(stage, "bob", stage.address)
        else:
            _start_kafka_client(stage, "bob")
        good = _wait_for(lambda: _shares(stage, 2))
    _print_owners(stage, table)
    return Outcome(good, f"{SMALL}: two members share {CLICKS}, one of them at {stage.address}")


def show_large_group(stage: Stage) -> Outcome:
    """Let very many members join, and compute their target on Spark."""
    columns = ("members", "partitions", "join", "target on Spark, until stable", "ranges")
    table = _act(stage, f"3. {LARGE}: a target computed on Spark", *columns)
    ids = [f"worker-{number:07}" for number in range(stage.members)]
    topics = tuple(f"archive-{number:02}" for number in range(LARGE_TOPICS))
    crowd = stage.crowd = Crowd(stage.coordinator, LARGE, topics)
    with progress.show("members join") as doing:
        started = time.perf_counter()
        interval_ms = max(1_000, min(15_000, stage.members))  # one target for very many joins
        stage.coordinator.alter_group_config(LARGE, SETTINGS | {INTERVAL: interval_ms})
        crowd.join(ids, doing.say)
        joined = time.perf_counter() - started
        stage.coordinator.alter_group_config(LARGE, SETTINGS | {ENGINE: "spark"})
        for topic in topics:  # or the first member would own them all, and then give up most
            stage.catalog.set(topic, stage.partitions // LARGE_TOPICS)
        stage.coordinator.refresh_topics()
        seconds = crowd.settle(doing.say)
    ranges = _runs(stage)[-1][1]
    table.add_row(
        f"{stage.members:,}", f"{stage.partitions:,}", f"{joined:.1f} s", f"{seconds:.1f} s",
        f"{ranges:,}",
    )  # fmt: skip
    stage.console.print(table)
    return Outcome(
        good=True,
        line=f"{LARGE}: {stage.members:,} members share {stage.partitions:,} partitions after "
        f"{seconds:.0f} s on Spark",
    )


def show_changes(stage: Stage) -> Outcome:
    """Change both groups: members join and leave, a topic grows, many members leave."""
    table = _act(stage, "4. Both groups change", "group", "change", "until stable")
    started = time.perf_counter()
    with progress.show("cid joins, bob leaves, the topic grows"):
        _join(stage, "cid", stage.address)
        stage.leave.pop("bob")()
        stage.catalog.set(CLICKS, 8)
        good = _wait_for(lambda: _shares(stage, 2, 8))
    took = f"{time.perf_counter() - started:.1f} s"
    table.add_row(SMALL, f"cid joins, bob leaves, {CLICKS} grows to 8", took)
    crowd = stage.crowd
    assert crowd is not None
    gone = list(crowd.epochs)[::GONE_SHARE]
    with progress.show("a part of the crowd leaves") as doing:
        crowd.leave(gone)
        seconds = crowd.settle(doing.say)
    table.add_row(LARGE, f"{len(gone):,} members leave", f"{seconds:.1f} s")
    stage.console.print(table)
    return Outcome(good, f"{LARGE}: {len(gone):,} members left, stable after {seconds:.0f} s")


QUERIES = {
    "the groups": "SELECT group_id, state, group_epoch, assignment_epoch, members FROM groups",
    "who owned clicks, from when until when, and why": """
        SELECT concat(first_partition, '-', last_partition) AS partitions,
            client_id, member_id,
            date_format(since, 'HH:mm:ss') AS since, reason, date_format(until, 'HH:mm:ss') AS until
        FROM assignment_history WHERE group_id = 'billing'
        ORDER BY since_position, first_partition""",
    "the last targets of the archive": """
        SELECT group_epoch, computed_at, assignor, moved, reason
        FROM epochs WHERE group_id = 'archive' AND assignor IS NOT NULL
        ORDER BY group_epoch DESC LIMIT 3""",
}


def ask_by_sql(stage: Stage) -> Outcome:
    """Query the store for its state and history."""
    from spark_jobs.sql import views  # noqa: PLC0415 - imports pyspark

    stage.console.rule("5. The store, queried with Spark SQL", align="left")
    views.register(stage.spark, stage.store)
    asked = 0
    for title, query in QUERIES.items():
        with progress.show(title):
            frame = stage.spark.sql(query)
            rows = frame.collect()
        asked += bool(rows)
        table = Table(*frame.columns, title=title, title_justify="left")
        for row in rows:
            table.add_row(*["" if value is None else str(value) for value in row])
        stage.console.print(table)
    again = f"muster history {SMALL} --store {stage.store}"
    return Outcome(asked == len(QUERIES), f"the store is kept for your own queries: {again}")


def draw_pictures(stage: Stage) -> Outcome:
    """Plot loads and moves of the large group, before and after the change."""
    from assignors import GroupSpec, PartitionRanges, quality  # noqa: PLC0415

    stage.console.rule("6. The moves, plotted", align="left")
    assert stage.crowd is not None
    (before, _), (after, _) = _runs(stage)[-2:]
    columns = ["member_id", "topic", "first_partition", "partition_count"]
    members = pa.table(
        {
            "member_id": list(stage.crowd.epochs),
            "subscribed": pa.array([list(stage.crowd.topics)] * len(stage.crowd.epochs)),
        }
    )
    each = stage.partitions // LARGE_TOPICS
    topics = pa.table({"topic": stage.crowd.topics, "partitions": [each] * LARGE_TOPICS})
    group = GroupSpec.from_arrow(members, topics, _rows(stage, before).select(columns))
    rows = _rows(stage, after).select(columns)
    report = quality.report(group, PartitionRanges.from_arrow(group.member_ids, group.topics, rows))
    path = stage.folder / "plot.png"
    gone = stage.members - len(stage.crowd.epochs)
    plot(report, f"{LARGE}, as {gone:,} of {stage.members:,} members left", str(path))
    loads = f"loads {report.load_min} to {report.load_max}"
    line = f"{loads}, {report.moved:,} moved from members that stayed"
    return Outcome(report.valid, f"{LARGE}: {line}, {path}")


def show_watched_groups(stage: Stage) -> Outcome:
    """Watch groups that Kafka coordinated, from what it wrote about them."""
    table = _act(stage, "7. Groups that Kafka coordinates, watched", "group", "epoch", "began")
    store, started = stage.folder / "watched", time.perf_counter()
    with progress.show("a recorded topic is watched"):
        found = watched.watch_recorded(store)
    seconds = time.perf_counter() - started
    for group_id, epoch, reason in found.reasons:
        table.add_row(group_id, str(epoch), reason)
    stage.console.print(table)
    stage.console.print(found.who, soft_wrap=True)
    line = f"{found.groups} groups, {found.epochs} epochs and their reasons in {seconds:.1f} s"
    again = f"muster history g --store {store}"
    return Outcome(bool(found.who and found.groups), f"watched: {line}: {again}")


ACTS: tuple[Callable[[Stage], Outcome], ...] = (
    show_kafka_comparison, show_small_group, show_large_group, show_changes, ask_by_sql,
    draw_pictures, show_watched_groups,
)  # fmt: skip


# What they need ----------------------------------------------------------------------------------


def _act(stage: Stage, title: str, *columns: str) -> Table:
    """Start an act, and return the table that it fills."""
    stage.console.rule(title, align="left")
    table = Table()
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    return table


def _join(stage: Stage, name: str, where: Coordinator | str) -> None:
    """Let a member join; at the end it leaves for a while, and the store shows what it owned."""
    from coordinator import Member  # noqa: PLC0415 - the command's help needs none

    static = None if name == "bob" else name
    member = Member(where, group_id=SMALL, topics=[CLICKS], client_id=name, instance_id=static)
    stage.leave[name] = partial(member.open().leave, for_a_while=True)


def _start_kafka_client(stage: Stage, name: str) -> None:
    words = [stage.address, SMALL, CLICKS, name]
    command = [sys.executable, "-m", "spark_jobs.demo.member", *words]
    stage.leave[name] = subprocess.Popen(command).terminate  # noqa: S603 - our own program


def _list_owned(stage: Stage) -> dict[str, list[int]]:
    """Return what each member of the small group owns."""
    (group,) = stage.coordinator.consumer_group_describe(SMALL)
    return {
        member["client_id"]: [
            p for topic in member["assignment"]["topic_partitions"] for p in topic["partitions"]
        ]
        for member in group.get("members", ())
    }


def _shares(stage: Stage, members: int, partitions: int = 6) -> bool:
    owned = _list_owned(stage).values()
    together = sorted(partition for one in owned for partition in one)
    return len(owned) == members and all(owned) and together == list(range(partitions))


def _print_owners(stage: Stage, table: Table) -> None:
    for name, partitions in sorted(_list_owned(stage).items()):
        table.add_row(name, " ".join(map(str, partitions)))
    stage.console.print(table)


def _wait_for(found: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if found():
            return True
        time.sleep(0.1)
    return False


def _runs(stage: Stage) -> list[tuple[str, int]]:
    """Return the run id and number of ranges of each target of the large group in the table."""
    from coordinator.core.state.records import TargetMetadata  # noqa: PLC0415 - the same
    from coordinator.storage.delta_log import read_log  # noqa: PLC0415 - the command's help needs none

    return [
        (record.computation_id, record.ranges or 0)
        for batch in read_log(stage.store)
        for record in batch.records
        if isinstance(record, TargetMetadata) and record.computation_id
    ]


def _rows(stage: Stage, run_id: str) -> pa.Table:
    """Return the rows of a target in the table."""
    from coordinator.storage.tables.store_files import open_delta  # noqa: PLC0415 - the command's help needs none
    from coordinator.storage.target_table import targets_path  # noqa: PLC0415 - the same

    targets = open_delta(targets_path(stage.store))
    return targets.to_pyarrow_table(filters=[("run_id", "=", run_id)])
