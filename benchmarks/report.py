"""The report: sections of tables, shown on the terminal and kept in docs/.

docs/design/benchmarks.json holds what was measured; docs/design/benchmarks.md is drawn from it. A
run of some sections replaces those and leaves the others as they were, each with the date and
machine it was measured on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.measure import REFERENCE_SORT_MS, Figure, Sort

FIGURES_HEAD = ("what", "median", "least … most", "runs", "sorts")
GOALS_HEAD = ("what", "goal", "goal here", "measured", "reached")

HEADER = """\
# Benchmarks

`make bench` writes this page; `python -m benchmarks --only grid,large` measures some sections
and leaves the others unchanged. Unless a table says otherwise, times are CPU milliseconds of
one process, as medians of several runs. `benchmarks.json` has the minimum, the maximum and the
number of runs of each figure.

One *sort* is `np.sort` of 10⁷ random float64 in the same run. It makes figures of different
machines comparable: goals in ms are for a machine where a sort takes {reference:.0f} ms, and scale
with it. If numpy uses AVX-512, the sort is also measured without it (`NPY_DISABLE_CPU_FEATURES`),
and the faster one is the unit: on AMD's Zen 4, numpy's AVX-512 sort takes six times as long as its
AVX2 sort, and would make every goal six times easier.
"""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of text under a head."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """What one module measured.

    Attributes
    ----------
    figures
        All of them; those with a goal are also listed at the top of the document.
    tables
        How to show them; none for a plain table of the figures.
    text
        What was measured, and what there is to say about it.
    """

    title: str
    text: str
    figures: Sequence[Figure]
    tables: Sequence[Table] = field(default=())


@dataclass(frozen=True, slots=True)
class Measured:
    """A section with when and where it was measured."""

    section: Section
    sort: Sort
    about: dict[str, str]

    def tables(self) -> list[Table]:
        """Return the tables to show."""
        if self.section.tables:
            return list(self.section.tables)
        rows = [_row(figure, self.sort) for figure in self.section.figures]
        return [Table("", FIGURES_HEAD, rows)]

    def goals(self) -> list[list[str]]:
        """Return a row a figure that has a goal."""
        return [_goal(f, self.sort) for f in self.section.figures if f.goal is not None]

    def to_json(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Measured:
        """Read what `to_json` returned."""
        section = found["section"]
        figures = tuple(Figure(**figure) for figure in section["figures"])
        tables = tuple(Table(**table) for table in section["tables"])
        whole = Section(section["title"], section["text"], figures, tables)
        return cls(whole, Sort(**found["sort"]), found["about"])


def load(path: Path) -> dict[str, Measured]:
    """Read the sections measured before; none without the file."""
    if not path.exists():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    return {name: Measured.from_json(entry) for name, entry in found.items()}


def write(folder: Path, sections: dict[str, Measured]) -> None:
    """Write benchmarks.json and benchmarks.md."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: measured.to_json() for name, measured in sections.items()}
    text = json.dumps(kept, indent=1, ensure_ascii=False)
    (folder / "benchmarks.json").write_text(text + "\n", encoding="utf-8")
    (folder / "benchmarks.md").write_text(markdown(sections), encoding="utf-8")


def markdown(sections: dict[str, Measured]) -> str:
    """Return the whole document."""
    goals = [row for measured in sections.values() for row in measured.goals()]
    header = HEADER.format(reference=REFERENCE_SORT_MS)
    parts = [header, "## Figures to reach\n", _markdown_table(Table("", GOALS_HEAD, goals))]
    for measured in sections.values():
        parts += [f"## {measured.section.title}\n", _about(measured), measured.section.text]
        parts += [_markdown_table(table) for table in measured.tables()]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def show(console: Console, measured: Measured) -> None:
    """Print a section for people."""
    console.print(f"\n[bold]{measured.section.title}[/bold]")
    tables = measured.tables()
    if goals := measured.goals():
        tables.append(Table("goals", GOALS_HEAD, goals))
    for table in tables:
        out = RichTable(title=table.title or None, title_justify="left")
        for at, name in enumerate(table.head):
            out.add_column(name, justify="right" if at else "left", overflow="fold")
        for row in table.rows:
            out.add_row(*row)
        console.print(out)


def number(value: float) -> str:
    """Write a figure with three digits that count: 0.0123, 1.24, 1,784."""
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:#.2g}"


def _row(figure: Figure, sort: Sort) -> list[str]:
    sorts = number(figure.median / sort.unit_ms) if figure.unit == "ms" else ""
    span = f"{number(figure.least)} … {number(figure.most)}" if figure.runs > 1 else ""
    return [figure.name, _with_unit(figure.median, figure.unit), span, str(figure.runs), sorts]


def _goal(figure: Figure, sort: Sort) -> list[str]:
    assert figure.goal is not None, "only figures with a goal are listed"
    here = figure.goal * (sort.scale if figure.unit == "ms" else 1)
    return [
        figure.name,
        _with_unit(figure.goal, figure.unit),
        _with_unit(here, figure.unit),
        _with_unit(figure.median, figure.unit),
        "yes" if figure.median <= here else "**no**",
    ]


def _with_unit(value: float, unit: str) -> str:
    return f"{number(value)} {unit}"


def _about(measured: Measured) -> str:
    words = [f"{name} {value}" for name, value in measured.about.items()]
    sort = f"one sort {number(measured.sort.unit_ms)} ms"
    if measured.sort.plain_ms:
        sort += f" (through AVX-512 {number(measured.sort.default_ms)} ms)"
    return "*" + "; ".join([*words, sort]) + "*\n"


def _markdown_table(table: Table) -> str:
    lines = [f"**{table.title}**\n"] if table.title else []
    lines.append("| " + " | ".join(table.head) + " |")
    lines.append("|" + "---|" + "---:|" * (len(table.head) - 1))
    lines += ["| " + " | ".join(row) + " |" for row in table.rows]
    return "\n".join(lines) + "\n"
