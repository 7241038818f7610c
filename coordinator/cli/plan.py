"""`muster plan`, `apply`, `approve`, `reject`, `rollback`, `plans`: see a target before it is one.

`plan` and `rollback` read a store and change nothing. The others ask its coordinator.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from assignors import SpecError
from coordinator.api.plans import NAMED, summarize, tell_decision
from coordinator.cli import plan_files, render
from coordinator.cli.inspect import say_watched
from coordinator.cli.main import load_config
from coordinator.cli.options import (
    ConfigOption,
    GroupArgument,
    JsonOption,
    ReasonOption,
    StoreOption,
    choice,
)
from coordinator.cli.terminal import Terminal
from coordinator.clock import wall_ms
from coordinator.config import Config, ConfigError
from coordinator.config.kafka import group_settings
from coordinator.core.plans.planner import PlanOptions, ShownPlan, make_plan, make_rollback
from coordinator.core.state.records import PlanMade
from coordinator.display import progress
from coordinator.display.printable import as_json, visible_values
from coordinator.engines.engine import LOCAL, open_engine
from coordinator.history.findings import Finding, examine, find_end
from coordinator.history.former_targets import read_basis, read_former_targets
from coordinator.history.log_reader import LogReader, open_logs
from coordinator.history.log_rows import LogRows
from coordinator.history.plan_view import STATUSES
from coordinator.history.view_rows import list_rows
from coordinator.runtime.ask_coordinator import ask_coordinator, user_name
from coordinator.runtime.plan_tasks.plan_weights import read_plan_loads
from coordinator.storage.shards import store_of

Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the plan to this file, for `apply`.")
]
RESTLESS = ("unowned_partitions", "ownership_gaps", "flapping_partitions")
"""What the command adds to a plan for a group that Kafka coordinates."""
PlanId = Annotated[str, typer.Argument(help="The plan's id, as `muster plans` lists it.")]


def plan(
    group: GroupArgument,
    store: StoreOption,
    assignor: Annotated[str, typer.Option(help="Use this assignor instead of the group's.")] = "",
    setting: Annotated[
        list[str] | None,
        typer.Option(help="A group setting for this plan, name=value; repeat for more."),
    ] = None,
    max_moves: Annotated[
        int | None, typer.Option(help="The most partitions to take from members.")
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(help="Plan as if this member had left; the plan cannot be applied."),
    ] = None,
    add: Annotated[
        int, typer.Option(help="Plan as if this many members joined; the plan cannot be applied.")
    ] = 0,
    drain: Annotated[
        list[str] | None, typer.Option(help="Empty this member: instance id or member id.")
    ] = None,
    undrain: Annotated[
        list[str] | None, typer.Option(help="Let a drained member own partitions again.")
    ] = None,
    weights: Annotated[
        str,
        typer.Option(
            help="Weights, capacities and constraints for this plan alone: a folder of tables, or "
            "kafka://host:port; the plan cannot be applied."
        ),
    ] = "",
    reason: ReasonOption = "",
    as_of: Annotated[
        str | None, typer.Option(help="Plan for the group as of a position or time.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Where to compute: local, or spark for a very large group.")
    ] = LOCAL,
    output: Output = None,
    json_: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Show the target that a group would get: its moves, their cost and their benefit.

    The group is not touched. `muster apply` makes the plan's target the group's. For a group that a
    Kafka cluster coordinates, the plan is what Muster would do: it can only be shown.

    Example: `muster plan billing --store store --drain worker-3 -o plan.json`
    """
    settings = load_config(config)
    wanted = _parse_settings(settings, setting or [], max_moves)
    options = PlanOptions(
        assignor, wanted, without or (), add, drain or (), undrain or (), user_name(), reason
    )
    compute = open_engine(engine, settings).compute
    with progress.show("reading the group"):
        reading = LogReader(store_of(store, group), as_of)
        basis = read_basis(reading, settings, group)
        findings = _find_restless(reading, group, as_of) if basis.supposes else []
    say_watched(reading)
    if basis.supposes:  # on record for a group that Kafka coordinates is its lag alone, if known
        weights = weights or settings.weights.source
    if weights:
        with progress.show("reading the weights"):
            loads = read_plan_loads(weights, settings, basis)
        options = replace(options, loads=loads)
    with progress.show("computing the plan"):
        shown = make_plan(basis, options, settings, wall_ms(), compute)
    _show(shown, output, findings, json_=json_)


def rollback(
    group: GroupArgument,
    store: StoreOption,
    to: Annotated[int, typer.Option(help="The group epoch to whose target to return.")],
    reason: ReasonOption = "",
    output: Output = None,
    json_: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Plan to return to the target of an earlier epoch, without what no longer exists.

    Example: `muster rollback billing --store store --to 7 -o plan.json`
    """
    settings = load_config(config)
    options = PlanOptions(owner=user_name(), reason=reason)
    with progress.show("reading the group"):
        reading = LogReader(store_of(store, group))
        basis = read_basis(reading, settings, group)
        targets = read_former_targets(reading, basis, to)
    shown = make_rollback(basis, targets, to, options, settings, wall_ms())
    _show(shown, output, (), json_=json_)


def apply(
    file: Annotated[Path, typer.Argument(help="The plan, as `muster plan -o` wrote it.")],
    store: StoreOption,
    rebase: Annotated[
        bool,
        typer.Option(
            "--rebase", help="Plan again for the group's current state, and show the differences."
        ),
    ] = False,
    propose: Annotated[
        bool, typer.Option("--propose", help="Let the plan wait for `muster approve`.")
    ] = False,
    reason: ReasonOption = "",
    output: Output = None,
    json_: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Make a plan's target the group's target; refused if the group has changed since.

    Example: `muster apply plan.json --store store`
    """
    settings = load_config(config)
    made = plan_files.read_plan(file)
    if rebase:
        _rebase(made, store, settings, output, json_=json_)
        return
    if output is not None:
        raise SpecError(f"--output {output} goes with --rebase: add it, or leave --output out")
    with progress.show("asking the coordinator"):
        epoch = ask_coordinator(
            store_of(store, made.group_id),
            settings,
            "propose" if propose else "apply",
            made.group_id,
            made.plan_id,
            made,
            reason,
        )
    _say_done(made.group_id, made.plan_id, "propose" if propose else "apply", epoch, json_=json_)


def approve(
    group: GroupArgument,
    plan_id: PlanId,
    store: StoreOption,
    reason: ReasonOption = "",
    json_: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Apply a plan that waits for approval.

    Example: `muster approve billing 5f0c --store store`
    """
    settings = load_config(config)
    with progress.show("asking the coordinator"):
        epoch = ask_coordinator(
            store_of(store, group), settings, "approve", group, plan_id, reason=reason
        )
    _say_done(group, plan_id, "approve", epoch, json_=json_)


def reject(
    group: GroupArgument,
    plan_id: PlanId,
    store: StoreOption,
    reason: ReasonOption = "",
    json_: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Reject a plan that waits for approval.

    Example: `muster reject billing 5f0c --store store --reason "not before Monday"`
    """
    settings = load_config(config)
    with progress.show("asking the coordinator"):
        ask_coordinator(store_of(store, group), settings, "reject", group, plan_id, reason=reason)
    _say_done(group, plan_id, "reject", 0, json_=json_)


def plans(
    store: StoreOption,
    group: Annotated[str | None, typer.Argument(help="Only plans of this group.")] = None,
    status: Annotated[
        str | None,
        choice("--status", STATUSES, "Only plans of this status."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """List plans and their outcome.

    Example: `muster plans billing --store store --status waiting`
    """
    with progress.show("reading the plans"):
        logs = open_logs(store, None, group)
        rows = [row for log in logs for row in list_rows(log, "plans", group)]
        rows.sort(key=lambda row: row["group_id"])  # stable: by position in a group
    for log in logs:
        say_watched(log)
    if status is not None:
        rows = [row for row in rows if row["status"] == status]
    if json_ or not sys.stdout.isatty():
        for row in rows:
            sys.stdout.write(as_json(row) + "\n")
    else:
        render.print_plans(Terminal(), rows)


def _find_restless(reading: LogReader, group: str, as_of: str | None) -> list[Finding]:
    """Return the partitions without owner, now or in the last hour, and those that flap."""
    end_ms = find_end(reading, as_of, wall_ms())
    return examine(LogRows(reading, group), end_ms, names=RESTLESS)


def _parse_settings(config: Config, given: list[str], max_moves: int | None) -> dict[str, str]:
    found: dict[str, object] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--setting is {text!r}: give name=value")
        found[name] = value
    if max_moves is not None:
        found["consumer.assignor.max.moves"] = max_moves
    return group_settings(config.kafka, found)


def _rebase(
    made: PlanMade, store: str, config: Config, output: Path | None, *, json_: bool
) -> None:
    """Plan again as it was asked then, and show which moves are others."""
    basis = read_basis(LogReader(store_of(store, made.group_id)), config, made.group_id)
    options = PlanOptions(
        made.assignor,
        made.settings,
        drain=made.drains,
        undrain=made.undrains,
        owner=user_name(),
        reason=made.reason,
    )
    shown = make_plan(basis, options, config, wall_ms())
    old, new = set(made.moves), set(shown.plan.moves)
    rows = [{"change": "no longer", **_move_row(one)} for one in made.moves if one not in new]
    rows += [{"change": "now", **_move_row(one)} for one in shown.plan.moves if one not in old]
    if output is not None:
        plan_files.write_plan(output, shown.plan)
    if json_ or not sys.stdout.isatty():
        for row in rows:
            sys.stdout.write(as_json(row) + "\n")
        sys.stdout.write(as_json(_summary(shown.plan)) + "\n")
        return
    console = Terminal()
    console.print("the plan is the same" if not rows else f"{len(rows)} moves differ")
    if rows:
        render.print_rows(console, visible_values(rows))
    render.print_plan_summary(console, _summary(shown.plan))


def _show(
    shown: ShownPlan, output: Path | None, findings: Sequence[Finding], *, json_: bool
) -> None:
    if output is not None:
        plan_files.write_plan(output, shown.plan)
    moves = [_move_row(one) for one in shown.plan.moves]
    if json_ or not sys.stdout.isatty():
        for row in moves:
            sys.stdout.write(as_json(row) + "\n")
        row = msgspec.to_builtins(summarize(shown.plan, shown.overloaded, findings))
        sys.stdout.write(as_json(row) + "\n")
        return
    members = [
        {
            "member": row["member_id"],
            "owns": row["load"],
            "owned": row["owned"],
            "gains": row["gained"],
            "loses": row["lost"],
        }
        for row in shown.report.members.to_pylist()
        if row["gained"] or row["lost"]
    ]
    console = Terminal()
    if moves:
        render.print_rows(console, visible_values(moves))
        render.print_rows(console, visible_values(members))
    render.print_plan_summary(console, _summary(shown.plan))
    render.print_overloaded(console, shown.overloaded, NAMED)
    if findings:
        render.print_findings(console, findings)


def _move_row(move: Any) -> dict[str, Any]:  # noqa: ANN401 - a PlannedMove
    row: dict[str, Any] = msgspec.structs.asdict(move)
    del row["topic_id"]
    return row


def _summary(made: PlanMade) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(summarize(made))
    return row


def _say_done(group_id: str, plan_id: str, action: str, epoch: int, *, json_: bool) -> None:
    found = tell_decision(group_id, plan_id, action, epoch)
    if json_ or not sys.stdout.isatty():
        sys.stdout.write(as_json(found) + "\n")
    else:
        began = f" as group epoch {epoch}" if epoch else ""
        typer.echo(f"plan {plan_id} of group {group_id}: {found['decision']}{began}")
