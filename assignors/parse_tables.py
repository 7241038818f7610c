"""Read tables: Arrow tables in, checked columns for `GroupSpec` out.

What `parse` is for specs: everything that a user can get wrong about form is refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from assignors.arrays import PARTITIONS_MAX, Longs, offsets_of
from assignors.errors import SpecError
from assignors.parse import (
    INT32_MAX,
    kind_of,
    refuse_partition_count,
    refuse_unknown_topic,
    show,
)

MEMBERS_COLUMNS = ("member_id", "instance_id", "rack", "subscribed")
LOAD_COLUMNS = ("capacity", "state", "process")
"""More columns of members: `loads.parse_loads` reads them."""
TOPICS_COLUMNS = ("topic", "partitions", "topic_id", "racks")
"""The last two are of a coordinator's catalog, which may be the same table; they change nothing."""
OWNED_COLUMNS = ("member_id", "topic", "first_partition", "partition_count")

TEXT_BYTES_MAX = 2**31 - 1
"""An array of strings has no more: their offsets are int32."""

LIST_TESTS = (
    pt.is_list, pt.is_large_list, pt.is_fixed_size_list, pt.is_list_view, pt.is_large_list_view,
)  # fmt: skip
BAD_RANGE = (
    "{}: member {!r}, topic {!r} has first_partition {} and partition_count {}: "
    "give a first partition from 0 to 2147483647 and a count from 1 to 2147483647"
)
NULL_IN_ROW = "{}: a row has a null: give every row all four values"
NO_TEXT = "{}: column {!r} has text that is not UTF-8: write it as UTF-8"


def parse_tables(
    members: pa.Table | pa.RecordBatch,
    topics: pa.Table | pa.RecordBatch,
    owned: pa.Table | pa.RecordBatch | None,
) -> dict[str, Any]:
    """Turn tables (docs/reference/formats.md#tables) into columns of `GroupSpec.from_columns`."""
    ids = get_strings(members, "members", "member_id")
    refuse_unknown_columns(members.schema.names, (*MEMBERS_COLUMNS, *LOAD_COLUMNS), "members")
    names, partitions = parse_topics_table(topics)
    offsets, flat = get_string_lists(members, "members", "subscribed")
    at = pc.index_in(flat, value_set=names)
    if at.null_count:
        row = int(np.flatnonzero(np.asarray(pc.is_null(at)))[0])
        who = ids[int(np.searchsorted(offsets, row, side="right")) - 1].as_py()
        refuse_unknown_topic(who, flat[row].as_py())
    columns: dict[str, Any] = {
        "member_id": ids,
        "instance_id": get_strings(members, "members", "instance_id", optional=True),
        "rack": get_strings(members, "members", "rack", optional=True),
        "subscription": np.arange(len(ids)),
        "list_offsets": offsets,
        "list_topics": np.asarray(at, dtype=np.int64),
        "topics": names,
        "partitions": partitions,
    }
    return columns | parse_claims(owned, ids, names)


def refuse_unknown_columns(found: Iterable[str], known: Sequence[str], where: str) -> None:
    """Refuse a table with unread columns: their owner believes that they count.

    Raises
    ------
    SpecError
        Names the first of them and the known ones.
    """
    for name in found:
        if name not in known:
            raise SpecError(
                f"{where}: unknown column {show(name)}: the columns are {', '.join(known)}; "
                "leave the others out"
            )


def parse_topics_table(topics: pa.Table | pa.RecordBatch) -> tuple[pa.StringArray, Longs]:
    """Read and check a topics table: names in order, and partition counts."""
    names, counts = get_strings(topics, "topics", "topic"), parse_topic_counts(topics)
    if len(pc.unique(names)) != len(names):
        seen = pc.value_counts(names)
        twice = pc.filter(seen.field("values"), pc.greater(seen.field("counts"), 1))
        raise SpecError(f"topic {pc.min(twice).as_py()!r} appears twice: give each topic one row")
    order = pc.sort_indices(names)
    return names.take(order), counts[np.asarray(order)]


def parse_topic_counts(topics: pa.Table | pa.RecordBatch) -> Longs:
    """Read and check the partition counts of a topics table, (rows,)."""
    names = get_strings(topics, "topics", "topic")
    counts = get_integers(topics, "topics", "partitions")
    refuse_unknown_columns(topics.schema.names, TOPICS_COLUMNS, "topics")
    bad = np.flatnonzero((counts < 0) | (counts > PARTITIONS_MAX))
    if len(bad):
        refuse_partition_count(names[int(bad[0])].as_py(), int(counts[bad[0]]))
    return counts


def parse_claims(
    owned: pa.Table | pa.RecordBatch | None, ids: pa.StringArray, topics: pa.StringArray
) -> dict[str, Any]:
    """Read what was owned, as columns of `GroupSpec.from_columns`.

    Parameters
    ----------
    owned
        As in `GroupSpec.from_arrow`.
    ids, topics
        The members, and all topics by name.

    Raises
    ------
    SpecError
        As `parse_owned_table`; a member owns partitions of an unknown topic.
    """
    if owned is None:
        none = np.zeros(0, dtype=np.int64)
        return {
            "owner": pa.array([], pa.string()),
            "owned_topic": none,
            "owned_first": none,
            "owned_count": none,
        }
    owner, names, first, count = parse_owned_table(owned, "owned")
    at = pc.index_in(names, value_set=topics.cast(names.type))
    if at.null_count:
        strange = pc.and_(pc.is_null(at), pc.is_in(owner, value_set=ids.cast(owner.type)))
        if pc.any(strange).as_py():
            row = int(np.flatnonzero(np.asarray(strange))[0])
            raise SpecError(
                f"member {owner[row].as_py()!r} owns partitions of topic "
                f"{names[row].as_py()!r}, which is not in topics: add it, or drop the claim"
            )
    return {
        "owner": owner,
        "owned_topic": np.asarray(pc.fill_null(at, -1), dtype=np.int64),
        "owned_first": first,
        "owned_count": count,
    }


def parse_owned_table(
    owned: pa.Table | pa.RecordBatch, where: str, text_bytes_max: int = TEXT_BYTES_MAX
) -> tuple[pa.StringArray | pa.LargeStringArray, pa.StringArray, Longs, Longs]:
    """Read a table of owned ranges: member ids, topics, first partitions and counts, each (n,).

    Parameters
    ----------
    where
        What to call the table.
    text_bytes_max
        Columns with more text are returned as large strings: members with long ids and ten million
        ranges have more than a string's offsets count.

    Raises
    ------
    SpecError
        A column is missing, unknown, of another type or null; a range is invalid.
    """
    owner, names = (
        get_strings(owned, where, name, most=text_bytes_max, large=True)
        for name in ("member_id", "topic")
    )
    first = get_integers(owned, where, "first_partition")
    count = get_integers(owned, where, "partition_count")
    refuse_unknown_columns(owned.schema.names, OWNED_COLUMNS, where)
    bad = np.flatnonzero((first < 0) | (count < 1) | (first > INT32_MAX) | (count > INT32_MAX))
    if len(bad):
        row = int(bad[0])
        raise SpecError(
            BAD_RANGE.format(
                where, owner[row].as_py(), names[row].as_py(), int(first[row]), int(count[row])
            )
        )
    return owner, names, first, count


def get_column(
    table: pa.Table | pa.RecordBatch, where: str, name: str, expected: str
) -> pa.ChunkedArray:
    """Return a column of a table; refuse one that lacks it."""
    if not isinstance(table, pa.Table | pa.RecordBatch):
        raise SpecError(f"{where}: expected an Arrow table, got {kind_of(table)}")
    if table.schema.names.count(name) > 1:
        raise SpecError(f"{where}: column {name!r} is there twice: leave one of them out")
    if table.schema.get_field_index(name) < 0:
        found = ", ".join(table.schema.names) or "no columns"
        raise SpecError(
            f"{where}: column {name!r} is missing (found {found}): expected {name} {expected}"
        )
    column = table.column(name)
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def get_strings(
    table: pa.Table | pa.RecordBatch,
    where: str,
    name: str,
    *,
    optional: bool = False,
    most: int = TEXT_BYTES_MAX,
    large: bool = False,
) -> pa.StringArray:
    """Read a column of text; nulls only where it is optional.

    Parameters
    ----------
    most
        Bytes that a column of strings has room for.
    large
        Whether a column with more becomes one of large strings; else it is refused.
    """
    if optional and table.schema.get_field_index(name) < 0:
        return pa.nulls(table.num_rows, pa.string())
    column = get_column(table, where, name, "string")
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if optional and pt.is_null(column.type):
        return pa.nulls(table.num_rows, pa.string())
    if not is_text(column.type):
        raise SpecError(f"{where}: column {name!r} is {column.type}, expected string")
    if column.null_count and not optional:
        raise SpecError(f"{where}: column {name!r} has a null: give every row a value")
    kind = pa.string()
    if column.nbytes > most:  # about the text, and a few bytes a row
        if not large:
            raise SpecError(
                f"{where}: column {name!r} has {column.nbytes} bytes of text, above the limit of "
                f"{most}: use shorter names"
            )
        kind = pa.large_string()
    text = column.cast(kind).combine_chunks()
    try:
        text.validate(full=True)  # readers of Parquet do not look
    except pa.ArrowInvalid:
        raise SpecError(NO_TEXT.format(where, name)) from None
    return text


def get_string_lists(
    table: pa.Table | pa.RecordBatch, where: str, name: str
) -> tuple[Longs, pa.StringArray]:
    """Read a column of lists of text: offsets, and the values."""
    column = get_column(table, where, name, "list<string>")
    if not any(test(column.type) for test in LIST_TESTS) or not (
        is_text(column.type.value_type) or pt.is_null(column.type.value_type)
    ):
        raise SpecError(f"{where}: column {name!r} is {column.type}, expected list<string>")
    if column.null_count:
        raise SpecError(f"{where}: column {name!r} has a null: give [] for no subscription")
    lists = column.cast(pa.large_list(pa.string())).combine_chunks()
    flat = lists.flatten()
    if flat.null_count:
        raise SpecError(f"{where}: column {name!r} lists a null topic: give topic names")
    return offsets_of(np.asarray(lists.value_lengths(), dtype=np.int64)), flat


def get_integers(table: pa.Table | pa.RecordBatch, where: str, name: str) -> Longs:
    """Read a column of whole numbers without nulls."""
    column = get_column(table, where, name, "integer")
    if not pt.is_integer(column.type):
        raise SpecError(f"{where}: column {name!r} is {column.type}, expected an integer type")
    if column.null_count:
        raise SpecError(f"{where}: column {name!r} has a null: give every row a value")
    try:
        return np.asarray(column.cast(pa.int64()).combine_chunks(), dtype=np.int64)
    except pa.ArrowInvalid as error:
        raise SpecError(f"{where}: column {name!r}: {error}") from None


def is_text(type_: pa.DataType) -> bool:
    """Tell whether a type is text."""
    return any(test(type_) for test in (pt.is_string, pt.is_large_string, pt.is_string_view))
