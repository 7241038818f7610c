"""`muster groups`, `describe`, `history`, `explain`: query a store without a JVM.

On a terminal they print tables. With `--json`, or without a terminal, they print JSON, one object
per line: the rows of the SQL view with the same content, and for `describe` the fields of Kafka's
ConsumerGroupDescribe.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
import typer

from assignors import SpecError
from coordinator.cli import render
from coordinator.cli.main import load_config
from coordinator.cli.options import AsOfOption, ConfigOption, GroupArgument, JsonOption, StoreOption
from coordinator.cli.terminal import Terminal
from coordinator.display import progress
from coordinator.display.printable import as_json, visible, visible_values
from coordinator.display.times import format_time
from coordinator.history.json_rows import to_json_rows
from coordinator.history.log_reader import LogReader, open_logs
from coordinator.history.past_target import can_explain, explain_past_partition
from coordinator.history.view_rows import (
    describe_with_offsets,
    explain_epochs,
    list_rows,
    pick_owned,
    read_rows,
)
from coordinator.history.watched import list_unread, read_watched, tell_watched
from coordinator.storage.record_log import LostTarget
from coordinator.storage.shards import shard_number
from coordinator.trace.kafka_json import to_camel_case

SHARDS = "shards"
NAMED = 5
"""Groups that cannot be read, of which so many are named."""


def groups(store: StoreOption, as_of: AsOfOption = None, json_: JsonOption = False) -> None:
    """List the groups: their states, epochs and sizes.

    Example: `muster groups --store store --as-of 2026-03-01T12:00Z`
    """
    with progress.show("reading the groups"):
        readings = open_logs(store, as_of)
        rows = [row for reading in readings for row in list_rows(reading, "groups")]
        rows.sort(key=lambda row: row["group_id"])
    for reading in readings:
        say_watched(reading)
    if wants_json(json_):
        print_json(rows)
    else:
        render.print_groups(Terminal(), rows)


def describe(
    group: GroupArgument,
    store: StoreOption,
    as_of: AsOfOption = None,
    json_: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Describe a group: its members, their current and target assignments, and its offsets.

    Example: `muster describe billing --store store`
    """
    settings = load_config(config)
    reading = open_logs(store, as_of, group)[0]
    with progress.show("reading the group"):
        state = reading.state()
        if group in state.groups:
            try:
                reading.read_target(state.groups[group])
            except LostTarget as error:  # members keep what they own, so show that
                typer.echo(f"muster: targets are not shown: {visible(str(error))}", err=True)
        found = describe_with_offsets(state, settings, group)
    if found is None:
        raise reading.unknown(group)
    say_watched(reading)
    found |= {"position": reading.position, "at": format_time(reading.at_ms)}
    found["shard"] = shard_number(reading.store)
    if wants_json(json_):
        print_json([to_camel_case(found)])
    else:
        render.print_description(Terminal(), found)


def history(
    group: GroupArgument,
    store: StoreOption,
    topic: Annotated[str | None, typer.Option(help="Show this topic only.")] = None,
    partition: Annotated[int | None, typer.Option(help="Show this partition only.")] = None,
    as_of: AsOfOption = None,
    json_: JsonOption = False,
) -> None:
    """Show who owned what, from when until when, and why.

    Example: `muster history billing --store store --topic clicks --partition 3`
    """
    if partition is not None and topic is None:
        raise SpecError(f"--partition {partition} requires --topic: give the topic too")
    with progress.show("reading the history"):
        reading = open_logs(store, as_of, group)[0]
        found = read_rows(reading, "assignment_history", group)
        rows = to_json_rows(pick_owned(found, group, topic, partition))
    say_watched(reading)
    if wants_json(json_):
        print_json(rows)
    else:
        render.print_history(Terminal(), rows)


def explain(
    group: GroupArgument,
    store: StoreOption,
    epoch: Annotated[int | None, typer.Option(help="Show this group epoch only.")] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            help="topic/number: which members could own it by the target, and what decided."
        ),
    ] = None,
    as_of: AsOfOption = None,
    json_: JsonOption = False,
) -> None:
    """Explain each group epoch: why it began, its target, and who gained and lost what.

    With --partition, explain one partition of the newest target, or of the epoch's.

    Example: `muster explain billing --store store --partition clicks/3`
    """
    if partition is not None:
        reading = open_logs(store, as_of, group)[0]
        _explain_partition(reading, group, partition, epoch, as_json_=json_)
        return
    with progress.show("reading the history"):
        reading = open_logs(store, as_of, group)[0]
        epochs = explain_epochs(reading, group)
    if epoch is not None:
        known = [row["group_epoch"] for row in epochs]
        if epoch not in known:
            have = f"it has {min(known)} to {max(known)}" if known else "it has none yet"
            raise SpecError(f"group {group!r} has no group epoch {epoch}: {have}")
        epochs = [row for row in epochs if row["group_epoch"] == epoch]
    is_watched = say_watched(reading)
    if wants_json(json_):
        print_json(epochs)
    else:
        render.print_epochs(Terminal(), epochs, is_watched=is_watched)


def _explain_partition(
    reading: LogReader, group: str, partition: str, epoch: int | None, *, as_json_: bool
) -> None:
    topic, slash, number = partition.rpartition("/")
    if not slash or not topic or not (number.isascii() and number.isdigit()):
        raise SpecError(f"--partition is {partition!r}: give topic/number, as in clicks/3")
    if not can_explain(reading, group, epoch):
        _explain_watched(reading, group, (topic, int(number)), epoch, as_json_=as_json_)
        return
    with progress.show("reading the target"):
        target, found = explain_past_partition(reading, group, topic, int(number), epoch)
    row = {"group_id": group, "assignment_epoch": target.epoch, "assignor": target.assignor}
    row |= {"plan_id": target.plan_id, **msgspec.to_builtins(found)}
    if wants_json(as_json_):
        print_json([row])
    else:
        render.print_partition(Terminal(), row)


def _explain_watched(
    reading: LogReader, group: str, place: tuple[str, int], epoch: int | None, *, as_json_: bool
) -> None:
    """Say who owned a partition, since when and why: what Kafka computed with is not written."""
    topic, number = place
    if epoch is not None:
        raise SpecError(
            f"--epoch {epoch} explains a target with what it was computed from, which Kafka does "
            "not write: leave it out, or give --as-of"
        )
    with progress.show("reading the history"):
        rows = list_rows(reading, "assignment_history", group)
    owned = [
        row
        for row in rows
        if row["topic"] == topic and row["first_partition"] <= number <= row["last_partition"]
    ]
    if not owned:
        raise SpecError(f"no member of group {group!r} owned partition {number} of topic {topic!r}")
    last = max(row["since_position"] for row in owned)
    newest = [row for row in owned if row["since_position"] == last]
    say_watched(reading)
    if wants_json(as_json_):
        print_json(newest)
    else:
        render.print_history(Terminal(), newest)


def say_watched(reading: LogReader) -> bool:
    """Say, beside what is shown, that a Kafka cluster coordinates the groups; whether one does."""
    watched = read_watched(reading)
    if watched is not None:
        line = f"muster: {tell_watched(watched)}, read up to {format_time(reading.at_ms)}"
        typer.echo(line, err=True)
        unread = list_unread(reading)
        if unread:
            more = f", and {len(unread) - NAMED} more" if len(unread) > NAMED else ""
            named = "; ".join(unread[:NAMED])
            many = "1 group" if len(unread) == 1 else f"{len(unread)} groups"
            typer.echo(f"muster: {many} cannot be read: {named}{more}", err=True)
    return watched is not None


def wants_json(asked: bool) -> bool:  # noqa: FBT001 - the option's value
    """Whether rows are to be printed as JSON."""
    return asked or not sys.stdout.isatty()


def print_done(row: Mapping[str, Any], rows: str, *, asked: bool) -> None:
    """Print what a command did: one line of JSON, or on a terminal a table.

    Parameters
    ----------
    rows
        Which of its values is a list of rows, if it has one: a table of its own.
    """
    if wants_json(asked):
        print_json([row])
        return
    console, shown = Terminal(), visible_values(row)
    listed = shown.pop(rows, None)
    render.print_facts(console, shown)
    if listed:
        render.print_rows(console, listed)


def print_json(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows as JSON, one object per line."""
    for row in rows:
        sys.stdout.write(as_json(row) + "\n")
