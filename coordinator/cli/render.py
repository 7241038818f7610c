"""Print views of a store as tables for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from coordinator.display.printable import visible_values
from coordinator.history.epoch_views import NOTICED
from coordinator.history.findings import Finding
from coordinator.history.json_rows import to_json_rows

Row = Mapping[str, Any]

RANGE_PARTS = {"topic_id", "last_partition", "partition_count"}
"""Of a finding's range, what is not shown beside its partitions."""
ROWS_SHOWN = 1_000
"""How many rows a table shows at most; JSON has all."""


def print_rows(console: Console, rows: Sequence[Row], names: Sequence[str] | None = None) -> None:
    """Print columns of rows as a table."""
    table = Table()
    for name in names or (rows[0] if rows else ()):
        numbers = all(isinstance(row[name], int | float | None) for row in rows)
        # Cells wrap: a truncated id would be useless.
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows[:ROWS_SHOWN]:
        table.add_row(*(_format_cell(row[name]) for name in names or row))
    console.print(table)
    if len(rows) > ROWS_SHOWN:
        console.print(f"… these are the first {ROWS_SHOWN:,} rows; --json prints all")


def print_facts(console: Console, row: Row) -> None:
    """Print a row as a table of names and values."""
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in row.items():
        table.add_row(name, _format_cell(value))
    console.print(table)


def print_groups(console: Console, rows: Sequence[Row]) -> None:
    """Print rows of `groups`."""
    names = ["group_id", "state", "group_epoch", "assignment_epoch", "assignor", "members"]
    if any(row["shard"] is not None for row in rows):
        names.append("shard")
    print_rows(console, visible_values(rows[: ROWS_SHOWN + 1]), names)


def print_description(console: Console, found: Row) -> None:
    """Print a group, its members, and its offsets if there are any."""
    found = visible_values(found)
    of_shard = "" if found["shard"] is None else f" of shard {found['shard']}"
    console.print(
        f"{found['group_id']}: {found['group_state']}, group epoch {found['group_epoch']}, "
        f"assignment epoch {found['assignment_epoch']}, assignor {found['assignor_name'] or '-'}; "
        f"as of position {found['position']}{of_shard}, {_format_time(found['at'])} UTC"
    )
    members = [
        {
            "member": _format_member(member),
            "client": _format_client(member),
            "state": member["member_state"],
            "epoch": member["member_epoch"],
            "owns": _format_partitions(member["assignment"]),
            "gives up": _format_partitions(member["pending_revocation"]),
            "will own": _format_partitions(member["target_assignment"]),
        }
        for member in found["members"]
    ]
    if members:
        print_rows(console, members)
    if found["offsets"]:
        print_rows(console, found["offsets"])


def print_plan_summary(console: Console, found: Row) -> None:
    """Print what a plan does, and what it is worth."""
    found = visible_values([found])[0]
    bound = found["lower_bound"]
    least = "-" if bound is None else f"{bound:.6g}"
    console.print(
        f"plan {found['plan_id']} of group {found['group_id']}, made for group epoch "
        f"{found['group_epoch']}, by {found['assignor']}, "
        f"until {_format_time(found['expires_at'])} UTC"
    )
    console.print(
        f"{found['moved']:,} of {found['partitions']:,} partitions move "
        f"(weight {found['moved_weight']:.6g}), {found['placed']:,} are placed; "
        f"{found['members']:,} members"
    )
    console.print(
        f"makespan {found['makespan_before']:.6g} → {found['makespan_after']:.6g}, "
        f"at least {least}; weight in another rack "
        f"{found['distant_before']:.6g} → {found['distant_after']:.6g}; "
        f"weights known for {found['weights_known']:,} partitions"
    )
    if found["supposes"]:
        console.print(f"supposes a group {found['supposes']}: it cannot be applied")


def print_overloaded(console: Console, overloaded: Sequence[tuple[str, float]], named: int) -> None:
    """Print who has more now than any member must have at the best."""
    if not overloaded:
        return
    rows = visible_values([{"member": name, "load": f"{load:.6g}"} for name, load in overloaded])
    more = len(rows) - named
    named_members = ", ".join(f"{row['member']} ({row['load']})" for row in rows[:named])
    console.print(f"overloaded now: {named_members}" + (f", and {more:,} more" if more > 0 else ""))


def print_plans(console: Console, rows: Sequence[Row]) -> None:
    """Print rows of `plans`."""
    names = (
        *("group_id", "plan_id", "status", "group_epoch", "moved", "placed", "principal", "reason"),
        *("decided_by", "decision_reason", "applied_epoch"),
    )
    print_rows(console, visible_values(rows[: ROWS_SHOWN + 1]), names)


def print_history(console: Console, rows: Sequence[Row]) -> None:
    """Print rows of `assignment_history`."""
    shown = [
        {
            "topic": row["topic"],
            "partitions": _format_range(row),
            "owner": "\n".join(filter(None, (_format_member(row), _format_client(row)))),
            "since (UTC)": _format_turn(
                row, "since", "assignment_epoch", "reason", "reason_member_id"
            ),
            "until (UTC)": _format_turn(
                row, "until", "until_epoch", "until_reason", "until_member_id"
            ),
        }
        for row in visible_values(rows[: ROWS_SHOWN + 1])
    ]
    print_rows(console, shown)


def print_epochs(console: Console, epochs: Sequence[Row], *, is_watched: bool = False) -> None:
    """Print epochs, each with the partitions that members lost and gained by it."""
    for epoch in visible_values(epochs):
        # The member did not cause these: it only sent the first heartbeat afterwards.
        without_cause = epoch["reason"] in NOTICED or epoch["member_id"] is None
        why = _format_reason(
            epoch["group_epoch"], epoch["reason"], None if without_cause else _format_named(epoch)
        )
        began = f"{_format_time(epoch['recorded_at'])} UTC"
        console.print(f"{began}  {why}", style="bold", soft_wrap=True)
        for change in epoch["topics_changed"] or ():
            console.print(f"  {change}")
        console.print(f"  {_format_target(epoch, is_watched=is_watched)}")
        for verb in ("lost", "got"):
            for owner, ranges in _format_by_member(epoch[verb]).items():
                console.print(f"  {owner} {verb} {ranges}", soft_wrap=True)


def print_partition(console: Console, found: Row) -> None:
    """Print who has a partition, who could have it, and what decided."""
    found = visible_values([found])[0]
    console.print(
        f"{found['topic']}/{found['partition']} of {found['group_id']}, target of epoch "
        f"{found['assignment_epoch']} by {found['assignor']}: {found['owner'] or 'no member'}"
    )
    console.print(f"decided by {found['decided_by']}: {found['decision']}")
    rows = [
        {
            "member": one["member_id"],
            "had it": "yes" if one["had"] else "",
            "level with it": f"{one['level']:.6g}",
            "before": "" if one["before"] is None else f"{one['before']:.6g}",
            "near a replica": {True: "yes", False: "no", None: ""}[one["local"]],
            "could not": one["refused"] or "",
        }
        for one in found["candidates"]
    ]
    if rows:
        print_rows(console, rows)


def print_findings(console: Console, found: Sequence[Finding]) -> None:
    """Print what is wrong with groups: a table for each finding."""
    if not found:
        console.print("nothing found")
    for one in found:
        console.print(f"{one.level}: {one.title} ({one.name})", style="bold", soft_wrap=True)
        rows = visible_values(to_json_rows(one.rows.slice(0, ROWS_SHOWN + 1)))
        times = {field.name for field in one.rows.schema if pa.types.is_timestamp(field.type)}
        shown = [_format_finding(row, times) for row in rows]
        used = [name for name in shown[0] if any(row[name] not in {None, ""} for row in shown)]
        print_rows(console, shown, used)


def _format_finding(row: Row, times: Collection[str]) -> Row:
    """Return a row of a finding with its range as one value, and times and lists as texts."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if name == "first_partition":
            found["partitions"] = _format_range(row)
        elif name in times:
            found[f"{name} (UTC)"] = value and _format_time(value)
        elif name not in RANGE_PARTS:
            found[name] = ", ".join(value) if isinstance(value, list) else value
    return found


def _format_target(epoch: Row, *, is_watched: bool) -> str:
    if epoch["assignment_epoch"] is None:
        return "no target yet"
    if epoch["assignment_epoch"] != epoch["group_epoch"]:
        return f"in the target of epoch {epoch['assignment_epoch']}"
    if epoch["assignor"] is None and is_watched:
        known = epoch["moved"] is not None
        return f"target by Kafka, {epoch['moved']:,} moved" if known else "target by Kafka"
    if epoch["assignor"] is None:
        return "no member to assign to"
    partial = ", limited by max.moves" if epoch["partial"] else ""
    return f"target by {epoch['assignor']}, {epoch['moved']:,} moved{partial}"


def _format_by_member(ranges: Iterable[Row]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for row in ranges:
        found.setdefault(_format_named(row), []).append(f"{row['topic']} {_format_range(row)}")
    return {member_id: ", ".join(parts) for member_id, parts in sorted(found.items())}


def _format_turn(row: Row, at: str, epoch: str, reason: str, member_id: str) -> str:
    if row[at] is None:
        return "now"
    return f"{_format_time(row[at])}\n{_format_reason(row[epoch], row[reason], row[member_id])}"


def _format_reason(epoch: int | None, reason: str | None, member_id: str | None) -> str:
    parts = [] if epoch is None else [f"epoch {epoch}"]
    if reason:
        parts.append(reason if member_id is None else f"{reason} ({member_id})")
    return ": ".join(parts)


def _format_member(row: Row) -> str:
    instance_id = row["instance_id"]
    return str(row["member_id"]) + (f" ({instance_id})" if instance_id else "")


def _format_client(row: Row) -> str:
    """Return the client id and host of a member, if known."""
    return " ".join(filter(None, (row["client_id"], row["client_host"])))


def _format_named(row: Row) -> str:
    """Return a member and its client on one line."""
    client = _format_client(row)
    return f"{_format_member(row)} [{client}]" if client else _format_member(row)


def _format_range(row: Row) -> str:
    first, count = row["first_partition"], row["partition_count"]
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _format_partitions(assignment: Row) -> str:
    return "\n".join(
        f"{topic['topic_name']} {', '.join(_format_runs(topic['partitions']))}"
        for topic in assignment["topic_partitions"]
    )


def _format_runs(partitions: Sequence[int]) -> list[str]:
    """Format sorted numbers, consecutive ones as a range."""
    runs: list[list[int]] = []
    for partition in partitions:
        if runs and runs[-1][1] == partition - 1:
            runs[-1][1] = partition
        else:
            runs.append([partition, partition])
    return [str(low) if low == high else f"{low}-{high}" for low, high in runs]


def _format_time(text: str) -> str:
    """Format a time for people, in UTC."""
    return text[:19].replace("T", " ")


def _format_cell(value: object) -> str:
    return "" if value is None else str(value)
