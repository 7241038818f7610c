"""docs/design/log_format.md says what the code writes; its tables are made of the schema."""

from __future__ import annotations

import re
import runpy

from coordinator.core.events import DecidePlan
from coordinator.storage import target_table
from coordinator.storage.record_schema import RANGE
from tests.conftest import ROOT

tables = runpy.run_path(str(ROOT / "docs" / "log_format.py"))
PAGE = (ROOT / "docs/design/log_format.md").read_text(encoding="utf-8")
NAME = re.compile(r"`(\w+)`")


def names_in(heading):
    return set(NAME.findall(PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]))


def test_the_tables_of_kinds_and_columns_are_those_of_the_schema():
    assert tables["page"](PAGE) == PAGE, "run `python docs/log_format.py`"


def test_the_page_explains_ranges():
    fields = ", ".join(f"{field.name}: {field.type}" for field in RANGE)
    assert f"`range` is `struct<{fields}>`" in PAGE
    assert "`held` has also `assignment_epoch: int32`" in PAGE


def test_a_column_has_its_words_at_one_record_only():
    """The page has one line a column: of two texts, one would be lost."""
    texts = {}
    for fields in tables["FIELDS"].values():
        for field in fields:
            if field.text:
                texts.setdefault(field.column, set()).add(field.text)
    assert {column: said for column, said in texts.items() if len(said) > 1} == {}


def test_targets_and_requests_have_the_fields_of_the_page():
    assert set(target_table.COLUMNS) <= names_in("Targets")
    assert set(DecidePlan.__struct_fields__) <= names_in("Requests")
