"""Reports for people and for machines: rich tables, JSON, and a plot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from assignors import SpecError
from assignors.quality import Report

_BARS_MAX = 60
_PLOT_SUFFIXES = (".png", ".svg")
_CHANGES_SHOWN = 20


def as_json(value: dict[str, Any]) -> str:
    """Return one line of JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def print_totals(console: Console, title: str, totals: dict[str, Any]) -> None:
    """Print what is known of an assignment in one table."""
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    loads = totals["loads"]
    table.add_row("members, partitions", f"{totals['members']:,}, {totals['partitions']:,}")
    table.add_row(
        "loads", f"{loads['min']:,} … {loads['max']:,}, mean {loads['mean']:,.2f}, "
        f"spread {loads['spread']:,}"
    )  # fmt: skip
    table.add_row("moved", _moved(totals))
    table.add_row("orphans placed", f"{totals['orphans']:,}")
    if "ranges" in totals:
        table.add_row("ranges", f"{totals['ranges']:,}, at most {totals['ranges_max']:,} a member")
    if totals.get("contested"):
        table.add_row("claimed twice", f"{totals['contested']:,}: the first member keeps them")
    if totals["partial"]:
        table.add_row("partial", "max-moves cut this target short; assign again to go on")
    if "valid" in totals:
        table.add_row("valid", "yes" if totals["valid"] else "; ".join(totals["problems"]))
    console.print(table)


def _moved(totals: dict[str, Any]) -> str:
    text, least = f"{totals['moved']:,}", totals["moved_minimum"]
    if least is None:
        bound = totals.get("moved_lower_bound")
        return text if bound is None else f"{text}, lower bound for these loads {bound:,}"
    if totals["exact"]:
        return f"{text}, the minimum is {least:,}"
    gap = totals["moved"] - least
    return f"{text}, proven lower bound {least:,}, gap {gap:,} (plan.exact_edges)"


def print_report(console: Console, title: str, report: Report, members_shown: int) -> None:
    """Print totals, the members with the greatest and smallest loads, and why things moved."""
    print_totals(console, title, report.totals())
    _print_members(console, report.members, members_shown)
    _print_changes(console, report)


def _print_members(console: Console, members: pa.Table, shown: int) -> None:
    table = Table(title="members", title_justify="left")
    for name in members.column_names:
        table.add_column(name, justify="left" if name == "member_id" else "right")
    rows, skipped = members, len(members) - shown
    if skipped > 0:
        order = np.argsort(-members["load"].to_numpy(), kind="stable")
        head = order[: (shown + 1) // 2]
        rows = members.take(pa.array(np.concatenate([head, order[len(order) - shown // 2 :]])))
        table.title = f"members: the fullest and the emptiest, {skipped:,} between them left out"
    for row in rows.to_pylist():
        table.add_row(*[str(value) for value in row.values()])
    console.print(table)


def _print_changes(console: Console, report: Report) -> None:
    reasons = Table(title="why partitions got another owner", title_justify="left")
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
        changes.add_row(span, row["from_member_id"] or "-", row["to_member_id"], row["reason"])
    if len(report.changes) > _CHANGES_SHOWN:
        changes.add_row(f"… {len(report.changes) - _CHANGES_SHOWN:,} more (--json has all)")
    console.print(changes)


def plot_path(path: str) -> str:
    """Check where a plot goes before anything is computed.

    Raises
    ------
    SpecError
        The name ends in neither .png nor .svg, or its folder is not there.
    """
    if not path.endswith(_PLOT_SUFFIXES):
        raise SpecError(f"--plot {path!r}: give a name that ends in .png or .svg")
    if not Path(path).absolute().parent.is_dir():
        raise SpecError(f"--plot {path!r}: the folder is not there")
    return path


def plot(report: Report, title: str, path: str) -> None:
    """Draw loads before and after, and what moved and why."""
    import matplotlib as mpl  # noqa: PLC0415 - a second to import, and only plots need it

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    before = report.members["owned"].to_numpy()
    after = report.members["load"].to_numpy()
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5), width_ratios=(2, 1))
    if len(after) <= _BARS_MAX:
        at = np.arange(len(after))
        left.bar(at - 0.2, before, 0.4, label="before", color="#9aa5b1")
        left.bar(at + 0.2, after, 0.4, label="after", color="#1f77b4")
        left.set_xticks(at, report.members["member_id"].to_pylist(), rotation=90, fontsize=7)
    else:
        left.plot(np.sort(before)[::-1], label="before", color="#9aa5b1", drawstyle="steps-mid")
        left.plot(np.sort(after)[::-1], label="after", color="#1f77b4", drawstyle="steps-mid")
        left.set_xlabel("members, fullest first")
    left.set_ylabel("partitions")
    left.set_ylim(0, 1.1 * max(1, int(before.max(initial=0)), int(after.max(initial=0))))
    left.locator_params(axis="y", integer=True)
    left.set_title(f"loads: {report.load_min:,} … {report.load_max:,}")
    left.legend()
    reasons = report.reasons()
    stayed = int(before.sum()) - report.moved
    names, counts = ["stayed", *reasons], [stayed, *reasons.values()]
    bars = right.barh(names, counts, color=["#9aa5b1"] + ["#d62728"] * len(reasons))
    right.bar_label(bars, labels=[f"{count:,}" for count in counts], padding=3, fontsize=8)
    right.margins(x=0.2)
    right.invert_yaxis()
    right.locator_params(axis="x", integer=True)
    right.set_title(f"moved {report.moved:,}, orphans placed {report.orphans:,}")
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
