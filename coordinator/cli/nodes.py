"""`muster nodes` and `muster drain`: the nodes of a store of shards, and emptying one of them."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from assignors import SpecError
from coordinator.cli import render
from coordinator.cli.inspect import print_json, wants_json
from coordinator.cli.main import load_config
from coordinator.cli.options import ConfigOption, JsonOption, ReasonOption, StoreOption
from coordinator.cli.terminal import Terminal
from coordinator.clock import wall_ms
from coordinator.config import Config
from coordinator.core.plans.inputs import find_drift
from coordinator.core.plans.planner import PlanOptions, make_plan
from coordinator.core.state.records import PlanMade
from coordinator.display import progress
from coordinator.display.printable import visible_values
from coordinator.runtime.ask_coordinator import ask_coordinator, user_name

TRIES = 5
"""How often a plan is made for nodes that change meanwhile: because of loads, or as others come."""


def nodes(
    store: StoreOption,
    shards: Annotated[
        bool, typer.Option("--shards", help="List the shards instead, each with its node.")
    ] = False,
    json_: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """List the nodes of a store of shards that are alive, and how many shards each has.

    `target` is how many it should have; a move has ended when both are the same.

    Example: `muster nodes --store store --shards`
    """
    from coordinator.history.nodes_view import list_nodes, list_owners  # noqa: PLC0415

    settings = load_config(config)
    with progress.show("reading the nodes"):
        rows = (list_owners if shards else list_nodes)(store, settings)
    if wants_json(json_):
        print_json(rows)
    else:
        render.print_rows(Terminal(), visible_values(rows))


def drain(
    node: Annotated[int, typer.Argument(help="The node's id, as `muster nodes` lists it.")],
    store: StoreOption,
    undo: Annotated[bool, typer.Option("--undo", help="Give it shards again.")] = False,
    reason: ReasonOption = "",
    json_: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Empty a node: its shards go to the others, and it gets none until it starts again.

    This applies a plan for the group of the nodes at once. The node serves its groups until the
    others have claimed its shards: `muster nodes` shows when it has none left.

    Example: `muster drain 3 --store store --reason "new disk"`
    """
    settings = load_config(config)
    with progress.show("asking the nodes"):
        made, epoch = _drain(store, settings, node, reason, undo=undo)
    row = {
        "node_id": node,
        "drained": not undo,
        "moves": sum(one.partition_count for one in made.moves),
        "plan_id": made.plan_id,
        "group_epoch": epoch,
    }
    if wants_json(json_):
        print_json([row])
    else:
        done = "gets shards again" if undo else "is drained"
        typer.echo(f"node {node} {done}: {row['moves']} shards move (plan {made.plan_id})")


def _drain(
    store: str, settings: Config, node: int, reason: str, *, undo: bool
) -> tuple[PlanMade, int]:
    """Apply a plan that empties a node, made again where the nodes changed meanwhile.

    Raises
    ------
    SpecError
        There is no such plan, or it was refused.
    """
    from coordinator.history.nodes_view import read_node  # noqa: PLC0415
    from coordinator.storage.shards import NODES, root_at  # noqa: PLC0415

    root = root_at(os.fspath(store))
    before: PlanMade | None = None
    refused: SpecError | None = None
    for _ in range(TRIES):
        basis, member_id = read_node(store, settings, node)
        drained, undrained = ((), (member_id,)) if undo else ((member_id,), ())
        options = PlanOptions(drain=drained, undrain=undrained, owner=user_name(), reason=reason)
        made = make_plan(basis, options, settings, wall_ms()).plan
        if before is not None and not find_drift(before.inputs, made.inputs):
            break
        try:
            return made, ask_coordinator(root, settings, "apply", NODES, made.plan_id, made, reason)
        except SpecError as error:
            before, refused = made, error
    assert refused is not None
    raise refused
