"""`python -m benchmarks`: measure, print tables, write docs/design/benchmarks.md."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import (
    build,
    classic,
    coordinator,
    costs,
    delegation,
    grid,
    large,
    memory,
    next_plan,
    report,
    soak,
    spark,
    telemetry,
    views,
    wire,
)
from benchmarks.availability import many_topics
from benchmarks.availability import section as availability
from benchmarks.billion import section as billion
from benchmarks.billion import simulated
from benchmarks.gateway import section as gateway
from benchmarks.measure import SORT_LENGTH, Bench, measure_sort
from benchmarks.member import section as member
from benchmarks.node import section as node
from benchmarks.shards import section as shards
from benchmarks.stores import section as stores
from benchmarks.streams import section as streams
from benchmarks.watch import section as watch
from benchmarks.web import api
from benchmarks.web import section as web
from benchmarks.weights import rules
from benchmarks.weights import section as weights

DOCS = Path(__file__).resolve().parent.parent / "docs/design"
PAPER_WIDTH = 160
PACKAGES = ("numpy", "scipy", "pyarrow", "pyspark")

SECTIONS: dict[str, Callable[[Bench], report.Section]] = {
    "grid": grid.run,
    "large": large.run,
    "next-plan": next_plan.run,
    "billion": billion.run,
    "weighted": large.run_weighted,
    "racks": large.run_racks,
    "rules": rules.run,
    "groups": large.run_groups,
    "groups-spark": large.run_groups_on_spark,
    "weighted-spark": weights.run,
    "weighted-spark-10m": weights.run_large,
    "weighted-spark-100m": weights.run_huge,
    "soak": soak.run,
    "build": build.run,
    "memory": memory.run,
    "simulated": simulated.run,
    "coordinator": coordinator.run,
    "telemetry": telemetry.run,
    "stores": stores.run,
    "shards": shards.run,
    "availability": availability.run,
    "regex": many_topics.run,
    "wire": wire.run,
    "describe": wire.run_describe,
    "member": member.run,
    "classic": classic.run,
    "spark": spark.run,
    "costs": costs.run,
    "delegation": delegation.run,
    "views": views.run,
    "watch": watch.run,
    "gateway": gateway.run,
    "node": node.run,
    "streams": streams.run,
    "web": web.run,
    "api": api.run,
}
"""The sections, in the order of the document."""


def main(
    only: Annotated[str, typer.Option(help="sections, with commas between")] = ",".join(SECTIONS),
    smoke: Annotated[
        bool, typer.Option("--smoke", help="tiny groups; writes nothing without --output")
    ] = False,
    spark_ranges: Annotated[
        str, typer.Option(help="ranges a member of the Spark section")
    ] = "1,10,100",
    output: Annotated[Path | None, typer.Option(help="folder for the document [docs]")] = None,
) -> None:
    """Measure, print tables, and write benchmarks.md and benchmarks.json."""
    names, ranges = _names(only), _ranges(spark_ranges)
    folder = output or (None if smoke else DOCS)
    console = Console() if sys.stdout.isatty() else Console(width=PAPER_WIDTH)
    progress = Console(stderr=True, soft_wrap=True, highlight=False)
    sort = measure_sort(SORT_LENGTH // 100 if smoke else SORT_LENGTH)
    bench = Bench(sort, smoke, ranges, lambda words: progress.print(f"{words} …", style="dim"))
    for name in names:
        where = about()
        measured = report.Measured(SECTIONS[name](bench), sort, where)
        report.show(console, measured)
        if folder:  # after each section: an interrupted run keeps what it measured
            _replace(folder, name, measured)


def _replace(folder: Path, name: str, measured: report.Measured) -> None:
    """Put one section into the document; read again, as another run may have written another."""
    sections = report.load(folder / "benchmarks.json") | {name: measured}
    report.write(folder, {known: sections[known] for known in SECTIONS if known in sections})


def about() -> dict[str, str]:
    """Say when and on what this runs."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    with open("/proc/meminfo", encoding="ascii") as lines:
        memory_gib = int(lines.readline().split()[1]) / 1024**2
    machine = models[0] if models else platform.machine()
    return {
        "measured": datetime.now(UTC).date().isoformat(),
        "on": f"{machine}, {len(models)} cores, {memory_gib:.0f} GiB",
        "load when it began": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
    } | {name: version(name) for name in PACKAGES}


def _names(only: str) -> list[str]:
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in SECTIONS:
            known = ", ".join(SECTIONS)
            raise typer.BadParameter(f"unknown section {name!r}: the known ones are {known}")
    return names


def _ranges(text: str) -> tuple[int, ...]:
    try:
        ranges = tuple(int(word) for word in text.split(","))
    except ValueError:
        ranges = ()
    if not ranges or any(one < 1 or 100 % one for one in ranges):
        raise typer.BadParameter(
            f"--spark-ranges {text!r}: give divisors of 100 (partitions a member), as in 1,10,100"
        )
    return ranges


if __name__ == "__main__":
    typer.run(main)
