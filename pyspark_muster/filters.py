"""Filters that Spark pushes down (from 4.1 on): of groups, of times, and of positions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

GROUP = "group_id"
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "EqualTo": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}


class PushedFilters:
    """The filters of one read.

    Attributes
    ----------
    groups
        The groups that rows can be of; None: any.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._types = {
            field.name: field.type
            for field in schema
            if field.name == GROUP
            or pa.types.is_timestamp(field.type)
            or pa.types.is_integer(field.type)
        }
        self._wanted: list[pc.Expression] = []
        self.groups: frozenset[str] | None = None

    def take(self, one: Any) -> bool:  # noqa: ANN401 - Spark's, which 4.0 does not have
        """Take a filter, and tell whether it is applied here."""
        path = one.__dict__.get("attribute", ())
        kind = self._types.get(path[0]) if len(path) == 1 else None
        name = type(one).__name__
        if kind is None:
            return False
        column = pc.field(path[0])
        if name == "IsNotNull":
            self._wanted.append(column.is_valid())
            return True
        try:
            if name == "In":
                values = pa.array(one.value, kind)
                wanted = column.isin(values)
            elif name in _COMPARED:
                values = pa.array([one.value], kind)
                wanted = _COMPARED[name](column, values[0])
            else:
                return False
        except (pa.ArrowException, TypeError, ValueError):
            return False
        if values.null_count:
            return False
        self._wanted.append(wanted)
        if path[0] == GROUP and name in {"EqualTo", "In"}:
            groups = frozenset(values.to_pylist())
            self.groups = groups if self.groups is None else self.groups & groups
        return True

    def apply(self, rows: pa.Table) -> pa.Table:
        """Return the rows that all filters let through."""
        for wanted in self._wanted:
            rows = rows.filter(wanted)
        return rows
