"""`muster doctor`: what is wrong with the groups of a store."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from assignors import SpecError
from coordinator import progress
from coordinator.cli import render
from coordinator.cli.inspect import AsOf, Json, Store, print_json, say_watched, wants_json
from coordinator.cli.main import FAILURE, load_config
from coordinator.cli.terminal import Terminal
from coordinator.clock import wall_ms
from coordinator.history.findings import LEVELS, Level, Limits, examine, to_json
from coordinator.history.log_reader import EPOCH, MILLISECOND, LogReader, parse_as_of
from coordinator.history.log_rows import LogRows
from coordinator.history.watched import DUMP, read_watched

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LENGTH = re.compile(r"([0-9]{1,7})([smhd])\Z")
YEARS_MS = 100 * 365 * UNITS_MS["d"]
SKEW_LEAST = 1.0
Group = Annotated[str | None, typer.Argument(help="Only this group.")]
DEFAULTS = Limits()


def doctor(
    store: Store,
    group: Group = None,
    window: Annotated[str, typer.Option(help="How far back to look: 90s, 15m, 1h, 7d.")] = "1h",
    only: Annotated[
        list[str] | None, typer.Option(help="Look for this alone; repeat for more.")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option(help="Do not look for this; repeat for more.")
    ] = None,
    patience: Annotated[
        str, typer.Option(help="How long a rebalance or a partition without owner may take.")
    ] = "1m",
    rebalances: Annotated[
        int, typer.Option(help="How many an hour are not too many; two a member never are.")
    ] = DEFAULTS.rebalances,
    flaps: Annotated[
        int, typer.Option(help="How often what flaps comes back, or changes its owner.")
    ] = DEFAULTS.flaps,
    skew: Annotated[
        float, typer.Option(help="How many times its share a member may have.")
    ] = DEFAULTS.skew,
    expires: Annotated[
        str, typer.Option(help="Report offsets that expire within this time.")
    ] = "1d",
    as_of: AsOf = None,
    json_: Json = False,
    config: Annotated[Path | None, typer.Option(help="Settings, see conf/muster.toml.")] = None,
) -> None:
    """Find what is wrong with the groups of a store, or with one of them.

    Exits with 1 if there is a problem, or something that --only asks for; with 0 if not. Notes,
    which may be meant to be so, do not count otherwise.
    """
    limits = Limits(
        _parse_length("--window", window),
        _parse_length("--patience", patience),
        _check_least("--rebalances", rebalances, 0),
        _check_least("--flaps", flaps, 1),
        _check_skew(skew),
        _parse_length("--expires", expires),
        load_config(config).kafka.offsets_retention_minutes * UNITS_MS["m"],
    )
    names = _check_names("--only", only or LEVELS) - _check_names("--skip", skip or ())
    if not names:
        raise SpecError("--only and --skip leave nothing to look for: name other findings")
    with progress.show("looking at the groups"):
        reading = LogReader(store, as_of)
        log = LogRows(reading, group)
        if group is not None and not log.has_group():
            raise reading.unknown(group)
        found = examine(log, _find_now(reading, as_of), limits, names)
    say_watched(reading)
    if wants_json(json_):
        for one in found:
            print_json(to_json(one))
    else:
        render.print_findings(Terminal(), found)
    if any(only or one.level is Level.PROBLEM for one in found):
        raise SystemExit(FAILURE)


def _find_now(reading: LogReader, as_of: str | None) -> int:
    """Return the time as of which groups are judged: of a dump, that of its last record."""
    time = None if as_of is None else parse_as_of(as_of)
    if isinstance(time, datetime):
        return (time - EPOCH) // MILLISECOND
    watched = read_watched(reading)
    if time is not None or (watched is not None and watched.observed == DUMP):
        return reading.at_ms
    return max(wall_ms(), reading.at_ms)


def _parse_length(option: str, text: str) -> int:
    """Return a length of time in milliseconds.

    Raises
    ------
    SpecError
        It is none.
    """
    found = LENGTH.match(text)
    length = int(found[1]) * UNITS_MS[found[2]] if found else 0
    if not 0 < length <= YEARS_MS:
        raise SpecError(f"{option} is {text!r}: give a time such as 90s, 15m, 1h or 7d")
    return length


def _check_names(option: str, names: Iterable[str]) -> set[str]:
    for name in names:
        if name not in LEVELS:
            raise SpecError(f"{option} is {name!r}: give one of {', '.join(LEVELS)}")
    return set(names)


def _check_least(option: str, value: int, least: int) -> int:
    if value < least:
        raise SpecError(f"{option} is {value}: give {least} or more")
    return value


def _check_skew(skew: float) -> float:
    if not SKEW_LEAST <= skew < float("inf"):
        raise SpecError(f"--skew is {skew}: give 1 or more, such as 1.5")
    return skew
