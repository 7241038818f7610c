"""Tables of many groups as rows of one kind of batch, for an engine that deals out groups.

An engine puts the tables of all groups below each other, gives every task whole groups, and calls
`assign_batches` there. So each engine assigns with the same code, and the rows are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from assignors.errors import SpecError
from assignors.groups.assign_groups import (
    GROUPS_SCHEMA,
    SUMMARY_SCHEMA,
    GroupsAssignment,
    assign_groups,
)
from assignors.groups.group_set import GroupSet
from assignors.registry import get_assignor

TEXT, TEXTS, WHOLE, NUMBER = "string", "array<string>", "bigint", "double"
TABLES: dict[str, dict[str, str]] = {
    "members": {
        "member_id": TEXT, "instance_id": TEXT, "rack": TEXT, "subscribed": TEXTS,
        "capacity": NUMBER, "state": TEXT, "process": TEXT,
    },
    "topics": {"topic": TEXT, "partitions": WHOLE},
    "owned": {
        "member_id": TEXT, "topic": TEXT, "first_partition": WHOLE, "partition_count": WHOLE,
    },
    "partitions": {
        "topic": TEXT, "partition": WHOLE, "weight": NUMBER, "move_cost": NUMBER, "racks": TEXTS,
        "colocate": TEXT, "pinned_to": TEXT,
    },
    "constraints": {
        "kind": TEXT, "selector": TEXT, "value": TEXT, "hard": "boolean", "reason": TEXT,
        "until": "timestamp",
    },
}  # fmt: skip
"""Columns of each table besides group_id, as Spark calls their types."""

TABLE, GROUP_ID, READING, ASSIGNING = "table_name", "group_id", "reading", "assigning"
PAYLOAD, REFUSAL, WHEN = "payload", "refusal", "refused_when"

ANSWER_SCHEMA = pa.schema(
    [
        *GROUPS_SCHEMA,
        pa.field(PAYLOAD, pa.binary()),
        pa.field(REFUSAL, pa.string()),
        pa.field(WHEN, pa.string()),
    ]
)
"""What a task answers: rows of the assignment, and one with its summary, or its refusal."""


def list_columns(
    given: Mapping[str, Iterable[str]], until: str = TABLES["constraints"]["until"]
) -> dict[str, str]:
    """Return the columns of the rows that tasks get, with their types.

    Parameters
    ----------
    given
        The columns of each table.
    until
        The type of the column of that name: tasks read text and numbers as a process does.
    """
    out = {TABLE: TEXT, GROUP_ID: TEXT}
    for name, columns in given.items():
        out |= {column: TABLES[name][column] for column in columns}
    return out | ({"until": until} if "until" in out else {})


@dataclass(frozen=True, slots=True)
class Task:
    """What every task needs besides its rows.

    Attributes
    ----------
    assignor, options
        For `get_assignor`.
    given
        The columns of each table that has group ids, by the name of the table.
    shared
        Tables that all groups share, by name.
    as_of_ms
        As for `GroupSpec.from_arrow`.
    """

    assignor: str
    options: Mapping[str, Any]
    given: Mapping[str, tuple[str, ...]]
    shared: Mapping[str, pa.Table]
    as_of_ms: int | None

    def assign_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Assign the groups of one task; yield rows of `ANSWER_SCHEMA`."""
        kept = [batch for batch in batches if batch.num_rows]
        if kept:
            yield from self._assign(pa.Table.from_batches(kept)).to_batches()

    def _assign(self, rows: pa.Table) -> pa.Table:
        tables = dict(self.shared)
        for name, columns in self.given.items():
            mine = rows.filter(pc.equal(rows[TABLE], name))
            tables[name] = mine.select([GROUP_ID, *columns])
        try:
            groups = GroupSet.from_arrow(
                tables["members"], tables["topics"], tables.get("owned"),
                partitions=tables.get("partitions"), constraints=tables.get("constraints"),
                as_of_ms=self.as_of_ms,
            )  # fmt: skip
        except SpecError as error:
            return _refuse(READING, str(error))
        try:
            found = assign_groups(groups, get_assignor(self.assignor, **self.options))
        except SpecError as error:
            return _refuse(ASSIGNING, str(error))
        return _join(found)


def _refuse(when: str, why: str) -> pa.Table:
    return _fill(pa.table({WHEN: [when], REFUSAL: [why]}))


def _join(found: GroupsAssignment) -> pa.Table:
    assert found.rows is not None, "what this process assigned it has"
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, found.summary.schema) as writer:
        writer.write_table(found.summary)
    payload = pa.array([sink.getvalue().to_pybytes()], pa.binary())
    return pa.concat_tables([_fill(found.rows), _fill(pa.table({PAYLOAD: payload}))])


def read_summary(payloads: Iterable[bytes]) -> pa.Table:
    """Put the summaries of all tasks together, by group."""
    parts = [pa.ipc.open_stream(payload).read_all() for payload in payloads]
    return pa.concat_tables([SUMMARY_SCHEMA.empty_table(), *parts]).sort_by(GROUP_ID)


def _fill(table: pa.Table) -> pa.Table:
    """Add the columns of `ANSWER_SCHEMA` that are missing, as nulls."""
    columns = [
        table[field.name] if field.name in table.schema.names else pa.nulls(len(table), field.type)
        for field in ANSWER_SCHEMA
    ]
    return pa.table(columns, schema=ANSWER_SCHEMA)
