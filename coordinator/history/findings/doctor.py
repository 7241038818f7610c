"""Look for findings in a log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

import pyarrow as pa

from coordinator.history.findings import members, ownership, present, rebalances
from coordinator.history.findings.facts import Facts
from coordinator.history.findings.limits import LEVELS, SCHEMAS, TITLES, Level, Limits
from coordinator.history.json_rows import to_json_rows
from coordinator.history.log_reader import EPOCH, MILLISECOND, AsOf, LogReader, check_as_of
from coordinator.history.log_rows import LogRows
from coordinator.history.watched import read_watched
from coordinator.storage.lease import read_holder
from coordinator.storage.tables.store_files import files_at

FIND: dict[str, Callable[[Facts], pa.Table]] = {
    "unreadable_groups": present.find_unreadable_groups,
    "unowned_partitions": ownership.find_unowned_partitions,
    "slow_rebalances": rebalances.find_slow_rebalances,
    "ownership_gaps": ownership.find_ownership_gaps,
    "flapping_members": members.find_flapping_members,
    "flapping_partitions": ownership.find_flapping_partitions,
    "frequent_rebalances": rebalances.find_frequent_rebalances,
    "expiring_offsets": present.find_expiring_offsets,
    "skew": present.find_skew,
    "idle_members": present.find_idle_members,
    "classic_groups": present.find_classic_groups,
}
"""What finds the rows of each finding of `SCHEMAS`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with some groups.

    Attributes
    ----------
    name
        What it is called; its columns are in `SCHEMAS`.
    rows
        Where it was found, sorted by all columns; at least one row.
    """

    name: str
    rows: pa.Table

    @property
    def level(self) -> Level:
        """How bad it is."""
        return LEVELS[self.name]

    @property
    def title(self) -> str:
        """It in words."""
        return TITLES[self.name]


def examine(
    log: LogRows, now_ms: int, limits: Limits | None = None, names: Collection[str] = tuple(FIND)
) -> list[Finding]:
    """Return what is wrong with the groups of a log, as of a time; [] if nothing is.

    Parameters
    ----------
    names
        The findings to look for.

    Raises
    ------
    LogError
        The log cannot be read.
    """
    facts = Facts(log, now_ms, limits or Limits())
    found = ((name, FIND[name](facts)) for name in SCHEMAS if name in names)
    return [Finding(name, _arrange(name, rows)) for name, rows in found if len(rows)]


def join_findings(parts: Iterable[Sequence[Finding]]) -> list[Finding]:
    """Return what was found in several logs, as if it were one."""
    rows: dict[str, list[pa.Table]] = {}
    for one in chain.from_iterable(parts):
        rows.setdefault(one.name, []).append(one.rows)
    return [Finding(n, _arrange(n, pa.concat_tables(rows[n]))) for n in SCHEMAS if n in rows]


def find_end(reading: LogReader, as_of: AsOf, wall_ms: int) -> int:
    """Return the time as of which groups are judged, in milliseconds.

    Parameters
    ----------
    as_of
        The position or time that was asked for; None is now. A store that shows the groups of a
        Kafka cluster is judged as of when it was watched last: nothing is known of later.
    """
    asked = check_as_of(as_of)
    if isinstance(asked, datetime):
        return (asked - EPOCH) // MILLISECOND
    if asked is not None:
        return reading.at_ms
    known_ms = wall_ms if read_watched(reading) is None else _find_watched_ms(reading)
    return max(min(known_ms, wall_ms), reading.at_ms)


def _find_watched_ms(reading: LogReader) -> int:
    """Return until when a watcher has its lease; 0 where none has, as of a dump."""
    holder = read_holder(files_at(reading.store), reading.store)
    return 0 if holder is None else holder.expires_ms


def _arrange(name: str, rows: pa.Table) -> pa.Table:
    schema = SCHEMAS[name]
    order = [(field.name, "ascending") for field in schema if not pa.types.is_list(field.type)]
    return rows.select(schema.names).cast(schema).sort_by(order).combine_chunks()


def to_json(finding: Finding) -> list[dict[str, Any]]:
    """Return the rows of a finding as JSON values."""
    head = {"finding": finding.name, "level": finding.level.value}
    return [head | row for row in to_json_rows(finding.rows)]
