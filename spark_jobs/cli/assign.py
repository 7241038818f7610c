"""`muster assign`: assign a spec or tables, on either engine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from assignors import GroupSpec, PartitionRanges, SpecError, quality
from assignors.groups.assign_groups import GroupsAssignment
from assignors.parse import parse_json_objects
from assignors.registry import BUILT_IN
from coordinator.cli.main import load_config
from coordinator.cli.options import ConfigOption, choice
from coordinator.cli.report import plot, plot_path, print_groups, print_report, print_totals
from coordinator.cli.terminal import Terminal
from coordinator.clock import wall_ms
from coordinator.config import Config
from coordinator.config.kafka import ASSIGNORS
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.display import progress
from coordinator.display.printable import as_json
from coordinator.extras import require
from coordinator.storage.tables.table_io import replace_text
from coordinator.table_jobs.assignment_job import AssignmentJob, AssignmentResult
from coordinator.table_jobs.inputs import ChangesFile, find_input
from coordinator.table_jobs.outputs import check_spec_output
from coordinator.table_jobs.run_job import run_job
from coordinator.table_jobs.safeguards import MAX_FORGOTTEN, Safeguards
from spark_jobs.jobs.spark_assignment import SparkAssignment, assign_group
from spark_jobs.session.interrupts import interruptible


class EngineChoice(StrEnum):
    """Where to compute: local, spark or auto."""

    auto = "auto"
    local = "local"
    spark = "spark"


class PartitionFormat(StrEnum):
    """How partitions are printed."""

    lists = "lists"
    ranges = "ranges"


@dataclass(frozen=True, slots=True)
class Output:
    """What to print, and where to write."""

    path: str | None
    format: PartitionFormat
    report: bool
    json: bool
    plot: str | None
    title: str | None


Previous = Annotated[
    str | None,
    typer.Option(
        help="The previous assignment: TABLE or TABLE@VERSION.", show_default="the output's content"
    ),
]
OutputPath = Annotated[
    str | None,
    typer.Option(
        "--output", help="Delta table or .parquet file to replace; for a spec, a JSON file."
    ),
]
Imbalance = Annotated[
    str | None,
    typer.Option(help='sticky: allowed imbalance, in partitions or as a share such as "5%".'),
]
MaxMoves = Annotated[
    int | None, typer.Option(help="sticky, weighted: the most partitions to take from live owners.")
]
Defragment = Annotated[
    int | None, typer.Option(help="uniform, sticky: the most partitions to swap for longer ranges.")
]
MaxMovedWeight = Annotated[
    float | None, typer.Option(help="weighted: the most weight to take from live owners.")
]
Tolerance = Annotated[
    str | None,
    typer.Option(
        help="weighted: how far above the best makespan is good enough.", show_default="1%"
    ),
]
Rack = Annotated[
    str | None,
    typer.Option(
        help="weighted: prefer, require or ignore replicas in the member's rack.",
        show_default="prefer",
    ),
]
Improvement = Annotated[
    str | None,
    typer.Option(
        help="weighted: by how much the makespan must fall before a partition moves.",
        show_default="5%",
    ),
]
LeastShare = Annotated[
    str | None,
    typer.Option(
        help="weighted: what each member has at least, of an even share.",
        show_default="0%",
    ),
]
OwnedTable = Annotated[
    str | None, typer.Option("--owned", help="Table of the partitions that members own.")
]
PartitionsTable = Annotated[
    str | None, typer.Option("--partitions", help="Table of partitions with weight, racks, …")
]
ConstraintsTable = Annotated[
    str | None,
    typer.Option("--constraints", help="Table or .json file of constraints."),
]
ChangesPath = Annotated[
    str | None, typer.Option(help="JSON file of what has changed in the group since.")
]
PairsOrLists = Annotated[
    PartitionFormat,
    choice("--format", PartitionFormat, "Print partitions one by one, or as [first, count]."),
]
AllowEmpty = Annotated[bool, typer.Option("--allow-empty", help="Accept a group without members.")]
MaxForgotten = Annotated[
    str,
    typer.Option(
        help="How many previously assigned partitions topics may lack: a number or a share."
    ),
]
StorePath = Annotated[
    str | None,
    typer.Option("--store", help="A coordinator's store: compute the target of --group there."),
]
SpecPath = Annotated[
    str | None,
    typer.Argument(help="JSON or JSON lines; - for standard input.", show_default="-"),
]
DEFAULT = ASSIGNORS[0]
"""The assignor that is run where none is named: Kafka's default one."""
AssignorName = Annotated[
    str | None, typer.Option(help=f"{', '.join(BUILT_IN)}, …", show_default=DEFAULT)
]
EngineName = Annotated[EngineChoice, choice("--engine", EngineChoice, "Where to compute.")]
Report = Annotated[bool, typer.Option("--report", help="Print loads, moves and their reasons.")]
Plot = Annotated[str | None, typer.Option(help="Draw loads and moves to FILE.png or FILE.svg.")]
Title = Annotated[str | None, typer.Option(help="The title of the plot.", show_default="assignor")]
RunId = Annotated[
    str | None, typer.Option(help="The id of this run; a repeated run writes nothing.")
]


def assign(
    spec: SpecPath = None,
    members: Annotated[str | None, typer.Option(help="Table of member_id, subscribed, …")] = None,
    topics: Annotated[str | None, typer.Option(help="Table of topic, partitions, …")] = None,
    owned: OwnedTable = None,
    partitions: PartitionsTable = None,
    constraints: ConstraintsTable = None,
    previous: Previous = None,
    changes: ChangesPath = None,
    output: OutputPath = None,
    assignor: AssignorName = None,
    imbalance: Imbalance = None,
    max_moves: MaxMoves = None,
    defragment: Defragment = None,
    max_moved_weight: MaxMovedWeight = None,
    tolerance: Tolerance = None,
    rack: Rack = None,
    improvement: Improvement = None,
    least_share: LeastShare = None,
    engine: EngineName = EngineChoice.auto,
    format_: PairsOrLists = PartitionFormat.lists,
    report: Report = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    plot: Plot = None,
    title: Title = None,
    run_id: RunId = None,
    allow_empty: AllowEmpty = False,
    max_forgotten: MaxForgotten = MAX_FORGOTTEN,
    store: StorePath = None,
    group: Annotated[str | None, typer.Option(help="Group id; requires --store.")] = None,
    config: ConfigOption = None,
) -> None:
    """Assign partitions to members: print the answer to a spec, or write a table from tables.

    With --store and --group, compute a group's target on Spark, for its coordinator to install.

    Example: `muster assign --members members --topics topics --output assignment`
    """
    settings = load_config(config)
    own = _given(
        defragment=defragment, max_moved_weight=max_moved_weight, tolerance=tolerance, rack=rack,
        improvement=improvement, least_share=least_share,
    )  # fmt: skip
    tables = _given(owned=owned, previous=previous, partitions=partitions, constraints=constraints)
    if store is not None or group is not None:
        given = {spec, members, topics, changes, output, plot, title}
        _refuse_given(is_any=given != {None} or bool(tables or own) or allow_empty)
        _assign_store(store, group, (assignor, imbalance, max_moves, run_id), engine, settings)
        return
    options = _options((assignor, imbalance, max_moves), own, settings)
    wanted = Output(output, format_, report or json_, json_, _plot_path(plot, title), title)
    allowed = Safeguards(allow_empty, max_forgotten)
    changed = None if changes is None else ChangesFile.of(changes)
    if members is None and topics is None:
        _refuse_table_options(tables, run_id, allowed)
        solver = _Solver(engine, settings, changed)
        _specs(spec or "-", options, assignor, solver, wanted)
        return
    if members is None or topics is None or spec is not None:
        raise SpecError("give either a spec, or --members and --topics")
    inputs = _inputs(engine, tables | {"members": members, "topics": topics})
    work = AssignmentJob(
        **inputs, output=output, options=options, engine=engine, run_id=run_id,
        safeguards=allowed, changes=changed,
    )  # fmt: skip
    with interruptible(), progress.show("assigning"):
        done = run_job(work, settings, SparkAssignment())
    _print_done(work, done, wanted, settings)


def _given(**options: Any) -> dict[str, Any]:  # noqa: ANN401 - each of its own type
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def _options(
    asked: tuple[str | None, str | None, int | None], own: Mapping[str, Any], config: Config
) -> AssignorOptions:
    assignor, imbalance, max_moves = asked
    edges, long = config.plan.exact_edges, config.plan.long_ranges
    return AssignorOptions(assignor or DEFAULT, imbalance, max_moves, own, edges, long)


def _refuse_given(*, is_any: bool) -> None:
    if is_any:
        raise SpecError(
            "--store and --group read their input from the store: omit spec, tables, changes, "
            "output, plot, --allow-empty, and options of weighted"
        )


def _refuse_table_options(
    tables: Mapping[str, str], run_id: str | None, allowed: Safeguards
) -> None:
    """Refuse options that mean nothing to a spec."""
    if tables or run_id:
        raise SpecError(
            "--owned, --previous, --partitions, --constraints and --run-id "
            "require --members and --topics"
        )
    if allowed != Safeguards():
        raise SpecError("--allow-empty and --max-forgotten require --members and --topics")


def _plot_path(plot: str | None, title: str | None) -> str | None:
    if title is not None and plot is None:
        raise SpecError(f"--title {title!r} requires --plot: give the plot too")
    return plot_path(plot) if plot else None


def _inputs(engine: EngineChoice, named: Mapping[str, str]) -> dict[str, Any]:
    """Return the tables that options name."""
    if "owned" in named and "previous" in named:
        raise SpecError("--owned and --previous exclude each other: both say who owned what")
    return {"owned": None, "previous": None} | {
        name: find_input(text, f"--{name}", engine) for name, text in named.items()
    }


def _assign_store(
    store: str | None,
    group: str | None,
    asked: tuple[str | None, str | None, int | None, str | None],
    engine: EngineChoice,
    config: Config,
) -> None:
    """Compute the target of a store's group, and print what its coordinator answered."""
    if store is None or group is None:
        raise SpecError("--store and --group require each other: give both")
    if engine == EngineChoice.local:
        raise SpecError("--engine local: the coordinator itself computes locally; omit --engine")
    require("muster assign", "spark")
    from spark_jobs.jobs.assign_store import StoreJob, assign_store  # noqa: PLC0415 - others never import pyspark

    with interruptible(), progress.show("computing a target"):
        done = assign_store(StoreJob(store, group, *asked), config)
    print(as_json(done))  # noqa: T201 - the answer


def _specs(
    source: str,
    options: AssignorOptions,
    named: str | None,
    solver: _Solver,
    output: Output,
) -> None:
    """Assign every group of a JSON source. Print only when all are computed."""
    if output.path is not None:
        changes = None if solver.changes is None else solver.changes.path
        check_spec_output(output.path, source, changes)
    text = sys.stdin.buffer.read() if source == "-" else _read(source)
    try:
        specs = parse_json_objects(text)
    except SpecError as error:
        raise SpecError(f"{_name(source)}: {error}") from None
    if not specs:
        raise SpecError(f"{_name(source)} is empty: give a JSON object with topics and members")
    for option, is_given, does in (
        ("--plot", output.plot, "draws"), ("--changes", solver.changes, "are of"),
    ):  # fmt: skip
        if is_given and len(specs) > 1:
            asked = f"{option} {does} one group"
            raise SpecError(f"{asked}, but {_name(source)} has {len(specs)}: give one")
    answers = []
    with (
        interruptible(),
        progress.show("assigning"),
        progress.task("groups", len(specs)) as groups,
    ):
        for line, spec in specs:
            try:
                own = options if named else _own_options(spec, options)
                answers.append((spec, own, *solver.solve(spec, own)))
            except SpecError as error:
                label = f" (id {spec['id']!r})" if "id" in spec else ""
                raise SpecError(f"{_name(source)}, line {line}{label}: {error}") from None
            groups.advance()
    lines = [
        _answer(spec, own, ranges, found, output.format) for spec, own, ranges, found in answers
    ]
    if output.path is not None:
        replace_text(output.path, "".join(line + "\n" for line in lines))
    elif not output.report:
        for text_line in lines:
            print(text_line)  # noqa: T201 - the command's answer
    for spec, own, _, found in answers:
        _show(spec, own, found, output, solver.config)


@dataclass(frozen=True, slots=True)
class _Solver:
    """Assigns groups one by one, on the chosen engine, after changes."""

    engine: EngineChoice
    config: Config
    changes: ChangesFile | None

    def solve(
        self, spec: dict[str, Any], options: AssignorOptions
    ) -> tuple[PartitionRanges, quality.Report]:
        """Assign one group, and return its report."""
        assignor = options.make_assignor()
        group = GroupSpec.from_dict(spec, as_of_ms=wall_ms())
        if self.changes is not None:
            group = self.changes.apply(group)
        if self.engine == EngineChoice.spark:
            ranges = assign_group(group, options)
        else:
            ranges = assignor.assign(group)
        return ranges, quality.report(group, ranges)


def _own_options(spec: dict[str, Any], options: AssignorOptions) -> AssignorOptions:
    name = spec.get("assignor", DEFAULT)
    if not isinstance(name, str):
        raise SpecError(f"assignor is {name!r}: give its name")
    return replace(options, assignor=name)


def _answer(
    spec: dict[str, Any],
    options: AssignorOptions,
    ranges: PartitionRanges,
    report: quality.Report,
    format_: PartitionFormat,
) -> str:
    answer = {"id": spec["id"]} if "id" in spec else {}
    answer |= {
        "assignor": options.assignor,
        "assignment": ranges.to_dict(lists=format_ == PartitionFormat.lists),
        "quality": report.summary(),
    }
    if ranges.partial:
        answer["partial"] = True
    return as_json(answer)


def _show(
    spec: dict[str, Any],
    options: AssignorOptions,
    report: quality.Report,
    output: Output,
    config: Config,
) -> None:
    title = options.assignor if "id" not in spec else f"{options.assignor}, group {spec['id']}"
    if output.plot:
        plot(report, output.title or title, output.plot)
    if not output.report:
        return
    if output.json or not sys.stdout.isatty():
        named = {"id": spec["id"]} if "id" in spec else {}
        print(as_json(named | {"assignor": options.assignor} | report.to_dict()))  # noqa: T201
    else:
        print_report(Terminal(), title, report, config.report.members_shown)


def _print_done(
    work: AssignmentJob,
    done: AssignmentResult,
    output: Output,
    config: Config,
) -> None:
    """Print the result of a job on tables."""
    facts: dict[str, Any] = {
        "run_id": done.run_id, "engine": done.engine or None, "output": work.output,
        "version": done.version, "already_written": done.already,
        "forgotten": done.forgotten, "assignor": work.options.assignor,
    }  # fmt: skip
    if done.already:
        print(as_json(facts | (done.totals or {})))  # noqa: T201 - the command's answer
        if output.plot:
            typer.echo("muster: --plot: the run was already done, so nothing is drawn", err=True)
        return
    if done.groups is not None:
        _print_groups(done, done.groups, work, output, facts, config)
        return
    if work.output is None and not output.report and done.ranges is not None and done.report:
        print(_answer({}, work.options, done.ranges, done.report, output.format))  # noqa: T201
    if output.plot:
        if done.report is None:
            raise SpecError("--plot: the group is too large to draw (report.rows_max)")
        plot(done.report, output.title or work.options.assignor, output.plot)
    if output.report and not output.json and sys.stdout.isatty():
        if done.report is not None:
            print_report(
                Terminal(), work.options.assignor, done.report, config.report.members_shown
            )
        elif done.totals:
            print_totals(Terminal(), work.options.assignor, done.totals)
    elif output.report or work.output is not None:
        whole = done.report.to_dict() if done.report and output.report else (done.totals or {})
        print(as_json(facts | whole))  # noqa: T201 - the command's answer


def _print_groups(
    done: AssignmentResult,
    groups: GroupsAssignment,
    work: AssignmentJob,
    output: Output,
    facts: dict[str, Any],
    config: Config,
) -> None:
    """Print the result of a job on tables of many groups."""
    if output.plot:
        typer.echo("muster: --plot: members has many groups, so nothing is drawn", err=True)
    if output.report and not output.json and sys.stdout.isatty():
        print_groups(Terminal(), work.options.assignor, groups, config.report.members_shown)
    elif output.report or work.output is not None or groups.rows is None:
        whole = {"per_group": groups.per_group()} if output.report else {}
        print(as_json(facts | (done.totals or {}) | whole))  # noqa: T201 - the command's answer
    else:
        lists = output.format == PartitionFormat.lists
        for group_id, owned in groups.answers():
            shown = {
                member: {topic: _list(ranges) if lists else ranges for topic, ranges in own.items()}
                for member, own in owned.items()
            }
            answer = {"id": group_id, "assignor": work.options.assignor, "assignment": shown}
            print(as_json(answer))  # noqa: T201 - the same


def _list(ranges: list[list[int]]) -> list[int]:
    return [first + at for first, count in ranges for at in range(count)]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror or error}") from None


def _name(source: str) -> str:
    return "standard input" if source == "-" else source
