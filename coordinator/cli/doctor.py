"""`muster doctor`: what is wrong with the groups of a store."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Annotated

import typer

from assignors import SpecError
from coordinator.cli import render
from coordinator.cli.inspect import print_json, say_watched, wants_json
from coordinator.cli.main import FAILURE, load_config
from coordinator.cli.options import AsOfOption, ConfigOption, JsonOption, StoreOption
from coordinator.cli.terminal import Terminal
from coordinator.clock import wall_ms
from coordinator.core.bounded import INT32_MAX
from coordinator.display import progress
from coordinator.history.findings import (
    LEVELS,
    Level,
    Limits,
    examine,
    find_end,
    join_findings,
    to_json,
)
from coordinator.history.findings.limits import MINUTE_MS, parse_length
from coordinator.history.log_reader import open_logs
from coordinator.history.log_rows import LogRows

SKEW_LEAST = 1.0
Group = Annotated[str | None, typer.Argument(help="Only this group.")]
DEFAULTS = Limits()


def doctor(
    store: StoreOption,
    group: Group = None,
    window: Annotated[str, typer.Option(help="How far back to look: 90s, 15m, 1h, 7d.")] = "1h",
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Look only for this; repeat for more. One of {', '.join(LEVELS)}."),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(help="Leave this out, named as for --only; repeat for more."),
    ] = None,
    patience: Annotated[
        str, typer.Option(help="How long a rebalance may take, and a partition be without owner.")
    ] = "1m",
    rebalances: Annotated[
        int,
        typer.Option(help="How many rebalances an hour are acceptable; two a member are."),
    ] = DEFAULTS.rebalances,
    flaps: Annotated[
        int, typer.Option(help="How many returns, or changes of owner, count as flapping.")
    ] = DEFAULTS.flaps,
    skew: Annotated[
        float, typer.Option(help="How many times its share a member may have.")
    ] = DEFAULTS.skew,
    expires: Annotated[
        str, typer.Option(help="Report offsets that expire within this time.")
    ] = "1d",
    as_of: AsOfOption = None,
    json_: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Find what is wrong with the groups of a store, or with one of them.

    Exits with 1 if there is a problem, or anything that --only asks for; otherwise with 0. Notes,
    which may be intentional, count only with --only.

    Example: `muster doctor billing --store store --window 1d`
    """
    limits = Limits(
        parse_length("--window", window),
        parse_length("--patience", patience),
        _check_count("--rebalances", rebalances, 0),
        _check_count("--flaps", flaps, 1),
        _check_skew(skew),
        parse_length("--expires", expires),
        load_config(config).kafka.offsets_retention_minutes * MINUTE_MS,
    )
    names = _check_names("--only", only or LEVELS) - _check_names("--skip", skip or ())
    if not names:
        raise SpecError("--only and --skip leave nothing to look for: name other findings")
    with progress.show("looking at the groups"):
        readings = open_logs(store, as_of, group)
        logs = [LogRows(reading, group) for reading in readings]
        if group is not None and not logs[0].has_group():
            raise readings[0].unknown(group)
        ends = [find_end(reading, as_of, wall_ms()) for reading in readings]
        parts = map(examine, logs, ends, repeat(limits), repeat(names))
        found = join_findings(parts)
    say_watched(readings[0])
    if wants_json(json_):
        for one in found:
            print_json(to_json(one))
    else:
        render.print_findings(Terminal(), found)
    if any(only or one.level is Level.PROBLEM for one in found):
        raise SystemExit(FAILURE)


def _check_names(option: str, names: Iterable[str]) -> set[str]:
    for name in names:
        if name not in LEVELS:
            raise SpecError(f"{option} is {name!r}: give one of {', '.join(LEVELS)}")
    return set(names)


def _check_count(option: str, value: int, least: int) -> int:
    if not least <= value <= INT32_MAX:
        raise SpecError(f"{option} is {value}: give {least} or more, up to {INT32_MAX}")
    return value


def _check_skew(skew: float) -> float:
    if not SKEW_LEAST <= skew <= INT32_MAX:
        raise SpecError(f"--skew is {skew}: give 1 or more, up to {INT32_MAX}, such as 1.5")
    return skew
