"""docs/design/log_format.md names the kinds, columns and types that the code writes."""

from __future__ import annotations

import re

import pytest

from coordinator.compute.proposal import Proposal
from coordinator.core.records import PARTITION_METADATA
from coordinator.storage import target_table
from coordinator.storage.record_encoder import COLUMNS, NAME_COLUMN, SCHEMA
from coordinator.storage.record_log import CLAIM
from tests.conftest import ROOT

PAGE = (ROOT / "docs/design/log_format.md").read_text(encoding="utf-8")
RANGE = re.search(r"`range` is `(struct<.*?)>`", PAGE)
NAME = re.compile(r"`(\w+)`")


def rows(heading):
    """Cells of the table under a heading, without its head."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def names_in(heading):
    return set(NAME.findall(PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]))


KINDS = {NAME.findall(kind)[0]: columns for kind, columns, *_ in rows("Kinds")}


def test_every_kind_is_on_the_page():
    assert set(KINDS) == {*COLUMNS, CLAIM, PARTITION_METADATA}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_kind_has_the_columns_of_the_page(kind):
    assert NAME.findall(KINDS[kind]) == COLUMNS[kind]


@pytest.mark.parametrize("kind", NAME_COLUMN)
def test_a_tombstone_has_the_key_of_the_page(kind):
    keys = re.findall(r"\*\*`(\w+)`\*\*", KINDS[kind])
    assert NAME_COLUMN[kind] in keys
    assert set(keys) <= {"group_id", "member_id", "partition", NAME_COLUMN[kind]}


def test_columns_and_types_are_those_of_the_schema():
    shapes = {"range": f"{RANGE[1]}>", "held": f"{RANGE[1]}, assignment_epoch: int32>"}
    stated = {}
    for column, type_, *_ in rows("Columns"):
        text = type_.strip("`")
        for short, whole in shapes.items():
            text = text.replace(f"<{short}>", f"<{whole}>")
        stated[column.strip("`")] = text
    actual = {field.name: str(field.type).replace("item: ", "") for field in SCHEMA}
    assert stated == actual
    assert list(stated) == SCHEMA.names


def test_targets_and_proposals_have_the_fields_of_the_page():
    assert set(target_table.COLUMNS) <= names_in("Targets")
    assert set(Proposal.__struct_fields__) <= names_in("Proposals")
