"""Write the tables of docs/design/log_format.md: kinds of records and columns, from the schema.

    python docs/log_format.py

Its source is coordinator/core/state/records.py. A test writes the tables again and compares.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from coordinator.core.state.record_fields import Mark, RecordField
from coordinator.storage.record_schema import (
    FIELDS,
    HELD_RANGES,
    RANGES,
    ROWS,
    SCHEMA,
    Row,
    fields_of,
)

PAGE = Path(__file__).resolve().parent / "design" / "log_format.md"
SHORT = {str(HELD_RANGES): "list<held>", str(RANGES): "list<range>"}
STATEMENT = re.compile(r" \((?:[A-Z]-\d+[…,\w -]*|\w+\.py)\)")
"""Where a docstring says what a rule or another file has: not for a reader of tables."""


def kinds() -> list[str]:
    """Return the rows of the table of kinds."""
    return [
        f"| `{record.kind}` | {', '.join(map(column_name, FIELDS[record.kind]))} "
        f"| {meaning(record)} |"
        for record in ROWS
    ]


def columns() -> list[str]:
    """Return the rows of the table of columns."""
    texts: dict[str, str] = {}
    for field in (*fields_of(Row), *(field for some in FIELDS.values() for field in some)):
        texts[field.column] = texts.get(field.column) or field.text
    return [
        f"| `{column.name}` | `{type_name(str(column.type))}` | {texts[column.name]} |".replace(
            "|  |", "| |"
        )
        for column in SCHEMA
    ]


def column_name(field: RecordField) -> str:
    """Return the name of a field's column; a key's is bold."""
    return f"**`{field.column}`**" if Mark.KEY in field.marks else f"`{field.column}`"


def meaning(record: type[msgspec.Struct]) -> str:
    """Return the first sentence of a record's docstring."""
    sentence = (record.__doc__ or "").split(".\n")[0].split(". ")[0].rstrip(".")
    return STATEMENT.sub("", sentence[0].lower() + sentence[1:])


def type_name(text: str) -> str:
    """Return the name of a type as the page explains it."""
    for whole, short in SHORT.items():
        text = text.replace(whole, short)
    return re.sub(r"\b(?:item|element): ", "", text)


def page(text: str) -> str:
    """Return the page with both tables rewritten."""
    for place, rows in (("kinds", kinds()), ("columns", columns())):
        begin, end = f"<!-- {place} -->\n", "\n<!-- end -->"
        head, rest = text.split(begin)
        title = rest.splitlines()[:2]
        text = head + begin + "\n".join([*title, *rows]) + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print("docs/design/log_format.md")
