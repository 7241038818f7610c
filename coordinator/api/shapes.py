"""The shapes of answers, of the API and of `--json`: structs, from which OpenAPI's schemas follow.

Rows of views and findings are declared once, as Arrow schemas; their structs are made of those.
"""

from __future__ import annotations

from typing import Annotated, Any, Union

import msgspec
import pyarrow as pa
from msgspec import UNSET, Meta, UnsetType

from coordinator.core.plans.explain import PartitionExplained
from coordinator.core.state.plan_values import PlanSummary
from coordinator.core.state.records import PlanMade
from coordinator.history.findings import SCHEMAS as FINDINGS
from coordinator.history.findings import TITLES
from coordinator.history.view_schemas import VIEW_SCHEMAS

Struct = msgspec.Struct
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""A time in UTC with milliseconds, as `2026-03-01T12:00:00.000Z`."""
PLAIN: dict[pa.DataType, Any] = {
    pa.string(): str, pa.bool_(): bool, pa.int32(): int, pa.int64(): int, pa.float64(): float,
}  # fmt: skip


def to_camel(name: str) -> str:
    """Return the name of a struct for rows of a view or a finding."""
    return "".join(word.capitalize() for word in name.split("_"))


def make_rows(name: str, schema: pa.Schema, doc: str, **more: Any) -> type[Struct]:  # noqa: ANN401 - msgspec's
    """Return the struct of rows of an Arrow schema: all columns are there, and may be null."""
    fields = [(one.name, _type_of(name, one) | None) for one in schema]
    return msgspec.defstruct(name, fields, kw_only=True, namespace={"__doc__": doc}, **more)


def _type_of(name: str, field: pa.Field) -> Any:  # noqa: ANN401 - of JSON
    kind = field.type
    if pa.types.is_timestamp(kind):
        return Time
    if pa.types.is_map(kind):
        return dict[str, str]
    if pa.types.is_list(kind):
        return list[_type_of(name, kind.value_field)]  # type: ignore[misc]
    if pa.types.is_struct(kind):
        return _make_range(tuple((one.name, PLAIN[one.type]) for one in kind))
    return PLAIN[kind]


_RANGES: dict[tuple[tuple[str, Any], ...], type[Struct]] = {}


def _make_range(fields: tuple[tuple[str, Any], ...]) -> type[Struct]:
    """Return the struct of a range of partitions in a list: one for all that have its columns."""
    if fields not in _RANGES:
        if any(name == "to_member_id" for name, _ in fields):
            name, doc = "MovedRange", "Partitions that a plan gives to another member."
        else:
            name, doc = "OwnedRange", "Partitions that a member owns, and since which epoch."
        given = [(one, kind | None) for one, kind in fields]
        _RANGES[fields] = msgspec.defstruct(name, given, kw_only=True, namespace={"__doc__": doc})
    return _RANGES[fields]


ROWS = {
    view: make_rows(to_camel(view), VIEW_SCHEMAS[view], f"A row of the view `{view}`.")
    for view in (
        "assignment_history", "audit", "epochs", "events", "groups", "members", "offsets", "plans",
        "rebalances", "waits",
    )
}  # fmt: skip
"""Rows of the views that the API has, by the view's name."""
FINDING_ROWS = {
    name: make_rows(
        to_camel(name),
        schema.insert(0, pa.field("level", pa.string())),
        f"{TITLES[name]}.",
        tag_field="finding",
        tag=name,
    )
    for name, schema in FINDINGS.items()
}
"""Rows of `muster doctor`, by the finding's name."""


class ExplainedPartition(PartitionExplained, frozen=True, kw_only=True):
    """Who has a partition by a target, who could have had it, and what decided."""

    group_id: str
    assignment_epoch: int
    assignor: str
    plan_id: str | None


class OverloadedMember(Struct, kw_only=True):
    """A member that has more weight for its capacity than the lower bound."""

    member_id: str
    load: float


class FindingTotal(Struct, kw_only=True):
    """What `muster doctor` found in a group that Kafka coordinates, and how often."""

    finding: str
    total: int
    rows: list[dict[str, Any]]


class PlanSummaryRow(PlanSummary, frozen=True, kw_only=True):
    """What `muster plan` says of a plan after its moves."""

    plan_id: str
    plan_digest: str
    group_id: str
    group_epoch: int
    assignor: str
    drains: tuple[str, ...]
    supposes: str | None
    expires_at: Time
    inputs: dict[str, str]
    overloaded: list[OverloadedMember] | UnsetType = UNSET
    findings: list[FindingTotal] | UnsetType = UNSET


class PlanAnswer(Struct, kw_only=True):
    """A plan that was computed and is kept nowhere: send `plan` back to apply or propose it."""

    summary: PlanSummaryRow
    plan: PlanMade


class Decision(Struct, kw_only=True):
    """What became of a plan; `group_epoch` is the epoch that it began, absent where none did."""

    group_id: str
    plan_id: str
    decision: str
    group_epoch: int | UnsetType = UNSET


class Head(Struct, kw_only=True):
    """As of when an answer is.

    `position` is null of a store of shards, which has no single log. The fields on Kafka are there
    where `muster watch` wrote the store.
    """

    position: int | None
    at: Time
    kafka_cluster: str | UnsetType = UNSET
    watched_since: Time | UnsetType = UNSET
    observed: str | UnsetType = UNSET


def make_page(name: str, row: Any, doc: str) -> type[Struct]:  # noqa: ANN401 - a type
    """Return the struct of an answer with rows, which may go on at `next`."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        ("items", list[row]),
        ("next", str | UnsetType, UNSET),
    ]
    return msgspec.defstruct(name, fields, bases=(Head,), kw_only=True, namespace={"__doc__": doc})


def make_one(name: str, key: str, row: Any, doc: str) -> type[Struct]:  # noqa: ANN401 - a type
    """Return the struct of an answer with one row, under a key."""
    return msgspec.defstruct(
        name, [(key, row)], bases=(Head,), kw_only=True, namespace={"__doc__": doc}
    )


FindingsPage = make_page(
    "FindingsPage", Union[*FINDING_ROWS.values()], "Findings, each with the groups that have it."
)
