"""Print reports as tables or JSON, and draw plots."""

from __future__ import annotations

import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from assignors import SpecError
from assignors.groups.assign_groups import GroupsAssignment
from assignors.quality import UNOWNED, Report
from coordinator.display.printable import visible
from coordinator.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_BARS_MAX = 60
_PLOT_SUFFIXES = (".png", ".svg")
_CHANGES_SHOWN = 20
_NAMES_MAX = 90
"""How many characters of member ids fit side by side on an axis; longer labels are rotated."""
_NAME_MAX = 40
_REASON_WIDTH = 18
_GROUP_COLUMNS = (
    "group_id", "members", "partitions", "load_min", "load_max", "moved", "orphans", "ranges",
    "makespan", "lower_bound", "moved_weight",
)  # fmt: skip
_BEFORE, _AFTER, _MOVED = "#9aa5b1", "#1f77b4", "#d95f02"


def print_totals(console: Console, title: str, totals: dict[str, Any]) -> None:
    """Print the totals of an assignment as a table."""
    table = Table(title=visible(title), show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    loads = totals["loads"]
    if "groups" in totals:
        table.add_row("groups", f"{totals['groups']:,}")
    table.add_row("members, partitions", f"{totals['members']:,}, {totals['partitions']:,}")
    table.add_row(
        "loads", f"{loads['min']:,} … {loads['max']:,}, mean {loads['mean']:,.2f}, "
        f"spread {loads['spread']:,}"
    )  # fmt: skip
    table.add_row("moved", _format_moved(totals))
    table.add_row("orphans placed", f"{totals['orphans']:,}")
    if "ranges" in totals:
        table.add_row(
            "ranges", f"{totals['ranges']:,}, at most {totals['ranges_max']:,} per member"
        )
    if totals.get("contested"):
        table.add_row("claimed twice", f"{totals['contested']:,}: the first member keeps them")
    for name, value in _format_weights(totals.get("weights")):
        table.add_row(name, visible(value))
    if totals["partial"]:
        table.add_row("partial", "max-moves limited this assignment; assign again to continue")
    if "valid" in totals:
        table.add_row("valid", "yes" if totals["valid"] else "; ".join(totals["problems"]))
    console.print(table)


def _format_moved(totals: dict[str, Any]) -> str:
    text, least = f"{totals['moved']:,}", totals["moved_minimum"]
    if least is None:
        bound = totals.get("moved_lower_bound")
        return text if bound is None else f"{text}, lower bound for these loads {bound:,}"
    if totals["exact"]:
        return f"{text}, the minimum is {least:,}"
    gap = totals["moved"] - least
    return f"{text}, proven lower bound {least:,}, gap {gap:,} (plan.exact_edges)"


def _format_weights(weights: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return rows on weights, where the group has them."""
    if weights is None:
        return []
    bound, gap = weights["lower_bound"], weights["gap"]
    if "furthest" in weights:
        return _format_weights_of_groups(weights)
    proved = "" if not bound else f", lower bound {bound:,.4g} ({weights['term']}), gap {gap:.2%}"
    moved, least = weights["moved_weight"], weights["moved_weight_bound"]
    distant = weights["distant_weight"]
    rows = [
        ("makespan", f"{weights['makespan']:,.4g}{proved}"),
        ("moved weight", f"{moved:,.4g}, lower bound for this makespan {least:,.4g}"),
        ("weight in other racks", f"{distant['before']:,.4g} before, {distant['after']:,.4g} now"),
        ("weights known", f"{weights['weights_known']:,} of {weights['partitions']:,}"),
    ]
    rows += [
        ("constraint broken", one["name"]) for one in weights["constraints"] if not one["holds"]
    ]
    rows += [("constraint idle", text) for text in weights["idle_constraints"]]
    rows += [(f"held: {one['member_id']}", one["held_by"]) for one in weights["held"]]
    return rows


def _format_weights_of_groups(weights: dict[str, Any]) -> list[tuple[str, str]]:
    """Return rows on the weights of many groups."""
    rows = []
    if weights["gap"] is not None:
        proved = f"lower bound {weights['lower_bound']:,.4g} ({weights['term']})"
        where = f"group {weights['furthest']!r}: makespan {weights['makespan']:,.4g}, {proved}"
        rows.append(("greatest gap", f"{weights['gap']:.2%} in {where}"))
    moved, least = weights["moved_weight"], weights["moved_weight_bound"]
    distant = weights["distant_weight"]
    return [
        *rows,
        ("moved weight", f"{moved:,.4g}, lower bound for these makespans {least:,.4g}"),
        ("weight in other racks", f"{distant['before']:,.4g} before, {distant['after']:,.4g} now"),
        ("weights known", f"{weights['weights_known']:,}"),
    ]


def print_report(console: Console, title: str, report: Report, members_shown: int) -> None:
    """Print totals, the members with the largest and smallest loads, and why partitions moved."""
    print_totals(console, title, report.totals())
    _print_members(console, report.members, members_shown)
    _print_changes(console, report)


def print_groups(console: Console, title: str, groups: GroupsAssignment, shown: int) -> None:
    """Print the totals of many groups, and the groups in which most moved."""
    print_totals(console, title, groups.totals())
    summary = groups.summary
    names = [name for name in _GROUP_COLUMNS if summary[name].null_count < len(summary)]
    order = np.argsort(-summary["moved"].to_numpy(), kind="stable")[:shown]
    table = Table(title="groups", title_justify="left")
    if len(summary) > shown:
        table.title = f"groups: those in which most moved, {len(summary) - shown:,} not shown"
    for name in names:
        table.add_column(name, justify="left" if name == "group_id" else "right")
    for row in summary.select(names).take(pa.array(order)).to_pylist():
        table.add_row(*[visible(_format_cell(value)) for value in row.values()])
    console.print(table)


def _format_cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    return "" if value is None else str(value)


def _print_members(console: Console, members: pa.Table, shown: int) -> None:
    table = Table(title="members", title_justify="left")
    for name in members.column_names:
        table.add_column(name, justify="left" if name == "member_id" else "right")
    rows, skipped = members, len(members) - shown
    if skipped > 0:
        order = np.argsort(-members["load"].to_numpy(), kind="stable")
        head = order[: (shown + 1) // 2]
        rows = members.take(pa.array(np.concatenate([head, order[len(order) - shown // 2 :]])))
        table.title = f"members: the largest and smallest loads, {skipped:,} others not shown"
    for row in rows.to_pylist():
        table.add_row(*[visible(str(value)) for value in row.values()])
    console.print(table)


def _print_changes(console: Console, report: Report) -> None:
    reasons = Table(title="why partitions changed owner", title_justify="left")
    reasons.add_column("reason")
    reasons.add_column("partitions", justify="right")
    for reason, count in report.reasons().items():
        reasons.add_row(reason, f"{count:,}")
    if report.reasons():
        console.print(reasons)
    if not len(report.changes):
        return
    changes = Table(title="changes", title_justify="left")
    for name in ("partitions", "from", "to", "reason"):
        changes.add_column(name)
    for row in report.changes.slice(0, _CHANGES_SHOWN).to_pylist():
        first, count = row["first_partition"], row["partition_count"]
        span = (
            f"{row['topic']}[{first}]"
            if count == 1
            else f"{row['topic']}[{first}…{first + count - 1}]"
        )
        cells = (span, row["from_member_id"] or "-", row["to_member_id"], row["reason"])
        changes.add_row(*map(visible, cells))
    if len(report.changes) > _CHANGES_SHOWN:
        changes.add_row(f"… {len(report.changes) - _CHANGES_SHOWN:,} more (--json has all)")
    console.print(changes)


def plot_path(path: str) -> str:
    """Check the path of a plot before anything is computed.

    Raises
    ------
    SpecError
        The name ends in neither .png nor .svg, or its folder does not exist.
    MissingExtraError
        `muster[plot]` is not installed.
    """
    if not path.endswith(_PLOT_SUFFIXES):
        raise SpecError(f"--plot {path!r}: give a name that ends in .png or .svg")
    if not Path(path).absolute().parent.is_dir():
        raise SpecError(f"--plot {path!r}: folder not found: create it first")
    require("--plot", "plot")
    return path


def plot(report: Report, title: str, path: str) -> None:
    """Draw the loads before and after, and what moved and why, to a file."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the font may lack a character of an id
        draw(report, title).savefig(path, dpi=120)


def draw(report: Report, title: str) -> Figure:
    """Return a figure of the loads before and after, and what moved and why."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - a second to import, only plots need it

    figure = Figure(figsize=(12, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    _draw_loads(left, report)
    _draw_reasons(right, report)
    figure.suptitle(_to_one_line(title), parse_math=False)  # "$" in a group id is not a formula
    return figure


def _draw_loads(axes: Axes, report: Report) -> None:
    """Draw each member's load before and after; for very many members, the sorted loads."""
    before = report.members["owned"].to_numpy()
    after = report.members["load"].to_numpy()
    if len(after) <= _BARS_MAX:
        at = np.arange(len(after))
        axes.bar(at - 0.2, before, 0.4, label="before", color=_BEFORE)
        axes.bar(at + 0.2, after, 0.4, label="after", color=_AFTER)
        names = [_shorten(name) for name in report.members["member_id"].to_pylist()]
        axes.set_xticks(at, names, parse_math=False)
        if sum(map(len, names)) > _NAMES_MAX:
            axes.tick_params(axis="x", rotation=90, labelsize=6)
    else:
        axes.plot(np.sort(before)[::-1], label="before", color=_BEFORE, drawstyle="steps-mid")
        axes.plot(np.sort(after)[::-1], label="after", color=_AFTER, drawstyle="steps-mid")
        axes.set_xlabel("members, largest load first")
        _count_by_thousands(axes.xaxis)
    axes.set_ylabel("partitions")
    axes.set_ylim(0, 1.1 * max(1, int(before.max(initial=0)), int(after.max(initial=0))))
    _count_by_thousands(axes.yaxis)
    axes.set_title(f"loads: {report.load_min:,} … {report.load_max:,}", loc="left")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)


def _draw_reasons(axes: Axes, report: Report) -> None:
    """Draw how many partitions stayed, and how many changed owner, by reason."""
    reasons = report.reasons()
    stayed = int(report.members["owned"].to_numpy().sum()) - report.moved
    names, counts = ["stayed", *reasons], [stayed, *reasons.values()]
    colours = [_BEFORE, *(_AFTER if reason == UNOWNED else _MOVED for reason in reasons)]
    bars = axes.barh([_wrap(name) for name in names], counts, color=colours)
    axes.bar_label(bars, labels=[f"{count:,}" for count in counts], padding=3, fontsize=8)
    longest = max(len(f"{count:,}") for count in counts)
    axes.set_xlim(0, max(1, *counts) * (1.1 + 0.03 * longest))  # room for the label
    axes.invert_yaxis()
    _count_by_thousands(axes.xaxis)
    axes.set_title(f"moved {report.moved:,}, orphans placed {report.orphans:,}", loc="left")


def _count_by_thousands(axis: Axis) -> None:
    """Label an axis with few whole numbers, as 1,000,000 and never as 1e6."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter  # noqa: PLC0415 - as above

    axis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _shorten(name: str) -> str:
    text, half = _to_one_line(name), _NAME_MAX // 2
    return text if len(text) <= _NAME_MAX else f"{text[: half - 1]}…{text[-half:]}"


def _to_one_line(text: str) -> str:
    """Return text on one line."""
    return "".join(letter if letter.isprintable() else "·" for letter in text)


def _wrap(reason: str) -> str:
    return textwrap.fill(reason, _REASON_WIDTH)
