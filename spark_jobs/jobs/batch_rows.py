"""Rows of a batch as a table has them: each column by its name, no value changed.

Only this module checks data files that are written beside a table. A cast would be by
position within a struct, and, without spark.sql.ansi.enabled, make NULL or another number of what
does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

PLACE_TYPES = (("string",), *[("tinyint", "smallint", "int", "bigint")] * 2)
"""What topic, partition and offset may be: of other types, equal ones differ, or order does."""
_NESTED = (T.StructType, T.ArrayType, T.MapType)
_ODD_NAME = re.compile(r"[ ,;{}()\n\t=]")
_SHOWN = 60
"""How much of a value is shown."""


def refuse_odd_place(rows: DataFrame, columns: Sequence[str]) -> None:
    """Refuse rows whose place is absent, or of a type without one order.

    Parameters
    ----------
    columns
        The columns of topic, partition and offset.

    Raises
    ------
    ValueError
        They are.
    """
    absent = sorted(set(columns) - set(rows.columns))
    if absent:
        raise ValueError(f"the batch has no column {', '.join(absent)}: it has {rows.columns}")
    for name, types in zip(columns, PLACE_TYPES, strict=True):
        found = rows.schema[name].dataType.simpleString()
        if found not in types:
            raise ValueError(
                f"column {name} of the batch is {found}, by which rows cannot be written once: "
                f"cast it to {types[-1]}"
            )


def refuse_unnamed(rows: DataFrame) -> None:
    """Refuse to make a table of rows with a column that has no type, or a name without Delta.

    Raises
    ------
    ValueError
        They have one.
    """
    void = [field.name for field in rows.schema if isinstance(field.dataType, T.NullType)]
    if void:
        raise ValueError(
            f"column {', '.join(void)} of the batch has no type (void), and no table can have it: "
            "cast it to one, or drop it"
        )
    odd = [name for name in rows.columns if _ODD_NAME.search(name)]
    if odd:
        raise ValueError(
            f"column {odd[0]!r} of the batch has a character that no column of a Delta table may "
            "have ( ,;{}()=, a tab or a line's end): give it another name"
        )


def fit_rows(rows: DataFrame, table: T.StructType, path: str, free: Sequence[str]) -> DataFrame:
    """Return rows with the columns and the types of a table.

    Parameters
    ----------
    path
        The table's, for messages.
    free
        Columns that the table need not have.

    Raises
    ------
    ValueError
        They would lose a column or a value.
    """
    absent = [name for name in table.names if name not in rows.columns]
    if absent:
        raise ValueError(f"the batch has no column {', '.join(absent)}, which {path} has")
    lost = [name for name in rows.columns if name not in (*table.names, *free)]
    if lost:
        raise ValueError(
            f"{path} has no column {', '.join(lost)}, which the batch has: drop it from the batch, "
            "or add it to the table"
        )
    _refuse_lossy(rows, [field for field in table if _differs(rows, field)], path)
    return rows.select(*[F.col(f"`{f.name}`").cast(f.dataType).alias(f.name) for f in table])


def _differs(rows: DataFrame, field: T.StructField) -> bool:
    """Whether a column is of another type than the table's; NULL alone is of any type."""
    found = rows.schema[field.name].dataType
    same = found.simpleString() == field.dataType.simpleString()
    return not same and not isinstance(found, T.NullType)


def _refuse_lossy(rows: DataFrame, fields: Sequence[T.StructField], path: str) -> None:
    """Refuse values that do not come back from the table's type as they were."""
    if not fields:
        return
    found = {field.name: rows.schema[field.name].dataType for field in fields}
    nested = [field for field in fields if isinstance(found[field.name], _NESTED)]
    if nested:
        kind = found[nested[0].name].simpleString()
        raise ValueError(_explain(nested[:1], path, f"is {kind}"))
    lossy = []
    for field in fields:
        column = F.col(f"`{field.name}`")
        back = column.try_cast(field.dataType).try_cast(found[field.name])
        text = F.substring(column.cast("string"), 1, _SHOWN)
        lossy.append(F.min(F.when(~back.eqNullSafe(column), F.coalesce(text, F.lit("")))))
    try:
        values = rows.agg(*lossy).collect()[0]
    except AnalysisException:  # the cast does not exist
        kinds = ", ".join(kind.simpleString() for kind in found.values())
        raise ValueError(_explain(fields, path, f"is {kinds}")) from None
    for field, value in zip(fields, values, strict=True):
        if value is not None:
            raise ValueError(_explain([field], path, f"has {value!r}"))


def _explain(fields: Sequence[T.StructField], path: str, why: str) -> str:
    names = ", ".join(field.name for field in fields)
    kinds = ", ".join(field.dataType.simpleString() for field in fields)
    return (
        f"column {names} of the batch {why}, but {path} has it as {kinds}, which would change it: "
        "cast it in the stream, or give another table"
    )
