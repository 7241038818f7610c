"""`muster demo`: the main job on real input, in a few acts; asks nothing, ends with a summary.

The input is what Kafka 4.4.0's own assignors answered to 220 groups. Each act is a function of the
stage that prints what it did and returns its line of the summary; `ACTS` is their order.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from assignors import GroupSpec, PartitionRanges, SpecError, get_assignor, quality
from assignors.parse import objects_of_json
from coordinator.cli import FAILURE
from coordinator.config import Config
from coordinator.tables import TableRef, replace_file, replace_text
from spark_jobs import job, show
from spark_jobs.session import log_option, spark_session

CASES = Path(__file__).resolve().parent.parent / "tests/golden/kafka-4.4.0/assignments/cases.jsonl"
VERDICTS = ("the same", "fewer moves", "fairer", "worse")
"""Our answer beside Kafka's. Fairer loads may need more moves, and that is right."""

_TABLES = ("members", "topics", "owned")
_MEMBERS_SHOWN = 12
_SETTINGS = Config()


@dataclass(frozen=True, slots=True)
class Stage:
    """What the acts share: where to print, where to write, the groups with Kafka's answers."""

    console: Console
    folder: Path
    cases: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether an act went as it must, and its line of the summary."""

    good: bool
    line: str


def demo(
    output: Annotated[Path, typer.Option(help="Folder for what is written.")] = Path("demo-output"),
    cases: Annotated[
        Path,
        typer.Option(help="JSON lines of groups with Kafka's answers", show_default="golden cases"),
    ] = CASES,
) -> None:
    """Run the main job on real input, on both engines, beside what Kafka itself answered."""
    started = time.perf_counter()
    groups = _read(cases)
    output.mkdir(parents=True, exist_ok=True)
    stage = Stage(Console(highlight=False), output, groups)
    outcomes = [act(stage) for act in ACTS]
    stage.console.rule("summary", align="left")
    for outcome in outcomes:
        mark = "[green]✓[/]" if outcome.good else "[red]✗[/]"
        stage.console.print(f"{mark} {outcome.line}", soft_wrap=True)
    stage.console.print(f"{time.perf_counter() - started:.0f} s in all")
    if not all(outcome.good for outcome in outcomes):
        raise typer.Exit(FAILURE)


def against_kafka(stage: Stage) -> Outcome:
    """Assign every group in this process, and compare with what Kafka answered."""
    table = _act(stage, "1. Each group in process, beside Kafka's answer", "assignor", *VERDICTS)
    worse, started = 0, time.perf_counter()
    for name in job.TWINS:
        found = Counter(_judged(name, case) for case in stage.cases)
        worse += found["worse"]
        table.add_row(name, *[str(found[verdict]) for verdict in VERDICTS])
    seconds = time.perf_counter() - started
    stage.console.print(table)
    what = f"{len(stage.cases)} groups, {len(job.TWINS)} assignors, in process in {seconds:.1f} s"
    return Outcome(worse == 0, f"{what}: {worse or 'none'} worse than Kafka's")


def on_both_engines(stage: Stage) -> Outcome:
    """Run the nightly job on tables that hold all groups as one, on both engines."""
    columns = ("assignor", "members", "partitions", "ranges", "local", "Spark", "rows")
    table = _act(stage, "2. All groups as one, from tables to Delta tables", *columns)
    group = GroupSpec.from_dict(_combined(stage.cases))
    for name, rows in zip(_TABLES, group.to_arrow(), strict=True):
        replace_file(str(stage.folder / f"{name}.parquet"), rows)
    # The JVM lives for a minute: its optimising compiler would take longer than it saves.
    options = f"{log_option()} -XX:TieredStopAtLevel=1"
    good = True
    with stage.console.status("starting Spark …") as status:
        spark = spark_session("muster-demo", conf={"spark.driver.extraJavaOptions": options})
        for name in job.TWINS:
            status.update(f"{name} on both engines …")
            local, local_seconds = _nightly(stage, name, "local")
            done, spark_seconds = _nightly(stage, name, "spark")
            same = local.ranges == done.ranges and local.totals == done.totals
            good = good and same and _none_worse(stage, name, done)
            table.add_row(
                name, f"{group.member_count:,}", f"{int(group.partitions.sum()):,}",
                f"{len(local.ranges or ()):,}", f"{local_seconds:.1f} s", f"{spark_seconds:.1f} s",
                "identical" if same else "DIFFERENT",
            )  # fmt: skip
        spark.stop()
    stage.console.print(table)
    line = "identical rows, none worse than Kafka's" if good else "rows differ, or are worse"
    tables = f"from {stage.folder}/members.parquet … to {stage.folder}/uniform-spark/ …"
    return Outcome(good, f"all groups as one, on both engines: {line} ({tables})")


def explained(stage: Stage) -> Outcome:
    """Show how a result explains itself, with the group that has the most to explain."""
    _act(stage, "3. How a result explains itself")
    reports = [
        (case, _assigned("uniform", case)[1])
        for case in stage.cases
        if len(case["members"]) <= _MEMBERS_SHOWN
    ]
    if not reports:
        return Outcome(good=True, line="no group is small enough to be shown")
    case, report = max(reports, key=lambda pair: (len(pair[1].reasons()), pair[1].moved))
    title = f"uniform, group {case['id']}"
    show.print_report(stage.console, title, report, _MEMBERS_SHOWN)
    spec = {name: case[name] for name in ("id", "topics", "members")}
    replace_text(str(stage.folder / "group.json"), show.as_json(spec) + "\n")
    replace_text(str(stage.folder / "report.json"), show.as_json(report.to_dict()) + "\n")
    show.plot(report, title, str(stage.folder / "plot.png"))
    again = f"again by muster assign {stage.folder}/group.json --report"
    files = f"{stage.folder}/report.json and plot.png"
    return Outcome(
        report.valid, f"the report and the plot of group {case['id']}: {files} ({again})"
    )


ACTS: tuple[Callable[[Stage], Outcome], ...] = (against_kafka, on_both_engines, explained)


def _act(stage: Stage, title: str, *columns: str) -> Table:
    """Open an act, and make the table it will fill."""
    stage.console.rule(title, align="left")
    table = Table()
    for name in columns:
        table.add_column(name, justify="left" if name == "assignor" else "right")
    return table


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise SpecError(
            f"--cases {str(path)!r} cannot be read ({error.strerror}): run in a clone of the "
            "project, or name a file of groups with Kafka's answers"
        ) from None
    return [case for _, case in objects_of_json(text)]


def _assigned(name: str, case: dict[str, Any]) -> tuple[PartitionRanges, quality.Report]:
    group = GroupSpec.from_dict(case)
    ranges = get_assignor(name, **job.Options(name).given(_SETTINGS)).assign(group)
    return ranges, quality.report(group, ranges)


def _judged(name: str, case: dict[str, Any]) -> str:
    """Assign one group, and compare it with Kafka's answer."""
    ranges, report = _assigned(name, case)
    if not report.valid:
        return "worse"
    return _verdict(name, case["kafka"], ranges.to_dict(), report.members.to_pylist())


def _verdict(
    assignor: str,
    kafka: dict[str, Any],
    assignment: dict[str, Any],
    members: list[dict[str, Any]],
) -> str:
    """Compare one answer with Kafka's; `members` are rows of a report."""
    if assignor == "range":
        return "the same" if assignment == kafka["range"] else "worse"
    loads, moved = sorted(row["load"] for row in members), sum(row["lost"] for row in members)
    theirs = kafka["uniform"]
    if loads != theirs["loads"]:  # lists compare from the emptiest member up
        return "fairer" if loads > theirs["loads"] else "worse"
    if moved != theirs["moved"]:
        return "fewer moves" if moved < theirs["moved"] else "worse"
    return "the same"


def _combined(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Make one group of all: no topic is shared, so what is best for each is best for all."""
    topics: dict[str, int] = {}
    members: dict[str, dict[str, Any]] = {}
    for case in cases:
        at = f"{case['id']}/"
        topics |= {at + name: count for name, count in case["topics"].items()}
        for member, fields in case["members"].items():
            instance = fields["instance_id"]
            members[at + member] = {
                "subscribed": [at + name for name in fields["subscribed"]],
                "owned": {at + name: owned for name, owned in fields["owned"].items()},
                "instance_id": None if instance is None else at + instance,
            }
    return {"topics": topics, "members": members}


def _nightly(stage: Stage, assignor: str, engine: str) -> tuple[job.Done, float]:
    """Do as `muster assign --members … --topics … --owned … --output …`; also take the time."""
    started = time.perf_counter()
    paths = [str(stage.folder / f"{name}.parquet") for name in _TABLES]
    members, topics, owned = (
        TableRef.of(path, name) for path, name in zip(paths, _TABLES, strict=True)
    )
    output = str(stage.folder / f"{assignor}-{engine}")
    work = job.Job(members, topics, owned, None, output, job.Options(assignor), engine)
    return job.run(work, _SETTINGS), time.perf_counter() - started


def _none_worse(stage: Stage, assignor: str, done: job.Done) -> bool:
    """Take the result for all groups apart, and compare each one's with Kafka's answer."""
    if done.ranges is None or done.report is None or not done.report.valid:
        return False
    rows = {row["member_id"]: row for row in done.report.members.to_pylist()}
    assignment = done.ranges.to_dict()
    for case in stage.cases:
        at = f"{case['id']}/"
        own = {
            member: {topic.removeprefix(at): p for topic, p in assignment[at + member].items()}
            for member in case["members"]
        }
        members = [rows[at + member] for member in case["members"]]
        if _verdict(assignor, case["kafka"], own, members) == "worse":
            return False
    return True
