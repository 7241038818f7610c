"""Where weights, capacities and constraints of groups come from: tables in a folder, or a callable.

The tables are those of docs/reference/formats.md#tables: partitions (topic, partition, weight),
members (name, capacity, state, rack) and constraints. Each may have a column group_id; a row
without one is for every group whose assignor knows weights.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from assignors import SpecError
from assignors.loads.constraints import parse_constraints
from assignors.loads.load_spec import ACTIVE, STATES
from assignors.loads.parse_loads import CAPACITY_MIN
from assignors.parse import parse_json_rows
from coordinator.core.state.plan_values import MemberLoad, TopicWeights, weights_by_topic
from coordinator.core.state.records import LoadsNoted
from coordinator.errors import ConfigError

PARTITION_FIELDS = ("group_id", "topic", "partition", "weight")
MEMBER_FIELDS = ("group_id", "name", "capacity", "state", "rack")
NEEDED = {"topic", "partition", "weight", "name"}
"""Columns that have no default."""
GROUP_ID = "group_id"
_TEXT = (
    "group_id",
    "topic",
    "name",
    "state",
    "rack",
    "kind",
    "selector",
    "value",
    "reason",
    "until",
)
_CSV = pyarrow.csv.ConvertOptions(
    column_types=dict.fromkeys(_TEXT, pa.string()), null_values=[""], strings_can_be_null=True
)
"""A topic may be named 2024 or NA, and what is empty has no value."""
PARTITIONS_MAX = 1 << 24


@dataclass(frozen=True, slots=True)
class WeightTables:
    """What a source of weights says now; None for nothing.

    Attributes
    ----------
    partitions
        topic, partition, weight.
    members
        name (an instance id, a member id, or a client id), and capacity, state, rack.
    constraints
        kind, selector, value, hard, reason, until.
    """

    partitions: pa.Table | None = None
    members: pa.Table | None = None
    constraints: pa.Table | None = None


WeightSource: TypeAlias = Callable[[], WeightTables]


def open_weight_source(source: WeightSource | str | os.PathLike[str] | None) -> WeightSource | None:
    """Return what reads weights: a callable as it is, or the tables of a folder, or one of weights.

    Raises
    ------
    ConfigError
        The folder or table does not exist.
    """
    if source is None or source == "":
        return None
    if callable(source):
        return source
    path = Path(source)
    if not os.path.exists(path):
        raise ConfigError(f"weights.source is {str(source)!r}: folder or table not found")
    return lambda: _read_tables(path)


def read_group_loads(tables: WeightTables, group_id: str, topics: Mapping[str, int]) -> LoadsNoted:
    """Return what tables say of one group.

    Parameters
    ----------
    topics
        The partitions of each topic that the group may have.

    Raises
    ------
    SpecError
        Names the table, the value and the remedy.
    """
    rules = parse_constraints(_rows_of(tables.constraints, group_id))
    return LoadsNoted(
        group_id,
        _read_weights(_rows_of(tables.partitions, group_id, PARTITION_FIELDS), topics),
        _read_members(_rows_of(tables.members, group_id, MEMBER_FIELDS)),
        tuple(rules),
    )


def named_groups(tables: WeightTables) -> set[str]:
    """Return the groups that have rows of their own.

    Raises
    ------
    SpecError
        The source gave something else than tables.
    """
    if not isinstance(tables, WeightTables):
        raise SpecError(f"the source gave {type(tables).__name__}: give WeightTables")
    found: set[str] = set()
    for table in (tables.partitions, tables.members, tables.constraints):
        _refuse_no_table(table)
        if table is not None and GROUP_ID in table.column_names:
            found.update(one for one in table[GROUP_ID].unique().to_pylist() if one is not None)
    odd = next((one for one in found if not isinstance(one, str)), None)
    if odd is not None:
        raise SpecError(f"group_id is {odd!r}: give the id of a group as text")
    return found


def _rows_of(
    table: pa.Table | None, group_id: str, fields: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    if table is None:
        return []
    _refuse_no_table(table)
    unknown = [name for name in table.column_names if fields and name not in fields]
    if unknown:
        raise SpecError(f"unknown column {unknown[0]!r}: the columns are {', '.join(fields)}")
    missing = [name for name in NEEDED & set(fields) if name not in table.column_names]
    if missing and len(table):
        raise SpecError(f"column {min(missing)!r} is missing: the columns are {', '.join(fields)}")
    return [row for row in table.to_pylist() if (row.pop(GROUP_ID, None) or group_id) == group_id]


def _refuse_no_table(table: object) -> None:
    if table is not None and not isinstance(table, pa.Table):
        raise SpecError(f"the source gave {type(table).__name__}: give an Arrow table, or None")


def _read_weights(
    rows: list[dict[str, Any]], topics: Mapping[str, int]
) -> tuple[TopicWeights, ...]:
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        topic, partition, weight = row["topic"], row["partition"], row["weight"]
        if not isinstance(topic, str):
            raise SpecError(f"partitions: topic is {topic!r}: give the name of a topic")
        if topic not in topics:
            continue
        if type(partition) is not int or not 0 <= partition < PARTITIONS_MAX:
            raise SpecError(
                f"partitions: topic {topic!r} has partition {partition!r}: give 0 or more"
            )
        if weight is None or partition >= topics[topic]:  # what is not there yet has no weight
            continue
        weight = _read_number(weight, f"partition {partition} of topic {topic!r}", "weight", 0.0)
        of_topic = found.setdefault(topic, {})
        if partition in of_topic:
            raise SpecError(
                f"partitions: partition {partition} of topic {topic!r} appears twice: "
                "give each partition one row"
            )
        of_topic[partition] = weight
    return weights_by_topic(found)


def _read_members(rows: list[dict[str, Any]]) -> tuple[MemberLoad, ...]:
    found: dict[str, MemberLoad] = {}
    for row in rows:
        name, state, rack = row.get("name"), row.get("state") or ACTIVE, row.get("rack")
        if not isinstance(name, str) or not name:
            raise SpecError(
                f"members: name is {name!r}: give an instance id, member id or client id"
            )
        if name in found:
            raise SpecError(f"members: {name!r} appears twice: give each name one row")
        if state not in STATES:
            raise SpecError(f"member {name!r} has state {state!r}: give one of {', '.join(STATES)}")
        if rack is not None and not isinstance(rack, str):
            raise SpecError(f"member {name!r} has rack {rack!r}: give text")
        capacity = row.get("capacity")
        if capacity == 0:
            raise SpecError(f"member {name!r} has capacity 0: give it the state standby")
        who = f"member {name!r}"
        number = 1.0 if capacity is None else _read_number(capacity, who, "capacity", CAPACITY_MIN)
        found[name] = MemberLoad(name, number, state, rack)
    return tuple(found[name] for name in sorted(found))


def _read_number(value: object, who: str, what: str, least: float) -> float:
    number = float(value) if isinstance(value, int | float | Decimal) else math.nan
    if isinstance(value, bool) or not least <= number < 2.0**62:
        raise SpecError(f"{who} has {what} {value!r}: give a number from {least:g} on, below 2^62")
    return number


def _read_tables(path: Path) -> WeightTables:
    if path.is_file() or (path / "_delta_log").is_dir():
        return WeightTables(partitions=_read_table(path))
    found = {}
    for name in ("partitions", "members", "constraints"):
        some = [one for one in sorted(path.glob(f"{name}*")) if one.stem == name]
        if len(some) > 1:
            raise SpecError(f"{some[0]} and {some[1]} are both there: leave one")
        found[name] = _read_table(some[0]) if some else None
    return WeightTables(**found)


def _read_table(path: Path) -> pa.Table:
    try:
        if path.is_dir():
            return DeltaTable(str(path)).to_pyarrow_table()
        if path.suffix == ".json":
            rows = parse_json_rows(path.read_bytes())
            # Of themselves, Arrow's columns are the first row's: `hard` of the next would be lost.
            names = dict.fromkeys(name for row in rows for name in row)
            return pa.table({name: [row.get(name) for row in rows] for name in names})
        if path.suffix == ".csv":
            return pyarrow.csv.read_csv(path, convert_options=_CSV)
        return pq.read_table(path)
    except (DeltaError, OSError, ValueError, AttributeError, pa.ArrowException) as error:
        raise SpecError(f"{path} cannot be read: {error}") from None
